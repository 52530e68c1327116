//! `profile`: records a block into a file for Perfetto.

use crate::base::Result;
use crate::library::files::open::put;
use crate::library::io::allowed;
use crate::ops::signature::{Kind, Param, Signature};
use crate::plan::trace::{Recording, chrome};
use crate::vm::{Context, NativeDef, Vm};

/// Writes a recording to a file.
pub fn write(vm: &Vm, recording: &Recording, path: &str) -> Result<()> {
    let text = chrome::json(recording, |span| vm.sources.place(span));
    put(path, text.as_bytes())
}

/// The natives of this file.
pub(super) static NATIVES: &[NativeDef] = &[NativeDef {
    name: "profile",
    receiver: "",
    signature: Signature { params: &[Param::new("file", Kind::Str)] },
    doc: "Writes what happens inside `with` to a file that Perfetto (ui.perfetto.dev) and `chrome://tracing` open: one row per stream of each device with its launches and copies, their source lines, shapes and bytes, and one of the script with its waits and `nvtx` ranges. Leaving waits for the work; the file is also written after an error.\n\nOn CUDA devices the times are measured by events; on emulated devices they come from a model, and are the same every time. `runnel run --profile FILE` does this for a whole script.",
    example: "let file = \"/dev/null\" # or \"trace.json\"\nwith profile(file) { (ones(100) * 2).sum().item() }",
    run: |vm, args| {
        let path = allowed(vm, &args[0])?;
        Ok(Context::value("profile", move |vm| {
            let since = vm.rt.start_trace()?;
            let path = path.clone();
            Ok(Box::new(move |vm| {
                let (recording, done) = vm.rt.stop_trace(since);
                done.and(write(vm, &recording, &path))
            }))
        }))
    },
}];
