//! `foreach`: the same update of many tensors.

use super::tree::leaves;
use super::{any, takes};
use crate::base::Result;
use crate::plan::Template;
use crate::tensor::Tensor;
use crate::vm::{NativeDef, Value, Vm};

/// Maximum number of templates.
const MAX_TEMPLATES: usize = 8;

/// The natives of this file.
pub static TABLE: &[NativeDef] = &[NativeDef {
    name: "foreach",
    receiver: "",
    signature: takes(&[any("f"), any("rows")]),
    doc: "Updates many tensors in place, in few launches: calls `f(i)` for row `i` of `rows`: tensors, or trees of them, which `f` may read and write by elementwise operations. The operations must be the same for all rows of the same dtypes: `f` is not called for a row if an earlier call shows what to do.\n\nOptimisers \
          use it for their parameters. While operations are recorded, `f` is called for each row. \
          Source: `torch._foreach_add_` and others, for any operations.",
    example: "let (weights, steps) = ([ones(2), ones(3, 3)], [full([2], 0.5), zeros(3, 3)])\nforeach(|i| weights[i].mul_(2).sub_(steps[i]), zip(weights, steps))\nassert(equal(weights[0], [1.5, 1.5]) and equal(weights[1], full([3, 3], 2.0)))",
    run: |vm, args| {
        let (f, rows) = (args[0].clone(), vm.collect(&args[1])?);
        let mut kinds: Vec<Template> = Vec::new();
        for (number, row) in rows.iter().enumerate() {
            vm.charge(1)?;
            let tensors = tensors_of(vm, row)?;
            if repeated(vm, &kinds, &tensors)? {
                continue;
            }
            let begun = match tensors.first() {
                Some(first) if kinds.len() < MAX_TEMPLATES && may_repeat(vm) => {
                    Some(vm.rt.begin_template(first.device())?)
                }
                _ => None,
            };
            vm.callback(&f, &[Value::Int(number as i64)])?;
            kinds.extend(begun.and_then(|begun| vm.rt.template(&begun, &tensors)));
        }
        Ok(Value::None)
    },
}];

/// The tensors of a row; none if it has other values too.
fn tensors_of(vm: &mut Vm, row: &Value) -> Result<Vec<Tensor>> {
    let tensor = |value: &Value| match value {
        Value::Tensor(tensor) => Some(tensor.clone()),
        _ => None,
    };
    let mut values = Vec::new();
    leaves(vm, row, &mut values, 0)?;
    Ok(values.iter().map(tensor).collect::<Option<_>>().unwrap_or_default())
}

/// False when operations are recorded, or each one counts for a limit.
fn may_repeat(vm: &Vm) -> bool {
    let recording = &vm.rt.recording;
    !(recording.used && recording.enabled) && vm.rt.quota.fuel.is_none()
}

/// Submits the operations of an earlier row with these tensors; false if there is none of their kind.
fn repeated(vm: &mut Vm, kinds: &[Template], tensors: &[Tensor]) -> Result<bool> {
    if !may_repeat(vm) {
        return Ok(false);
    }
    for kind in kinds {
        let Some(written) = vm.rt.repeat(kind, tensors)? else { continue };
        if vm.rt.recording.used {
            let span = vm.rt.span;
            written.for_each(|number| tensors[number].note_write(span));
        }
        return Ok(true);
    }
    Ok(false)
}
