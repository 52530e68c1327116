//! `foreach`: the same update of many tensors.

use super::tree::leaves;
use super::{any, takes};
use crate::base::Result;
use crate::ops::signature::{Kind, Param};
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
    signature: takes(&[any("f"), any("rows"), Param::rest("more", Kind::Any)]),
    doc: "Updates many tensors in place, in few launches: calls `f(i)` for row `i` of `rows`: tensors, or trees of \
          them, which `f` may read and write by elementwise operations. With several lists, a row has the elements at \
          the same position. The operations must be the same for all rows of the same dtypes: `f` is not called for a \
          row if an earlier call has shown its operations.\n\nOptimisers \
          use it for their parameters. While operations are recorded, `f` is called for each row. Source: \
          `torch._foreach_add_` and others, for any operations.",
    example: "let (weights, steps) = ([ones(2), ones(3, 3)], [full([2], 0.5), zeros(3, 3)])\nforeach(|i| weights[i].mul_(2).sub_(steps[i]), weights, steps)\nassert(equal(weights[0], [1.5, 1.5]) and equal(weights[1], full([3, 3], 2.0)))",
    run: |vm, args| {
        let f = args[0].clone();
        let mut columns = vec![vm.collect(&args[1])?];
        for more in &vm.collect(&args[2])? {
            columns.push(vm.collect(more)?);
        }
        let count = columns.iter().map(|column| column.len()).min().unwrap_or(0);
        let mut kinds: Vec<Repeated> = Vec::new();
        let mut seen = HashSet::default();
        let mut bytes = 0;
        let done = (0..count).try_for_each(|number| {
            vm.charge(1)?;
            let tensors = tensors_of(vm, columns.iter().map(|column| &column[number]))?;
            let kind = kind_of(vm, &kinds, &tensors)?;
            // Rows that share memory are updated in order.
            if !tensors.iter().all(|tensor| seen.insert(address_of(tensor))) || kind.is_none() {
                submit(vm, &mut kinds)?;
                seen = tensors.iter().map(address_of).collect();
            }
            if let Some(kind) = kind {
                bytes += bytes_of(&tensors);
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
            let size = bytes_of(&tensors);
            if let Some(template) = begun.and_then(|begun| vm.rt.template(begun, &tensors)) {
                kinds.push(Repeated { template, first: tensors, rows: Vec::new() });
            }
            if size >= ENOUGH { vm.rt.flush() } else { Ok(()) }
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

fn bytes_of(tensors: &[Tensor]) -> u64 {
    tensors.iter().map(|tensor| tensor.layout().bytes(tensor.dtype())).sum()
}

fn address_of(tensor: &Tensor) -> usize {
    std::ptr::from_ref(tensor.storage()).addr()
}

/// The tensors of a row; none if it has other values too.
fn tensors_of<'v>(vm: &mut Vm, row: impl Iterator<Item = &'v Value>) -> Result<Vec<Tensor>> {
    let tensor = |value| match value {
        Value::Tensor(tensor) => Some(tensor),
        _ => None,
    };
    let mut values = Values::new();
    for value in row {
        leaves(vm, value, &mut values, 0)?;
    }
    Ok(values.into_iter().map(tensor).collect::<Option<_>>().unwrap_or_default())
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
