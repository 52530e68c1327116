//! Formats values for the session.

use crate::base::Result;
use crate::driver::DeviceId;
use crate::vm::{Value, Vm};

/// A value's text, and a tensor's description.
pub struct Shown {
    text: String,
    kind: Option<String>,
}

/// The text of a value; reads a tensor's elements. Waits for all streams first, because the script does not
/// order this read.
pub fn value(vm: &mut Vm, value: &Value) -> Result<Shown> {
    if matches!(value, Value::Tensor(_)) || is_container(value) {
        settle(vm)?;
    }
    let kind = match value {
        Value::Tensor(tensor) => Some(tensor.describe()),
        _ => None,
    };
    Ok(Shown { text: vm.inspect(value)?, kind })
}

/// The lines to print.
pub fn styled(shown: &Shown, color: bool) -> String {
    match &shown.kind {
        Some(kind) if color => format!("{}\n\x1b[2m{kind}\x1b[0m\n", shown.text),
        Some(kind) => format!("{}\n{kind}\n", shown.text),
        None => format!("{}\n", shown.text),
    }
}

/// A description of a value that does not read it: `int`, `tensor f32[2, 3] on cuda:0`, `list of 3`.
pub fn kind(value: &Value) -> String {
    match value {
        Value::Tensor(tensor) => format!("tensor {}", tensor.describe()),
        Value::List(list) => format!("list of {}", list.len()),
        Value::Tuple(tuple) => format!("tuple of {}", tuple.items().len()),
        Value::Record(record) => {
            let fields: Vec<String> =
                record.fields().map(|(name, value)| format!("{name}: {}", value.type_name())).collect();
            format!("record ({})", fields.join(", "))
        }
        Value::Native(native) => format!("fn {}{}", native.name, native.signature),
        other => other.type_name().to_string(),
    }
}

/// Submits pending work and waits for every device in use.
pub fn settle(vm: &mut Vm) -> Result<()> {
    vm.flush()?;
    let opened: Vec<DeviceId> = vm.rt.machine().opened().map(|device| device.id()).collect();
    opened.into_iter().try_for_each(|id| vm.rt.synchronize_device(id))
}

fn is_container(value: &Value) -> bool {
    matches!(value, Value::List(_) | Value::Tuple(_) | Value::Record(_) | Value::Dict(_))
}
