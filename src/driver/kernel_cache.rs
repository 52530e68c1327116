//! Compiled kernels on disk, shared between processes.
//!
//! An entry is a file named by a hash of its key. It holds the key, the image and a checksum, so neither a
//! collision nor a damaged file can give a wrong kernel. Entries appear atomically, by a rename. A failure
//! only means that something is compiled again: reading and adding return no errors.
//!
//! The folder is bounded. A use updates the time of an entry's file; before an entry that does not fit is
//! added, the least recently used ones are removed. Processes need no lock for this: a process that reads an
//! entry has it open, and one that finds it removed compiles. Files with other names are left alone.

use crate::base::bytes_from;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

const MAGIC: &[u8; 8] = b"rnlkern1";

/// The bytes before the key.
const HEAD: usize = 40;

/// The default limit on the bytes of all entries.
pub const USUAL_LIMIT: u64 = 1 << 30;

/// The variable that sets the limit.
pub const VARIABLE: &str = "RUNNEL_CACHE_LIMIT";

/// The file that stores the limit set by `runnel cache limit`.
const LIMIT_FILE: &str = "limit";

/// A partial file left by a process is removed after this time.
const ABANDONED: Duration = Duration::from_secs(600);

/// The interval between searches for entries that other processes add.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// A folder of compiled kernels.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cache {
    folder: PathBuf,
}

/// The limit on the bytes of all entries, by its origin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limit {
    /// The default.
    Usual,
    /// Set by `runnel cache limit`.
    Kept(u64),
    /// Set in the environment.
    Variable(u64),
}

impl Limit {
    /// The bytes.
    pub fn bytes(self) -> u64 {
        match self {
            Limit::Usual => USUAL_LIMIT,
            Limit::Kept(bytes) | Limit::Variable(bytes) => bytes,
        }
    }
}

/// The number and size of the entries.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Usage {
    /// Number of kernels.
    pub entries: u64,
    /// Total bytes of their files.
    pub bytes: u64,
}

/// An entry's file, without its contents.
struct Entry {
    used: SystemTime,
    bytes: u64,
    path: PathBuf,
}

/// The last known size of a folder.
#[derive(Clone, Copy)]
struct FolderSize {
    bytes: u64,
    looked: Instant,
}

static KNOWN: Mutex<Option<HashMap<PathBuf, FolderSize>>> = Mutex::new(None);

impl Cache {
    /// The cache in a folder, which need not exist.
    pub fn at(folder: impl Into<PathBuf>) -> Cache {
        Cache { folder: folder.into() }
    }

    /// The user's cache: `$RUNNEL_CACHE/kernels`, `$XDG_CACHE_HOME/runnel/kernels`,
    /// `~/.cache/runnel/kernels`; `None` when there is no home, or when `RUNNEL_CACHE` is empty (which
    /// switches the cache off).
    pub fn of_user() -> Option<Cache> {
        let from = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        let folder = match std::env::var_os("RUNNEL_CACHE") {
            Some(path) if path.is_empty() => return None,
            Some(path) => PathBuf::from(path),
            None => {
                let base = from("XDG_CACHE_HOME")
                    .or_else(|| from("HOME").map(|home| home.join(".cache")))
                    .or_else(|| from("LOCALAPPDATA"))?;
                base.join("runnel")
            }
        };
        Some(Cache::at(folder.join("kernels")))
    }

