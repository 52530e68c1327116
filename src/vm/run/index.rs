//! `x[i]`, `x[i] = v` and `x.name`.

use std::rc::Rc;

use super::super::counted::Counted;
use super::super::function::Bound;
use super::super::heap::{List, Range, Record};
use super::super::text::Text;
use super::super::value::Value;
use super::super::values::Values;
use super::super::{Vm, charge_text, charge_values, error};
use crate::base::{Result, this_is};
use crate::tensor::Tensor;

impl Vm {
    /// `container[index]`.
    pub fn index(&mut self, container: &Value, index: &Value) -> Result<Value> {
        if let (Value::Tensor(tensor), false) =
            (index, matches!(container, Value::Tensor(_) | Value::Dict(_)))
            && let Some(at) = self.whole(tensor)?
        {
            return self.index(container, &at);
        }
        match container {
            Value::List(list) => match index {
                Value::Range(range) => Ok(Value::list(pick(self, &list.borrow(), range)?)),
                _ => {
                    let at = position("list", index, list.len())?;
                    Ok(list.get(at).unwrap_or_default())
                }
            },
            Value::Tuple(tuple) => match index {
                Value::Range(range) => Ok(Value::tuple(pick(self, tuple.items(), range)?)),
                _ => Ok(tuple.items()[position("tuple", index, tuple.items().len())?].clone()),
            },
            Value::Str(text) => match index {
                Value::Range(range) => {
                    let (start, step, count) = range.slice(text.chars());
                    match step == 1 || count == 0 {
                        true => part_of(self, text.part(start, start + count)),
                        false => every(self, text, start, step, count),
                    }
                }
                _ => {
                    let from = text.offset(position("str", index, text.chars())?);
                    let one = text.as_str()[from..].chars().next();
                    Ok(Value::str(one.map(String::from).unwrap_or_default()))
                }
            },
            Value::Dict(dict) => match dict.get(index)? {
                Some(value) => Ok(value),
                None => Err(error::no_key(&self.short_repr(index))),
            },
            Value::Range(range) => {
                if let Value::Range(part) = index {
                    let taken = range.part(part);
                    return taken
                        .map(|r| Value::range(r.start, r.end, r.step))
                        .ok_or_else(|| error::bad_value(1, "the resulting range does not fit in ints"));
                }
                if range.is_too_long() && index.as_int().is_some_and(|at| at < 0) {
                    return Err(error::too_long());
                }
                let length = range.count().unwrap_or(usize::MAX >> 1);
                let at = position("range", index, length)?;
                range.get(at).map(Value::Int).ok_or_else(|| error::index_range("range", at as i64, length))
            }
            Value::Record(record) => match index {
                Value::Str(name) if record.position(name.as_str()).is_some() => {
                    Ok(record.get(name.as_str()).cloned().unwrap_or_default())
                }
                Value::Int(_) | Value::Range(_) if record.layers().is_some() => {
                    self.layer_index(record, index)
                }
                Value::Range(range) => Ok(Value::tuple(pick(self, record.values(), range)?)),
                Value::Int(_) => {
                    Ok(record.values()[position("record", index, record.values().len())?].clone())
                }
                _ => Err(error::not_indexable("record")),
            },
            Value::Tensor(_) => self.tensor_index(container, index),
            Value::Object(_) => self.object_index(container, index),
            other => Err(error::not_indexable(other.type_name())),
        }
    }

    /// `net[0]` is a layer of a sequential network, `net[1..]` the network of some layers.
    fn layer_index(&mut self, record: &Rc<Record>, index: &Value) -> Result<Value> {
        let Some(layers) = record.layers() else { return Err(error::not_indexable("record")) };
        let picked = self.index(&Value::List(Rc::clone(layers)), index)?;
        match (index, record.position("layers")) {
            (Value::Range(_), Some(at)) => {
                let mut part = Record::clone(record);
                part.replace(at, picked);
                Ok(Value::Record(Rc::new(part)))
            }
            _ => Ok(picked),
        }
    }

