//! `.npy`: one array in NumPy's format. Versions 1.0 to 3.0, either byte order, either element order.
//!
//! The header is a Python dict literal with three entries. A small parser reads it: there is no nesting, so
//! the depth is bounded, and only those three entries are accepted.

use super::{
    Contents, Elements, Format, Head, Input, Options, Output, Plain, Sink, error, exactly, length, only_array,
};
use crate::array::Dtype;
use crate::base::Result;
use std::io::{Read, Write};

/// This format's entry.
pub const FORMAT: Format = Format {
    name: "npy",
    endings: &[],
    doc: "One NumPy array: a tensor. Fortran order becomes the strides of the tensor.",
    read,
    write,
};

const MAGIC: &[u8; 6] = b"\x93NUMPY";
/// Maximum header size. NumPy itself rejects more than 10,000 bytes.
const HEADER: usize = 64 << 10;

/// The contents of a header.
pub(super) struct Header {
    pub(super) head: Head,
    pub(super) big: bool,
}

fn read(input: &mut dyn Input, _: &Options, sink: &mut dyn Sink) -> Result<()> {
    let length = length(input)?;
    let mut input = input;
    let header = header(&mut input, length)?;
    let mut elements = Plain::new(&mut input, header.head.dtype, header.big);
    sink.array(None, &header.head, &mut elements as &mut dyn Elements)
}

/// The header of an array; `length` is the number of bytes of both.
pub(super) fn header(input: &mut dyn Read, length: u64) -> Result<Header> {
    let mut start = [0; 8];
    input.read_exact(&mut start).map_err(|_| error::malformed("npy", "it is too short for a header"))?;
    if &start[..6] != MAGIC {
        return Err(error::malformed("npy", "it does not begin with NumPy's signature"));
    }
    let width = match start[6] {
        1 => 2,
        2 | 3 => 4,
        version => return Err(error::malformed("npy", format!("its version {version} is unknown"))),
    };
    let mut size = [0; 4];
    input.read_exact(&mut size[..width]).map_err(|_| error::cut("the header"))?;
    let size = u32::from_le_bytes(size) as usize;
    if size > HEADER {
        return Err(error::too_large(format!("a header of {size} bytes")));
    }
    let mut text = vec![0; size];
    input.read_exact(&mut text).map_err(|_| error::cut("the header"))?;
    let text = std::str::from_utf8(&text).map_err(|_| error::malformed("npy", "its header is not text"))?;
    let (head, big) = Literal { rest: text }.header()?;
    let before = (8 + width + size) as u64;
    exactly(before.saturating_add(head.bytes()), length)?;
    Ok(Header { head, big })
}

/// The unparsed rest of a header.
struct Literal<'a> {
    rest: &'a str,
}

impl<'a> Literal<'a> {
    /// `{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }`
    fn header(mut self) -> Result<(Head, bool)> {
        let (mut descr, mut fortran, mut shape) = (None, None, None);
        self.expect("{")?;
        while !self.eat("}") {
            let key = self.text()?;
            self.expect(":")?;
            let again = match key {
                "descr" => descr.replace(self.descr()?).is_some(),
                "fortran_order" => fortran.replace(self.truth()?).is_some(),
                "shape" => shape.replace(self.shape()?).is_some(),
                _ => {
                    return Err(error::malformed("npy", "its header has an unknown entry"));
                }
            };
            if again {
                return Err(error::duplicate(key));
            }
            if !self.eat(",") {
                self.expect("}")?;
                break;
            }
        }
        if !self.rest.trim_ascii().is_empty() {
            return Err(error::malformed("npy", "its header continues after `}`"));
        }
        let (Some(descr), Some(fortran), Some(shape)) = (descr, fortran, shape) else {
            return Err(error::malformed("npy", "its header lacks `descr`, `fortran_order` or `shape`"));
        };
        let (dtype, big) = dtype_of(descr)?;
        let head = Head::new(dtype, shape)?;
        Ok((if fortran { head.column_major() } else { head }, big))
    }

    fn eat(&mut self, token: &str) -> bool {
        self.rest = self.rest.trim_ascii_start();
        let after = self.rest.strip_prefix(token);
        self.rest = after.unwrap_or(self.rest);
        after.is_some()
    }