    /// The reason why the user has no cache.
    pub fn why_none() -> &'static str {
        match std::env::var_os("RUNNEL_CACHE") {
            Some(_) => "kernels are not kept on disk: RUNNEL_CACHE is empty",
            None => "kernels are not kept on disk: there is no home folder; RUNNEL_CACHE names another one",
        }
    }

    /// The folder of the cache.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The limit set in the environment.
    ///
    /// # Errors
    /// The invalid text, and the expected form.
    pub fn limit_from_env() -> Result<Option<u64>, (String, String)> {
        match std::env::var(VARIABLE) {
            Ok(text) if !text.is_empty() => bytes_from(&text).map(Some).map_err(|help| (text, help)),
            _ => Ok(None),
        }
    }

    /// The limit on the bytes of all entries.
    pub fn limit(&self) -> Limit {
        if let Ok(Some(bytes)) = Cache::limit_from_env() {
            return Limit::Variable(bytes);
        }
        let kept = read_up_to(&self.folder.join(LIMIT_FILE), 64);
        let kept = kept.and_then(|text| bytes_from(String::from_utf8(text).ok()?.trim()).ok());
        kept.map_or(Limit::Usual, Limit::Kept)
    }

    /// Stores a limit for all processes; `None` restores the default. Removes nothing.
    ///
    /// # Errors
    /// An error of the system.
    pub fn set_limit(&self, limit: Option<u64>) -> io::Result<()> {
        let path = self.folder.join(LIMIT_FILE);
        match limit {
            Some(bytes) => self.replace(&path, format!("{bytes}\n").as_bytes()),
            None => match fs::remove_file(path) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
                _ => Ok(()),
            },
        }
    }

    /// The number and size of the entries.
    pub fn usage(&self) -> Usage {
        let entries = self.entries();
        Usage { entries: entries.len() as u64, bytes: entries.iter().map(|e| e.bytes).sum() }
    }

    /// The image stored under a key.
    pub fn get(&self, key: &str) -> Option<Vec<u8>> {
        let mut file = open_ordinary(&self.path(key))?;
        let length = file.metadata().ok()?.len();
        let mut head = [0; HEAD];
        file.read_exact(&mut head).ok()?;
        let (key_length, image_length) = lengths(&head)?;
        // A file whose size does not match its head is not read further.
        if key_length != key.len() || (HEAD + key_length).checked_add(image_length)? as u64 != length {
            return None;
        }
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(HEAD + key_length + image_length).ok()?;
        bytes.extend_from_slice(&head);
        (&file).take(length - HEAD as u64).read_to_end(&mut bytes).ok()?;
        let image = decode(&bytes, key)?;
        // Without write permission, the entry only appears unused.
        file.set_modified(SystemTime::now()).ok();
        Some(image)
    }

    /// Stores an image under a key, if it fits the limit; removes others to make room.
    pub fn put(&self, key: &str, image: &[u8]) {
        let bytes = (HEAD + key.len() + image.len()) as u64;
        let limit = self.limit().bytes();
        if bytes > limit {
            return;
        }
        self.make_room(bytes, limit);
        if self.replace(&self.path(key), &encode(key, image)).is_ok()
            && let Some(known) = KNOWN.lock().get_or_insert_default().get_mut(&self.folder)
        {
            known.bytes += bytes;
        }
    }

    /// Removes entries so that another `bytes` stay within the limit.
    fn make_room(&self, bytes: u64, limit: u64) {
        let known = KNOWN.lock().get_or_insert_default().get(&self.folder).copied();
        let fits =
            known.is_some_and(|known| known.bytes + bytes <= limit && known.looked.elapsed() < LOOK_AGAIN);
        if fits {
            return;
        }
        let left = self.trim(limit - bytes);
        let known = FolderSize { bytes: left.bytes, looked: Instant::now() };
        KNOWN.lock().get_or_insert_default().insert(self.folder.clone(), known);
    }

    /// Removes the least recently used entries while the total exceeds `limit`, plus some more, so that the
    /// next addition need not scan the folder. Returns the remaining usage.
    pub fn trim(&self, limit: u64) -> Usage {
        let mut entries = self.entries();
        let mut left = Usage { entries: entries.len() as u64, bytes: entries.iter().map(|e| e.bytes).sum() };
        if left.bytes <= limit {
            return left;
        }
        entries.sort_by(|a, b| (a.used, &a.path).cmp(&(b.used, &b.path)));
        let enough = limit - limit / 10;
        for entry in entries {
            if left.bytes <= enough {
                break;
            }
            // Another process may have removed it.
            match fs::remove_file(&entry.path) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => {}
                _ => left = Usage { entries: left.entries - 1, bytes: left.bytes - entry.bytes },
            }
        }
        left
    }

    /// Removes all entries, and returns what was removed.
    ///
    /// # Errors
    /// An error of the system, for the first entry that could not be removed.
    pub fn clear(&self) -> io::Result<Usage> {
        KNOWN.lock().get_or_insert_default().remove(&self.folder);
        let mut removed = Usage::default();
        for entry in self.entries() {
            match fs::remove_file(&entry.path) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                _ => removed = Usage { entries: removed.entries + 1, bytes: removed.bytes + entry.bytes },
            }
        }
        Ok(removed)
    }

    /// The entries, including damaged ones. Removes partial files of killed processes.
    fn entries(&self) -> Vec<Entry> {
        let mut entries = Vec::new();
        for file in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            let name = file.file_name();
            let Some(name) = name.to_str() else { continue };
            let (is_entry, is_part) = (is_entry(name), is_part(name));
            if !is_entry && !is_part {
                continue;
            }
            let Ok(about) = file.metadata() else { continue };
            if !about.is_file() {
                continue;
            }
            let used = about.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            if is_entry {
                entries.push(Entry { used, bytes: about.len(), path: file.path() });
            } else if used.elapsed().is_ok_and(|age| age > ABANDONED) {
                fs::remove_file(file.path()).ok();
            }
        }
        entries
    }

    /// Writes or replaces a file atomically.
    fn replace(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let part = format!(".{}-{}.part", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let part = self.folder.join(part);
        let write = || -> io::Result<()> {
            fs::create_dir_all(&self.folder)?;
            let mut file = File::create_new(&part)?;
            file.write_all(bytes)?;
            drop(file);
            fs::rename(&part, path)
        };
        write().inspect_err(|e| {
            if e.kind() != io::ErrorKind::AlreadyExists {
                fs::remove_file(&part).ok();
            }
        })
    }

    fn path(&self, key: &str) -> PathBuf {
        self.folder.join(format!("{:032x}", hash(key.as_bytes())))
    }
}

