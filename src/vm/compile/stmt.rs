//! Statements and blocks.

use std::rc::Rc;

use super::super::bytecode::Op;
use super::super::error;
use super::super::function::Run;
use super::super::value::Value;
use super::expr::{not_compiled, writes_late};
use super::scope::Scope;
use super::{Compiler, Exit, Loop, Reg};
use crate::base::{Result, Span};
use crate::check::bound_names;
use crate::syntax::ast::*;

/// A `defer` whose block has not ended.
struct Deferred<'a> {
    e: &'a Expr,
    /// The register for a propagating error.
    error: Reg,
    handler: usize,
    /// The number of scopes it sees, and of names in the innermost one.
    scopes: usize,
    names: usize,
    /// [`Compiler::statement`].
    statement: u32,
}

impl<'a> Compiler<'_, '_, 'a> {
    /// A block with its own scope; its value goes to `dst`, if that is given.
    pub(super) fn block(&mut self, block: &'a Block, dst: Option<Reg>) -> Result<()> {
        self.deeper(block.span, |c| {
            c.open_scope();
            c.block_body(block, dst)
        })
    }

    /// [`Self::block`] for a block that is the last code of the scope around it.
    pub(super) fn last_block(&mut self, block: &'a Block, dst: Reg) -> Result<()> {
        self.deeper(block.span, |c| {
            c.open_last_scope();
            c.block_body(block, Some(dst))
        })
    }

    fn block_body(&mut self, block: &'a Block, dst: Option<Reg>) -> Result<()> {
        self.predeclare(&block.body)?;
        self.statements(&block.body, dst)?;
        self.close_scope();
        Ok(())
    }

    /// The statements of a unit. Functions exist before the first statement runs.
    pub(super) fn top_level(&mut self, block: &'a Block, dst: Reg) -> Result<()> {
        for stmt in &block.body {
            if let StmtKind::Fn(name, function) = &stmt.kind {
                self.statement = stmt.span.lo;
                self.located(stmt.span, |c| c.top_function(name, function, stmt.span))?;
            }
        }
        self.statements(&block.body, Some(dst))?;
        self.export()
    }

    fn top_function(&mut self, name: &'a Name, function: &'a Rc<Function>, span: Span) -> Result<()> {
        let reg = self.temp()?;
        let text = self.intern(&name.text);
        self.closure(function, text, false, span, reg)?;
        self.declare(&name.text, reg);
        Ok(())
    }

    /// Declares the functions of a block when it begins, without values, so that they can refer to each
    /// other.
    fn predeclare(&mut self, body: &'a [Stmt]) -> Result<()> {
        let names = body.iter().filter_map(|s| match &s.kind {
            StmtKind::Fn(name, _) => Some(name),
            _ => None,
        });
        let lone = names.clone().nth(1).is_none();
        for name in names {
            if self.last().inner.contains(&name.text) && !(lone && self.is_lone(name, body)) {
                let reg = self.temp()?;
                self.load(reg, Value::Unset);
                self.declare_register(&name.text, reg);
            }
        }
        Ok(())
    }

    /// Returns whether the block's only function is not mentioned before its definition, so that its variable
    /// can be made there.
    fn is_lone(&self, name: &Name, body: &[Stmt]) -> bool {
        let is_it = |s: &Stmt| matches!(&s.kind, StmtKind::Fn(n, _) if n.span == name.span);
        let before = body.iter().position(is_it).unwrap_or(0);
        let mentioned = before > 0 && super::mentions::in_statements(&body[..before]).contains(&name.text);
        !mentioned && !self.assigned.contains(&name.text)
    }

    /// Compiles statements in the current scope. The last one's value goes to `dst`.
    fn statements(&mut self, body: &'a [Stmt], dst: Option<Reg>) -> Result<()> {
        let mut defers = Vec::new();
        let is_top_level = self.is_top_level();
        for (i, stmt) in body.iter().enumerate() {
            if is_top_level {
                self.statement = stmt.span.lo;
            }
            if let StmtKind::Defer(e) = &stmt.kind {
                let deferred = self.located(stmt.span, |c| c.begin_defer(e))?;
                defers.push(deferred);
                continue;
            }
            let target = if i + 1 == body.len() { dst } else { None };
            self.located(stmt.span, |c| c.stmt(stmt, target))?;
        }
        if let (Some(dst), None | Some(Stmt { kind: StmtKind::Defer(_), .. })) = (dst, body.last()) {
            self.load(dst, Value::None);
        }
        defers.into_iter().rev().try_for_each(|deferred| self.end_defer(deferred))
    }

