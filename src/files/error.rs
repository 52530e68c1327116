//! The errors of file formats (E0910 to E0925).
//!
//! Messages say "the file"; the caller that opened it prepends its path.

use crate::array::Dtype;
use crate::base::{Code, Error, ErrorKind, bytes_text, suggest, this_is};

macro_rules! codes {
    ($($name:ident $id:literal $kind:ident $title:literal $page:literal $example:literal;)*) => {
        $(
            #[doc = $title]
            pub static $name: Code = Code {
                id: $id,
                kind: ErrorKind::$kind,
                title: $title,
                page: $page,
                example: $example,
            };
        )*
        /// Every error code of this module.
        pub static CODES: &[&Code] = &[$(&$name),*];
    };
}

codes! {
    UNKNOWN_FORMAT "E0910" Value "no file format has this name"
        "`load` and `save` choose the format by the ending of the path: `.npy`, `.npz`, `.safetensors`, `.csv`, `.png`, `.ppm`, `.raw`. With another ending, name the format: `load(\"labels\", format=\"npy\")`."
        "load(\"weights.docx\")";
    MALFORMED "E0911" Io "a file does not follow its format"
        "The file's header or its text breaks a rule of the format: it is damaged, or has another format than its ending says. The message says what was expected."
        "let path = files.temp_folder() ++ \"/a.npy\"\nwrite(path, \"no array\")\nload(path)";
    SHORT "E0912" Io "a file ends too early"
        "The header promises more data than the file holds. A copy or download was probably cut off. A file is never read in part."
        "let path = files.temp_folder() ++ \"/a.ppm\"\nwrite(path, \"P6 2 2 255\\nabc\")\nload(path)";
    TRAILING "E0913" Io "a file has data after its end"
        "More bytes follow the data that the header describes. Such a file is two files in one, or damaged. It is not read, because skipped bytes can hide anything."
        "let path = files.temp_folder() ++ \"/a.ppm\"\nwrite(path, \"P5 1 1 255\\nabc\")\nload(path)";
    TOO_LARGE "E0914" Io "a file states an impossible size"
        "A shape or length in the header is larger than any memory, a line of text is longer than 4 MiB, or an array has more than 32 dimensions. Sizes are checked before memory is taken."
        "let path = files.temp_folder() ++ \"/a.ppm\"\nwrite(path, \"P6 4000000000 4000000000 255\\n\")\nload(path)";
    DUPLICATE "E0915" Io "a file has the same name twice"
        "Two arrays, columns or keys of the file have the same name, so that readers disagree about which one counts. Write the file again with distinct names."
        "let path = files.temp_folder() ++ \"/a.csv\"\nwrite(path, \"x,x\\n1,2\\n\")\nload(path)";
    RANGES "E0916" Io "the parts of a file overlap or leave gaps"
        "The byte ranges in the header do not follow one another without gaps, or do not have the length that dtype and shape ask for. A correct writer leaves neither gaps nor overlaps."
        "let path = files.temp_folder() ++ \"/a.safetensors\"\nwrite(path, \"5\\0\\0\\0\\0\\0\\0\\0{{\\\"x\\\":{{\\\"dtype\\\":\\\"U8\\\",\\\"shape\\\":[2],\\\"data_offsets\\\":[1,3]}}}}abc\")\nload(path)";
    PICKLED "E0917" Io "a file holds Python objects"
        "The array's elements are pickled Python objects. Unpickling runs whatever code the file asks for, so Runnel never does it. Save numbers in Python instead: `numpy.save(path, numpy.array(values, dtype=\"float32\"))`."
        "";
    DTYPE "E0918" Type "a format does not support a dtype"
        "The file has an element type that Runnel lacks, or a format cannot hold a tensor's dtype. Convert first: in Python with `.astype(\"int64\")`, in Runnel with `.to(f32)`. Only safetensors files hold bf16."
        "save(files.temp_folder() ++ \"/a.npy\", zeros(2, dtype=bf16))";
    EXPANDS "E0919" Limit "a compressed file expands too much"
        "Unpacked, the file would take more than 64 MiB and a hundred times its own size: files made to exhaust memory do that. If the size is intended, save it again without compression."
        "";
    SPECIAL "E0920" Io "a path does not lead to an ordinary file"
        "`load` and `save` take ordinary files. Folders, pipes, sockets and devices have no length that can be checked before they are read."
        "load(files.temp_folder(), format=\"npy\")";
    LINK "E0921" Io "a path is a symbolic link"
        "The target of a link can change after it was checked, and is often not the intended file. If you trust the link, write `links=true`."
        "";
    CONTENTS "E0922" Type "a format cannot hold this value"
        "An `.npy` file holds one tensor, `.npz` and `.safetensors` hold tensors with names (a dict or a record), `.csv` a table, `.png` and `.ppm` an image: a u8 tensor `[channels, height, width]`, or floats from 0 to 1."
        "save(files.temp_folder() ++ \"/a.npy\", (a = zeros(2), b = zeros(3)))";
    TABLE "E0923" Io "a table cannot be read"
        "A line has more or fewer fields than the lines before it, or a field of a numeric table is not a number. Name text columns in a first line, and pass `header=true`."
        "let path = files.temp_folder() ++ \"/a.csv\"\nwrite(path, \"1,2\\n3\\n\")\nload(path)";
    NO_ENTRY "E0924" Index "a file has no entry of this name"
        "`only` picks entries of a file by name, and the file does not have one of the names. The help shows the nearest one; `files.names(path)` lists all."
        "let path = files.temp_folder() ++ \"/a.npz\"\nsave(path, (weight = zeros(2)))\nload(path, only=[\"weigth\"])";
    READING "E0925" Io "reading or writing a file failed"
        "The operating system reported an error in the middle of the file, such as a full disk; the message gives the reason. `save` keeps the file that was there before."
        "";
}

