//! File formats: convert bytes to and from arrays, tables and images with names, dtypes and shapes.
//!
//! One file per format, one row in [`FORMATS`]. A reader checks all claims of a header against the length of
//! the file before it announces an array to its [`Sink`]. The elements then pass through in pieces, so no
//! reader holds a whole file. Independent of tensors, devices and paths.
//!
//! Invariant: for any bytes, reading ends with arrays whose elements all come from the file, or with an error
//! of this module. It never panics, and allocates only as much as the file's length justifies (compressed
//! files: [`budget`]).

pub mod csv;
pub mod idx;
mod image;
pub mod npy;
pub mod npz;
pub mod png;
pub mod pnm;
pub mod raw;
pub mod safetensors;

use super::error;
use crate::array::Dtype;
use crate::base::Result;
use std::io::{Read, Seek, SeekFrom, Write};

/// Maximum number of dimensions of an array in a file.
const RANKS: usize = 32;

/// A seekable input.
pub trait Input: Read + Seek {}
impl<T: Read + Seek> Input for T {}

/// A seekable output.
pub trait Output: Write + Seek {}
impl<T: Write + Seek> Output for T {}

/// The description of an array in a file.
///
/// Invariant: `stored` is row-major, its bytes fit `isize`, and `axes` permutes its dimensions.
#[derive(Clone, Debug, PartialEq)]
pub struct Head {
    /// The element type.
    pub dtype: Dtype,
    /// The extents in storage order, outermost first.
    pub stored: Vec<usize>,
    /// For each dimension of the array, the corresponding dimension of `stored`.
    pub axes: Vec<usize>,
}

impl Head {
    /// An array in row-major order.
    ///
    /// # Errors
    /// E0914 when it is too large for any memory.
    pub fn new(dtype: Dtype, shape: Vec<usize>) -> Result<Head> {
        if shape.len() > RANKS {
            return Err(error::too_large(format!("{} dimensions", shape.len())));
        }
        let count = shape.iter().try_fold(1usize, |n, &extent| n.checked_mul(extent.max(1)));
        let bytes = count.and_then(|n| n.checked_mul(dtype.size())).and_then(|n| isize::try_from(n).ok());
        match bytes {
            Some(_) => Ok(Head { dtype, axes: (0..shape.len()).collect(), stored: shape }),
            None => Err(error::too_large(format!("an array of shape {shape:?}"))),
        }
    }

    /// The same elements with the array's first dimension varying fastest.
    #[must_use]
    pub fn column_major(mut self) -> Head {
        self.stored.reverse();
        self.axes.reverse();
        self
    }

    /// The number of elements.
    pub fn count(&self) -> usize {
        self.stored.iter().product()
    }

    /// Size of the elements in bytes.
    pub fn bytes(&self) -> u64 {
        (self.count() * self.dtype.size()) as u64
    }

    /// The extents of the array.
    pub fn shape(&self) -> Vec<usize> {
        self.axes.iter().map(|&axis| self.stored[axis]).collect()
    }
}

/// The elements of an array in order, little-endian.
pub trait Elements {
    /// Fills `into` with the next elements. Its length is a multiple of the element size, which is at most 16
    /// bytes.
    ///
    /// # Errors
    /// The file ends too early, or its compressed data is damaged.
    fn fill(&mut self, into: &mut [u8]) -> Result<()>;
}

/// Receives the contents that a reader finds.
pub trait Sink {
    /// Returns whether a named entry is wanted.
    fn wants(&mut self, name: &str) -> bool;
    /// Receives an array; one without a name is the file's only content. The sink takes all `head.bytes()`
    /// bytes or none.
    fn array(&mut self, name: Option<&str>, head: &Head, elements: &mut dyn Elements) -> Result<()>;
    /// Receives a column of strings.
    fn texts(&mut self, name: &str, texts: Vec<String>) -> Result<()>;
    /// Receives a string stored next to the arrays.
    fn note(&mut self, key: &str, text: &str) -> Result<()>;
    /// Called before the reader allocates bytes that it keeps until it ends, apart from a few buffers: lists of names,
    /// rows of a table, an image that is not decoded row by row.
    ///
    /// # Errors
    /// Limits. With 0 bytes, only checks whether one has been reached.
    fn hold(&mut self, bytes: usize) -> Result<()>;
}

/// Options for reading or writing.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whether the first line of a table holds column names. `None`: it does if one of its fields is not a
    /// number.
    pub header: Option<bool>,
    /// The separator between the fields of a table.
    pub delimiter: u8,
    /// The dtype of a table's numbers.
    pub dtype: Option<Dtype>,
}

impl Default for Options {
    fn default() -> Options {
        Options { header: None, delimiter: b',', dtype: None }
    }
}

/// The contents to write.
pub struct Contents<'a> {
    /// In order; exactly one if unnamed.
    pub entries: Vec<Entry>,
    /// Whether the entries have names.
    pub named: bool,
    /// Strings stored next to the entries.
    pub notes: Vec<(String, String)>,
    /// The elements of the n-th entry, row-major, little-endian.
    pub bytes: &'a mut dyn FnMut(usize) -> Result<Vec<u8>>,
}

/// One array or column to write.
pub struct Entry {
    /// Its name; empty if unnamed.
    pub name: String,
    /// Its contents.
    pub column: Column,
}

