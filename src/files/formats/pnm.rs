//! `.ppm` and `.pgm`: an uncompressed image, binary (P5, P6) or text (P2, P3).
//!
//! Source: netpbm's descriptions of ppm and pgm. A file holds one image.

use super::image::{head, pixels};
use super::{
    Contents, Elements, Format, Input, Options, Output, Pieces, Plain, Sink, error, exactly, length,
};
use crate::array::Dtype;
use crate::base::Result;
use std::io::{BufReader, Read};

/// This format's entry.
pub const FORMAT: Format = Format {
    name: "ppm",
    endings: &["pgm", "pnm"],
    doc: "An image: a u8 tensor `[channels, height, width]`, with 3 channels or 1; i32 where the greatest level is \
          over 255. Levels are kept unchanged.",
    read,
    write,
};

/// Maximum size of a header including comments, and of a word.
const HEADER: u64 = 64 << 10;

/// The words of a header, and the current offset.
struct Words<R> {
    input: R,
    at: u64,
}

impl<R: Read> Words<R> {
    fn byte(&mut self) -> Result<Option<u8>> {
        let mut byte = [0];
        match self.input.read(&mut byte).map_err(error::reading)? {
            0 => Ok(None),
            _ => {
                self.at += 1;
                Ok(Some(byte[0]))
            }
        }
    }

    /// The next number and the one blank after it. Comments run from `#` to the end of the line.
    fn number(&mut self, limit: u64) -> Result<u64> {
        let mut value: Option<u64> = None;
        loop {
            if self.at > limit {
                return Err(error::too_large("a header over 64 KiB"));
            }
            match self.byte()? {
                Some(digit @ b'0'..=b'9') => {
                    let next = value
                        .unwrap_or(0)
                        .checked_mul(10)
                        .and_then(|v| v.checked_add(u64::from(digit - b'0')));
                    value = Some(next.ok_or_else(|| error::too_large("a number over 64 bits"))?);
                }
                Some(b'#') if value.is_none() => while !matches!(self.byte()?, Some(b'\n') | None) {},
                Some(b' ' | b'\t' | b'\r' | b'\n') => {
                    if let Some(value) = value {
                        return Ok(value);
                    }
                }
                Some(_) => return Err(error::malformed("ppm", "a number was expected")),
                // An error after a digit too, because further digits may be missing.
                None => return Err(error::cut("a number")),
            }
        }
    }
}

fn read(input: &mut dyn Input, _: &Options, sink: &mut dyn Sink) -> Result<()> {
    let length = length(input)?;
    let mut words = Words { input: BufReader::new(input), at: 0 };
    let (channels, text) = match (words.byte()?, words.byte()?) {
        (Some(b'P'), Some(b'2')) => (1, true),
        (Some(b'P'), Some(b'3')) => (3, true),
        (Some(b'P'), Some(b'5')) => (1, false),
        (Some(b'P'), Some(b'6')) => (3, false),
        _ => return Err(error::malformed("ppm", "it does not begin with P2, P3, P5 or P6")),
    };
    let mut extent = || -> Result<usize> {
        let number = words.number(HEADER)?;
        usize::try_from(number).map_err(|_| error::too_large(format!("an extent of {number}")))
    };
    let (width, height, most) = (extent()?, extent()?, extent()?);
    if most == 0 || most > 65535 {
        return Err(error::malformed("ppm", format!("its maximum level is {most}, not 1 to 65535")));
    }
    let head = head(if most > 255 { Dtype::I32 } else { Dtype::U8 }, height, width, channels)?;
    let wide = if most > 255 { 2 } else { 1 };
    let count = head.count() as u64;
    let left = length - words.at.min(length);
    if text {
        // Each sample takes at least a digit and a blank.
        if left < count.saturating_mul(2) {
            return Err(error::short(words.at.saturating_add(count.saturating_mul(2)), length));
        }
        let mut levels = Pieces::new(|bytes: &mut Vec<u8>| {
            let level = words.number(u64::MAX)?;
            if level > most as u64 {
                return Err(error::malformed("ppm", format!("a level is {level}, above the maximum {most}")));
            }
            match head.dtype {
                Dtype::U8 => bytes.push(level as u8),
                _ => bytes.extend((level as i32).to_ne_bytes()),
            }
            Ok(())
        });
        sink.array(None, &head, &mut levels)?;
        if !levels.begun() && count > 0 {
            return Ok(());
        }
        while let Some(byte) = words.byte()? {
            if !byte.is_ascii_whitespace() {
                return Err(error::trailing(length - words.at + 1));
            }
        }
        return Ok(());
    }
    exactly(count.saturating_mul(wide), left)?;
    match wide {
        1 => {
            sink.array(None, &head, &mut Plain::new(&mut words.input, Dtype::U8, false) as &mut dyn Elements)
        }
        _ => sink.array(None, &head, &mut Wide(&mut words.input) as &mut dyn Elements),
    }
}

/// Two-byte big-endian levels, as i32.
struct Wide<'a>(&'a mut dyn Read);

impl Elements for Wide<'_> {
    fn fill(&mut self, into: &mut [u8]) -> Result<()> {
        for four in into.chunks_exact_mut(4) {
            let mut two = [0; 2];
            self.0.read_exact(&mut two).map_err(error::reading)?;
            four.copy_from_slice(&i32::from(u16::from_be_bytes(two)).to_ne_bytes());
        }
        Ok(())
    }
}

fn write(output: &mut dyn Output, contents: Contents<'_>, _: &Options) -> Result<()> {
    let image = pixels(contents, "ppm", 3)?;
    let kind = match image.channels {
        1 => 5,
        3 => 6,
        n => return Err(error::contents("ppm", "images of 1 or 3 channels", &format!("one of {n}"))),
    };
    let head = format!("P{kind}\n{} {}\n255\n", image.width, image.height);
    output.write_all(head.as_bytes()).and_then(|()| output.write_all(&image.bytes)).map_err(error::reading)
}
