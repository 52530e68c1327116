//! Compiled kernels on disk, shared between processes.
//!
//! An entry is a file named by a hash of its key; it holds the key itself, the image and a
//! checksum, so that neither a collision nor a torn or damaged file can give a wrong kernel.
//! Entries appear by a rename, whole or not at all. Every failure means only that something is
//! compiled again: nothing here gives an error.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

const MAGIC: &[u8; 8] = b"rnlkern1";

/// The folder: `$RUNNEL_CACHE`, `$XDG_CACHE_HOME/runnel`, `~/.cache/runnel`; `None` when there is
/// no home, or when `RUNNEL_CACHE` is empty (which switches the cache off).
pub(super) fn folder() -> Option<PathBuf> {
    let from = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    match std::env::var_os("RUNNEL_CACHE") {
        Some(path) if path.is_empty() => None,
        Some(path) => Some(PathBuf::from(path).join("kernels")),
        None => {
            let base = from("XDG_CACHE_HOME")
                .or_else(|| from("HOME").map(|home| home.join(".cache")))
                .or_else(|| from("LOCALAPPDATA"))?;
            Some(base.join("runnel").join("kernels"))
        }
    }
}

/// The image kept under a key.
pub(super) fn get(folder: &Path, key: &str) -> Option<Vec<u8>> {
    decode(&fs::read(path(folder, key)).ok()?, key)
}

/// Keeps an image under a key.
pub(super) fn put(folder: &Path, key: &str, image: &[u8]) {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let part = format!(".{}-{}.part", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let (path, part) = (path(folder, key), folder.join(part));
    let write = || -> std::io::Result<()> {
        fs::create_dir_all(folder)?;
        let mut file = fs::File::create(&part)?;
        file.write_all(&encode(key, image))?;
        drop(file);
        fs::rename(&part, &path)
    };
    if write().is_err() {
        let _ = fs::remove_file(&part);
    }
}

fn path(folder: &Path, key: &str) -> PathBuf {
    folder.join(format!("{:032x}", hash(key.as_bytes())))
}

/// FNV-1a of 128 bits.
fn hash(bytes: &[u8]) -> u128 {
    let start = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58du128;
    bytes
        .iter()
        .fold(start, |h, &b| (h ^ u128::from(b)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b))
}

fn encode(key: &str, image: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(key.len() + image.len() + 40);
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&(key.len() as u64).to_le_bytes());
    out.extend_from_slice(&(image.len() as u64).to_le_bytes());
    out.extend_from_slice(&hash(image).to_le_bytes());
    out.extend_from_slice(key.as_bytes());
    out.extend_from_slice(image);
    out
}

fn decode(bytes: &[u8], key: &str) -> Option<Vec<u8>> {
    let (head, body) = bytes.split_at_checked(40)?;
    let number = |at: usize| Some(u64::from_le_bytes(head.get(at..at + 8)?.try_into().ok()?));
    let (key_len, image_len) = (usize::try_from(number(8)?).ok()?, usize::try_from(number(16)?).ok()?);
    let (stored, image) = body.split_at_checked(key_len)?;
    let whole = &head[..8] == MAGIC
        && stored == key.as_bytes()
        && image.len() == image_len
        && head[24..] == hash(image).to_le_bytes();
    whole.then(|| image.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_back_and_damage_is_a_miss() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("new");
        assert_eq!(get(&folder, "k"), None);
        put(&folder, "k", b"image");
        put(&folder, "other", b"");
        assert_eq!(get(&folder, "k").as_deref(), Some(&b"image"[..]));
        assert_eq!(get(&folder, "other").as_deref(), Some(&b""[..]));
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2, "no partial files stay");

        let whole = encode("k", b"image");
        for cut in 0..whole.len() {
            assert_eq!(decode(&whole[..cut], "k"), None, "torn at {cut}");
        }
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x40;
            assert_eq!(decode(&damaged, "k"), None, "damaged at {at}");
        }
        assert_eq!(decode(&whole, "l"), None, "another key with the same hash");
    }
}