    /// `container[index] = value`.
    pub fn set_index(&mut self, container: &Value, index: &Value, value: Value) -> Result<()> {
        if let (Value::Tensor(tensor), Value::List(_)) = (index, container)
            && let Some(at) = self.whole(tensor)?
        {
            return self.set_index(container, &at, value);
        }
        match container {
            Value::List(list) => match index {
                Value::Range(range) => self.set_slice(list, range, &value),
                _ => {
                    let at = position("list", index, list.len())?;
                    list.set(at, value);
                    Ok(())
                }
            },
            Value::Dict(dict) => dict.set(index, &value),
            Value::Tensor(_) => self.tensor_set_index(container, index, value),
            other => {
                let name = other.type_name();
                let help = match name {
                    "tuple" => "make a list first, `list(t)`, or a new tuple",
                    "str" => "make a new string: `text[..i] ++ \"x\" ++ text[i + 1..]`",
                    "record" => {
                        "assign a field by its name, `r.field = x`, or make a new record: `(..r, field = x)`"
                    }
                    _ => "lists, dicts and tensors take `x[i] = value`",
                };
                let message = format!("an element of {} cannot be assigned to", error::a(name));
                Err(error::not_assignable(message, help)
                    .operand(0, this_is(format!("{}, which cannot be changed", error::a(name)))))
            }
        }
    }

    /// The int in a tensor of one element, read from the device: `names[scores.argmax()]`.
    fn whole(&mut self, tensor: &Tensor) -> Result<Option<Value>> {
        if tensor.count() != 1 || !tensor.dtype().is_int() {
            return Ok(None);
        }
        self.rt.item(tensor).map(|item| Some(Value::Int(item.as_i64())))
    }

    fn set_slice(&mut self, list: &Rc<List>, range: &Range, value: &Value) -> Result<()> {
        let items = self.collect(value)?;
        let (start, step, count) = range.slice(list.len());
        if step == 1 {
            self.charge((list.len() - start).max(items.len()) / 8)?;
            return list.splice(start..start + count, items).map(drop);
        }
        if items.len() != count {
            return Err(error::slice_length(items.len(), count));
        }
        for (i, item) in items.into_iter().enumerate() {
            self.charge(1)?;
            list.set((start as i64 + i as i64 * step) as usize, item);
        }
        Ok(())
    }

    /// `object.name`.
    pub fn attribute(&mut self, object: &Value, name: &str) -> Result<Value> {
        match object {
            Value::Record(record) => {
                if let Some(value) = record.get(name) {
                    return Ok(value.clone());
                }
            }
            Value::Module(module) => {
                let slot = module.names.borrow().get(name).copied();
                if let Some(slot) = slot {
                    return match &self.globals.values[slot as usize] {
                        Value::Unset => Err(error::unset(name)),
                        value => Ok(value.clone()),
                    };
                }
                if let Some(value) = module.natives.borrow().get(name) {
                    return Ok(value.clone());
                }
            }
            Value::Error(caught) => {
                if let Some(value) = self.error_attribute(caught, name) {
                    return Ok(value);
                }
            }
            Value::Range(range) => match name {
                "start" => return Ok(range.start.into()),
                "end" => return Ok(range.end.into()),
                "step" => return Ok(Value::Int(range.step)),
                _ => {}
            },
            Value::Object(handle) => {
                let handle = Rc::clone(handle);
                if let Some(value) = handle.get().attribute(self, name)? {
                    return Ok(value);
                }
            }
            _ => {}
        }
        if let Some(value) = self.natives.attribute(object, name) {
            return (value)(self, object);
        }
        if let Some(method) = self.natives.method(object, name) {
            return Ok(Value::Bound(Counted::shared(Bound { receiver: object.clone(), method })));
        }
        let known = self.attribute_names(object);
        Err(error::no_attribute(object.type_name(), name, known.iter().map(|n| &**n)))
    }

    /// The attributes and methods of a value, for suggestions and completion.
    pub fn attribute_names(&self, object: &Value) -> Vec<Rc<str>> {
        let mut names: Vec<Rc<str>> = match object {
            Value::Record(record) => record.names().iter().cloned().collect(),
            Value::Module(module) => {
                let names = module.names.borrow();
                let natives = module.natives.borrow();
                let natives = natives.keys().filter(|name| !name.is_empty());
                names.keys().chain(natives).cloned().collect()
            }
            Value::Error(_) => ["kind", "message", "line", "help", "code"].map(Rc::from).into(),
            Value::Range(_) => ["start", "end", "step"].map(Rc::from).into(),
            Value::Object(handle) => handle.get().attributes().iter().map(|n| Rc::from(*n)).collect(),
            _ => Vec::new(),
        };
        names.extend(self.natives.names_of(object.type_name()));
        names
    }

