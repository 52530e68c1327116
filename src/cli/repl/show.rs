//! Values as the session shows them.

use crate::base::Result;
use crate::vm::{Value, Vm};

/// A value's text, and for a tensor what it is.
pub struct Shown {
    text: String,
    kind: Option<String>,
}

/// How a value is shown; reads a tensor's elements.
pub fn value(vm: &mut Vm, value: &Value) -> Result<Shown> {
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

/// What a value is, without reading it: `int`, `tensor f32[2, 3] on cuda:0`, `list of 3`.
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