/// `0123456789abcdef0123456789abcdef`
fn is_entry(name: &str) -> bool {
    name.len() == 32 && name.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

/// `.1234-5.part`
fn is_part(name: &str) -> bool {
    let numbers = name.strip_prefix('.').and_then(|name| name.strip_suffix(".part"));
    numbers.and_then(|numbers| numbers.split_once('-')).is_some_and(|(process, count)| {
        [process, count].iter().all(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
    })
}

/// Opens an ordinary file; does not block on a pipe.
fn open_ordinary(path: &Path) -> Option<File> {
    let mut options = fs::OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, rustix::fs::OFlags::NONBLOCK.bits() as i32);
    let file = options.open(path).ok()?;
    file.metadata().ok()?.is_file().then_some(file)
}

fn read_up_to(path: &Path, most: u64) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    open_ordinary(path)?.take(most).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// The 128-bit FNV-1a hash.
pub(super) fn hash(bytes: &[u8]) -> u128 {
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

/// The lengths of key and image stored in a head.
fn lengths(head: &[u8]) -> Option<(usize, usize)> {
    let number = |at: usize| Some(u64::from_le_bytes(head.get(at..at + 8)?.try_into().ok()?));
    Some((usize::try_from(number(8)?).ok()?, usize::try_from(number(16)?).ok()?))
}

fn decode(bytes: &[u8], key: &str) -> Option<Vec<u8>> {
    let (head, body) = bytes.split_at_checked(HEAD)?;
    let (key_length, image_length) = lengths(head)?;
    let (stored, image) = body.split_at_checked(key_length)?;
    let whole = &head[..8] == MAGIC
        && stored == key.as_bytes()
        && image.len() == image_length
        && head[24..] == hash(image).to_le_bytes();
    whole.then(|| image.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cache with a limit.
    fn cache(limit: u64) -> (tempfile::TempDir, Cache) {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path().join("kernels"));
        cache.set_limit(Some(limit)).unwrap();
        (folder, cache)
    }

    /// Sets the time when an entry was last used, in seconds after a fixed moment.
    fn used(cache: &Cache, key: &str, at: u64) {
        let file = File::open(cache.path(key)).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 + at)).unwrap();
    }

    #[test]
    fn entries_round_trip_and_damage_is_a_miss() {
        let (_folder, cache) = cache(1 << 20);
        assert_eq!(cache.get("k"), None);
        cache.put("k", b"image");
        cache.put("other", b"");
        assert_eq!(cache.get("k").as_deref(), Some(&b"image"[..]));
        assert_eq!(cache.get("other").as_deref(), Some(&b""[..]));
        assert_eq!(cache.usage().entries, 2);
        assert_eq!(fs::read_dir(cache.folder()).unwrap().count(), 3, "no partial files stay");

        let whole = encode("k", b"image");
        for cut in 0..whole.len() {
            assert_eq!(decode(&whole[..cut], "k"), None, "torn at {cut}");
            fs::write(cache.path("k"), &whole[..cut]).unwrap();
            assert_eq!(cache.get("k"), None, "torn at {cut}");
        }
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x40;
            assert_eq!(decode(&damaged, "k"), None, "damaged at {at}");
            fs::write(cache.path("k"), &damaged).unwrap();
            assert_eq!(cache.get("k"), None, "damaged at {at}");
        }
        assert_eq!(decode(&whole, "l"), None, "another key with the same hash");
        // Damaged entries are replaced.
        cache.put("k", b"image");
        assert_eq!(cache.get("k").as_deref(), Some(&b"image"[..]));
    }

    #[test]
    fn the_limit_holds_and_the_entries_used_longest_ago_go_first() {
        for image in [1usize, 100, 1_000, 9_000] {
            let (_folder, cache) = cache(20_000);
            let bytes = encode("k0000", &vec![7; image]).len() as u64;
            let room = 20_000 / bytes;
            let mut kept = std::collections::VecDeque::new();
            for number in 0..400u64 {
                let key = format!("k{number:04}");
                cache.put(&key, &vec![7; image]);
                kept.push_back(number);
                let usage = cache.usage();
                assert!(usage.bytes <= 20_000 && usage.entries <= room, "{usage:?}");
                assert!(cache.get(&key).is_some(), "the newest stays");
                used(&cache, &key, number);
                // The first entry is used all the time, so it stays although it is the oldest.
                if room > 2 {
                    assert!(cache.get("k0000").is_some(), "{number}");
                    used(&cache, "k0000", number);
                }
            }
            assert!(cache.usage().entries >= room * 8 / 10 - 1, "no more go than must: {:?}", cache.usage());
        }
    }

    #[test]
    fn entries_above_the_limit_are_not_stored_and_a_lower_limit_trims() {
        let (_folder, cache) = cache(1_000);
        cache.put("small", &[1; 100]);
        cache.put("large", &[1; 2_000]);
        assert_eq!((cache.get("large"), cache.usage().entries), (None, 1));
        for limit in [500, 100, 0] {
            cache.set_limit(Some(limit)).unwrap();
            cache.trim(cache.limit().bytes());
            assert!(cache.usage().bytes <= limit);
        }
        cache.put("small", &[]);
        assert_eq!(cache.usage(), Usage::default());
        assert_eq!(cache.limit(), Limit::Kept(0));
        cache.set_limit(None).unwrap();
        assert_eq!((cache.limit(), cache.limit().bytes()), (Limit::Usual, 1 << 30));
        cache.put("small", &[]);
        assert_eq!(cache.clear().unwrap().entries, 1);
        assert_eq!(cache.clear().unwrap(), Usage::default());
    }

    #[test]
    fn other_files_in_the_folder_are_kept() {
        let (_folder, cache) = cache(1_000);
        let at = |name: &str| cache.folder().join(name);
        for name in ["notes", "0123", ".x-1.part", ".1-2.part", "0123456789ABCDEF0123456789ABCDEF"] {
            fs::write(at(name), [0; 5_000]).unwrap();
        }
        fs::create_dir(cache.path("folder")).unwrap();
        fs::write(at("limit"), "512 bananas").unwrap();
        assert_eq!(cache.limit(), Limit::Usual);
        cache.set_limit(Some(1_000)).unwrap();
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink("/dev/zero", cache.path("link")).unwrap();
            rustix::fs::mknodat(
                rustix::fs::CWD,
                cache.path("pipe"),
                rustix::fs::FileType::Fifo,
                0o600.into(),
                0,
            )
            .unwrap();
        }
        // A file whose head claims a huge size, and a file that is huge.
        let mut huge = encode("huge", b"");
        huge[16..24].copy_from_slice(&u64::MAX.to_le_bytes());
        fs::write(cache.path("huge"), huge).unwrap();
        let sparse = File::create(cache.path("sparse")).unwrap();
        sparse.set_len(1 << 40).unwrap();
        for key in ["folder", "link", "pipe", "huge", "sparse"] {
            assert_eq!(cache.get(key), None, "{key}");
        }
        // Partial files of killed processes are removed once they are old.
        File::open(at(".1-2.part")).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
        cache.put("k", b"image");
        assert!(cache.get("k").is_some() && !cache.path("sparse").exists());
        cache.clear().unwrap();
        for name in ["notes", "0123", ".x-1.part", "0123456789ABCDEF0123456789ABCDEF"] {
            assert!(at(name).exists(), "{name}");
        }
        assert!(!at(".1-2.part").exists() && cache.path("folder").exists());
    }

    #[test]
    fn an_unusable_cache_folder_is_ignored() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("file"), "").unwrap();
        for path in [
            folder.path().join("file"),
            folder.path().join("file/inside"),
            "/proc/none".into(),
            "/dev/full".into(),
        ] {
            let cache = Cache::at(path);
            cache.put("k", b"image");
            assert_eq!((cache.get("k"), cache.usage()), (None, Usage::default()));
            assert_eq!(cache.clear().unwrap(), Usage::default());
        }
    }

    #[test]
    fn many_at_once_keep_the_limit_and_never_read_half_an_entry() {
        let (_folder, cache) = cache(30_000);
        std::thread::scope(|scope| {
            for worker in 0..4u8 {
                let cache = &cache;
                scope.spawn(move || {
                    for round in 0..60usize {
                        let key = format!("k{}", (round * 7 + usize::from(worker) * 3) % 40);
                        let image = vec![key.len() as u8; 900];
                        match cache.get(&key) {
                            Some(found) => assert_eq!(found, image),
                            None => cache.put(&key, &image),
                        }
                        if round % 20 == 19 {
                            cache.trim(10_000);
                        }
                    }
                });
            }
        });
        // Each of four concurrent additions may exceed the limit by one entry.
        assert!(cache.usage().bytes <= 30_000 + 4 * 1_000, "{:?}", cache.usage());
        assert_eq!(fs::read_dir(cache.folder()).unwrap().count() as u64, cache.usage().entries + 1);
    }
}
