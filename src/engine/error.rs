//! Errors of the embedding API: E096x.

use crate::base::guard::HOST_FUNCTION;
use crate::base::{Code, Error, ErrorKind};

/// Every code of this directory.
pub static CODES: &[&Code] =
    &[&WRONG_TYPE, &BAD_SETTING, &HOST_FUNCTION, &WRONG_COUNT, &ANOTHER_ENGINE, &IN_USE, &BAD_FOREIGN];

/// A script value of another type than the embedder requested.
pub static WRONG_TYPE: Code = Code {
    id: "E0961",
    kind: ErrorKind::Type,
    title: "a value does not convert",
    page: "The program that embeds Runnel requested a value of one type, and the script returned another type; or a \
           function of that program was called with an argument that it does not accept.\n\nConvert the value in the \
           script (`int(x)`, `x.item()`, `list(x)`), or request another type.",
    example: "",
};

/// An environment variable with an invalid value.
pub static BAD_SETTING: Code = Code {
    id: "E0962",
    kind: ErrorKind::Value,
    title: "bad setting in the environment",
    page: "`RUNNEL_BACKEND` is `auto`, `cuda` or `emu`; `RUNNEL_CACHE_LIMIT` is a size such as `512MiB`. Correct the variable, or unset it.",
    example: "",
};

/// A shape that does not match the number of elements.
pub static WRONG_COUNT: Code = Code {
    id: "E0964",
    kind: ErrorKind::Shape,
    title: "elements do not fill the shape",
    page: "A tensor was made from a slice whose length is not the product of the shape.",
    example: "",
};

/// An object of one engine passed to another engine.
pub static ANOTHER_ENGINE: Code = Code {
    id: "E0965",
    kind: ErrorKind::Value,
    title: "this belongs to another engine",
    page: "A tensor, a stream, a program or a function of one engine was passed to another engine. Each engine has its \
           own heap, streams and memory, so these cannot be shared directly.\n\nRead a tensor's elements in one engine \
           and make a tensor of them in the other, or transfer its memory with `export_dlpack` and `import_dlpack`.",
    example: "",
};

/// A shared value that is in use.
pub static IN_USE: Code = Code {
    id: "E0966",
    kind: ErrorKind::Value,
    title: "the value is being used",
    page: "A method of the embedding program was changing a value and accessed the same value again: its own receiver \
           was passed as an argument.\n\nCall the method with another value.",
    example: "",
};

/// Memory of another library that cannot become a tensor.
pub static BAD_FOREIGN: Code = Code {
    id: "E0967",
    kind: ErrorKind::Value,
    title: "foreign memory that cannot be a tensor",
    page: "The embedding program made a tensor from memory that belongs to another library, and its layout, its \
           element type or its device is not supported.\n\nMake a contiguous copy in the other library, and pass the \
           copy.",
    example: "",
};

#[cold]
pub(super) fn bad_foreign(why: &str) -> Error {
    Error::new(&BAD_FOREIGN, format!("foreign memory cannot be a tensor: {why}"))
}

#[cold]
pub(super) fn of_another_engine(what: &str) -> Error {
    Error::new(&ANOTHER_ENGINE, format!("this {what} belongs to another engine"))
        .help("read it there with `engine.read`, or hand its memory over with `export_dlpack`")
}

#[cold]
pub(super) fn in_use() -> Error {
    Error::new(&IN_USE, "this value is already in use by the method that requests it")
        .help("call the method with another value")
}

#[cold]
pub(super) fn unknown_type() -> Error {
    Error::new(&WRONG_TYPE, "a value of a type that scripts do not know")
        .help("call `register_type` for it first")
}

#[cold]
pub(super) fn wrong_arity(name: &str, count: usize, signature: &str) -> Error {
    let arguments = if count == 1 { "1 argument".to_string() } else { format!("{count} arguments") };
    Error::new(&WRONG_TYPE, format!("`{name}` cannot be called with {arguments}"))
        .help(format!("it is `{name}{signature}`"))
}

#[cold]
pub(super) fn type_name_taken(name: &str, own: &str) -> Error {
    Error::new(&BAD_SETTING, format!("a type `{name}` exists already; scripts see the new one as `{own}`"))
        .help("register it under another name")
}

#[cold]
pub(super) fn bad_name(what: &str, name: &str) -> Error {
    Error::new(&BAD_SETTING, format!("`{name}` cannot be the name of {what}"))
        .help("write letters, digits and `_`, a letter first")
}

#[cold]
pub(super) fn wrong_type(wanted: &str, found: &str) -> Error {
    Error::new(&WRONG_TYPE, format!("expected {wanted}, found {found}")).help(
        "convert it in the script, such as with `int(x)`, `x.item()` or `list(x)`, or ask for another type",
    )
}

#[cold]
pub(super) fn out_of_range(wanted: &str, found: i64) -> Error {
    Error::new(&WRONG_TYPE, format!("`{found}` does not fit {wanted}"))
}

#[cold]
pub(super) fn bad_setting(name: &str, value: &str, help: &str) -> Error {
    Error::new(&BAD_SETTING, format!("`{name}` is `{value}`")).help(help)
}

#[cold]
pub(super) fn host_function(message: String) -> Error {
    Error::new(&HOST_FUNCTION, message)
}

#[cold]
pub(super) fn wrong_count(count: usize, shape: &[usize]) -> Error {
    Error::new(
        &WRONG_COUNT,
        format!("{} cannot fill a tensor of shape {shape:?}", crate::base::counted(count, "element")),
    )
    .help("the extents must multiply to the number of elements")
}
