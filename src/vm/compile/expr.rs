//! Expressions.

use std::rc::Rc;

use foldhash::HashSet;

use super::super::bytecode::Op;
use super::super::counted::FieldNames;
use super::super::error;
use super::super::value::Value;
use super::call::unparen;
use super::emit::ConstKey;
use super::scope::Location;
use super::{Compiler, Exit, Reg, mentions};
use crate::array::Dtype;
use crate::base::{Error, Result, Span};
use crate::driver::DeviceId;
use crate::syntax::ast::*;

/// List elements, tuple elements and record fields are pushed in chunks of this size.
const CHUNK: usize = 64;

impl<'a> Compiler<'_, '_, 'a> {
    /// Evaluates `expr` into `dst`. `dst` is written only when the value is complete, unless `expr` holds
    /// blocks or `and`/`or` (see [`writes_late`]).
    pub(super) fn expr(&mut self, expr: &'a Expr, dst: Reg) -> Result<()> {
        self.deeper(expr.span, |c| c.located(expr.span, |c| c.expr_kind(expr, dst)))
    }

    /// [`Self::expr`] for a variable's register. `expr` [writes late](writes_late).
    pub(super) fn expr_of_variable(&mut self, expr: &'a Expr, variable: Reg) -> Result<()> {
        let outer = std::mem::replace(&mut self.last().variable, variable);
        let result = self.expr(expr, variable);
        self.last().variable = outer;
        result
    }

    /// Evaluates a container whose part an instruction then stores in `dst`. Uses the variable's register, or `dst`,
    /// which the part overwrites, where possible. The second value says whether the register must be cleared
    /// afterwards. `later` is evaluated before the instruction.
    fn container(&mut self, expr: &'a Expr, later: Option<&'a Expr>, dst: Reg) -> Result<(Reg, bool)> {
        if let ExprKind::Name(name) = &unparen(expr).kind {
            let once = self.functions.len() == 1 && self.last().loops.is_empty();
            let assigned = later.is_some_and(mentions::has_block);
            match self.resolve(name)? {
                Some(Location::Register(reg)) if !assigned => return Ok((reg, false)),
                // Usually the variable keeps the container alive anyway, so frequently run code does not spend an
                // instruction on clearing.
                _ if !once => {
                    let reg = self.temp()?;
                    self.expr(expr, reg)?;
                    return Ok((reg, false));
                }
                _ => {}
            }
        }
        let clear = dst == self.last().variable;
        let reg = if clear { self.temp()? } else { dst };
        self.expr(expr, reg)?;
        Ok((reg, clear))
    }

    /// Evaluates `expr` into a register: a variable's own, or a fresh one.
    pub(super) fn operand(&mut self, expr: &'a Expr) -> Result<Reg> {
        if let ExprKind::Name(name) = &expr.kind
            && let Some(Location::Register(reg)) = self.resolve(name)?
        {
            return Ok(reg);
        }
        if let ExprKind::Paren(inner) = &expr.kind {
            return self.deeper(expr.span, |c| c.operand(inner));
        }
        let reg = self.temp()?;
        self.expr(expr, reg)?;
        Ok(reg)
    }

    /// [`Self::operand`] for a value that is used after `later` is evaluated: a variable that `later` may
    /// assign is copied.
    pub(super) fn operand_before(&mut self, expr: &'a Expr, later: &'a Expr) -> Result<Reg> {
        if matches!(expr.kind, ExprKind::Name(_) | ExprKind::Paren(_)) && mentions::has_block(later) {
            let reg = self.temp()?;
            self.expr(expr, reg)?;
            return Ok(reg);
        }
        self.operand(expr)
    }