    fn stmt(&mut self, stmt: &'a Stmt, dst: Option<Reg>) -> Result<()> {
        if let StmtKind::Expr(e) = &stmt.kind {
            return match dst {
                Some(dst) => self.expr(e, dst),
                None => self.effect(e),
            };
        }
        match &stmt.kind {
            StmtKind::Let(pattern, value) => self.let_value(pattern, value)?,
            StmtKind::Assign(place, value) => self.assign(place, value)?,
            StmtKind::Update(place, op, value) => self.update(place, *op, value, stmt.span)?,
            StmtKind::Fn(name, function) => self.local_function(name, function, stmt.span)?,
            StmtKind::For(pattern, sequence, block) => self.for_loop(pattern, sequence, block)?,
            StmtKind::While(condition, block) => self.while_loop(condition, block)?,
            StmtKind::Break => self.leave(true, stmt.span)?,
            StmtKind::Continue => self.leave(false, stmt.span)?,
            StmtKind::Return(value) => self.return_value(value.as_ref())?,
            StmtKind::Throw(e) => self.temporary(|c| {
                let src = c.operand(e)?;
                c.emit_at(Op::Throw { src }, stmt.span, vec![e.span], u16::MAX);
                Ok(())
            })?,
            StmtKind::Import(import) => self.import(import)?,
            StmtKind::Test(name, block) => self.test_case(name, block, stmt.span)?,
            StmtKind::Discard(e) => self.effect(e)?,
            StmtKind::Expr(_) | StmtKind::Defer(_) => {}
            StmtKind::Error => return Err(not_compiled(stmt.span)),
        }
        if let Some(dst) = dst {
            self.load(dst, Value::None);
        }
        Ok(())
    }

    /// Evaluates an expression for its effects.
    fn effect(&mut self, expr: &'a Expr) -> Result<()> {
        match &expr.kind {
            ExprKind::If(arms, last) => self.located(expr.span, |c| c.branches(arms, last.as_ref(), None)),
            ExprKind::Block(block) => self.block(block, None),
            _ => self.temporary(|c| {
                let from = c.temp()?;
                c.expr(expr, from)?;
                c.emit(Op::Clear { from, count: 1 });
                Ok(())
            }),
        }
    }

    fn let_value(&mut self, pattern: &'a Pattern, value: &'a Expr) -> Result<()> {
        if let (PatternKind::Tuple(parts, None), ExprKind::Tuple(items)) = (&pattern.kind, &value.kind)
            && parts.len() == items.len()
            && items.iter().all(|item| matches!(item, Item::One(_)))
        {
            return self.binding(|c| c.let_each(parts, items));
        }
        if let PatternKind::Bind(name) = &pattern.kind
            && writes_late(value)
            && let Some(dst) = self.replaced_register(&name.text)
        {
            return self.expr_of_variable(value, dst);
        }
        self.binding(|c| {
            let reg = c.temp()?;
            c.expr(value, reg)?;
            c.pattern_of(pattern, reg, Some(value.span))
        })
    }

    /// Runs `body`, which may declare names; then frees the registers it took if none is a new name's. (Other names are
    /// in global slots or in the registers of older variables, or have no place.)
    fn binding(&mut self, body: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        let from = self.last().next;
        let names_before = self.last().scopes.last().map_or(0, Scope::count);
        body(self)?;
        if self.last().scopes.last().map_or(0, Scope::count) == names_before {
            self.last().next = from;
        }
        Ok(())
    }

