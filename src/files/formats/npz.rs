//! `.npz`: named arrays in NumPy's format, a ZIP archive of `.npy` files.
//!
//! Entries are read in archive order, stored or deflated. The whole archive is rejected if entries share
//! bytes or names, or would expand beyond the [`budget`]. The checksum of every entry that is read is
//! verified.

use super::{
    Column, Contents, Elements, Format, Input, Options, Output, Plain, Sink, budget, error, length, npy,
};
use crate::base::{Error, Result};
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use zip::result::ZipError;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

/// This format's entry.
pub const FORMAT: Format = Format {
    name: "npz",
    endings: &[],
    doc: "Arrays with names, as `numpy.savez` and `numpy.savez_compressed` write them: a dict of tensors.",
    read,
    write,
};

/// Maximum number of entries in an archive.
const ENTRIES: usize = 1 << 20;
/// Approximate bytes of an entry's description.
const ENTRY: usize = 1 << 10;

fn read(input: &mut dyn Input, _: &Options, sink: &mut dyn Sink) -> Result<()> {
    let length = length(input)?;
    let count = check_end(input, length)?;
    if count > ENTRIES as u64 {
        return Err(error::too_large(format!("{count} entries")));
    }
    sink.hold(count as usize * ENTRY)?;
    let mut archive = ZipArchive::new(BufReader::new(input)).map_err(failed)?;
    if archive.has_duplicate_names() {
        return Err(error::duplicate(&archive.file_names().find_map(|n| n.ok()).unwrap_or_default()));
    }
    if archive.len() > ENTRIES {
        return Err(error::too_large(format!("{} entries", archive.len())));
    }
    if archive.offset() > 0 {
        return Err(error::ranges("there is data before the archive"));
    }
    if archive.has_overlapping_entries().map_err(failed)? {
        return Err(error::ranges("two entries share bytes"));
    }
    let mut names = std::collections::HashSet::new();
    let mut left = budget(length);
    for index in 0..archive.len() {
        let mut entry = archive.by_index(index).map_err(failed)?;
        let full = entry.name().map_err(failed)?.into_owned();
        let name = full.strip_suffix(".npy").filter(|_| entry.is_file() && !entry.is_symlink());
        let Some(name) = name else {
            return Err(error::malformed("npz", format!("its entry {index} is not an `.npy` file")));
        };
        if !names.insert(name.to_string()) {
            return Err(error::duplicate(name));
        }
        let size = entry.size();
        left = left.checked_sub(size).ok_or_else(|| error::expands(size, length))?;
        if !sink.wants(name) {
            continue;
        }
        let header = npy::header(&mut entry, size)?;
        sink.array(
            Some(name),
            &header.head,
            &mut Plain::new(&mut entry, header.head.dtype, header.big) as &mut dyn Elements,
        )?;
        // Read to the end: the checksum is only verified there.
        match entry.read(&mut [0]) {
            Ok(0) => {}
            Ok(_) => return Err(error::trailing(1)),
            Err(e) => return Err(error::malformed("npz", e)),
        }
    }
    Ok(())
}

/// The archive must end at the end of the file, without a comment: NumPy writes none, and trailing bytes
/// could hide a second archive. Gives the number of entries that it states.
fn check_end(input: &mut dyn Input, length: u64) -> Result<u64> {
    let mut end = [0; 22];
    let start =
        length.checked_sub(22).ok_or_else(|| error::malformed("npz", "it is too short for an archive"))?;
    input.seek(SeekFrom::Start(start)).map_err(error::reading)?;
    input.read_exact(&mut end).map_err(error::reading)?;
    if !end.starts_with(b"PK\x05\x06") || !end.ends_with(&[0, 0]) {
        return Err(error::malformed("npz", "it does not end like an archive"));
    }
    let mut count = u64::from(u16::from_le_bytes([end[10], end[11]]));
    // A 20-byte ZIP64 locator may precede the end record.
    let mut pointer = [0; 20];
    if start >= 20 {
        input.seek(SeekFrom::Start(start - 20)).map_err(error::reading)?;
        input.read_exact(&mut pointer).map_err(error::reading)?;
    }
    if let Some(place) = pointer.strip_prefix(b"PK\x06\x07") {
        let number = |bytes: &[u8]| bytes.try_into().map_or(u64::MAX, u64::from_le_bytes);
        let mut wide = [0; 40];
        input.seek(SeekFrom::Start(number(&place[4..12]))).map_err(error::reading)?;
        input.read_exact(&mut wide).map_err(|_| error::malformed("npz", "its end is damaged"))?;
        count = count.max(number(&wide[32..]));
    }
    input.seek(SeekFrom::Start(0)).map_err(error::reading)?;
    Ok(count)
}

fn write(output: &mut dyn Output, contents: Contents<'_>, _: &Options) -> Result<()> {
    if !contents.named {
        return Err(error::contents("npz", "tensors with names", "one tensor without a name"));
    }
    write_entries(&mut Latch { output, failed: false, at: 0 }, contents)
}

/// An output that fails once and then discards further writes. An archive dropped half-written tries to write
/// its end, and prints to standard error if it cannot.
struct Latch<'a> {
    output: &'a mut dyn Output,
    failed: bool,
    /// The offset of the next byte.
    at: u64,
}

impl Write for Latch<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = if self.failed {
            bytes.len()
        } else {
            self.output.write(bytes).inspect_err(|e| self.failed = is_final(e))?
        };
        self.failed |= count == 0 && !bytes.is_empty();
        self.at += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.failed { Ok(()) } else { self.output.flush().inspect_err(|e| self.failed = is_final(e)) }
    }
}

impl Seek for Latch<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.at = match to {
            _ if !self.failed => self.output.seek(to).inspect_err(|e| self.failed = is_final(e))?,
            SeekFrom::Start(at) => at,
            SeekFrom::Current(by) | SeekFrom::End(by) => self.at.saturating_add_signed(by),
        };
        Ok(self.at)
    }
}

fn is_final(error: &io::Error) -> bool {
    error.kind() != io::ErrorKind::Interrupted
}

fn write_entries(output: &mut Latch<'_>, contents: Contents<'_>) -> Result<()> {
    let mut archive = ZipWriter::new(&mut *output);
    for index in 0..contents.entries.len() {
        let entry = &contents.entries[index];
        let Column::Array { dtype, shape } = &entry.column else {
            return Err(error::contents("npz", "tensors", "strings"));
        };
        let bytes = (contents.bytes)(index)?;
        let large = bytes.len() as u64 >= u64::from(u32::MAX) - 4096;
        // A fixed timestamp: the same values give the same file.
        let options = SimpleFileOptions::default()
            .compression_method(CompressionMethod::Stored)
            .last_modified_time(zip::DateTime::default())
            .large_file(large);
        archive.start_file(format!("{}.npy", entry.name), options).map_err(failed)?;
        npy::put(&mut archive, *dtype, shape, bytes)?;
    }
    archive.finish().map(drop).map_err(failed)
}

fn failed(error: ZipError) -> Error {
    match error {
        ZipError::Io(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => error::cut("the archive"),
        ZipError::Io(e) => error::reading(e),
        other => error::malformed("npz", other),
    }
}