    fn expr_kind(&mut self, expr: &'a Expr, dst: Reg) -> Result<()> {
        match &expr.kind {
            ExprKind::None => self.load_plain(dst, Value::None),
            ExprKind::Bool(b) => self.load_plain(dst, Value::Bool(*b)),
            ExprKind::Ellipsis => self.load_plain(dst, Value::Ellipsis),
            ExprKind::Int(i) => self.load_plain(dst, Value::Int(*i)),
            ExprKind::Float(f) => self.load_plain(dst, Value::Float(*f)),
            ExprKind::Device(device) => self.device(*device, dst),
            ExprKind::Dtype(name) => self.dtype(name, expr.span, dst),
            ExprKind::Str(pieces) => self.string(pieces, dst),
            ExprKind::Name(name) => self.read(name, expr.span, dst),
            ExprKind::List(items) => self.list(items, dst),
            ExprKind::Typed(dtype, items) => self.typed(dtype, items, expr.span, dst),
            ExprKind::Tuple(items) => self.tuple(items, dst),
            ExprKind::Record(fields) => self.record(fields, dst),
            ExprKind::Paren(inner) => self.expr(inner, dst),
            ExprKind::Unary(op, operand) => self.unary(*op, operand, expr.span, dst),
            ExprKind::Binary(..) => self.binary_chain(expr, dst),
            ExprKind::Chain(first, rest) => self.comparisons(first, rest, dst),
            ExprKind::And(a, b) => self.shortcut(a, b, false, dst),
            ExprKind::Or(a, b) => self.shortcut(a, b, true, dst),
            ExprKind::Range(start, end, step) => {
                let parts = [start.as_deref(), end.as_deref(), step.as_deref()];
                self.range(parts, expr.span, dst)
            }
            ExprKind::Call(callee, args) => self.call(callee, None, args, expr.span, dst),
            ExprKind::Pipe(receiver, call) => self.pipe(receiver, call, expr.span, dst),
            ExprKind::Member(inner, name) => self.member(inner, name, expr.span, dst),
            ExprKind::Index(inner, indices) => self.index(inner, indices, expr.span, dst),
            ExprKind::On(inner, device) => self.on(inner, device, dst),
            ExprKind::Lambda(function) => self.closure(function, "<lambda>".into(), false, expr.span, dst),
            ExprKind::Block(block) => self.block(block, Some(dst)),
            ExprKind::If(arms, last) => self.branches(arms, last.as_ref(), Some(dst)),
            ExprKind::With(contexts, block) => self.with(contexts, block, dst),
            ExprKind::Try(body, name, catch) => self.try_catch(body, name.as_ref(), catch, dst),
            ExprKind::Match(subject, arms) => self.match_arms(subject, arms, dst),
            ExprKind::Error => Err(not_compiled(expr.span)),
        }
    }

    fn load_plain(&mut self, dst: Reg, value: Value) -> Result<()> {
        self.load(dst, value);
        Ok(())
    }

    fn device(&mut self, device: DeviceLit, dst: Reg) -> Result<()> {
        match device {
            DeviceLit::Cpu => self.load(dst, Value::Device(DeviceId::Cpu)),
            DeviceLit::Cuda(index) => self.load(dst, Value::Device(DeviceId::Cuda(index))),
            DeviceLit::Current => drop(self.emit(Op::LoadCuda { dst })),
        }
        Ok(())
    }

    fn dtype(&mut self, name: &str, span: Span, dst: Reg) -> Result<()> {
        let dtype = Dtype::from_name(name);
        let known = Dtype::ALL.map(Dtype::name);
        let dtype = dtype.ok_or_else(|| error::unknown_name(name, known).at(span, "not a dtype"))?;
        self.load(dst, Value::Dtype(dtype));
        Ok(())
    }

    fn string(&mut self, pieces: &'a [StrPiece], dst: Reg) -> Result<()> {
        match pieces {
            [] => {
                let k = self.text(&"".into());
                self.emit(Op::Load { dst, k });
                return Ok(());
            }
            [StrPiece::Text(text)] => {
                let k = self.text(text);
                self.emit(Op::Load { dst, k });
                return Ok(());
            }
            _ => {}
        }
        let count = u16::try_from(pieces.len()).map_err(|_| error::function_size())?;
        self.temporary(|c| {
            let base = c.reserve(count)?;
            for (reg, piece) in (base..).zip(pieces) {
                match piece {
                    StrPiece::Text(text) => {
                        let k = c.text(text);
                        c.emit(Op::Load { dst: reg, k });
                    }
                    StrPiece::Expr(e, spec) if spec.is_empty() => c.expr(e, reg)?,
                    StrPiece::Expr(e, spec) => {
                        c.expr(e, reg)?;
                        c.temporary(|c| {
                            let text = c.temp()?;
                            c.string(spec, text)?;
                            c.emit_at(
                                Op::Format { dst: reg, src: reg, spec: text },
                                e.span,
                                vec![e.span],
                                text,
                            );
                            Ok(())
                        })?;
                    }
                }
            }
            c.emit(Op::Concat { dst, base, count });
            Ok(())
        })
    }