/// The contents of an [`Entry`].
pub enum Column {
    /// Numbers with a shape.
    Array {
        /// The element type.
        dtype: Dtype,
        /// The extents.
        shape: Vec<usize>,
    },
    /// Strings.
    Texts(Vec<String>),
}

/// A file format.
pub struct Format {
    /// `npy`; also its first extension.
    pub name: &'static str,
    /// Further extensions.
    pub endings: &'static [&'static str],
    /// The contents of such files, and how they are read and written.
    pub doc: &'static str,
    /// Reads a file.
    pub read: fn(&mut dyn Input, &Options, &mut dyn Sink) -> Result<()>,
    /// Writes a file.
    pub write: fn(&mut dyn Output, Contents<'_>, &Options) -> Result<()>,
}

/// All formats.
pub static FORMATS: &[Format] = &[
    npy::FORMAT,
    npz::FORMAT,
    safetensors::FORMAT,
    csv::FORMAT,
    png::FORMAT,
    pnm::FORMAT,
    idx::FORMAT,
    raw::FORMAT,
];

/// The format with a name or extension, ignoring case.
///
/// # Errors
/// E0910 for an unknown name.
pub fn format(name: &str) -> Result<&'static Format> {
    let same = |other: &str| other.eq_ignore_ascii_case(name);
    let found = FORMATS.iter().find(|f| same(f.name) || f.endings.iter().any(|e| same(e)));
    found.ok_or_else(|| error::unknown_format(name, FORMATS.iter().map(|f| f.name)))
}

/// The number of bytes that a compressed file of `length` bytes may expand to.
pub fn budget(length: u64) -> u64 {
    (64 << 20) + length.saturating_mul(100)
}

/// Uncompressed elements in a stream.
pub(crate) struct Plain<'a> {
    input: &'a mut dyn Read,
    /// The width of the byte groups to reverse; 1 for none.
    swap: usize,
    bools: bool,
}

impl<'a> Plain<'a> {
    /// Elements of a dtype; little-endian, or big-endian if `big`.
    pub(crate) fn new(input: &'a mut dyn Read, dtype: Dtype, big: bool) -> Plain<'a> {
        // The parts of a complex number are reversed separately.
        let width = if dtype.is_complex() { dtype.size() / 2 } else { dtype.size() };
        Plain { input, swap: if big { width } else { 1 }, bools: dtype == Dtype::Bool }
    }
}

impl Elements for Plain<'_> {
    fn fill(&mut self, into: &mut [u8]) -> Result<()> {
        self.input.read_exact(into).map_err(error::reading)?;
        if self.swap > 1 {
            into.chunks_exact_mut(self.swap).for_each(<[u8]>::reverse);
        }
        if self.bools {
            into.iter_mut().for_each(|byte| *byte = u8::from(*byte != 0));
        }
        Ok(())
    }
}

/// Elements generated on demand, piece by piece (a row or a number at a time).
pub(crate) struct Pieces<F> {
    /// Appends the bytes of the next piece.
    next: F,
    piece: Vec<u8>,
    taken: usize,
    begun: bool,
}

impl<F: FnMut(&mut Vec<u8>) -> Result<()>> Pieces<F> {
    pub(crate) fn new(next: F) -> Pieces<F> {
        Pieces { next, piece: Vec::new(), taken: 0, begun: false }
    }

    /// Returns whether any elements were requested: a sink takes all or none.
    pub(crate) fn begun(&self) -> bool {
        self.begun
    }
}

impl<F: FnMut(&mut Vec<u8>) -> Result<()>> Elements for Pieces<F> {
    fn fill(&mut self, mut into: &mut [u8]) -> Result<()> {
        self.begun = true;
        while !into.is_empty() {
            if self.taken == self.piece.len() {
                self.piece.clear();
                self.taken = 0;
                (self.next)(&mut self.piece)?;
                if self.piece.is_empty() {
                    return Err(error::cut("its data"));
                }
            }
            let count = into.len().min(self.piece.len() - self.taken);
            let (now, later) = into.split_at_mut(count);
            now.copy_from_slice(&self.piece[self.taken..self.taken + count]);
            (into, self.taken) = (later, self.taken + count);
        }
        Ok(())
    }
}

/// The length of an input; leaves it at its start.
pub(crate) fn length(input: &mut dyn Input) -> Result<u64> {
    let length = input.seek(SeekFrom::End(0)).map_err(error::reading)?;
    input.seek(SeekFrom::Start(0)).map_err(error::reading)?;
    Ok(length)
}

/// Rejects data that is shorter or longer than its header says.
pub(crate) fn exactly(wanted: u64, found: u64) -> Result<()> {
    match found.checked_sub(wanted) {
        Some(0) => Ok(()),
        Some(more) => Err(error::trailing(more)),
        None => Err(error::short(wanted, found)),
    }
}

/// The single array that a format accepts.
pub(crate) fn only_array(contents: &Contents<'_>, format: &str, holds: &str) -> Result<(Dtype, Vec<usize>)> {
    match contents.entries.as_slice() {
        [Entry { column: Column::Array { dtype, shape }, .. }] if !contents.named => {
            Ok((*dtype, shape.clone()))
        }
        entries if contents.named => Err(error::contents(
            format,
            holds,
            &match entries.len() {
                1 => "1 entry with a name".to_string(),
                n => format!("{n} entries with names"),
            },
        )),
        _ => Err(error::contents(format, holds, "strings")),
    }
}

#[cfg(test)]
mod tests;