    fn expect(&mut self, token: &str) -> Result<()> {
        match self.eat(token) {
            true => Ok(()),
            false => Err(error::malformed("npy", format!("`{token}` is missing in its header"))),
        }
    }

    /// A string in single or double quotes, without escapes.
    fn text(&mut self) -> Result<&'a str> {
        let quote = if self.eat("'") { '\'' } else { self.expect("\"").map(|()| '"')? };
        let parts = self.rest.split_once(quote);
        let (text, rest) =
            parts.ok_or_else(|| error::malformed("npy", "a string in its header is never closed"))?;
        self.rest = rest;
        Ok(text)
    }

    fn descr(&mut self) -> Result<&'a str> {
        match self.eat("[") {
            true => Err(error::foreign_dtype("", "a structure of several fields")),
            false => self.text(),
        }
    }

    fn truth(&mut self) -> Result<bool> {
        if self.eat("True") {
            return Ok(true);
        }
        self.expect("False").map(|()| false)
    }

    /// `(3, 4)`, `(3,)`, `()`
    fn shape(&mut self) -> Result<Vec<usize>> {
        let mut shape = Vec::new();
        self.expect("(")?;
        while !self.eat(")") {
            self.rest = self.rest.trim_ascii_start();
            let digits = self.rest.bytes().take_while(u8::is_ascii_digit).count();
            let (number, rest) = self.rest.split_at(digits);
            if number.is_empty() {
                return Err(error::malformed("npy", "its shape is not a tuple of ints"));
            }
            let extent =
                number.parse().map_err(|_| error::too_large(format!("an extent of {digits} digits")))?;
            shape.push(extent);
            self.rest = rest;
            // Python 2's long ints.
            self.eat("L");
            if !self.eat(",") {
                self.expect(")")?;
                break;
            }
        }
        Ok(shape)
    }
}

/// The dtype of `<f4`, and whether it is big-endian.
fn dtype_of(descr: &str) -> Result<(Dtype, bool)> {
    let (order, code) = match descr.as_bytes() {
        [b'<' | b'|', ..] => (false, &descr[1..]),
        [b'=', ..] => (cfg!(target_endian = "big"), &descr[1..]),
        [b'>', ..] => (true, &descr[1..]),
        _ => (false, descr),
    };
    if code.starts_with('O') {
        return Err(error::pickled());
    }
    let found = Dtype::ALL.into_iter().find(|dtype| dtype.npy() == Some(code));
    found.map(|dtype| (dtype, order)).ok_or_else(|| error::foreign_dtype("", descr))
}

fn write(output: &mut dyn Output, contents: Contents<'_>, _: &Options) -> Result<()> {
    let (dtype, shape) = only_array(&contents, "npy", "one tensor")?;
    let bytes = (contents.bytes)(0)?;
    let mut output = output;
    put(&mut output, dtype, &shape, bytes)
}

/// Writes an array.
pub(super) fn put(output: &mut dyn Write, dtype: Dtype, shape: &[usize], bytes: Vec<u8>) -> Result<()> {
    let Some(code) = dtype.npy() else {
        return Err(error::cannot_hold("npy", dtype, "write `.to(f32)`, or save it as `.safetensors`"));
    };
    let order = if dtype.size() == 1 { '|' } else { '<' };
    let mut extents: String = shape.iter().map(|n| format!("{n}, ")).collect();
    // As NumPy: `(3,)`, `(3, 4)`.
    extents.truncate(extents.len().saturating_sub(if shape.len() == 1 { 1 } else { 2 }));
    let mut text = format!("{{'descr': '{order}{code}', 'fortran_order': False, 'shape': ({extents}), }}");
    let padded = (10 + text.len() + 1).next_multiple_of(64);
    text.extend(std::iter::repeat_n(' ', padded - 11 - text.len()));
    text.push('\n');
    let size = (text.len() as u16).to_le_bytes();
    let parts: [&[u8]; 5] = [MAGIC, &[1, 0], &size, text.as_bytes(), &bytes];
    parts.into_iter().try_for_each(|part| output.write_all(part)).map_err(error::reading)
}