    fn list(&mut self, items: &'a [Item], dst: Reg) -> Result<()> {
        if items.len() <= CHUNK && items.iter().all(|i| matches!(i, Item::One(_))) {
            return self.temporary(|c| {
                let base = c.items(items)?;
                c.emit(Op::NewList { dst, base, count: items.len() as u16 });
                Ok(())
            });
        }
        self.temporary(|c| {
            let list = c.temp()?;
            c.emit(Op::NewList { dst: list, base: list, count: 0 });
            let mut rest = items;
            while let Some(first) = rest.first() {
                if let Item::Spread(e) = first {
                    c.temporary(|c| {
                        let src = c.operand(e)?;
                        c.emit_at(Op::ListExtend { list, src }, e.span, vec![e.span], list + 1);
                        Ok(())
                    })?;
                    rest = &rest[1..];
                    continue;
                }
                let one = |i: &&Item| matches!(i, Item::One(_));
                let (now, later) = rest.split_at(rest.iter().take(CHUNK).take_while(one).count());
                c.temporary(|c| {
                    let base = c.items(now)?;
                    c.emit(Op::ListPush { list, base, count: now.len() as u16 });
                    Ok(())
                })?;
                rest = later;
            }
            c.emit(Op::Move { take: true, dst, src: list });
            Ok(())
        })
    }

    /// Evaluates elements without spreads into adjacent registers.
    fn items(&mut self, items: &'a [Item]) -> Result<Reg> {
        let base = self.reserve(items.len() as u16)?;
        for (reg, Item::One(e) | Item::Spread(e)) in (base..).zip(items) {
            self.expr(e, reg)?;
        }
        Ok(base)
    }

    fn typed(&mut self, dtype: &Rc<str>, items: &'a [Item], span: Span, dst: Reg) -> Result<()> {
        self.temporary(|c| {
            let list = c.temp()?;
            c.list(items, list)?;
            let b = c.temp()?;
            c.dtype(dtype, span, b)?;
            c.emit_at(Op::Typed { dst, a: list, b }, span, vec![span], list);
            Ok(())
        })
    }

    fn tuple(&mut self, items: &'a [Item], dst: Reg) -> Result<()> {
        self.temporary(|c| {
            if items.len() <= CHUNK && items.iter().all(|i| matches!(i, Item::One(_))) {
                let base = c.items(items)?;
                c.emit(Op::NewTuple { dst, base, count: items.len() as u16 });
                return Ok(());
            }
            let src = c.temp()?;
            c.list(items, src)?;
            c.emit(Op::TupleOfList { dst, src });
            Ok(())
        })
    }

    fn record(&mut self, fields: &'a [Field], dst: Reg) -> Result<()> {
        self.temporary(|c| {
            let result = c.temp()?;
            let mut rest = fields;
            let mut started = false;
            while !rest.is_empty() || !started {
                c.temporary(|c| {
                    let part = if started { c.temp()? } else { result };
                    let mut operand = None;
                    if let Some(Field::Spread(e)) = rest.first() {
                        c.expr(e, part)?;
                        operand = Some(e.span);
                        rest = &rest[1..];
                    } else {
                        let named = rest.iter().take_while(|f| matches!(f, Field::Named(..))).count();
                        c.fields(&rest[..named], part)?;
                        rest = &rest[named..];
                    }
                    if started || operand.is_some() {
                        let b = part;
                        let span = operand.unwrap_or(c.last().here);
                        let a = if started { result } else { part };
                        c.emit_at(Op::RecordMerge { dst: result, a, b }, span, vec![span], u16::MAX);
                        if started {
                            c.emit(Op::Clear { from: part, count: 1 });
                        }
                    }
                    Ok(())
                })?;
                started = true;
            }
            c.emit(Op::Move { take: true, dst, src: result });
            Ok(())
        })
    }

