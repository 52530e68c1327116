//! Slow paths of instructions: operands other than plain numbers.

use std::rc::Rc;

use compact_str::{CompactString, ToCompactString};

use super::super::account::charge_values;
use super::super::bind;
use super::super::compare::equal;
use super::super::counted::FieldNames;
use super::super::error::Mismatch;
use super::super::function::PatternShape;
use super::super::heap::{Range, Record};
use super::super::value::Value;
use super::super::values::Values;
use super::super::{Vm, charge, error, tensors};
use super::arith;
use super::registers::{copy, set};
use crate::base::Result;
use crate::syntax::ast::{Binary, Unary};

/// Strings up to this size are joined without checking the limits.
const SHORT: usize = 256;

impl Vm {
    /// The value of an operand. It is moved out of its register if that is dead after the instruction.
    #[inline]
    pub(super) fn operand(&mut self, base: usize, reg: u16, dead_from: u16) -> Value {
        let register = &mut self.calls.stack[base + reg as usize];
        if reg >= dead_from { std::mem::take(register) } else { register.clone() }
    }

    /// The values of two operands, which may be one register.
    #[inline(always)]
    fn operands(&mut self, base: usize, a: u16, b: u16, dead_from: u16) -> (Value, Value) {
        let left = self.operand(base, a, dead_from);
        let right = if a == b { left.clone() } else { self.operand(base, b, dead_from) };
        (left, right)
    }

    pub(super) fn dead_from(&self, base: usize, at: usize) -> u16 {
        match &self.calls.stack[base] {
            Value::Fn(closure) => closure.proto.places.dead_from.get(at).copied().unwrap_or(u16::MAX),
            _ => u16::MAX,
        }
    }

    #[inline(never)]
    pub(super) fn binary_step(
        &mut self,
        base: usize,
        at: usize,
        op: Binary,
        dst: u16,
        (a, b): (u16, u16),
    ) -> Result<()> {
        let dead = self.dead_from(base, at);
        let (left, right) = (&self.calls.stack[base + a as usize], &self.calls.stack[base + b as usize]);
        if let Some(value) = tensors::operator(&mut self.rt, &self.natives, op, left, right)? {
            if a >= dead {
                self.calls.stack[base + a as usize] = Value::None;
            }
            if b >= dead {
                self.calls.stack[base + b as usize] = Value::None;
            }
            self.calls.stack[base + dst as usize] = value;
            return Ok(());
        }
        let (left, right) = self.operands(base, a, b, dead);
        let value = arith::binary(self, op, left, right)?;
        self.calls.stack[base + dst as usize] = value;
        Ok(())
    }

    #[inline(never)]
    pub(super) fn binary_value_step(
        &mut self,
        base: usize,
        at: usize,
        op: Binary,
        dst: u16,
        (a, right): (u16, Value),
    ) -> Result<()> {
        let dead = self.dead_from(base, at);
        let left = &self.calls.stack[base + a as usize];
        if let Some(value) = tensors::operator(&mut self.rt, &self.natives, op, left, &right)? {
            if a >= dead {
                self.calls.stack[base + a as usize] = Value::None;
            }
            self.calls.stack[base + dst as usize] = value;
            return Ok(());
        }
        let left = self.operand(base, a, dead);
        let value = arith::binary(self, op, left, right)?;
        self.calls.stack[base + dst as usize] = value;
        Ok(())
    }

    #[inline(never)]
    pub(super) fn unary_step(&mut self, base: usize, at: usize, op: Unary, dst: u16, a: u16) -> Result<()> {
        let dead = self.dead_from(base, at);
        let value = self.operand(base, a, dead);
        let value = arith::unary(self, op, value)?;
        self.calls.stack[base + dst as usize] = value;
        Ok(())
    }

    #[inline(never)]
    pub(super) fn truth_step(&mut self, base: usize, at: usize, a: u16) -> Result<bool> {
        let dead = self.dead_from(base, at);
        let value = self.operand(base, a, dead);
        self.truth(&value)
    }

