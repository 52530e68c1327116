//! `foreach`: the same update of many tensors.

use super::tree::leaves;
use super::{any, takes};
use crate::base::Result;
use crate::plan::Template;
use crate::tensor::Tensor;
use crate::vm::{NativeDef, Value, Values, Vm};
use foldhash::HashSet;

/// Rows with this many bytes in total are submitted at once, so that the device works on them while more are collected.
const ENOUGH: u64 = 256 << 20;

/// Maximum number of templates.
const MAX_TEMPLATES: usize = 8;

/// The natives of this file.
pub static TABLE: &[NativeDef] = &[NativeDef {
    name: "foreach",
    receiver: "",
    signature: takes(&[any("f"), any("rows")]),
    doc: "Updates many tensors in place, in few launches: calls `f(i)` for row `i` of `rows`: tensors, or trees of \
          them, which `f` may read and write by elementwise operations. The operations must be the same for all rows \
          of the same dtypes: `f` is not called for a row if an earlier call has shown its operations.\n\nOptimisers \
          use it for their parameters. While operations are recorded, `f` is called for each row. Source: \
          `torch._foreach_add_` and others, for any operations.",
    example: "let (weights, steps) = ([ones(2), ones(3, 3)], [full([2], 0.5), zeros(3, 3)])\nforeach(|i| weights[i].mul_(2).sub_(steps[i]), zip(weights, steps))\nassert(equal(weights[0], [1.5, 1.5]) and equal(weights[1], full([3, 3], 2.0)))",
    run: |vm, args| {
        let (f, rows) = (args[0].clone(), vm.collect(&args[1])?);
        let mut kinds: Vec<Repeated> = Vec::new();
        let mut seen = HashSet::default();
        let mut bytes = 0;
        let done = rows.iter().enumerate().try_for_each(|(number, row)| {
            vm.charge(1)?;
            let tensors = tensors_of(vm, row)?;
            let kind = kind_of(vm, &kinds, &tensors)?;
            // Rows that share memory are updated in order.
            if !tensors.iter().all(|tensor| seen.insert(address_of(tensor))) || kind.is_none() {
                submit(vm, &mut kinds)?;
                seen = tensors.iter().map(address_of).collect();
            }
            if let Some(kind) = kind {
                bytes += tensors.iter().map(|x| x.layout().bytes(x.dtype())).sum::<u64>();
                kinds[kind].rows.push(tensors);
                if bytes >= ENOUGH {
                    bytes = 0;
                    submit(vm, &mut kinds)?;
                }
                return Ok(());
            }
            let begun = match tensors.first() {
                Some(first) if kinds.len() < MAX_TEMPLATES && may_repeat(vm) => {
                    Some(vm.rt.begin_template(first.device(), &tensors)?)
                }
                _ => None,
            };
            vm.callback(&f, &[Value::Int(number as i64)])?;
            if let Some(template) = begun.and_then(|begun| vm.rt.template(begun, &tensors)) {
                kinds.push(Repeated { template, first: tensors, rows: Vec::new() });
            }
            Ok(())
        });
        let submitted = submit(vm, &mut kinds);
        done.and(submitted)?;
        Ok(Value::None)
    },
}];

/// Rows that are updated in the same way as an earlier one.
struct Repeated {
    template: Template,
    first: Vec<Tensor>,
    rows: Vec<Vec<Tensor>>,
}

fn address_of(tensor: &Tensor) -> usize {
    std::ptr::from_ref(tensor.storage()).addr()
}

/// The tensors of a row; none if it has other values too.
fn tensors_of(vm: &mut Vm, row: &Value) -> Result<Vec<Tensor>> {
    let tensor = |value: &Value| match value {
        Value::Tensor(tensor) => Some(tensor.clone()),
        _ => None,
    };
    let mut values = Values::new();
    leaves(vm, row, &mut values, 0)?;
    Ok(values.iter().map(tensor).collect::<Option<_>>().unwrap_or_default())
}

/// False if operations are recorded, or if each operation counts towards a limit.
fn may_repeat(vm: &Vm) -> bool {
    let recording = &vm.rt.recording;
    !(recording.used && recording.enabled) && vm.rt.quota.fuel.is_none()
}

/// The template that fits a row of tensors.
fn kind_of(vm: &mut Vm, kinds: &[Repeated], tensors: &[Tensor]) -> Result<Option<usize>> {
    if !may_repeat(vm) {
        return Ok(None);
    }
    for (number, kind) in kinds.iter().enumerate() {
        if vm.rt.fits(&kind.template, tensors)? {
            return Ok(Some(number));
        }
    }
    Ok(None)
}

/// Submits the work of the collected rows.
fn submit(vm: &mut Vm, kinds: &mut [Repeated]) -> Result<()> {
    for Repeated { template, first, rows } in kinds {
        let rows = std::mem::take(rows);
        if rows.is_empty() {
            continue;
        }
        vm.rt.repeat(template, first, &rows)?;
        if vm.rt.recording.used {
            let span = vm.rt.span;
            for row in &rows {
                template.written().for_each(|number| row[number].note_write(span));
            }
        }
    }
    Ok(())
}
