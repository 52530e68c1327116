//! `load` and `save`: tensors, tables and images between files and devices.
//!
//! Code that uses the formats of [`crate::files`] is in `formats`; opening and replacing files (`open`,
//! `whole`) is part of every build. A saved file appears complete or not at all.

#[cfg(feature = "files")]
pub(super) mod formats;
pub(super) mod open;
#[cfg(target_os = "linux")]
mod swap;
pub(crate) mod whole;

use super::{any, optional, takes, text_param};
use crate::base::Result;
use crate::ops::signature::{Default, Kind, Param};
use crate::vm::{NativeDef, Value};

const FORMAT: Param = Param::named("format", Kind::Str, Default::None);
const DELIMITER: Param = Param::named("delimiter", Kind::Str, Default::None);
const LINKS: Param = Param::named("links", Kind::Bool, Default::Bool(false));

/// The natives of this file.
pub static TABLE: &[NativeDef] = &[
    NativeDef {
        name: "load",
        receiver: "",
        signature: takes(&[
            text_param("path"),
            optional("device", Kind::Device),
            Param::named("dtype", Kind::Dtype, Default::None),
            Param::named("only", Kind::Any, Default::None),
            FORMAT,
            Param::named("header", Kind::Bool, Default::None),
            DELIMITER,
            LINKS,
        ]),
        doc: "The contents of a file, on the current device or on `device`, converted to `dtype` if one is given. The \
              file extension selects the format, or `format` does:\n\n- `.npy` and `.raw`: a tensor\n- `.npz` and \
              `.safetensors`: a dict of tensors; `only` picks entries by name\n- `.csv`: a tensor of numbers, or a \
              dict of columns where the first line has names (`header`, `delimiter`)\n- `.png`, `.ppm`, `.pgm`: an \
              image, a u8 tensor `[channels, height, width]`\n- `.idx`: a tensor; the files of MNIST, also compressed \
              ones, need `format=\"idx\"`\n\nNothing in a file is ever run. Links are refused without `links=true`.",
        example: "let path = files.temp_folder() ++ \"/x.npy\"\nsave(path, [[1.5, 2.0], [3.0, 4.0]])\n\
                  assert(equal(load(path), [[1.5, 2.0], [3.0, 4.0]]))\nassert(load(path, device=cpu).device == cpu)",
        run: part!("files", formats::load::load),
    },
    NativeDef {
        name: "save",
        receiver: "",
        signature: takes(&[
            text_param("path"),
            any("value"),
            Param::named("metadata", Kind::Any, Default::None),
            FORMAT,
            Param::named("header", Kind::Bool, Default::None),
            DELIMITER,
            LINKS,
        ]),
        doc: "Writes a tensor, or a dict or record of tensors, to a file whose extension selects the format (see \
              `load`). The file is replaced atomically: if writing fails, the old file stays. `metadata` is a dict or \
              record of strings, for `.safetensors`.",
        example: "let path = files.temp_folder() ++ \"/net.safetensors\"\n\
                  save(path, (w = ones(2, 3), b = zeros(3, dtype=bf16)), metadata=(step = \"7\"))\n\
                  let net = load(path)\nassert(net[\"b\"].dtype == bf16)\nassert(files.metadata(path)[\"step\"] == \"7\")",
        run: part!("files", formats::save::save),
    },
    NativeDef {
        name: "files.names",
        receiver: "",
        signature: takes(&[text_param("path"), FORMAT, LINKS]),
        doc: "The names of a file's entries, without loading them: a list; empty for formats without names.",
        example: "let path = files.temp_folder() ++ \"/x.npz\"\nsave(path, (a = zeros(2), b = ones(2)))\n\
                  assert(files.names(path) == [\"a\", \"b\"])",
        run: part!("files", formats::load::names),
    },
    NativeDef {
        name: "files.metadata",
        receiver: "",
        signature: takes(&[text_param("path"), FORMAT, LINKS]),
        doc: "The metadata of a `.safetensors` file: a dict of strings.",
        example: "let path = files.temp_folder() ++ \"/x.safetensors\"\nsave(path, (a = zeros(2)), metadata=(by = \"me\"))\n\
                  assert(files.metadata(path)[\"by\"] == \"me\")",
        run: part!("files", formats::load::metadata),
    },
    NativeDef {
        name: "files.list",
        receiver: "",
        signature: takes(&[text_param("path")]),
        doc: "The names in a folder, sorted; those of folders end with `/`.",
        example: "let folder = files.temp_folder()\nwrite(folder ++ \"/b.txt\", \"\")\nwrite(folder ++ \"/a.txt\", \"\")\n\
                  assert(files.list(folder) == [\"a.txt\", \"b.txt\"])",
        run: open::list,
    },
    NativeDef {
        name: "files.formats",
        receiver: "",
        signature: takes(&[]),
        doc: "The file formats: a dict from each name to a description of such files.",
        example: "assert(\"npy\" in files.formats())",
        run: part!("files", formats::all),
    },
    NativeDef {
        name: "files.temp_folder",
        receiver: "",
        signature: takes(&[]),
        doc: "The path of a new, empty folder of this session. It is removed with the session. If scripts may use only \
              some folders, it is in the first of them.",
        example: "let folder = files.temp_folder()\nwrite(folder ++ \"/note.txt\", \"hello\")\n\
                  assert(read(folder ++ \"/note.txt\") == \"hello\")",
        run: |vm, _| vm.temp_folder().map(Value::str),
    },
];

/// The contents of a regular file of the embedder; does not wait for pipes or devices.
///
/// # Errors
///
/// E0907; E0920 if it is not a regular file; and errors that end a script.
pub(crate) fn read_file(path: &str) -> Result<Vec<u8>> {
    open::bytes(path).map_err(|refusal| refusal.of(path))
}