    #[inline(never)]
    pub(super) fn compare_step(
        &mut self,
        base: usize,
        at: usize,
        op: Binary,
        a: u16,
        b: u16,
    ) -> Result<bool> {
        if let (Value::Str(x), Value::Str(y)) =
            (&self.calls.stack[base + a as usize], &self.calls.stack[base + b as usize])
        {
            match op {
                Binary::Eq => return Ok(x.as_str() == y.as_str()),
                Binary::Ne => return Ok(x.as_str() != y.as_str()),
                _ => {}
            }
        }
        let dead = self.dead_from(base, at);
        let (left, right) = self.operands(base, a, b, dead);
        let value = arith::binary(self, op, left, right)?;
        self.truth(&value)
    }

    #[inline(never)]
    pub(super) fn compare_value_step(
        &mut self,
        base: usize,
        at: usize,
        op: Binary,
        a: u16,
        right: Value,
    ) -> Result<bool> {
        let dead = self.dead_from(base, at);
        let left = self.operand(base, a, dead);
        let value = arith::binary(self, op, left, right)?;
        self.truth(&value)
    }

    #[inline(never)]
    pub(super) fn index_step(&mut self, base: usize, at: usize, dst: u16, a: u16, b: u16) -> Result<()> {
        let (container, index) = (&self.calls.stack[base + a as usize], &self.calls.stack[base + b as usize]);
        if let (Value::Tuple(tuple), &Value::Int(i)) = (container, index)
            && let Some(value) = usize::try_from(i).ok().and_then(|i| tuple.items().get(i)).cloned()
        {
            set(&mut self.calls.stack[base + dst as usize], value);
            return Ok(());
        }
        let dead = self.dead_from(base, at);
        let (container, index) = self.operands(base, a, b, dead);
        let value = self.index(&container, &index)?;
        self.calls.stack[base + dst as usize] = value;
        Ok(())
    }

    #[inline(never)]
    pub(super) fn set_index_step(&mut self, base: usize, at: usize, a: u16, b: u16, src: u16) -> Result<()> {
        let dead = self.dead_from(base, at);
        let (container, index) = (&self.calls.stack[base + a as usize], &self.calls.stack[base + b as usize]);
        let value = &self.calls.stack[base + src as usize];
        match (container, index) {
            (Value::Dict(dict), key) => {
                let set = dict.set(key, value);
                drop((self.operand(base, b, dead), self.operand(base, src, dead)));
                return set;
            }
            (Value::List(list), &Value::Int(i)) => {
                if let Some(slot) = list.slot(i) {
                    list.note_stored(value);
                    // SAFETY: the register keeps the list alive, and destructors change no list.
                    unsafe { copy(slot, value) };
                    drop(self.operand(base, src, dead));
                    return Ok(());
                }
            }
            _ => {}
        }
        let container = container.clone();
        let (index, value) = match b == src {
            true => (index.clone(), value.clone()),
            false => (self.operand(base, b, dead), self.operand(base, src, dead)),
        };
        self.set_index(&container, &index, value)
    }

    #[inline(never)]
    pub(super) fn field_step(
        &mut self,
        base: usize,
        at: usize,
        dst: u16,
        a: u16,
        name: &Value,
    ) -> Result<()> {
        let dead = self.dead_from(base, at);
        let object = self.operand(base, a, dead);
        let value = self.attribute(&object, name.as_str().unwrap_or(""))?;
        self.calls.stack[base + dst as usize] = value;
        Ok(())
    }

