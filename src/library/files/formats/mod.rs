//! Opens paths as files of a format, and loads arrays as tensors on the current device without a full copy on
//! the host.

pub(super) mod load;
pub(super) mod save;

use super::open::{check_kind, named, opened, refused};
use super::whole::Whole;
use crate::base::{Error, Result};
use crate::driver::error::stopped;
use crate::files::{self, Format, Options};
use crate::library::core::owned;
use crate::library::io::allowed;
use crate::vm::{Dict, Key, Value, Vm, error};
use std::fs::File;
use std::io::{BufWriter, Read, Seek, SeekFrom, Write};
use std::path::Path;

/// Maximum number of bytes read or written between two checks of the limits.
const PIECE: usize = 4 << 20;

/// `files.formats()`
pub(super) fn all(_: &mut Vm, _: &mut [Value]) -> Result<Value> {
    let dict = Dict::empty();
    for format in files::FORMATS {
        dict.insert(Key::new(&Value::str(format.name))?, Value::str(format.doc))?;
    }
    Ok(Value::dict(dict))
}

/// A path with the options of the call.
struct FileSource {
    path: String,
    format: &'static Format,
    links: bool,
}

/// Resolves the path in the first argument and its format, given by the argument at index `format` or by the
/// file extension.
fn source(vm: &Vm, args: &[Value], [format, links]: [usize; 2]) -> Result<FileSource> {
    let path = owned(&args[0]);
    let ending = std::path::Path::new(&path).extension().and_then(|e| e.to_str()).unwrap_or("");
    let format = match args[format].as_str() {
        Some(name) => files::format(name).map_err(|e| e.operand(format, "this name"))?,
        None => files::format(ending).map_err(|e| match ending {
            "" => e.operand(0, "this has no ending"),
            _ => e.operand(0, format!("this ends in `.{ending}`")),
        })?,
    };
    Ok(FileSource { path: allowed(vm, &args[0])?, format, links: matches!(args[links], Value::Bool(true)) })
}

/// Default options of reading or writing a file.
fn usual(source: &FileSource) -> Options {
    let has_tabs = source.format.name == "csv" && source.path.to_ascii_lowercase().ends_with(".tsv");
    Options { header: None, delimiter: if has_tabs { b'\t' } else { b',' }, dtype: None }
}

/// [`usual`], with the options in these arguments.
fn options(source: &FileSource, args: &[Value], [header, delimiter]: [usize; 2]) -> Result<Options> {
    let mut options = usual(source);
    if let Value::Bool(header) = args[header] {
        options.header = Some(header);
    }
    match args[delimiter].as_str().map(str::as_bytes) {
        None => {}
        Some(&[byte]) if byte.is_ascii() && !matches!(byte, b'\n' | b'\r' | b'"') => options.delimiter = byte,
        Some(_) => {
            let message = "a delimiter is one ASCII character, not a quote or a line end";
            return Err(error::bad_value(delimiter, message));
        }
    }
    Ok(options)
}

/// Opens a regular file for reading.
fn open(path: &str, links: bool) -> Result<File> {
    opened(path, links).map_err(|refusal| refusal.of(path))
}

/// A file whose reads and writes check limits and interrupts, because readers and writers of formats do not
/// check them.
struct Watched<F> {
    of: F,
    /// The cause of the error that the reader or writer received.
    ended: Option<Error>,
}

impl<F> Watched<F> {
    fn new(of: F) -> Watched<F> {
        Watched { of, ended: None }
    }

    fn goes_on(&mut self) -> std::io::Result<()> {
        stopped().map_err(|error| {
            self.ended = Some(error);
            std::io::Error::other("stopped")
        })
    }

    /// The result of the code that used the file.
    fn result<T>(self, result: Result<T>) -> Result<T> {
        match self.ended {
            Some(ended) => Err(ended),
            None => result,
        }
    }
}

impl<F: Read> Read for Watched<F> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        self.goes_on()?;
        let most = into.len().min(PIECE);
        self.of.read(&mut into[..most])
    }
}

impl<F: Write> Write for Watched<F> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.goes_on()?;
        self.of.write(&bytes[..bytes.len().min(PIECE)])
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.of.flush()
    }
}

impl<F: Seek> Seek for Watched<F> {
    fn seek(&mut self, to: SeekFrom) -> std::io::Result<u64> {
        self.of.seek(to)
    }
}

/// Writes a file that appears complete: the old contents stay if anything fails. Refuses everything except
/// regular files and, if `links`, links to them.
pub(in crate::library) fn replace(
    path: &str,
    links: bool,
    write: impl FnOnce(&mut dyn files::Output) -> Result<()>,
) -> Result<()> {
    let place = Path::new(path);
    if place.symlink_metadata().is_ok() {
        check_kind(place, links).map_err(|refusal| refusal.of(path))?;
    }
    let mut whole = Whole::begin(place).map_err(|e| refused(path, &e))?;
    let mut buffer = BufWriter::with_capacity(1 << 18, Watched::new(whole.file()));
    let written = write(&mut buffer).and_then(|()| buffer.flush().map_err(files::error::reading));
    let (watched, _) = buffer.into_parts();
    watched.result(written).map_err(|e| named(path, e))?;
    whole.finish().map_err(|e| refused(path, &e))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::stop::{self, Stop};
    use crate::files::{Elements, Head, Sink};
    use std::io::Cursor;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    /// Discards everything.
    struct Nothing;

    impl Sink for Nothing {
        fn wants(&mut self, _: &str) -> bool {
            true
        }

        fn array(&mut self, _: Option<&str>, _: &Head, _: &mut dyn Elements) -> Result<()> {
            Ok(())
        }

        fn texts(&mut self, _: &str, _: Vec<String>) -> Result<()> {
            Ok(())
        }

        fn note(&mut self, _: &str, _: &str) -> Result<()> {
            Ok(())
        }

        fn hold(&mut self, _: usize) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn an_interrupt_ends_every_format() {
        let stopped = || Stop { flag: Arc::new(AtomicBool::new(true)), deadline: None };
        for format in files::FORMATS.iter().filter(|format| format.name != "raw") {
            let mut file = Watched::new(Cursor::new(vec![0; 100]));
            let found =
                stop::under(stopped(), || (format.read)(&mut file, &Options::default(), &mut Nothing));
            let error = file.result(found).expect_err(format.name);
            assert_eq!(error.kind(), crate::base::ErrorKind::Interrupted, "{}: {error}", format.name);
        }
        let mut file = Watched::new(Cursor::new(Vec::new()));
        let written = stop::under(stopped(), || file.write_all(b"text").map_err(files::error::reading));
        assert_eq!(file.result(written).unwrap_err().kind(), crate::base::ErrorKind::Interrupted);
        let mut file = Watched::new(Cursor::new(vec![1; PIECE + 1]));
        let mut all = Vec::new();
        file.read_to_end(&mut all).unwrap();
        assert!(all.len() == PIECE + 1 && file.result(Ok(())).is_ok());
    }
}
