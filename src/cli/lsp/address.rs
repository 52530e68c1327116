//! Document URIs: `file:` URIs (RFC 8089), and any others that an editor has open.
//!
//! A URI is returned to the editor exactly as received. Documents are identified by the decoded URI, since
//! one file can be written in several ways: `a b.rnl` and `a%20b.rnl`.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use std::path::PathBuf;

/// The path of a `file:` URI. `None` for all other URIs, and for files on other machines where paths cannot
/// name them.
pub fn path(uri: &str) -> Option<PathBuf> {
    let bytes = path_bytes(uri, cfg!(windows))?;
    #[cfg(unix)]
    return Some(std::os::unix::ffi::OsStringExt::from_vec(bytes))
        .map(|name: std::ffi::OsString| name.into());
    #[cfg(not(unix))]
    return String::from_utf8(bytes).ok().map(PathBuf::from);
}

/// Characters that need no escape in a path.
const PLAIN: AsciiSet = NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The URI of a file.
pub fn of(path: &str) -> String {
    let path = if cfg!(windows) { path.replace('\\', "/") } else { path.to_string() };
    let root = if path.starts_with('/') { "" } else { "/" };
    format!("file://{root}{}", utf8_percent_encode(&path, &PLAIN))
}

/// The key that identifies a document.
pub fn key(uri: &str) -> String {
    percent_decode_str(uri).decode_utf8_lossy().into_owned()
}

/// The bytes of the path. With `drives`, the path of `file:///c:/a` starts with the drive letter.
fn path_bytes(uri: &str, drives: bool) -> Option<Vec<u8>> {
    let (scheme, rest) = uri.split_once("://")?;
    let rest = rest.split(['?', '#']).next().unwrap_or("");
    let (machine, path) = rest.split_at(rest.find('/')?);
    let path: Vec<u8> = percent_decode_str(path).collect();
    let is_here = machine.is_empty() || machine.eq_ignore_ascii_case("localhost");
    match (scheme.eq_ignore_ascii_case("file"), is_here, drives) {
        (false, ..) | (true, false, false) => None,
        (true, false, true) => Some([b"//", machine.as_bytes(), &path].concat()),
        (true, true, true) if matches!(path[..], [b'/', drive, b':', ..] if drive.is_ascii_alphabetic()) => {
            Some(path[1..].to_vec())
        }
        (true, true, _) => Some(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_files_are_paths() {
        let read = |uri: &str, drives| {
            path_bytes(uri, drives).map(|bytes| String::from_utf8(bytes).expect("the path is UTF-8"))
        };
        for (uri, path) in [
            ("file:///home/a.rnl", Some("/home/a.rnl")),
            ("file:///my%20files/gr%C3%B6%C3%9Fe.rnl", Some("/my files/größe.rnl")),
            ("file:///my files/größe.rnl", Some("/my files/größe.rnl")),
            ("file:///100%25/%e6%97%a5.rnl", Some("/100%/日.rnl")),
            ("file:///50%/a%zz.rnl", Some("/50%/a%zz.rnl")),
            ("FILE://localhost/a.rnl", Some("/a.rnl")),
            ("file:///a%23b%3Fc.rnl", Some("/a#b?c.rnl")),
            ("file:///a.rnl#L3", Some("/a.rnl")),
            ("file:///c%3A/a.rnl", Some("/c:/a.rnl")),
            ("file://server/share/a.rnl", None),
            ("untitled:Untitled-1", None),
            ("https://example.org/a.rnl", None),
            ("file://", None),
            ("", None),
        ] {
            assert_eq!(read(uri, false).as_deref(), path, "{uri}");
        }
        for (uri, path) in [
            ("file:///c%3A/my%20files/a.rnl", "c:/my files/a.rnl"),
            ("file:///C:/a.rnl", "C:/a.rnl"),
            ("file://server/share/a%20b.rnl", "//server/share/a b.rnl"),
            ("file:///home/a.rnl", "/home/a.rnl"),
        ] {
            assert_eq!(read(uri, true).as_deref(), Some(path), "{uri}");
        }
    }

    #[test]
    fn paths_become_addresses_and_back() {
        assert_eq!(of("/my files/größe #1?.rnl"), "file:///my%20files/gr%C3%B6%C3%9Fe%20%231%3F.rnl");
        for there in ["/a.rnl", "/100%/%20.rnl", "/日本/😀.rnl", "/a+b&c=d;e:f.rnl"] {
            assert_eq!(path(&of(there)).as_deref(), Some(std::path::Path::new(there)));
        }
    }

    #[test]
    fn a_document_is_known_by_any_of_its_addresses() {
        assert_eq!(key("file:///c%3A/a%20b.rnl"), key("file:///c:/a b.rnl"));
        assert_ne!(key("file:///a.rnl"), key("file:///b.rnl"));
    }
}