    /// Replaces a record by one with a field changed, or assigns an attribute of an object.
    #[inline(never)]
    pub(super) fn set_field_step(
        &mut self,
        base: usize,
        at: usize,
        a: u16,
        name: &Value,
        src: u16,
    ) -> Result<()> {
        let name = name.as_str().unwrap_or("");
        let dead = self.dead_from(base, at);
        let value = self.operand(base, src, dead);
        if let Value::Record(record) = &mut self.calls.stack[base + a as usize] {
            let Some(at) = record.position(name) else {
                let names: Vec<Rc<str>> = record.names().iter().cloned().collect();
                let error = error::no_attribute("record", name, names.iter().map(|n| &**n));
                return Err(match error.help_text() {
                    Some(_) => error,
                    None => error.help(format!("a record with one more field is `(..r, {name} = value)`")),
                });
            };
            Rc::make_mut(record).replace(at, value);
            return Ok(());
        }
        let object = self.calls.stack[base + a as usize].clone();
        self.set_attribute(&object, name, &value)
    }

    pub(super) fn take_values(&mut self, base: usize, first: u16, count: u16) -> Result<Values> {
        charge_values(count as usize)?;
        let from = base + first as usize;
        Ok(self.calls.stack[from..from + count as usize].iter_mut().map(std::mem::take).collect())
    }

    pub(super) fn list_extend(&mut self, base: usize, at: usize, list: u16, src: u16) -> Result<()> {
        let dead = self.dead_from(base, at);
        let source = self.operand(base, src, dead);
        let items = match self.collect(&source) {
            Ok(items) => items,
            Err(error) if error::is_not_iterable(&error) => {
                return Err(error::not_spreadable(source.type_name(), "a list"));
            }
            Err(error) => return Err(error),
        };
        match &self.calls.stack[base + list as usize] {
            Value::List(list) => {
                let list = Rc::clone(list);
                self.extend(&list, items)
            }
            _ => Ok(()),
        }
    }

    /// The range whose start, end and step are in adjacent registers.
    pub(super) fn range_of(&mut self, base: usize, first: u16) -> Result<Range> {
        let at = base + first as usize;
        let (start, end) = (self.bound(at, 0)?, self.bound(at, 1)?);
        let step = self.bound(at, 2)?.unwrap_or(1);
        if step == 0 {
            return Err(error::bad_value(2, "the step of a range must not be 0")
                .help("write 1 or more, or -1 or less to count down"));
        }
        Ok(Range { start, end, step })
    }

    /// The `index`-th bound of a range whose parts begin at `at`.
    pub(super) fn bound(&mut self, at: usize, index: usize) -> Result<Option<i64>> {
        const NAMES: [&str; 3] = ["start", "end", "step"];
        let value = self.calls.stack[at + index].clone();
        match &value {
            Value::None => Ok(None),
            Value::Tensor(tensor) if tensor.count() == 1 => match self.rt.item(tensor)? {
                crate::array::Scalar::Float(_) | crate::array::Scalar::Complex(..) => {
                    Err(error::argument_type("..", index, NAMES[index], "an int", "float tensor"))
                }
                scalar => Ok(Some(scalar.as_i64())),
            },
            other => match other.as_int() {
                Some(i) => Ok(Some(i)),
                None => Err(error::argument_type("..", index, NAMES[index], "an int", other.type_name())),
            },
        }
    }

    /// Destructures a value for `let` and `for`.
    pub(super) fn unpack_step(
        &mut self,
        base: usize,
        src: u16,
        first: u16,
        shape: &PatternShape,
    ) -> Result<()> {
        let value = self.calls.stack[base + src as usize].clone();
        let at = base + first as usize;
        if let (Value::Tuple(tuple), None, false) = (&value, shape.rest, shape.takes_names())
            && tuple.items().len() == shape.count as usize
        {
            self.calls.stack[at..at + tuple.items().len()].clone_from_slice(tuple.items());
            return Ok(());
        }
        let parts = match self.take_apart(&value, shape)? {
            Ok(parts) => parts,
            Err(mismatch) => return Err(error::unpack(&mismatch)),
        };
        for (i, part) in parts.into_iter().enumerate() {
            self.calls.stack[at + i] = part;
        }
        Ok(())
    }

