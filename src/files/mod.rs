//! File formats: arrays, tables and images between bytes and names, dtypes, shapes.
//!
//! One file per format, one row in [`FORMATS`]. A reader checks everything that a header claims
//! against the length of the file before it announces an array to its [`Sink`]; the elements then
//! pass through in pieces, so no reader holds a whole file. Knows no tensors, no devices and no paths.
//!
//! Invariant: whatever the bytes, reading ends in arrays whose every element came from the file, or
//! in an error of this room; it never panics, and takes memory only for what the file's length covers
//! (compressed files: [`budget`]).

pub mod csv;
pub mod error;
mod image;
pub mod npy;
pub mod npz;
pub mod png;
pub mod pnm;
pub mod raw;
pub mod safetensors;

use crate::array::Dtype;
use crate::base::Result;
use std::io::{Read, Seek, SeekFrom, Write};

/// The most dimensions of an array in a file.
const RANKS: usize = 32;

/// Bytes that can be read from any place.
pub trait Input: Read + Seek {}
impl<T: Read + Seek> Input for T {}

/// A place for bytes.
pub trait Output: Write + Seek {}
impl<T: Write + Seek> Output for T {}

/// What an array in a file is.
///
/// Invariant: `stored` is row-major, its bytes fit `isize`, and `axes` permutes its dimensions.
#[derive(Clone, Debug, PartialEq)]
pub struct Head {
    /// The element type.
    pub dtype: Dtype,
    /// The extents in the order in which the elements stand in the file, outermost first.
    pub stored: Vec<usize>,
    /// For each dimension of the array, the dimension of `stored` that it is.
    pub axes: Vec<usize>,
}

impl Head {
    /// An array whose elements stand row-major.
    ///
    /// # Errors
    /// E0914 when no memory could hold it.
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

    /// The same elements, the array's first dimension running fastest.
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

    /// The bytes of its elements.
    pub fn bytes(&self) -> u64 {
        (self.count() * self.dtype.size()) as u64
    }

    /// The extents of the array.
    pub fn shape(&self) -> Vec<usize> {
        self.axes.iter().map(|&axis| self.stored[axis]).collect()
    }
}

/// The elements of an array, in order, the least byte of each first.
pub trait Elements {
    /// Fills `into` with the next elements; its length is a multiple of an element's, 16 bytes at most.
    ///
    /// # Errors
    /// The file ends too early, or its compressed data is damaged.
    fn fill(&mut self, into: &mut [u8]) -> Result<()>;
}

/// Who takes what a reader finds.
pub trait Sink {
    /// Whether an entry of a file with names is wanted.
    fn wants(&mut self, name: &str) -> bool;
    /// An array; without a name it is all that the file holds. All `head.bytes()` are to be taken,
    /// or none.
    fn array(&mut self, name: Option<&str>, head: &Head, elements: &mut dyn Elements) -> Result<()>;
    /// A column of texts.
    fn texts(&mut self, name: &str, texts: Vec<String>) -> Result<()>;
    /// A text beside the arrays.
    fn note(&mut self, key: &str, text: &str) -> Result<()>;
}

/// How a file is read or written.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whether a table's first line has the names of its columns; `None`: if a field of it is no number.
    pub header: Option<bool>,
    /// What stands between the fields of a table.
    pub delimiter: u8,
    /// The dtype of a table's numbers.
    pub dtype: Option<Dtype>,
}

impl Default for Options {
    fn default() -> Options {
        Options { header: None, delimiter: b',', dtype: None }
    }
}

/// What is to be written.
pub struct Contents<'a> {
    /// In order; exactly one when nothing has a name.
    pub entries: Vec<Entry>,
    /// Whether the entries have names.
    pub named: bool,
    /// Texts beside them.
    pub notes: Vec<(String, String)>,
    /// The elements of the n-th entry, row-major, the least byte of each first.
    pub bytes: &'a mut dyn FnMut(usize) -> Result<Vec<u8>>,
}

/// One array or column that is to be written.
pub struct Entry {
    /// Its name; empty where nothing has one.
    pub name: String,
    /// What it is.
    pub column: Column,
}

/// The contents of an [`Entry`].
pub enum Column {
    /// Numbers in a shape.
    Array {
        /// The element type.
        dtype: Dtype,
        /// The extents.
        shape: Vec<usize>,
    },
    /// Texts.
    Texts(Vec<String>),
}

/// A file format.
pub struct Format {
    /// `npy`; also its first ending.
    pub name: &'static str,
    /// Further endings.
    pub endings: &'static [&'static str],
    /// What such files hold, and how it is read and written.
    pub doc: &'static str,
    /// Reads a file.
    pub read: fn(&mut dyn Input, &Options, &mut dyn Sink) -> Result<()>,
    /// Writes one.
    pub write: fn(&mut dyn Output, Contents<'_>, &Options) -> Result<()>,
}

/// Every format.
pub static FORMATS: &[Format] =
    &[npy::FORMAT, npz::FORMAT, safetensors::FORMAT, csv::FORMAT, png::FORMAT, pnm::FORMAT, raw::FORMAT];

/// The format of a name or an ending, in any case of letters.
///
/// # Errors
/// E0910 for another name.
pub fn format(name: &str) -> Result<&'static Format> {
    let same = |other: &str| other.eq_ignore_ascii_case(name);
    let found = FORMATS.iter().find(|f| same(f.name) || f.endings.iter().any(|e| same(e)));
    found.ok_or_else(|| error::unknown_format(name, FORMATS.iter().map(|f| f.name)))
}

/// What a compressed file of `length` bytes may unpack to.
pub fn budget(length: u64) -> u64 {
    (64 << 20) + length.saturating_mul(100)
}

/// Elements that stand plainly in a stream.
pub(crate) struct Plain<'a> {
    input: &'a mut dyn Read,
    /// The width of what is to be turned around: 1 for nothing.
    swap: usize,
    bools: bool,
}

impl<'a> Plain<'a> {
    /// Elements of a dtype, the least byte of each first, or last where `big`.
    pub(crate) fn new(input: &'a mut dyn Read, dtype: Dtype, big: bool) -> Plain<'a> {
        // Each part of a complex number is turned around for itself.
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

/// Elements that are made piece by piece, as they are asked for: of a row, of a number.
pub(crate) struct Pieces<F> {
    /// Adds the bytes of the next piece.
    next: F,
    piece: Vec<u8>,
    taken: usize,
    begun: bool,
}

impl<F: FnMut(&mut Vec<u8>) -> Result<()>> Pieces<F> {
    pub(crate) fn new(next: F) -> Pieces<F> {
        Pieces { next, piece: Vec::new(), taken: 0, begun: false }
    }

    /// Whether anybody asked for elements: a sink takes all, or none.
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

/// How long an input is; afterwards it stands at its beginning.
pub(crate) fn length(input: &mut dyn Input) -> Result<u64> {
    let length = input.seek(SeekFrom::End(0)).map_err(error::reading)?;
    input.seek(SeekFrom::Start(0)).map_err(error::reading)?;
    Ok(length)
}

/// Refuses data that is shorter or longer than its header says.
pub(crate) fn exactly(wanted: u64, found: u64) -> Result<()> {
    match found.checked_sub(wanted) {
        Some(0) => Ok(()),
        Some(more) => Err(error::trailing(more)),
        None => Err(error::short(wanted, found)),
    }
}

/// The one array that a format takes.
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
        _ => Err(error::contents(format, holds, "texts")),
    }
}

#[cfg(test)]
mod tests;
