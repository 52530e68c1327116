//! Shared code of image formats. Files store pixels as `[height, width, channels]`; the array is `[channels,
//! height, width]`, as in torchvision.

use super::{Contents, Elements, Head, error, only_array};
use crate::array::{Dtype, Scalar};
use crate::base::Result;

/// The head of an image.
pub(super) fn head(dtype: Dtype, height: usize, width: usize, channels: usize) -> Result<Head> {
    let head = Head::new(dtype, vec![height, width, channels])?;
    Ok(Head { axes: vec![2, 0, 1], ..head })
}

/// Elements in memory.
pub(super) struct Unpacked<'a>(pub(super) &'a [u8]);

impl Elements for Unpacked<'_> {
    fn fill(&mut self, into: &mut [u8]) -> Result<()> {
        let (now, rest) = self.0.split_at_checked(into.len()).ok_or_else(|| error::cut("its data"))?;
        into.copy_from_slice(now);
        self.0 = rest;
        Ok(())
    }
}

/// An image to write.
pub(super) struct Pixels {
    pub(super) height: usize,
    pub(super) width: usize,
    pub(super) channels: usize,
    /// `[height, width, channels]`
    pub(super) bytes: Vec<u8>,
}

/// The pixels of a u8 or float array `[channels, height, width]` or `[height, width]`; floats are
/// scaled from 0..1 as `torchvision.utils.save_image` does.
pub(super) fn pixels(contents: Contents<'_>, format: &str, most: usize) -> Result<Pixels> {
    const HOLDS: &str = "an image: a u8 tensor [channels, height, width], or floats from 0 to 1";
    let (dtype, shape) = only_array(&contents, format, HOLDS)?;
    let (channels, height, width) = match *shape.as_slice() {
        [height, width] => (1, height, width),
        [channels, height, width] => (channels, height, width),
        _ => return Err(error::contents(format, HOLDS, &format!("a tensor of shape {shape:?}"))),
    };
    if channels == 0 || channels > most || height == 0 || width == 0 {
        return Err(error::contents(format, HOLDS, &format!("a tensor of shape {shape:?}")));
    }
    let given = (contents.bytes)(0)?;
    let level = |value: f64| (value * 255.0 + 0.5).clamp(0.0, 255.0) as u8;
    let flat: Vec<u8> = match dtype {
        Dtype::U8 => given,
        dtype if dtype.accumulator() == Dtype::F32 => {
            given.chunks_exact(dtype.size()).map(|b| level(Scalar::decode(b, dtype).as_f64())).collect()
        }
        _ => return Err(error::cannot_hold(format, dtype, "write `.to(u8)`")),
    };
    let plane = height * width;
    let mut bytes = Vec::with_capacity(flat.len());
    for at in 0..plane {
        bytes.extend((0..channels).map(|c| flat[c * plane + at]));
    }
    Ok(Pixels { height, width, channels, bytes })
}