    /// Destructures a value for `match`: writes a bool, then the parts if it matches.
    pub(super) fn fits_step(
        &mut self,
        base: usize,
        src: u16,
        first: u16,
        shape: &PatternShape,
    ) -> Result<()> {
        let value = self.calls.stack[base + src as usize].clone();
        let at = base + first as usize;
        let right_type = match &value {
            Value::List(_) => shape.list,
            Value::Tuple(_) => !shape.list && !shape.takes_names(),
            Value::Record(_) => !shape.list,
            _ => false,
        };
        let parts = if right_type { self.take_apart(&value, shape)?.ok() } else { None };
        self.calls.stack[at] = Value::Bool(parts.is_some());
        for (i, part) in parts.into_iter().flatten().enumerate() {
            self.calls.stack[at + 1 + i] = part;
        }
        Ok(())
    }

    /// The parts that a pattern binds, or the mismatch.
    fn take_apart(&mut self, value: &Value, shape: &PatternShape) -> Result<Result<Values, Mismatch>> {
        if let (Value::Record(record), true) = (value, shape.takes_names()) {
            return Ok(fields(record, shape));
        }
        let items = match value {
            _ if shape.takes_names() => {
                return Ok(Err(Mismatch::NoRecord { found: value.type_name() }));
            }
            Value::Record(record) => self.copies(record.values())?,
            Value::List(_) | Value::Tuple(_) | Value::Range(_) | Value::Tensor(_) => self.collect(value)?,
            other => return Ok(Err(Mismatch::NoElements { found: other.type_name() })),
        };
        let wanted = shape.count as usize;
        match shape.rest {
            None if items.len() == wanted => Ok(Ok(items)),
            None => Ok(Err(Mismatch::Count { wanted, rest: false, found: items.len() })),
            Some(_) if items.len() < wanted => {
                Ok(Err(Mismatch::Count { wanted, rest: true, found: items.len() }))
            }
            Some((at, _)) => {
                let mut items = items;
                let (at, more) = (at as usize, items.len() - wanted);
                let taken: Values = items.drain(at..at + more).collect();
                let is_tuple = matches!(value, Value::Tuple(_) | Value::Record(_));
                let rest = if is_tuple { Value::tuple(taken) } else { Value::list(taken) };
                items.insert(at, rest);
                Ok(Ok(items))
            }
        }
    }

    /// Returns whether a value matches a literal, name or range of a `match`.
    pub(super) fn fits_value(&mut self, value: &Value, pattern: &Value) -> Result<bool> {
        match (value, pattern) {
            (Value::Range(_), _) => equal(self, value, pattern),
            (Value::Int(i), Value::Range(range)) => Ok(range.contains(*i)),
            (Value::Float(f), Value::Range(range)) => {
                let above = range.start.is_none_or(|s| *f >= s as f64);
                Ok(above && range.end.is_none_or(|e| *f < e as f64))
            }
            (Value::Bool(a), Value::Bool(b)) => Ok(a == b),
            (Value::Bool(_), Value::Int(_) | Value::Float(_)) => Ok(false),
            (Value::Int(_) | Value::Float(_), Value::Bool(_)) => Ok(false),
            (Value::Tensor(a), Value::Tensor(b)) if a.same(b) => Ok(true),
            // Later arms may match it.
            (Value::Tensor(tensor), _) | (_, Value::Tensor(tensor)) if tensor.count() != 1 => Ok(false),
            _ => equal(self, value, pattern),
        }
    }

    /// Joins the pieces of a string literal.
    pub(super) fn concat(&mut self, base: usize, first: u16, count: u16) -> Result<Value> {
        let from = base + first as usize;
        let mut text = CompactString::default();
        for i in from..from + count as usize {
            let piece = std::mem::take(&mut self.calls.stack[i]);
            match &piece {
                Value::Str(piece) if piece.as_str().len() < SHORT => {
                    room_for(&text, piece.as_str().len())?;
                    text.push_str(piece.as_str());
                }
                Value::Str(piece) => {
                    room_for(&text, piece.as_str().len())?;
                    self.pieces(piece.as_str(), |piece| {
                        text.push_str(piece);
                        Ok(())
                    })?;
                }
                Value::Int(i) => text.push_str(&i.to_compact_string()),
                other => {
                    let shown = self.display(other)?;
                    room_for(&text, shown.len())?;
                    self.pieces(&shown, |piece| {
                        text.push_str(piece);
                        Ok(())
                    })?;
                }
            }
        }
        Ok(Value::str(text))
    }

