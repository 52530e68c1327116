//! Opens paths as files of a format, and loads arrays as tensors on the current device without a full copy on
//! the host.

pub(super) mod load;
pub(super) mod save;

use super::open::{look, named, opened, refused};
use super::whole::Whole;
use crate::base::Result;
use crate::files::{self, Format, Options};
use crate::library::core::owned;
use crate::library::io::allowed;
use crate::vm::{Dict, Key, Value, Vm, error};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

/// `files.formats()`
pub(super) fn all(_: &mut Vm, _: &mut [Value]) -> Result<Value> {
    let dict = Dict::empty();
    for format in files::FORMATS {
        dict.insert(Key::new(&Value::str(format.name))?, Value::str(format.doc))?;
    }
    Ok(Value::dict(dict))
}

/// A path with the options of the call.
struct Source {
    path: String,
    format: &'static Format,
    links: bool,
}

/// Resolves the path in the first argument and its format, given by the argument at index `format` or by the
/// file extension.
fn source(vm: &Vm, args: &[Value], [format, links]: [usize; 2]) -> Result<Source> {
    let path = owned(&args[0]);
    let ending = std::path::Path::new(&path).extension().and_then(|e| e.to_str()).unwrap_or("");
    let format = match args[format].as_str() {
        Some(name) => files::format(name).map_err(|e| e.operand(format, "this name"))?,
        None => files::format(ending).map_err(|e| match ending {
            "" => e.operand(0, "this has no ending"),
            _ => e.operand(0, format!("this ends in `.{ending}`")),
        })?,
    };
    Ok(Source { path: allowed(vm, &args[0])?, format, links: matches!(args[links], Value::Bool(true)) })
}

/// Default options of reading or writing a file.
fn usual(source: &Source) -> Options {
    let has_tabs = source.format.name == "csv" && source.path.to_ascii_lowercase().ends_with(".tsv");
    Options { header: None, delimiter: if has_tabs { b'\t' } else { b',' }, dtype: None }
}

/// The same, with the options in these arguments.
fn options(source: &Source, args: &[Value], [header, delimiter]: [usize; 2]) -> Result<Options> {
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

/// Writes a file that appears complete: the old contents stay if anything fails. Refuses everything except
/// regular files and, if `links`, links to them.
pub(in crate::library) fn replace(
    path: &str,
    links: bool,
    write: impl FnOnce(&mut BufWriter<&mut File>) -> Result<()>,
) -> Result<()> {
    let place = Path::new(path);
    if place.symlink_metadata().is_ok() {
        look(place, links).map_err(|refusal| refusal.of(path))?;
    }
    let mut whole = Whole::begin(place).map_err(|e| refused(path, &e))?;
    let mut buffer = BufWriter::with_capacity(1 << 18, whole.file());
    write(&mut buffer).map_err(|e| named(path, e))?;
    buffer.flush().map_err(|e| named(path, files::error::reading(e)))?;
    drop(buffer);
    whole.finish().map_err(|e| refused(path, &e))
}
