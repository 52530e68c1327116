//! Kernels of sorts, scatters and other kinds that ship as machine code, so that these run while their own kernels
//! compile, and without NVRTC.
//!
//! `shipped_tests` lists them: the sources of [`Kind::general`](crate::kernel::Kind::general), and those of kinds with
//! a single source. A file in `kernels/ready` holds groups of similar images, each group compressed as one. Images are
//! looked up by the hash of their source, so an outdated image is never used.

use super::nvrtc::Arch;
use super::ready::{self, HEAD};
use std::io::Read;

/// A group of images: the hashes of their sources, their lengths, and the concatenated images, split into planes and
/// compressed.
pub(super) struct Group<'a> {
    pub entries: Vec<([u8; HEAD], usize)>,
    pub packed: &'a [u8],
}

impl Group<'_> {
    /// The images, in the order of the entries.
    pub fn images(&self) -> Option<Vec<Vec<u8>>> {
        let (&planes, packed) = self.packed.split_first()?;
        let mut all = Vec::new();
        flate2::read::DeflateDecoder::new(packed).read_to_end(&mut all).ok()?;
        let all = from_planes(&all, usize::from(planes).max(1));
        let mut rest = &all[..];
        let images = self.entries.iter().map(|&(_, length)| {
            let (image, others) = rest.split_at_checked(length)?;
            rest = others;
            Some(image.to_vec())
        });
        images.collect()
    }
}

/// Instructions resemble each other byte by byte, so images are compressed as planes: the first bytes of all words,
/// then the second bytes, and so on. The first byte of the packed images is the word length. A single plane is best for
/// images that share longer parts.
fn from_planes(planes: &[u8], count: usize) -> Vec<u8> {
    let mut bytes = vec![0; planes.len()];
    let places = (0..count).flat_map(|first| (first..planes.len()).step_by(count));
    places.zip(planes).for_each(|(place, &byte)| bytes[place] = byte);
    bytes
}

fn number(bytes: &mut &[u8]) -> Option<usize> {
    let (number, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    usize::try_from(u32::from_le_bytes(*number)).ok()
}

/// The groups of a file; `None` if it is damaged.
pub(super) fn groups(mut bytes: &[u8]) -> Option<Vec<Group<'_>>> {
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
        groups.push(Group { entries, packed });
    }
    Some(groups)
}

/// Compresses images with the best number of planes.
#[cfg(test)]
pub(super) fn packed(images: &[Vec<u8>]) -> Vec<u8> {
    use std::io::Write;
    let all = images.concat();
    let in_planes = |count: u8| {
        let step = usize::from(count);
        let planes = (0..step).flat_map(|first| all.iter().skip(first).step_by(step));
        let mut encoder = flate2::write::DeflateEncoder::new(vec![count], flate2::Compression::best());
        encoder.write_all(&planes.copied().collect::<Vec<u8>>()).unwrap();
        encoder.finish().unwrap()
    };
    [1, 8, 16].map(in_planes).into_iter().min_by_key(Vec::len).unwrap()
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
    group.images()?.into_iter().nth(at)
}