    /// `let (a, b) = (x, y)`: no tuple is made.
    fn let_each(&mut self, parts: &'a [Pattern], items: &'a [Item]) -> Result<()> {
        let count = u16::try_from(items.len()).map_err(|_| error::function_size())?;
        let first = self.reserve(count)?;
        for (reg, Item::One(e) | Item::Spread(e)) in (first..).zip(items) {
            self.expr(e, reg)?;
        }
        let written = items.iter().map(|(Item::One(e) | Item::Spread(e))| e.span);
        (first..)
            .zip(parts.iter().zip(written))
            .try_for_each(|(reg, (part, span))| self.pattern_of(part, reg, Some(span)))
    }

    fn local_function(&mut self, name: &'a Name, function: &'a Rc<Function>, span: Span) -> Result<()> {
        if self.functions.len() == 1 && self.last().scopes.len() == 1 {
            // The variable exists since the start of the unit.
            return Ok(());
        }
        let text = self.intern(&name.text);
        if let Some(super::scope::Location::Cell(cell)) = self.predeclared(&text) {
            let itself = !self.assigned.contains(&name.text);
            return self.temporary(|c| {
                let src = c.temp()?;
                c.closure(function, text, itself, span, src)?;
                c.emit(Op::SetCell { take: true, cell, src });
                Ok(())
            });
        }
        let reg = self.temp()?;
        let itself = !self.assigned.contains(&name.text);
        self.closure(function, text, itself, span, reg)?;
        self.declare(&name.text, reg);
        Ok(())
    }

    fn for_loop(&mut self, pattern: &'a Pattern, sequence: &'a Expr, block: &'a Block) -> Result<()> {
        self.open_scope();
        let numbered = self.numbered(pattern, sequence)?;
        let (base, ranged) = match (&sequence.kind, numbered) {
            (_, Some((.., items))) => {
                let base = self.reserve(2)?;
                self.expr(items, base)?;
                self.emit_at(Op::ElementsLoop { base }, sequence.span, vec![items.span], u16::MAX);
                (base, false)
            }
            (ExprKind::Range(start, Some(end), step), None) => {
                let base = self.range_parts([start.as_deref(), Some(end), step.as_deref()])?;
                self.emit_at(Op::RangeLoop { base }, sequence.span, vec![sequence.span], u16::MAX);
                (base, true)
            }
            _ => {
                let base = self.reserve(2)?;
                self.loops_over_call = matches!(super::call::unparen(sequence).kind, ExprKind::Call(..));
                self.expr(sequence, base)?;
                self.emit_at(Op::SequenceLoop { base }, sequence.span, vec![sequence.span], u16::MAX);
                (base, false)
            }
        };
        let start = self.emit(Op::Jump { offset: 0 });
        let top = self.position();
        let number = if numbered.is_some() { self.temp()? } else { base };
        let dst = self.temp()?;
        self.open_scope();
        self.begin_loop(dst + 1);
        if let Some(inner) = self.last().loops.last_mut() {
            bound_names(pattern, &mut |name, _| inner.names.push(Rc::clone(name)));
        }
        match numbered {
            Some((first, second, _)) => {
                // The position after the element.
                self.emit(Op::SubInt { dst: number, a: base + 1, value: 1 });
                self.pattern(first, number)?;
                self.pattern(second, dst)?;
            }
            None => self.pattern(pattern, dst)?,
        }
        self.predeclare(&block.body)?;
        self.statements(&block.body, None)?;
        let reused = self.last().scopes.last().is_some_and(Scope::reused);
        self.close_scope();
        let Some(done) = self.last().loops.pop() else { return Ok(()) };
        self.patch_all(done.continues);
        if reused {
            // The loop variable's register holds the body's value.
            self.emit(Op::Clear { from: dst, count: 1 });
        }
        self.patch(start);
        let next = match ranged {
            true => Op::RangeNext { base, dst, offset: 0 },
            false => Op::SequenceNext { base, dst, offset: 0 },
        };
        let next = self.emit_at(next, sequence.span, vec![sequence.span], u16::MAX);
        if self.fuse {
            self.patch_to(next, top);
        } else {
            self.patch_to(next, next + 2);
            let exit = self.emit(Op::Jump { offset: 0 });
            let back = self.emit(Op::Loop { offset: 0 });
            self.patch_to(back, top);
            self.patch(exit);
        }
        self.patch_all(done.breaks);
        self.close_scope();
        Ok(())
    }

