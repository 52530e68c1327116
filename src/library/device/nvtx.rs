//! `nvtx`: named ranges of a script, for profiles and NVIDIA's tools.

use crate::base::Result;
use crate::ops::error::{bad_value, wrong_argument};
use crate::ops::signature::{Kind, Param, Signature};
use crate::vm::{Context, NativeDef, Value};

const NAMED: Signature = Signature { params: &[Param::new("name", Kind::Str)] };

/// A range around a block.
fn range(args: &[Value]) -> Result<Value> {
    let name = args[0].as_str().unwrap_or("").to_string();
    Ok(Context::value("nvtx", move |vm| {
        vm.rt.range_push(&name);
        Ok(Box::new(|vm| {
            vm.rt.range_pop();
            Ok(())
        }))
    }))
}

/// The natives of this file.
pub(super) static NATIVES: &[NativeDef] = &[
    NativeDef {
        name: "nvtx.mark",
        receiver: "",
        signature: NAMED,
        doc: "Marks a point in time, in profiles and in NVIDIA's tools.\n\nSource: `torch.cuda.nvtx.mark`.",
        example: "nvtx.mark(\"epoch 1\")",
        run: |vm, args| {
            vm.rt.mark(args[0].as_str().unwrap_or(""));
            Ok(Value::None)
        },
    },
    NativeDef {
        name: "nvtx.range_push",
        receiver: "",
        signature: NAMED,
        doc: "Begins a range inside the open range, and returns its depth, from 0. `with nvtx(name) { }` is better: it \
              ends automatically.\n\nSource: `torch.cuda.nvtx.range_push`.",
        example: "assert(nvtx.range_push(\"outer\") == 0)\nassert(nvtx.range_push(\"inner\") == 1)\nnvtx.range_pop()\nnvtx.range_pop()",
        run: |vm, args| Ok(Value::Int(vm.rt.range_push(args[0].as_str().unwrap_or("")))),
    },
    NativeDef {
        name: "nvtx.range_pop",
        receiver: "",
        signature: Signature { params: &[] },
        doc: "Ends the innermost range, and returns its depth, from 0; -1 if no range is open.\n\nSource: \
              `torch.cuda.nvtx.range_pop`.",
        example: "nvtx.range_push(\"step\")\nassert(nvtx.range_pop() == 0)\nassert(nvtx.range_pop() == -1)",
        run: |vm, _| Ok(Value::Int(vm.rt.range_pop())),
    },
    NativeDef {
        name: "nvtx.range_start",
        receiver: "",
        signature: NAMED,
        doc: "Begins a range that may overlap others, and returns its handle for `nvtx.range_end`.\n\nSource: `torch.cuda.nvtx.range_start`.",
        example: "let r = nvtx.range_start(\"load\")\nnvtx.range_end(r)",
        run: |vm, args| Ok(Value::Int(vm.rt.range_start(args[0].as_str().unwrap_or("")) as i64)),
    },
    NativeDef {
        name: "nvtx.range_end",
        receiver: "",
        signature: Signature { params: &[Param::new("range", Kind::Int)] },
        doc: "Ends a range of `nvtx.range_start`.\n\nSource: `torch.cuda.nvtx.range_end`.",
        example: "let a = nvtx.range_start(\"a\")\nlet b = nvtx.range_start(\"b\")\nnvtx.range_end(a)\nnvtx.range_end(b)",
        run: |vm, args| {
            let Some(handle) = args[0].as_int() else {
                return Err(wrong_argument(0, "the handle of a range"));
            };
            match vm.rt.range_end(handle as u64) {
                true => Ok(Value::None),
                false => Err(bad_value(
                    0,
                    format!("there is no open range `{handle}`"),
                    "pass a result of `nvtx.range_start`, once",
                )),
            }
        },
    },
    NativeDef {
        name: "nvtx.range",
        receiver: "",
        signature: NAMED,
        doc: "Names the work inside `with`, as `nvtx` does.\n\nSource: `torch.cuda.nvtx.range`.",
        example: "with nvtx.range(\"forward\") { ones(3) + 1 }",
        run: |_, args| range(args),
    },
    NativeDef {
        name: "nvtx",
        receiver: "",
        signature: NAMED,
        doc: "Names the work inside `with`, in profiles and in NVIDIA's tools (Nsight Systems). Without a tool only profiles see it.\n\nSource: `torch.cuda.nvtx.range`.",
        example: "with nvtx(\"forward\") { ones(3) + 1 }",
        run: |_, args| range(args),
    },
];