    pub(super) fn set_attribute(&mut self, object: &Value, name: &str, value: &Value) -> Result<()> {
        if let Some(setter) = self.natives.setter(object, name) {
            return setter(self, object, value);
        }
        match object {
            Value::Object(handle) => {
                let handle = Rc::clone(handle);
                handle.get().assign(self, name, value)
            }
            Value::Module(module) => {
                let slot = module.names.borrow().get(name).copied();
                match slot {
                    Some(slot) => {
                        self.globals.values[slot as usize] = value.clone();
                        Ok(())
                    }
                    None => {
                        let known = self.attribute_names(object);
                        Err(error::no_attribute("module", name, known.iter().map(|n| &**n)))
                    }
                }
            }
            other => {
                let what = error::a(other.type_name());
                let message = format!("`{name}` of {what} cannot be assigned to");
                if let Value::Dict(_) = other {
                    return Err(error::not_assignable(
                        message,
                        format!("a key is written with brackets: `d[\"{name}\"] = x`"),
                    ));
                }
                Err(error::not_assignable(
                    message,
                    "records, modules and the objects of an embedding program have fields to assign",
                )
                .operand(0, this_is(what.to_string())))
            }
        }
    }

    /// `e.kind`, `e.message`, `e.line`, `e.help`, `e.code`.
    fn error_attribute(&self, caught: &super::super::heap::ErrorValue, name: &str) -> Option<Value> {
        Some(match name {
            "kind" => Value::str(caught.error.kind().to_string()),
            "message" => Value::str(caught.error.message()),
            "line" => Value::Int(caught.line as i64),
            "help" => caught.error.help_text().map(Value::str).unwrap_or_default(),
            "code" => Value::str(caught.error.code().id),
            _ => return None,
        })
    }
}

/// The position of an int that may count from the end.
fn position(container: &str, index: &Value, length: usize) -> Result<usize> {
    let Some(index) = index.as_int() else { return Err(error::index_type(container, index.type_name())) };
    let from_end = i64::try_from(length).unwrap_or(i64::MAX);
    let at = if index < 0 { index.checked_add(from_end) } else { Some(index) };
    match at.and_then(|i| usize::try_from(i).ok()) {
        Some(at) if at < length => Ok(at),
        _ => Err(error::index_range(container, index, length)),
    }
}

/// A copy of a part of a string.
fn part_of(vm: &mut Vm, part: &str) -> Result<Value> {
    /// Copies up to this many bytes are not counted.
    const SHORT: usize = 256;
    if part.len() <= SHORT {
        return Ok(Value::str(part));
    }
    let mut copy = String::new();
    vm.push_text(&mut copy, part)?;
    Ok(Value::str(copy))
}

/// The characters of a string at `count` positions from `start` by `step`, at least one.
fn every(vm: &mut Vm, text: &Text, start: usize, step: i64, count: usize) -> Result<Value> {
    /// Maximum distance between two characters at which a scan is faster than a lookup in the string's index.
    const NEAR: usize = 64;
    /// Characters taken between two counts.
    const SOME: usize = 256;
    let skip = step.unsigned_abs() as usize;
    let at = |nth: usize| (start as i64 + nth as i64 * step) as usize;
    let mut taken = String::new();
    let mut done = 0;
    while done < count {
        let some = SOME.min(count - done);
        vm.charge(some * skip.min(NEAR) / 4)?;
        charge_text(&mut taken, 4 * some)?;
        if skip < NEAR {
            let (first, last) = (at(done), at(done + some - 1));
            let part = text.part(first.min(last), first.max(last) + 1).chars();
            match step < 0 {
                true => taken.extend(part.rev().step_by(skip)),
                false => taken.extend(part.step_by(skip)),
            }
        } else {
            let one = |nth: usize| text.as_str()[text.offset(at(nth))..].chars().next();
            taken.extend((done..done + some).filter_map(one));
        }
        done += some;
    }
    Ok(Value::str(taken))
}

fn pick(vm: &mut Vm, items: &[Value], range: &Range) -> Result<Values> {
    let (start, step, count) = range.slice(items.len());
    if step == 1 {
        return vm.copies(&items[start..start + count]);
    }
    charge_values(count)?;
    let mut picked = Values::with_capacity(count);
    for i in 0..count {
        vm.charge(1)?;
        picked.push(items[(start as i64 + i as i64 * step) as usize].clone());
    }
    Ok(picked)
}
