//! `.png`: an image. Palettes and depths below eight bits are unpacked to u8; sixteen bits become i32.

use super::image::{head, pixels};
use super::{Contents, Format, Input, Options, Output, Pieces, Sink, budget, error, length};
use crate::array::Dtype;
use crate::base::{Error, Result};
use png::{BitDepth, ColorType, Decoder, DecodingError, Encoder, EncodingError, Limits, Transformations};
use std::io::{BufReader, BufWriter, SeekFrom, Write};

/// This format's entry.
pub const FORMAT: Format = Format {
    name: "png",
    endings: &[],
    doc: "An image: a u8 tensor `[channels, height, width]` (gray 1, gray and alpha 2, RGB 3, RGBA 4), as \
          `torchvision.io.read_image` gives it; i32 for 16 bits per channel. Of an animation, the first \
          image.",
    read,
    write,
};

fn read(input: &mut dyn Input, _: &Options, sink: &mut dyn Sink) -> Result<()> {
    let length = length(input)?;
    check_chunks(input, length)?;
    let limit = usize::try_from(budget(length)).unwrap_or(usize::MAX);
    let mut decoder = Decoder::new_with_limits(BufReader::new(input), Limits { bytes: limit });
    decoder.set_transformations(Transformations::EXPAND);
    decoder.set_ignore_text_chunk(true);
    decoder.set_ignore_iccp_chunk(true);
    let mut reader = decoder.read_info().map_err(|e| failed(e, length))?;
    let size = reader.output_buffer_size().ok_or_else(|| error::too_large("an image"))?;
    if size > limit {
        return Err(error::expands(size as u64, length));
    }
    let info = reader.info();
    let (height, width) = (info.height as usize, info.width as usize);
    let whole = info.interlaced || info.is_animated();
    let (color, depth) = reader.output_color_type();
    let dtype = if depth == BitDepth::Sixteen { Dtype::I32 } else { Dtype::U8 };
    let mut head = head(dtype, height, width, color.samples())?;
    if whole {
        // The image, and its elements.
        let wide = if dtype == Dtype::I32 { 2 } else { 1 };
        sink.hold(size.saturating_mul(1 + 2 * wide))?;
        let mut bytes = vec![0; size];
        let info = reader.next_frame(&mut bytes).map_err(|e| failed(e, length))?;
        bytes.truncate(info.buffer_size());
        head.stored[..2].copy_from_slice(&[info.height as usize, info.width as usize]);
        let mut all = Pieces::new(|row: &mut Vec<u8>| {
            levels(&std::mem::take(&mut bytes), dtype, row);
            Ok(())
        });
        return sink.array(None, &head, &mut all);
    }
    let mut rows = Pieces::new(|row: &mut Vec<u8>| {
        match reader.next_row().map_err(|e| failed(e, length))? {
            Some(next) => levels(next.data(), dtype, row),
            None => return Err(error::cut("the image")),
        }
        Ok(())
    });
    sink.array(None, &head, &mut rows)?;
    match rows.begun() {
        true => reader.finish().map_err(|e| failed(e, length)),
        false => Ok(()),
    }
}

/// Appends levels as elements.
fn levels(bytes: &[u8], dtype: Dtype, into: &mut Vec<u8>) {
    match dtype {
        Dtype::I32 => into.extend(
            bytes.chunks_exact(2).flat_map(|b| i32::from(u16::from_be_bytes([b[0], b[1]])).to_ne_bytes()),
        ),
        _ => into.extend_from_slice(bytes),
    }
}

/// The file must be a signature and chunks that end with `IEND`, with nothing after it.
fn check_chunks(input: &mut dyn Input, length: u64) -> Result<()> {
    let mut mark = [0; 8];
    input.read_exact(&mut mark).map_err(|_| error::malformed("png", "it is too short"))?;
    if mark != *b"\x89PNG\r\n\x1a\n" {
        return Err(error::malformed("png", "it does not begin with the PNG signature"));
    }
    let mut at = 8u64;
    loop {
        let mut chunk = [0; 8];
        input.seek(SeekFrom::Start(at)).map_err(error::reading)?;
        input.read_exact(&mut chunk).map_err(error::reading)?;
        let size = u32::from_be_bytes([chunk[0], chunk[1], chunk[2], chunk[3]]);
        at += 12 + u64::from(size);
        if at > length {
            return Err(error::short(at, length));
        }
        if &chunk[4..] == b"IEND" {
            break;
        }
    }
    super::exactly(at, length)?;
    input.seek(SeekFrom::Start(0)).map_err(error::reading)?;
    Ok(())
}

fn failed(e: DecodingError, length: u64) -> Error {
    match e {
        DecodingError::LimitsExceeded => error::expands(budget(length).saturating_add(1), length),
        DecodingError::IoError(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => error::cut("the image"),
        DecodingError::IoError(e) => error::reading(e),
        other => error::malformed("png", other),
    }
}

fn write(output: &mut dyn Output, contents: Contents<'_>, _: &Options) -> Result<()> {
    let image = pixels(contents, "png", 4)?;
    let color = match image.channels {
        1 => ColorType::Grayscale,
        2 => ColorType::GrayscaleAlpha,
        3 => ColorType::Rgb,
        _ => ColorType::Rgba,
    };
    encode(output, image.width, image.height, color, &image.bytes)
}

/// Writes the red, green and blue of each pixel, row by row, as a complete file.
///
/// # Errors
/// E0922 when the number of bytes is wrong, E0925 for I/O errors.
pub fn write_rgb(output: &mut dyn Output, width: usize, height: usize, bytes: &[u8]) -> Result<()> {
    encode(output, width, height, ColorType::Rgb, bytes)
}

fn encode(
    output: &mut dyn Output,
    width: usize,
    height: usize,
    color: ColorType,
    bytes: &[u8],
) -> Result<()> {
    let too_large = |_| error::too_large("an image");
    let width = u32::try_from(width).map_err(too_large)?;
    let height = u32::try_from(height).map_err(too_large)?;
    let mut output = BufWriter::new(output);
    let mut encoder = Encoder::new(&mut output, width, height);
    encoder.set_color(color);
    encoder.set_depth(BitDepth::Eight);
    let wrong = |e: EncodingError| match e {
        EncodingError::IoError(e) => error::reading(e),
        other => error::contents("png", "images", &other.to_string()),
    };
    let mut writer = encoder.write_header().map_err(wrong)?;
    writer.write_image_data(bytes).map_err(wrong)?;
    writer.finish().map_err(wrong)?;
    output.flush().map_err(error::reading)
}