    fn fields(&mut self, fields: &'a [Field], dst: Reg) -> Result<()> {
        let count = u16::try_from(fields.len()).map_err(|_| error::function_size())?;
        let mut names: Vec<Rc<str>> = Vec::with_capacity(fields.len());
        let mut seen = HashSet::default();
        self.temporary(|c| {
            let base = c.reserve(count)?;
            for (reg, field) in (base..).zip(fields) {
                if let Field::Named(name, e) = field {
                    if !seen.insert(&name.text) {
                        let record = error::Called::new("(...)", "");
                        return Err(
                            error::argument_twice(&record, &name.text, 0, None).at(name.span, "given again")
                        );
                    }
                    let interned = c.intern(&name.text);
                    names.push(interned);
                    c.expr(e, reg)?;
                }
            }
            let shapes = &mut c.last().shapes.records;
            shapes.push(FieldNames::shared(names));
            let shape = u16::try_from(shapes.len() - 1).map_err(|_| error::function_size())?;
            c.emit(Op::NewRecord { dst, base, shape });
            Ok(())
        })
    }

    fn unary(&mut self, op: Unary, operand: &'a Expr, span: Span, dst: Reg) -> Result<()> {
        match (op, &operand.kind) {
            (Unary::Neg, ExprKind::Int(i)) if *i != i64::MIN => return self.load_plain(dst, Value::Int(-i)),
            (Unary::Neg, ExprKind::Float(f)) => return self.load_plain(dst, Value::Float(-f)),
            _ => {}
        }
        self.temporary(|c| {
            let dead = c.last().next;
            let a = c.operand(operand)?;
            let op = match op {
                Unary::Neg => Op::Neg { dst, a },
                Unary::Not => Op::Not { dst, a },
                Unary::BitNot => Op::BitNot { dst, a },
            };
            c.emit_at(op, span, vec![operand.span], dead);
            Ok(())
        })
    }

    /// A chain of left-associative operators, compiled from the innermost left side outwards, so that long
    /// chains need no recursion.
    fn binary_chain(&mut self, expr: &'a Expr, dst: Reg) -> Result<()> {
        let mut chain = Vec::new();
        let mut left = expr;
        while let ExprKind::Binary(op, a, b) = &left.kind {
            chain.push((*op, &**a, &**b, left.span));
            left = a;
        }
        self.temporary(|c| {
            let dead = c.last().next;
            let mut value = None;
            while let Some((op, left, right, span)) = chain.pop() {
                let target = if chain.is_empty() { dst } else { dead };
                let mark = c.last().next;
                let a = match value {
                    Some(reg) => reg,
                    None => c.operand_before(left, right)?,
                };
                if target == dead && c.last().next == dead {
                    // The intermediate result takes the first free register.
                    c.reserve(1)?;
                }
                c.binary(op, (a, right), dead, (left.span, right.span, span), target)?;
                value = Some(target);
                c.last().next = if chain.is_empty() { mark } else { dead + 1 };
            }
            Ok(())
        })
    }