/// No format has this name or extension.
#[cold]
pub fn unknown_format<'a>(name: &str, known: impl Iterator<Item = &'a str> + Clone) -> Error {
    let error = match name {
        "" => Error::new(&UNKNOWN_FORMAT, "the path has no ending that gives its format"),
        _ => Error::new(&UNKNOWN_FORMAT, format!("`{name}` is not a file format")),
    };
    match suggest(name, known.clone()) {
        _ if matches!(name, "pt" | "pth" | "ckpt" | "pkl" | "pickle") => error.help(
            "these files may contain code: write `.safetensors`, which PyTorch reads and writes as well \
             (`safetensors.torch.load_file`, `save_file`)",
        ),
        Some(near) => error.help(format!("did you mean `{near}`?")),
        None => error.help(format!("formats are {}", known.collect::<Vec<_>>().join(", "))),
    }
}

/// A header or text violates the format's rules.
#[cold]
pub fn malformed(format: &str, what: impl std::fmt::Display) -> Error {
    Error::new(&MALFORMED, format!("the file is not a valid {format} file: {what}"))
        .help("write it again, or name the format it has: `load(path, format=\"csv\")`")
}

/// There is less data than announced.
#[cold]
pub fn short(wanted: u64, found: u64) -> Error {
    let message = format!("the file ends too early: its header promises {wanted} bytes, and it has {found}");
    Error::new(&SHORT, message).help("copy or download it again: a part is missing")
}

/// The file ends inside something.
#[cold]
pub fn cut(what: &str) -> Error {
    Error::new(&SHORT, format!("the file ends too early: in the middle of {what}"))
        .help("copy or download it again: a part is missing")
}

/// There is more data than announced.
#[cold]
pub fn trailing(bytes: u64) -> Error {
    let bytes = crate::base::counted(usize::try_from(bytes).unwrap_or(usize::MAX), "further byte");
    Error::new(&TRAILING, format!("after its data the file has {bytes}"))
        .help("write it again: it is two files in one, or damaged")
}