    /// The parts of `for (i, x) in enumerate(items)`, which needs no pairs.
    fn numbered(
        &mut self,
        pattern: &'a Pattern,
        sequence: &'a Expr,
    ) -> Result<Option<(&'a Pattern, &'a Pattern, &'a Expr)>> {
        if let (PatternKind::Tuple(parts, None), ExprKind::Call(callee, args)) =
            (&pattern.kind, &sequence.kind)
            && let ([number, element], [Arg::One(items)]) = (&parts[..], &args[..])
            && let ExprKind::Name(name) = &callee.kind
            && &**name == "enumerate"
            && let Some(super::scope::Location::Builtin(Value::Native(native))) = self.resolve(name)?
            && matches!(native.run, Run::Static(_))
        {
            return Ok(Some((number, element, items)));
        }
        Ok(None)
    }

    fn while_loop(&mut self, condition: &'a Expr, block: &'a Block) -> Result<()> {
        let mut exits = Vec::new();
        // A condition with blocks is compiled once, at the top: compiled twice, nested loops in conditions
        // would double the code at each level.
        let once = super::mentions::has_block(condition);
        let start = self.position();
        self.condition(condition, false, &mut exits)?;
        let top = if once { start } else { self.position() };
        let from = self.last().next;
        self.begin_loop(from);
        self.block(block, None)?;
        let Some(done) = self.last().loops.pop() else { return Ok(()) };
        self.patch_all(done.continues);
        if once {
            let back = self.emit(Op::Loop { offset: 0 });
            self.patch_to(back, top);
        } else if self.fuse {
            let mut back = Vec::new();
            self.condition(condition, true, &mut back)?;
            back.into_iter().for_each(|at| self.patch_to(at, top));
        } else {
            self.condition(condition, false, &mut exits)?;
            let back = self.emit(Op::Loop { offset: 0 });
            self.patch_to(back, top);
        }
        self.patch_all(exits);
        self.patch_all(done.breaks);
        Ok(())
    }

    fn begin_loop(&mut self, from: Reg) {
        let exits = self.last().exits.len();
        self.last().loops.push(Loop {
            breaks: Vec::new(),
            continues: Vec::new(),
            exits,
            names: Vec::new(),
            from,
        });
    }

    /// `break` and `continue`.
    fn leave(&mut self, breaks: bool, span: Span) -> Result<()> {
        let Some((exits, from)) = self.last().loops.last().map(|l| (l.exits, l.from)) else {
            return Err(not_compiled(span));
        };
        self.unwind_to(exits)?;
        self.clear_from(from);
        let jump = self.emit(Op::Jump { offset: 0 });
        if let Some(inner) = self.last().loops.last_mut() {
            if breaks { inner.breaks.push(jump) } else { inner.continues.push(jump) }
        }
        Ok(())
    }

    fn return_value(&mut self, value: Option<&'a Expr>) -> Result<()> {
        self.temporary(|c| {
            let src = match value {
                Some(e) if c.last().exits.is_empty() => c.operand(e)?,
                Some(e) => {
                    let reg = c.temp()?;
                    c.expr(e, reg)?;
                    reg
                }
                None => {
                    let reg = c.temp()?;
                    c.load(reg, Value::None);
                    reg
                }
            };
            c.unwind_to(0)?;
            c.emit(Op::Return { src });
            Ok(())
        })
    }

    /// Emits the exit code of all regions from the innermost down to the `count`-th.
    fn unwind_to(&mut self, count: usize) -> Result<()> {
        let left = self.last().exits.split_off(count);
        let all = [self.last().exits.clone(), left.clone()].concat();
        for i in (count..all.len()).rev() {
            // Exit code runs inside the outer regions only.
            self.last().exits = all[..i].to_vec();
            match all[i] {
                Exit::Handler => drop(self.emit(Op::PopHandler { flush: false })),
                Exit::Context => drop(self.emit(Op::ExitContext { count: 1 })),
                Exit::Defer(e, scopes, names, statement) => {
                    self.emit(Op::PopHandler { flush: false });
                    self.deferred(e, scopes, names, statement)?;
                }
            }
        }
        self.last().exits = all;
        Ok(())
    }

