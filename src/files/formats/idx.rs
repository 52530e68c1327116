//! `.idx`: one array, as the MNIST digits are published. May be compressed by gzip.
//!
//! Source: <http://yann.lecun.com/exdb/mnist/>. Two zero bytes, the type, the number of dimensions, the extents and the
//! elements, big-endian.

use super::{
    Contents, Elements, Format, Head, Input, Options, Output, Plain, Sink, budget, error, exactly, length,
    only_array,
};
use crate::array::Dtype;
use crate::base::Result;
use flate2::bufread::GzDecoder;
use std::io::{self, BufReader, ErrorKind, Read, SeekFrom};

/// This format's entry.
pub const FORMAT: Format = Format {
    name: "idx",
    endings: &["idx1-ubyte", "idx3-ubyte"],
    doc: "One array of bytes or numbers, as the MNIST digits are published, also compressed by gzip: a tensor.",
    read,
    write,
};

/// Types by their number in the file.
const DTYPES: [(u8, Dtype); 6] = [
    (0x08, Dtype::U8),
    (0x09, Dtype::I8),
    (0x0b, Dtype::I16),
    (0x0c, Dtype::I32),
    (0x0d, Dtype::F32),
    (0x0e, Dtype::F64),
];

fn read(input: &mut dyn Input, _: &Options, sink: &mut dyn Sink) -> Result<()> {
    let length = length(input)?;
    let mut magic = [0; 2];
    input.read_exact(&mut magic).map_err(error::reading)?;
    input.seek(SeekFrom::Start(0)).map_err(error::reading)?;
    if magic != [0x1f, 0x8b] {
        let (head, start) = header(input)?;
        exactly(start.saturating_add(head.bytes()), length)?;
        let mut input = BufReader::new(input);
        return elements(&mut input, &head, sink).map(drop);
    }
    let mut input = Packed(GzDecoder::new(BufReader::new(input)));
    let (head, _) = header(&mut input)?;
    if head.bytes() > budget(length) {
        return Err(error::expands(head.bytes(), length));
    }
    if !elements(&mut input, &head, sink)? && head.bytes() > 0 {
        return Ok(());
    }
    // The checksum is verified at the end.
    if input.read(&mut [0]).map_err(error::reading)? > 0 {
        return Err(error::trailing(1));
    }
    match input.0.into_inner().read(&mut [0]).map_err(error::reading)? {
        0 => Ok(()),
        _ => Err(error::trailing(1)),
    }
}

/// A gzip stream: its errors, except an early end, are reported as damaged data.
struct Packed<R>(R);

impl<R: Read> Read for Packed<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(into).map_err(|e| match e.kind() {
            ErrorKind::UnexpectedEof | ErrorKind::Interrupted => e,
            _ => io::Error::new(ErrorKind::InvalidData, e),
        })
    }
}

/// Elements, and whether a sink has taken them.
struct Taken<'a>(Plain<'a>, bool);

impl Elements for Taken<'_> {
    fn fill(&mut self, into: &mut [u8]) -> Result<()> {
        self.1 = true;
        self.0.fill(into)
    }
}

/// The description of the array, and the number of bytes before its elements.
fn header(input: &mut dyn Read) -> Result<(Head, u64)> {
    let mut start = [0; 4];
    input.read_exact(&mut start).map_err(error::reading)?;
    let [0, 0, kind, rank] = start else {
        return Err(error::malformed("idx", "it does not begin with two zero bytes"));
    };
    let Some(&(_, dtype)) = DTYPES.iter().find(|(number, _)| *number == kind) else {
        return Err(error::malformed("idx", format!("{kind} is not an element type")));
    };
    let mut shape = Vec::new();
    for _ in 0..rank {
        let mut extent = [0; 4];
        input.read_exact(&mut extent).map_err(error::reading)?;
        shape.push(u32::from_be_bytes(extent) as usize);
    }
    Ok((Head::new(dtype, shape)?, 4 + 4 * u64::from(rank)))
}

/// Hands the elements to the sink, which takes all or none of them. Returns whether it took them.
fn elements(input: &mut dyn Read, head: &Head, sink: &mut dyn Sink) -> Result<bool> {
    let mut elements = Taken(Plain::new(input, head.dtype, true), false);
    sink.array(None, head, &mut elements as &mut dyn Elements)?;
    Ok(elements.1)
}

fn write(output: &mut dyn Output, contents: Contents<'_>, _: &Options) -> Result<()> {
    let (dtype, shape) = only_array(&contents, "idx", "one tensor")?;
    let Some(&(number, _)) = DTYPES.iter().find(|(_, known)| *known == dtype) else {
        return Err(error::cannot_hold("idx", dtype, "convert first: `x.to(i32)` or `x.to(f32)`"));
    };
    let rank =
        u8::try_from(shape.len()).map_err(|_| error::too_large(format!("{} dimensions", shape.len())))?;
    let mut head = vec![0, 0, number, rank];
    for extent in shape {
        let extent = u32::try_from(extent).map_err(|_| error::too_large(format!("an extent of {extent}")))?;
        head.extend(extent.to_be_bytes());
    }
    let mut bytes = (contents.bytes)(0)?;
    bytes.chunks_exact_mut(dtype.size()).for_each(<[u8]>::reverse);
    output.write_all(&head).and_then(|()| output.write_all(&bytes)).map_err(error::reading)
}