/// A size exceeds all memory.
#[cold]
pub fn too_large(what: impl std::fmt::Display) -> Error {
    Error::new(&TOO_LARGE, format!("the file states an impossible size: {what}"))
        .help("its header is damaged, or made to exhaust memory: get the file from its source again")
}

/// A name occurs twice.
#[cold]
pub fn duplicate(name: &str) -> Error {
    Error::new(&DUPLICATE, format!("the file has the name `{}` twice", brief(name)))
        .help("write it again with distinct names")
}

/// Ranges overlap or leave gaps.
#[cold]
pub fn ranges(what: impl std::fmt::Display) -> Error {
    Error::new(&RANGES, format!("the parts of the file are laid out wrongly: {what}"))
        .help("write it again with `save`, or with the safetensors library")
}

/// The elements are pickled objects.
#[cold]
pub fn pickled() -> Error {
    Error::new(&PICKLED, "the file's elements are pickled Python objects, which are never loaded")
        .help("save them from Python with a numeric dtype: `array.astype(\"float32\")`")
}

/// Runnel lacks the file's element type.
#[cold]
pub fn foreign_dtype(name: &str, text: &str) -> Error {
    let of = if name.is_empty() { String::new() } else { format!(" of `{}`", brief(name)) };
    let error =
        Error::new(&DTYPE, format!("the file's element type `{}`{of} has no dtype in Runnel", brief(text)));
    error.help("convert it where it was written, for example with `.astype(\"int64\")`")
}

/// The format cannot hold this dtype.
#[cold]
pub fn cannot_hold(format: &str, dtype: Dtype, help: &str) -> Error {
    Error::new(&DTYPE, format!("{format} files cannot hold {dtype}"))
        .operand(1, this_is(dtype.to_string()))
        .help(help)
}

/// The data expands far beyond the file's size.
#[cold]
pub fn expands(to: u64, from: u64) -> Error {
    let (to, from) = (bytes_text(to), bytes_text(from));
    Error::new(&EXPANDS, format!("the file would expand from {from} to {to}"))
        .help("save it again without compression")
}

/// The path is a folder, pipe, socket or device.
#[cold]
pub fn special(what: &str) -> Error {
    Error::new(&SPECIAL, format!("it is {what}, not an ordinary file")).help("name an ordinary file")
}

/// The path is a symbolic link.
#[cold]
pub fn link() -> Error {
    Error::new(&LINK, "it is a symbolic link").help("if you trust it, write `links=true`")
}

/// The format cannot hold this value.
#[cold]
pub fn contents(format: &str, holds: &str, found: &str) -> Error {
    Error::new(&CONTENTS, format!("{format} files hold {holds}, not {found}"))
        .operand(1, this_is(found.to_string()))
        .help("`.npy` holds one tensor, `.npz` and `.safetensors` hold several with names")
}

/// A malformed table; lines count from 1.
#[cold]
pub fn table(line: u64, what: impl std::fmt::Display) -> Error {
    Error::new(&TABLE, format!("line {line} of the table: {what}"))
        .help("every line has as many fields as the first; `header=true` takes the first line as names")
}

/// `only` selects a name that is not in the file.
#[cold]
pub fn no_entry<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Error {
    let error = Error::new(&NO_ENTRY, format!("the file has no entry `{}`", brief(name)));
    match suggest(name, known) {
        Some(near) => error.help(format!("did you mean `{}`?", brief(near))),
        None => error.help("`files.names(path)` lists its entries"),
    }
}

/// An I/O error while reading or writing; an early end of file has its own code.
#[cold]
pub fn reading(error: std::io::Error) -> Error {
    match error.kind() {
        std::io::ErrorKind::UnexpectedEof => cut("its data"),
        std::io::ErrorKind::InvalidData => malformed("compressed", error),
        _ => Error::new(&READING, format!("the system refused: {error}")),
    }
}

/// The start of a name from a file; names may have any length.
fn brief(name: &str) -> String {
    name.chars().filter(|c| !c.is_control()).take(60).collect()
}
