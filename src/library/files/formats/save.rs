//! Writing files: tensors are copied from their devices one by one.

use super::replace;
use super::{options, source};
use crate::base::Result;
use crate::files::{Column, Contents, Entry, error as format_error};
use crate::tensor::Tensor;
use crate::vm::{Value, Vm, error};

/// `save(path, value, metadata, format, header, delimiter, links)`
pub(in crate::library::files) fn save(vm: &mut Vm, args: &mut [Value]) -> Result<Value> {
    let source = source(vm, args, [3, 6])?;
    let options = options(&source, args, [4, 5])?;
    let notes = texts(&args[2])?;
    let (mut entries, mut tensors) = (Vec::new(), Vec::new());
    let fields = fields(&args[1])?;
    let named = fields.is_some();
    for (name, value) in fields.unwrap_or_else(|| vec![(String::new(), args[1].clone())]) {
        let (column, tensor) = column(vm, &value, &name, source.format.name)?;
        entries.push(Entry { name, column });
        tensors.push(tensor);
    }
    if !notes.is_empty() && source.format.name != "safetensors" {
        return Err(format_error::contents(source.format.name, "no strings besides tensors", "metadata")
            .help("`.safetensors` files have metadata"));
    }
    let mut bytes = |index: usize| match &tensors[index] {
        Some(tensor) => vm.rt.read(tensor),
        None => Ok(Vec::new()),
    };
    replace(&source.path, source.links, |output| {
        (source.format.write)(output, Contents { entries, named, notes, bytes: &mut bytes }, &options)
    })?;
    Ok(Value::None)
}

/// The fields of a dict or a record.
fn fields(value: &Value) -> Result<Option<Vec<(String, Value)>>> {
    match value {
        Value::Record(record) => Ok(Some(record.fields().map(|(n, v)| (n.to_string(), v.clone())).collect())),
        Value::Dict(dict) => {
            let table = dict.borrow();
            let named = table.iter().map(|(key, value)| match key.value().as_str() {
                Some(name) => Ok((name.to_string(), value.clone())),
                None => Err(error::bad_value(1, "the names of what is saved are strings")),
            });
            named.collect::<Result<Vec<_>>>().map(Some)
        }
        _ => Ok(None),
    }
}

fn column(vm: &mut Vm, value: &Value, name: &str, format: &str) -> Result<(Column, Option<Tensor>)> {
    if let Some(tensor) = vm.as_tensor(value, None)? {
        let column = Column::Array { dtype: tensor.dtype(), shape: tensor.shape().to_vec() };
        return Ok((column, Some(tensor)));
    }
    if let Value::List(list) = value {
        let texts: Option<Vec<String>> =
            list.borrow().iter().map(|v| v.as_str().map(str::to_string)).collect();
        if let Some(texts) = texts {
            return Ok((Column::Texts(texts), None));
        }
    }
    let found = match name {
        "" => error::a(value.type_name()),
        name => format!("{} (`{name}`)", error::a(value.type_name())),
    };
    Err(format_error::contents(format, "tensors", &found))
}

/// Named strings, from a dict or a record.
fn texts(value: &Value) -> Result<Vec<(String, String)>> {
    let wrong = || error::bad_value(2, "metadata is a dict or a record of strings");
    match (value, fields(value)?) {
        (Value::None, _) => Ok(Vec::new()),
        (_, None) => Err(wrong()),
        (_, Some(fields)) => fields
            .into_iter()
            .map(|(n, v)| v.as_str().map(|t| (n, t.to_string())).ok_or_else(wrong))
            .collect(),
    }
}
