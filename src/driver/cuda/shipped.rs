//! Kernels of sorts, scatters and other kinds that ship as machine code, so that these run while their own kernels
//! compile, and without NVRTC.
//!
//! `shipped_tests` lists them: the sources of [`Kind::general`](crate::kernel::Kind::general), and those of kinds with
//! a single source. A file in `kernels/ready` holds groups of similar images, each group compressed as one. Images are
//! looked up by the hash of their source, so an outdated image is never used.

use super::nvrtc::Arch;
use super::ready::{self, HEAD};
use lzma_rust2::LzmaReader;
use std::io::Read;

/// A group of images: the hashes of their sources, their lengths, and the concatenated images, compressed.
pub(super) struct ImageGroup<'a> {
    pub entries: Vec<([u8; HEAD], usize)>,
    pub packed: &'a [u8],
}

/// LZMA's parameters `lc`, and `lp` and `pb`. Instructions have 16 bytes, and a byte depends on its position in the
/// instruction rather than on the previous byte. Images take little more than half of their size with deflate.
const CONTEXT_BITS: u32 = 0;
const PLACE_BITS: u32 = 4;
/// Bytes of LZMA's window.
const WINDOW: u32 = 2 << 20;

impl ImageGroup<'_> {
    /// The concatenated images up to this length.
    fn unpack(&self, length: usize) -> Option<Vec<u8>> {
        let bits = (CONTEXT_BITS, PLACE_BITS, PLACE_BITS);
        let reader = LzmaReader::new(self.packed, u64::MAX, bits.0, bits.1, bits.2, WINDOW, None).ok()?;
        let mut all = Vec::with_capacity(length);
        reader.take(length as u64).read_to_end(&mut all).ok()?;
        (all.len() == length).then_some(all)
    }

    /// The image of the entry with this index.
    fn image(&self, at: usize) -> Option<Vec<u8>> {
        let (before, rest) = self.entries.split_at_checked(at)?;
        let start = before.iter().map(|&(_, length)| length).sum();
        let (_, length) = rest.first()?;
        Some(self.unpack(start + length)?.split_off(start))
    }

    /// The images, in the order of the entries.
    #[cfg(test)]
    pub fn images(&self) -> Option<Vec<Vec<u8>>> {
        let all = self.unpack(self.entries.iter().map(|&(_, length)| length).sum())?;
        let mut rest = &all[..];
        let mut first = |length| rest.split_off(..length).map(<[u8]>::to_vec);
        self.entries.iter().map(|&(_, length)| first(length)).collect()
    }
}

fn number(bytes: &mut &[u8]) -> Option<usize> {
    let (number, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    usize::try_from(u32::from_le_bytes(*number)).ok()
}

/// The groups of a file; `None` if it is damaged.
pub(super) fn groups(mut bytes: &[u8]) -> Option<Vec<ImageGroup<'_>>> {
    let mut groups = Vec::new();
    while !bytes.is_empty() {
        let mut entries = Vec::new();
        for _ in 0..number(&mut bytes)? {
            let (hash, rest) = bytes.split_first_chunk()?;
            bytes = rest;
            entries.push((*hash, number(&mut bytes)?));
        }
        let length = number(&mut bytes)?;
        let (packed, rest) = bytes.split_at_checked(length)?;
        bytes = rest;
        groups.push(ImageGroup { entries, packed });
    }
    Some(groups)
}

/// Compresses images.
#[cfg(test)]
pub(super) fn packed(images: &[Vec<u8>]) -> Vec<u8> {
    use lzma_rust2::{LzmaOptions, LzmaWriter};
    use std::io::Write;
    let mut options = LzmaOptions::with_preset(9);
    (options.lc, options.lp, options.pb) = (CONTEXT_BITS, PLACE_BITS, PLACE_BITS);
    (options.dict_size, options.nice_len, options.depth_limit) = (WINDOW, 273, 1000);
    let mut writer = LzmaWriter::new_no_header(Vec::new(), &options, true).unwrap();
    writer.write_all(&images.concat()).unwrap();
    writer.finish().unwrap()
}

/// A group as bytes.
#[cfg(test)]
pub(super) fn group(entries: &[([u8; HEAD], usize)], packed: &[u8]) -> Vec<u8> {
    let mut bytes = (entries.len() as u32).to_le_bytes().to_vec();
    for (hash, length) in entries {
        bytes.extend(hash);
        bytes.extend((*length as u32).to_le_bytes());
    }
    bytes.extend((packed.len() as u32).to_le_bytes());
    bytes.extend(packed);
    bytes
}

/// True when the image of a source for a device ships.
#[cfg(test)]
pub(super) fn has(text: &str, arch: Arch) -> bool {
    let hash = ready::hash(text);
    let groups = ready::find(arch).and_then(|file| groups(file.kinds)).unwrap_or_default();
    groups.iter().any(|group| group.entries.iter().any(|(own, _)| *own == hash))
}

/// The image of a source for a device, if it ships.
pub(super) fn image(text: &str, arch: Arch) -> Option<Vec<u8>> {
    let hash = ready::hash(text);
    let groups = groups(ready::find(arch)?.kinds)?;
    let (group, at) = groups.into_iter().find_map(|group| {
        let at = group.entries.iter().position(|(own, _)| *own == hash)?;
        Some((group, at))
    })?;
    group.image(at)
}