    /// `defer e`: runs `e` after the rest of the block, however that ends.
    fn begin_defer(&mut self, e: &'a Expr) -> Result<Deferred<'a>> {
        let error = self.temp()?;
        let handler = self.emit(Op::PushHandler { catch: false, dst: error, offset: 0 });
        let scopes = self.last().scopes.len();
        let names = self.last().scopes.last().map_or(0, Scope::count);
        let statement = self.statement;
        self.last().exits.push(Exit::Defer(e, scopes, names, statement));
        Ok(Deferred { e, error, handler, scopes, names, statement })
    }

    fn end_defer(&mut self, deferred: Deferred<'a>) -> Result<()> {
        let Deferred { e, error, handler, scopes, names, statement } = deferred;
        self.last().exits.pop();
        self.emit(Op::PopHandler { flush: true });
        self.deferred(e, scopes, names, statement)?;
        let end = self.emit(Op::Jump { offset: 0 });
        self.patch(handler);
        self.deferred(e, scopes, names, statement)?;
        self.emit(Op::Rethrow { src: error });
        self.patch(end);
        Ok(())
    }

    /// The code of a `defer`, with the names that it could see.
    fn deferred(&mut self, e: &'a Expr, scopes: usize, names: usize, statement: u32) -> Result<()> {
        let before = std::mem::replace(&mut self.statement, statement);
        let done = self.hiding(scopes, names, |c| c.effect(e));
        self.statement = before;
        done
    }

    fn import(&mut self, import: &'a Import) -> Result<()> {
        let dst = self.temp()?;
        let k = self.text(&import.path);
        let op = Op::Import { file: import.file, dst, k };
        self.emit_at(op, import.path_span, vec![import.path_span], u16::MAX);
        self.declare(&import.name.text, dst);
        Ok(())
    }

    fn test_case(&mut self, name: &'a Rc<str>, block: &'a Block, span: Span) -> Result<()> {
        self.functions.push(super::Function::new("<test>".into(), mentions_of(block), span));
        self.open_scope();
        self.tail_block(block)?;
        let Some(done) = self.functions.pop() else { return Err(error::function_size()) };
        let proto = done.finish(Vec::new(), None, span, None, self.world);
        self.last().protos.push(proto);
        let proto = self.last().protos.len() as u32 - 1;
        self.temporary(|c| {
            let src = c.temp()?;
            c.emit(Op::Closure { dst: src, proto });
            let k = c.text(name);
            c.emit(Op::Test { src, k });
            Ok(())
        })
    }

    /// A function's body, whose value is returned.
    pub(super) fn tail_block(&mut self, block: &'a Block) -> Result<()> {
        self.deeper(block.span, |c| {
            let deferred = block.body.iter().any(|s| matches!(s.kind, StmtKind::Defer(_)));
            let Some((last, before)) = block.body.split_last() else { return c.return_value(None) };
            c.open_last_scope();
            c.predeclare(&block.body)?;
            match &last.kind {
                StmtKind::Expr(e) if !deferred => {
                    before.iter().try_for_each(|s| c.located(s.span, |c| c.stmt(s, None)))?;
                    c.tail(e)?;
                }
                _ => {
                    let src = c.temp()?;
                    c.statements(&block.body, Some(src))?;
                    c.emit(Op::Return { src });
                }
            }
            // This point is unreachable: the return released the registers.
            if let Some(from) = c.leave_scope() {
                c.last().next = from;
            }
            Ok(())
        })
    }

    /// Evaluates `expr` and returns its value.
    fn tail(&mut self, expr: &'a Expr) -> Result<()> {
        match &expr.kind {
            ExprKind::If(arms, last) => {
                for (condition, block) in arms {
                    let mut next = Vec::new();
                    self.condition(condition, false, &mut next)?;
                    self.tail_block(block)?;
                    self.patch_all(next);
                }
                match last {
                    Some(block) => self.tail_block(block),
                    None => self.return_value(None),
                }
            }
            ExprKind::Block(block) => self.tail_block(block),
            ExprKind::Paren(inner) => self.deeper(expr.span, |c| c.tail(inner)),
            _ => self.return_value(Some(expr)),
        }
    }
}

fn mentions_of(block: &Block) -> super::NameSet {
    super::mentions::mentions(&[], block).0
}
