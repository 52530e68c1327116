//! Networks as text: the layers of a record that has a `forward`, with the shapes of their tensors.
//!
//! `print` shows a network as PyTorch does, without its weights; `repr` shows all values. Depth is bounded, and lists that
//! contain themselves print as `...`.

use super::heap::Record;
use super::print::{DEPTH, INDENT};
use super::value::Value;
use super::{Vm, charge_text};
use crate::base::Result;
use std::rc::Rc;

/// The entries of a container that are shown as lines of their own, with their names.
type Lines = Vec<(String, Value)>;

/// True for a layer: a record with a function `forward`.
pub(super) fn is_layer(record: &Record) -> bool {
    matches!(record.get("forward"), Some(Value::Fn(_) | Value::Native(_) | Value::Bound(_)))
}

impl Vm {
    /// The structure of a layer.
    pub(super) fn structure(&mut self, layer: &Value) -> Result<String> {
        let mut text = String::new();
        self.write_structure(layer, &mut text, &mut Vec::new())?;
        Ok(text)
    }

    fn write_structure(&mut self, value: &Value, text: &mut String, open: &mut Vec<*const ()>) -> Result<()> {
        self.charge(1)?;
        charge_text(text, 64 + INDENT * open.len())?;
        let (pointer, name) = match value {
            Value::Record(record) => (Rc::as_ptr(record).cast::<()>(), made_by(record)),
            Value::List(list) => (Rc::as_ptr(list).cast(), "list".into()),
            Value::Tuple(tuple) => (Rc::as_ptr(tuple).cast(), "tuple".into()),
            Value::Dict(dict) => (Rc::as_ptr(dict).cast(), "dict".into()),
            Value::Tensor(tensor) => {
                text.push_str(&tensor_text(tensor));
                return Ok(());
            }
            Value::Fn(closure) => return self.push_text(text, closure.proto.name.trim_matches(['<', '>'])),
            Value::Native(native) => return self.push_text(text, &native.name),
            other => {
                let shown = self.repr(other)?;
                return self.push_text(text, &shown);
            }
        };
        if open.contains(&pointer) || open.len() >= DEPTH {
            text.push_str("...");
            return Ok(());
        }
        let (settings, lines) = self.parts_of(value)?;
        open.push(pointer);
        self.push_text(text, &name)?;
        text.push('(');
        for (i, setting) in settings.iter().enumerate() {
            charge_text(text, 64)?;
            text.push_str(if i > 0 { ", " } else { "" });
            self.push_text(text, setting)?;
        }
        for (name, value) in &lines {
            charge_text(text, 64 + INDENT * open.len() + name.len())?;
            text.push('\n');
            text.push_str(&" ".repeat(INDENT * open.len()));
            text.push_str(&format!("({name}): "));
            self.write_structure(value, text, open)?;
        }
        if !lines.is_empty() {
            text.push('\n');
            text.push_str(&" ".repeat(INDENT * (open.len() - 1)));
        }
        text.push(')');
        open.pop();
        Ok(())
    }

    /// The settings and tensors of a layer, and its inner layers.
    fn parts_of(&mut self, value: &Value) -> Result<(Vec<String>, Lines)> {
        let (mut settings, mut lines) = (Vec::new(), Lines::new());
        match value {
            Value::Record(record) => match record.layers() {
                Some(layers) => return self.parts_of(&Value::List(Rc::clone(layers))),
                None => {
                    for (name, value) in record.fields() {
                        self.charge(1)?;
                        let is_hidden = matches!(&**name, "training" | "forward");
                        match value {
                            Value::None | Value::Fn(_) | Value::Native(_) | Value::Bound(_) => {}
                            _ if is_hidden => {}
                            Value::Tensor(tensor) => settings.push(format!("{name}={}", tensor_text(tensor))),
                            Value::Record(_) | Value::Dict(_) => {
                                lines.push((name.to_string(), value.clone()))
                            }
                            Value::List(_) | Value::Tuple(_) => match self.setting(value)? {
                                Some(shown) => settings.push(format!("{name}={shown}")),
                                None => lines.push((name.to_string(), value.clone())),
                            },
                            other => {
                                let shown = self.repr(other)?;
                                settings.push(format!("{name}={shown}"));
                            }
                        }
                    }
                }
            },
            Value::List(_) | Value::Tuple(_) => {
                for (i, value) in self.collect(value)?.iter().enumerate() {
                    lines.push((i.to_string(), value.clone()));
                }
            }
            Value::Dict(dict) => {
                for (key, value) in dict.borrow().iter() {
                    self.charge(1)?;
                    let key = key.value().as_str().map_or_else(|| "...".to_string(), str::to_string);
                    lines.push((key, value.clone()));
                }
            }
            _ => {}
        }
        Ok((settings, lines))
    }

    /// A list or tuple of a few numbers, such as `kernel_size`.
    fn setting(&mut self, value: &Value) -> Result<Option<String>> {
        const MOST: usize = 8;
        if self.length(value)? > MOST {
            return Ok(None);
        }
        let plain = |value: &Value| {
            matches!(value, Value::None | Value::Bool(_) | Value::Int(_) | Value::Float(_) | Value::Str(_))
        };
        let items = self.collect(value)?;
        if items.iter().all(plain) { self.repr(value).map(Some) } else { Ok(None) }
    }
}

/// `f32[2, 3]`
fn tensor_text(tensor: &crate::tensor::Tensor) -> String {
    format!("{}{:?}", tensor.dtype(), tensor.shape().as_slice())
}

/// The function that made a layer, `linear`; empty if it has no name.
fn made_by(record: &Record) -> String {
    if record.layers().is_some() {
        return "sequential".into();
    }
    match record.get("forward") {
        Some(Value::Fn(closure)) => closure.proto.maker.as_deref().unwrap_or("").to_string(),
        _ => String::new(),
    }
}
