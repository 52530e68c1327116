//! `for` and other iteration over sequences.

use std::rc::Rc;

use super::super::account::{charge, charge_values, reserve};
use super::super::value::Value;
use super::super::values::Values;
use super::super::{Vm, error};
use crate::base::Result;

/// Host memory of one tensor row as a value: its handle, its layout and its list slot.
const ROW: usize = 448;

/// The elements of a sequence, one by one. A list or dict that other code may change is copied first.
pub struct Each {
    sequence: Value,
    position: i64,
}

impl Each {
    /// The next element.
    ///
    /// # Errors
    /// Limits, and those of an iterable's function.
    pub fn next(&mut self, vm: &mut Vm) -> Result<Option<Value>> {
        vm.charge(1)?;
        let Some((value, next)) = vm.element(&self.sequence, self.position)? else { return Ok(None) };
        self.position = next;
        Ok(Some(value))
    }

    /// The number of elements, if it is known.
    fn count(&self, vm: &mut Vm) -> Result<Option<usize>> {
        match &self.sequence {
            Value::Object(_) => Ok(None),
            Value::Range(range) => Ok(range.count().or(Some(usize::MAX))),
            other => vm.length(other).map(Some),
        }
    }
}

impl Vm {
    /// The elements of a sequence, one by one: a range of any length takes no memory.
    ///
    /// # Errors
    ///
    /// E0309 for a value that is not iterable; limits.
    pub fn each(&mut self, sequence: &Value) -> Result<Each> {
        let sequence = match sequence {
            Value::List(list) if Rc::strong_count(list) > 1 => Value::list(self.collect(sequence)?),
            Value::Dict(_) => Value::list(self.collect(sequence)?),
            other => self.begin_sequence(other)?,
        };
        Ok(Each { sequence, position: 0 })
    }

    /// Room for one result per element of the shortest sequence, as far as the lengths are known.
    ///
    /// # Errors
    ///
    /// Limits.
    pub fn room_for(&mut self, sequences: &[Each], slots: usize) -> Result<Values> {
        let counts: Result<Vec<_>> = sequences.iter().map(|each| each.count(self)).collect();
        let Some(count) =
            counts?.into_iter().collect::<Option<Vec<usize>>>().and_then(|c| c.into_iter().min())
        else {
            return Ok(Values::new());
        };
        charge_values(count.saturating_mul(slots))?;
        Ok(Values::with_capacity(count))
    }

    /// Appends to values that are being built.
    ///
    /// # Errors
    ///
    /// Limits.
    pub fn add(items: &mut Values, value: Value) -> Result<()> {
        if items.len() == items.capacity() {
            // While the elements move, the old and the new buffer both exist.
            charge_values(items.len().max(4) * 3)?;
            reserve(items, 1)?;
        }
        items.push(value);
        Ok(())
    }

    /// Converts start, end and step into next value, remaining count and step.
    pub(super) fn range_loop(&mut self, base: usize, first: u16) -> Result<()> {
        let at = base + first as usize;
        let range = self.range_of(base, first)?;
        let count = range.count().map_or(i64::MAX, |n| i64::try_from(n).unwrap_or(i64::MAX));
        self.calls.stack[at] = Value::Int(range.start.unwrap_or(0));
        self.calls.stack[at + 1] = Value::Int(count);
        self.calls.stack[at + 2] = Value::Int(range.step);
        Ok(())
    }

    /// Takes the next value of a range loop, if one is left.
    pub(super) fn range_next(&mut self, base: usize, first: u16, dst: u16) -> bool {
        let at = base + first as usize;
        let parts = (&self.calls.stack[at], &self.calls.stack[at + 1], &self.calls.stack[at + 2]);
        let (&Value::Int(next), &Value::Int(left), &Value::Int(by)) = parts else { return false };
        if left <= 0 {
            return false;
        }
        self.calls.stack[base + dst as usize] = Value::Int(next);
        self.calls.stack[at] = Value::Int(next.wrapping_add(by));
        self.calls.stack[at + 1] = Value::Int(left - 1);
        true
    }

    pub(super) fn sequence_loop(&mut self, base: usize, first: u16) -> Result<()> {
        let at = base + first as usize;
        let value = self.calls.stack[at].clone();
        if let Value::List(_) | Value::Range(_) = value {
            // Nothing to do.
        } else {
            self.calls.stack[at] = self.begin_sequence(&value)?;
        }
        self.calls.stack[at + 1] = Value::Int(0);
        Ok(())
    }

    /// [`Vm::sequence_loop`] for the argument of `enumerate`, whose positions count elements: copies the elements first
    /// if the positions do not, or if the loop could change them.
    pub(super) fn elements_loop(&mut self, base: usize, first: u16) -> Result<()> {
        let at = base + first as usize;
        let value = std::mem::take(&mut self.calls.stack[at]);
        self.calls.stack[at] = match &value {
            Value::Object(_) => self.begin_sequence(&value)?,
            Value::List(list) if Rc::strong_count(list) == 1 => value,
            Value::Range(_) | Value::Tuple(_) => value,
            _ => Value::list(self.collect(&value)?),
        };
        self.calls.stack[at + 1] = Value::Int(0);
        Ok(())
    }

    pub(super) fn sequence_next(&mut self, base: usize, first: u16) -> Result<Option<Value>> {
        let at = base + first as usize;
        let Value::Int(position) = self.calls.stack[at + 1] else { return Ok(None) };
        let (value, next) = match &self.calls.stack[at] {
            Value::List(list) => match list.get(position as usize) {
                Some(value) => (value, position + 1),
                None => return Ok(None),
            },
            _ => {
                let sequence = self.calls.stack[at].clone();
                match self.element(&sequence, position)? {
                    Some(found) => found,
                    None => return Ok(None),
                }
            }
        };
        self.calls.stack[at + 1] = Value::Int(next);
        Ok(Some(value))
    }