    /// `dst = a op right`.
    fn binary(
        &mut self,
        op: Binary,
        (a, right): (Reg, &'a Expr),
        dead: Reg,
        (left_span, right_span, span): (Span, Span, Span),
        dst: Reg,
    ) -> Result<()> {
        let spans = vec![left_span, right_span];
        if let Some(op) = self.with_constant(op, a, right, dst) {
            self.emit_at(op, span, spans, dead);
            return Ok(());
        }
        let b = self.operand(right)?;
        self.emit_at(binary_op(op, dst, a, b), span, spans, dead);
        Ok(())
    }

    /// The instruction for a numeric constant on the right side.
    fn with_constant(&mut self, op: Binary, a: Reg, right: &Expr, dst: Reg) -> Option<Op> {
        let k = match (op, &right.kind) {
            (Binary::Add, ExprKind::Int(i)) if i16::try_from(*i).is_ok() => {
                return Some(Op::AddInt { dst, a, value: *i as i16 });
            }
            (Binary::Sub, ExprKind::Int(i)) if i16::try_from(*i).is_ok() => {
                return Some(Op::SubInt { dst, a, value: *i as i16 });
            }
            (_, ExprKind::Int(_) | ExprKind::Float(_)) => self.number_constant(right)?,
            _ => return None,
        };
        match op {
            Binary::Add => Some(Op::AddK { dst, a, k }),
            Binary::Sub => Some(Op::SubK { dst, a, k }),
            Binary::Mul => Some(Op::MulK { dst, a, k }),
            Binary::Div => Some(Op::DivK { dst, a, k }),
            Binary::FloorDiv => Some(Op::FloorDivK { dst, a, k }),
            Binary::Mod => Some(Op::ModK { dst, a, k }),
            _ => None,
        }
    }

    /// A numeric literal as a constant operand.
    pub(super) fn number_constant(&mut self, expr: &Expr) -> Option<u16> {
        let k = match expr.kind {
            ExprKind::Int(i) => self.constant(ConstKey::Int(i), || Value::Int(i)),
            ExprKind::Float(f) => self.constant(ConstKey::Float(f.to_bits()), || Value::Float(f)),
            _ => return None,
        };
        u16::try_from(k).ok()
    }

    /// `a and b`, `a or b`: evaluates to the deciding side.
    fn shortcut(&mut self, a: &'a Expr, b: &'a Expr, sense: bool, dst: Reg) -> Result<()> {
        self.expr(a, dst)?;
        let jump = self.emit_at(Op::JumpIf { sense, a: dst, offset: 0 }, a.span, vec![a.span], u16::MAX);
        if owns(a) && runs(b) {
            self.emit(Op::Clear { from: dst, count: 1 });
        }
        self.expr(b, dst)?;
        self.patch(jump);
        Ok(())
    }

    /// `a < b <= c`: each operand is evaluated once, up to the first comparison that is false.
    fn comparisons(&mut self, first: &'a Expr, rest: &'a [(Binary, Expr)], dst: Reg) -> Result<()> {
        self.temporary(|c| {
            let dead = c.last().next;
            let Some((_, second)) = rest.first() else { return c.expr(first, dst) };
            let (mut left, mut a) = (first, c.operand_before(first, second)?);
            let mut ends = Vec::new();
            for (at, (op, right)) in rest.iter().enumerate() {
                let next = rest.get(at + 1);
                let b = match next {
                    Some((_, next)) => c.operand_before(right, next)?,
                    None => c.operand(right)?,
                };
                let (span, spans) = (left.span.to(right.span), vec![left.span, right.span]);
                // The next comparison reads the right operand.
                let dead = if next.is_some() { Reg::MAX } else { dead };
                c.emit_at(binary_op(*op, dst, a, b), span, spans.clone(), dead);
                c.emit_at(Op::Chained { a: dst }, span, spans, Reg::MAX);
                if next.is_some() {
                    ends.push(c.emit(Op::JumpIf { sense: false, a: dst, offset: 0 }));
                }
                (left, a) = (right, b);
            }
            c.patch_all(ends);
            Ok(())
        })
    }

    fn range(&mut self, parts: [Option<&'a Expr>; 3], span: Span, dst: Reg) -> Result<()> {
        let literal = |part: Option<&Expr>| match part.map(|e| &e.kind) {
            None => Some(None),
            Some(&ExprKind::Int(i)) => Some(Some(i)),
            _ => None,
        };
        if let [Some(start), Some(end), Some(step)] = parts.map(literal)
            && step != Some(0)
        {
            self.load(dst, Value::range(start, end, step.unwrap_or(1)));
            return Ok(());
        }
        self.temporary(|c| {
            let base = c.range_parts(parts)?;
            let spans = parts.iter().map(|p| p.map_or(span, |e| e.span)).collect();
            c.emit_at(Op::NewRange { dst, base }, span, spans, base);
            Ok(())
        })
    }

    /// Start, end and step in adjacent registers, with `none` for omitted parts.
    pub(super) fn range_parts(&mut self, parts: [Option<&'a Expr>; 3]) -> Result<Reg> {
        let base = self.reserve(3)?;
        for (reg, part) in (base..).zip(parts) {
            match part {
                Some(e) => self.expr(e, reg)?,
                None => self.load(reg, Value::None),
            }
        }
        Ok(base)
    }

    fn member(&mut self, inner: &'a Expr, name: &'a Name, span: Span, dst: Reg) -> Result<()> {
        self.temporary(|c| {
            let dead = c.last().next;
            let (a, clear) = c.container(inner, None, dst)?;
            let k = c.name_constant(&name.text)?;
            c.emit_at(Op::Field { dst, a, k }, span, vec![inner.span, name.span], dead);
            if clear {
                c.emit(Op::Clear { from: a, count: 1 });
            }
            Ok(())
        })
    }

    fn index(&mut self, inner: &'a Expr, indices: &'a [Expr], span: Span, dst: Reg) -> Result<()> {
        self.temporary(|c| {
            let dead = c.last().next;
            let later = match indices {
                [only] => Some(only),
                _ => None,
            };
            let (a, clear) = c.container(inner, later, dst)?;
            let b = c.index_value(indices)?;
            c.emit_at(Op::Index { dst, a, b }, span, index_spans(inner, indices), dead);
            if clear {
                c.emit(Op::Clear { from: a, count: 1 });
            }
            Ok(())
        })
    }

    /// The value between the brackets: one index, or a tuple of them.
    pub(super) fn index_value(&mut self, indices: &'a [Expr]) -> Result<Reg> {
        if let [only] = indices {
            return self.operand(only);
        }
        let dst = self.temp()?;
        let count = u16::try_from(indices.len()).map_err(|_| error::function_size())?;
        self.temporary(|c| {
            let base = c.reserve(count)?;
            for (reg, e) in (base..).zip(indices) {
                c.expr(e, reg)?;
            }
            c.emit(Op::NewTuple { dst, base, count });
            Ok(())
        })?;
        Ok(dst)
    }

    /// `e on device`: evaluates `e` with that device as the current one, then moves the value there.
    fn on(&mut self, inner: &'a Expr, device: &'a Expr, dst: Reg) -> Result<()> {
        self.temporary(|c| {
            let place = c.temp()?;
            c.expr(device, place)?;
            c.emit_at(Op::EnterDevice { src: place }, device.span, vec![device.span], u16::MAX);
            c.last().exits.push(Exit::Context);
            let value = c.temp()?;
            c.expr(inner, value)?;
            c.last().exits.pop();
            let spans = vec![inner.span, device.span];
            c.emit_at(Op::Place { dst: value, src: value, device: place }, inner.span, spans, u16::MAX);
            c.emit(Op::ExitContext { count: 1 });
            c.emit(Op::Move { take: true, dst, src: value });
            Ok(())
        })
    }

    /// `if`; without a target it is compiled for its effects only.
    pub(super) fn branches(
        &mut self,
        arms: &'a [(Expr, Block)],
        last: Option<&'a Block>,
        dst: Option<Reg>,
    ) -> Result<()> {
        let mut ends = Vec::new();
        for (i, (condition, block)) in arms.iter().enumerate() {
            let mut next = Vec::new();
            self.condition(condition, false, &mut next)?;
            self.block(block, dst)?;
            if i + 1 < arms.len() || last.is_some() || dst.is_some() {
                ends.push(self.emit(Op::Jump { offset: 0 }));
            }
            self.patch_all(next);
        }
        match (last, dst) {
            (Some(block), _) => self.block(block, dst)?,
            (None, Some(dst)) => self.load(dst, Value::None),
            (None, None) => {}
        }
        self.patch_all(ends);
        Ok(())
    }

    fn with(&mut self, contexts: &'a [Expr], block: &'a Block, dst: Reg) -> Result<()> {
        for context in contexts {
            self.temporary(|c| {
                let dead = c.last().next;
                let src = c.operand(context)?;
                c.emit_at(Op::EnterContext { src }, context.span, vec![context.span], dead);
                Ok(())
            })?;
            self.last().exits.push(Exit::Context);
        }
        self.block(block, Some(dst))?;
        let exits = &mut self.last().exits;
        exits.truncate(exits.len() - contexts.len());
        let count = u16::try_from(contexts.len()).map_err(|_| error::function_size())?;
        self.emit(Op::ExitContext { count });
        Ok(())
    }

    fn try_catch(
        &mut self,
        body: &'a Block,
        name: Option<&'a Name>,
        catch: &'a Block,
        dst: Reg,
    ) -> Result<()> {
        let error = self.temp()?;
        let handler = self.emit(Op::PushHandler { catch: true, dst: error, offset: 0 });
        self.last().exits.push(Exit::Handler);
        self.block(body, Some(dst))?;
        self.last().exits.pop();
        self.emit(Op::PopHandler { flush: true });
        let end = self.emit(Op::Jump { offset: 0 });
        self.patch(handler);
        // A partial result of the failed block.
        self.emit(Op::Clear { from: dst, count: 1 });
        self.open_scope_at(error);
        if let Some(name) = name {
            self.declare(&name.text, error);
        }
        self.last_block(catch, dst)?;
        self.close_scope();
        self.patch(end);
        Ok(())
    }

    pub(super) fn closure(
        &mut self,
        function: &'a Rc<Function>,
        name: Rc<str>,
        itself: bool,
        span: Span,
        dst: Reg,
    ) -> Result<()> {
        let proto = self.function(function, name, itself, span)?;
        self.emit(Op::Closure { dst, proto });
        Ok(())
    }
}

/// The instruction of a binary operator.
pub(super) fn binary_op(op: Binary, dst: Reg, a: Reg, b: Reg) -> Op {
    match op {
        Binary::Add => Op::Add { dst, a, b },
        Binary::Sub => Op::Sub { dst, a, b },
        Binary::Mul => Op::Mul { dst, a, b },
        Binary::Div => Op::Div { dst, a, b },
        Binary::FloorDiv => Op::FloorDiv { dst, a, b },
        Binary::Mod => Op::Mod { dst, a, b },
        _ => Op::Binary { op: op as u8, dst, a, b },
    }
}

/// Returns whether a value may be the only owner of memory.
fn owns(expr: &Expr) -> bool {
    use ExprKind::*;
    matches!(
        unparen(expr).kind,
        Call(..) | Pipe(..) | Index(..) | List(_) | Tuple(_) | Record(_) | Binary(..)
    )
}

/// Returns whether evaluating this does more than load a value.
fn runs(expr: &Expr) -> bool {
    use ExprKind::*;
    !matches!(unparen(expr).kind, None | Bool(_) | Int(_) | Float(_) | Str(_) | Name(_) | Chain(..))
}

/// Returns whether [`Compiler::expr`] writes its target only when the value is complete, so that the target
/// may be a variable that the expression reads.
pub(super) fn writes_late(expr: &Expr) -> bool {
    match &expr.kind {
        ExprKind::Paren(inner) => writes_late(inner),
        ExprKind::Chain(..) | ExprKind::And(..) | ExprKind::Or(..) => false,
        ExprKind::Block(_)
        | ExprKind::If(..)
        | ExprKind::With(..)
        | ExprKind::Try(..)
        | ExprKind::Match(..) => false,
        _ => true,
    }
}

/// Reports a tree that the parser should have refused.
#[cold]
pub(super) fn not_compiled(span: Span) -> Error {
    error::bad_value(0, "this text is not part of a program").at(span, "here")
}

/// The spans of the indexed value and of each index.
pub(super) fn index_spans(inner: &Expr, indices: &[Expr]) -> Vec<Span> {
    std::iter::once(inner.span).chain(indices.iter().map(|e| e.span)).collect()
}
