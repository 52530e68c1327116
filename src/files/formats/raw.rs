//! `.raw`: bytes without a header, one u8 array.

use super::{
    Contents, Elements, Format, Head, Input, Options, Output, Plain, Sink, error, length, only_array,
};
use crate::array::Dtype;
use crate::base::Result;

/// This format's entry.
pub const FORMAT: Format = Format {
    name: "raw",
    endings: &[],
    doc: "The bytes of any file: a u8 tensor of one dimension. Saving writes the elements of any tensor, row-major.",
    read,
    write,
};

fn read(input: &mut dyn Input, _: &Options, sink: &mut dyn Sink) -> Result<()> {
    let length = length(input)?;
    let extent = usize::try_from(length).map_err(|_| error::too_large("the file itself"))?;
    let head = Head::new(Dtype::U8, vec![extent])?;
    let mut input = input;
    sink.array(None, &head, &mut Plain::new(&mut input, Dtype::U8, false) as &mut dyn Elements)
}

fn write(output: &mut dyn Output, contents: Contents<'_>, _: &Options) -> Result<()> {
    only_array(&contents, "raw", "the elements of one tensor")?;
    let bytes = (contents.bytes)(0)?;
    output.write_all(&bytes).map_err(error::reading)
}