    /// Converts an iterable value into the sequence that [`Vm::element`] takes.
    ///
    /// # Errors
    ///
    /// E0309 for a value that is not iterable, and errors of a function that begins an `iterable`.
    pub fn begin_sequence(&mut self, value: &Value) -> Result<Value> {
        match value {
            Value::List(_)
            | Value::Tuple(_)
            | Value::Str(_)
            | Value::Dict(_)
            | Value::Record(_)
            | Value::Range(_) => Ok(value.clone()),
            Value::Tensor(_) => self.check_rows(value).map(|()| value.clone()),
            Value::Object(handle) => match handle.get().iterate(self)? {
                Some(elements) => Ok(elements),
                None => Err(error::not_iterable(value.type_name())),
            },
            other => Err(error::not_iterable(other.type_name())),
        }
    }

    /// The element at a position, from 0, of a sequence returned by [`Vm::begin_sequence`], and the next position. The
    /// first position is 0; each call returns the next one with its element. An object yields each element once.
    pub fn element(&mut self, sequence: &Value, position: i64) -> Result<Option<(Value, i64)>> {
        let at = position as usize;
        let next = position + 1;
        Ok(match sequence {
            Value::List(list) => list.get(at).map(|v| (v, next)),
            Value::Tuple(tuple) => tuple.items().get(at).map(|v| (v.clone(), next)),
            Value::Str(text) => text.as_str()[at..].chars().next().map(|c| {
                let mut buffer = [0; 4];
                (Value::str(&*c.encode_utf8(&mut buffer)), position + c.len_utf8() as i64)
            }),
            Value::Dict(dict) => {
                // The lower half of a position counts entries; the upper half is the table's version.
                let (table, at) = (dict.borrow(), position as u32);
                let version = i64::from(table.version());
                if position != 0 && position >> 32 != version {
                    return Err(error::changed(
                        "the dict gained or lost entries while a loop iterated over it",
                        "iterate over a list of its keys instead: `for k in d.keys()`",
                    ));
                }
                let next = (version << 32) | (i64::from(at) + 1);
                table.get_index(at as usize).map(|(key, _)| (key.value().clone(), next))
            }
            Value::Record(record) => {
                let field = record.names().get(at).zip(record.values().get(at));
                field.map(|(name, value)| (Value::tuple(vec![Value::str(&**name), value.clone()]), next))
            }
            Value::Range(range) => range.get(at).map(|i| (Value::Int(i), next)),
            Value::Tensor(_) => self.row(sequence, position)?.map(|v| (v, next)),
            Value::Object(handle) => handle.get().next(self)?.map(|v| (v, next)),
            _ => None,
        })
    }

    /// All elements of a sequence.
    ///
    /// # Errors
    ///
    /// E0309 for a value that is not iterable; a limit for an endless range.
    pub fn collect(&mut self, sequence: &Value) -> Result<Values> {
        match sequence {
            Value::List(list) => self.copies(&list.borrow()),
            Value::Tuple(tuple) => self.copies(tuple.items()),
            Value::Range(range) => {
                let count = range.count().unwrap_or(usize::MAX);
                charge_values(count)?;
                let mut items = Values::with_capacity(count);
                for i in 0..count {
                    self.charge(1)?;
                    match range.get(i) {
                        Some(i) => items.push(Value::Int(i)),
                        None => break,
                    }
                }
                Ok(items)
            }
            Value::Object(handle) => match handle.get().iterate(self)? {
                Some(elements) => self.collect_each(&elements),
                None => Err(error::not_iterable(sequence.type_name())),
            },
            Value::Str(_) | Value::Dict(_) | Value::Record(_) => self.collect_each(sequence),
            Value::Tensor(_) => {
                self.check_rows(sequence)?;
                charge(self.length(sequence)?.saturating_mul(ROW))?;
                self.collect_each(sequence)
            }
            other => Err(error::not_iterable(other.type_name())),
        }
    }

    /// All elements, one by one.
    fn collect_each(&mut self, sequence: &Value) -> Result<Values> {
        let mut items = Values::new();
        let mut position = 0;
        while let Some((value, next)) = self.element(sequence, position)? {
            self.charge(1)?;
            Vm::add(&mut items, value)?;
            position = next;
        }
        Ok(items)
    }

    /// The length of a container, as `len` returns it.
    pub fn length(&mut self, value: &Value) -> Result<usize> {
        Ok(match value {
            Value::Str(text) => text.chars(),
            Value::List(list) => list.len(),
            Value::Tuple(tuple) => tuple.items().len(),
            Value::Record(record) => record.values().len(),
            Value::Dict(dict) => dict.borrow().len(),
            Value::Range(range) if range.is_too_long() => return Err(error::too_long()),
            Value::Range(range) => range.count().ok_or_else(|| {
                error::bad_value(0, "a range without an end has no length").help("give it an end: `0..n`")
            })?,
            Value::Tensor(tensor) => match tensor.shape().first() {
                Some(&rows) => {
                    self.rt.shapes_read += 1;
                    rows
                }
                None => {
                    return Err(error::bad_value(0, "a tensor without dimensions has no length")
                        .help("`x.numel()` is 1; for a vector write `x.reshape(1)`"));
                }
            },
            Value::Object(handle) => match handle.get().length(self)? {
                Some(length) => length,
                None => {
                    return Err(error::bad_value(
                        0,
                        format!("this {} has no known length", value.type_name()),
                    ));
                }
            },
            other => {
                return Err(error::argument_type("len", 0, "x", "a container or a str", other.type_name()));
            }
        })
    }
}