    /// The truth of a value.
    pub fn truth(&mut self, value: &Value) -> Result<bool> {
        Ok(match value {
            Value::None | Value::Unset => false,
            Value::Bool(b) => *b,
            Value::Int(i) => *i != 0,
            Value::Float(f) => *f != 0.0,
            Value::Str(text) => !text.as_str().is_empty(),
            Value::List(list) => !list.is_empty(),
            Value::Tuple(tuple) => !tuple.items().is_empty(),
            Value::Record(record) => !record.values().is_empty(),
            Value::Dict(dict) => !dict.borrow().is_empty(),
            Value::Range(range) => range.count() != Some(0),
            Value::Tensor(tensor) => return self.tensor_truth(tensor),
            _ => true,
        })
    }

    /// Checks and converts a value for a parameter; natives that take functions' results use it.
    pub fn expect_int(&mut self, value: &Value, function: &str, name: &str) -> Result<i64> {
        bind::int_of(value)
            .ok_or_else(|| error::argument_type(function, 0, name, "an int", value.type_name()))
    }
}

/// `(..a, ..b)`.
pub(super) fn merge(a: &Value, b: &Value) -> Result<Value> {
    match (a, b) {
        (Value::Record(a), Value::Record(b)) if Rc::ptr_eq(a, b) => Ok(Value::Record(Rc::clone(a))),
        (Value::Record(a), Value::Record(b)) => Ok(Value::Record(Rc::new(a.merged(b)))),
        (Value::Record(_), other) | (other, _) => Err(error::not_spreadable(other.type_name(), "a record")),
    }
}

/// The fields bound by a pattern with names: by position from both ends, then by name. Fields that it does
/// not mention are dropped, or go to the rest.
fn fields(record: &Record, shape: &PatternShape) -> Result<Values, Mismatch> {
    let (values, names) = (record.values(), &shape.names);
    let by_place = shape.count as usize - names.len();
    if values.len() < by_place {
        return Err(Mismatch::Count { wanted: by_place, rest: true, found: values.len() });
    }
    let before = shape.rest.map_or(by_place, |(at, _)| by_place.min(at as usize));
    let after = values.len() - (by_place - before);
    let mut taken = vec![false; values.len()];
    taken[..before].fill(true);
    taken[after..].fill(true);
    let mut parts: Values = values[..before].iter().chain(&values[after..]).cloned().collect();
    for name in names.iter() {
        let Some(at) = record.position(name) else {
            let fields = record.names().iter().cloned().collect();
            return Err(Mismatch::NoField { name: Rc::clone(name), fields });
        };
        if std::mem::replace(&mut taken[at], true) {
            return Err(Mismatch::Twice { name: Rc::clone(name) });
        }
        parts.push(values[at].clone());
    }
    if let Some((at, _)) = shape.rest {
        let left = record.fields().zip(taken).filter(|(_, taken)| !taken);
        let (names, values): (_, Values) =
            left.map(|((name, value), _)| (Rc::clone(name), value.clone())).unzip();
        parts.insert(at as usize, Value::Record(Rc::new(Record::new(FieldNames::shared(names), values))));
    }
    Ok(parts)
}

/// Charges for the growth of a string that must be reallocated.
#[inline]
fn room_for(text: &CompactString, more: usize) -> Result<()> {
    let length = text.len() + more;
    if length <= text.capacity() {
        return Ok(());
    }
    // While the string moves, the old and the new buffer both exist.
    charge(length.saturating_mul(2).saturating_add(text.len()))
}
