//! Writes to fields that nothing reads: of `self`, in functions whose first parameter it is, and of a loop's variable.
//!
//! A record is a value, so `self.steps += 1` changes the function's own copy, and `p.x = 1` in `for p in all` that of the
//! loop. The write has an effect only if the function, or the rest of the loop's body, then reads the field, or uses the
//! record as a whole: returns it, passes it on, or calls a function in it that takes `self` as well.

use super::{Catalog, error};
use crate::base::{Error, Span};
use crate::syntax::ast::*;
use crate::syntax::{Part, parts};
use foldhash::HashSet;
use std::rc::Rc;

const SELF: &str = "self";

/// The functions of a program that take `self`, and its loops.
#[derive(Default)]
pub struct Selves {
    /// Writes that nothing in their function or loop reads, unless something that is only known later does.
    lost: Vec<Lost>,
    /// The fields that are functions whose first parameter is `self`.
    methods: HashSet<Rc<str>>,
    /// The fields of the program's records.
    fields: HashSet<Rc<str>>,
}

/// A write that is lost.
struct Lost {
    error: Error,
    /// Unless one of these is a function that takes `self`.
    calls: Vec<Rc<str>>,
    /// Unless no record of the program has this field: then the value may not be a record.
    field: Option<Rc<str>>,
}

/// A write to a field.
struct Store<'e> {
    field: &'e Name,
    /// The target, and the whole statement.
    span: Span,
    stmt: Span,
    /// The start of the outermost loop around it in the function.
    repeats_from: Option<u32>,
    /// The operator of an update.
    update: Option<Binary>,
}

/// A use of a record.
enum Use<'e> {
    Whole,
    Field(&'e Rc<str>),
    Call(&'e Rc<str>),
}

/// What is left to visit.
enum Left<'e> {
    Part(Part<'e>),
    Stmt(&'e Stmt),
}

/// Where it is: the start of the outermost loop, and whether it is in a nested function, which may run later.
#[derive(Clone, Copy, Default)]
struct Inside {
    loops: Option<u32>,
    nested: bool,
}

impl Selves {
    /// Notes the value of a record's field.
    pub fn field(&mut self, name: &Name, value: &Expr) {
        self.fields.insert(Rc::clone(&name.text));
        if let ExprKind::Lambda(function) = &value.kind
            && takes_self(function)
        {
            self.methods.insert(name.text.clone());
        }
    }

    /// Notes a function.
    pub fn function(&mut self, function: &Function) {
        if !takes_self(function) {
            return;
        }
        self.find(SELF, &function.body, |store| {
            (error::lost_field(store.span, &store.field.text, store.update), None)
        });
    }

    /// Notes a loop.
    pub fn for_loop(&mut self, pattern: &Pattern, body: &Block) {
        super::scope::bound_names(pattern, &mut |name, _| {
            if **name != *SELF {
                self.find(name, body, |store| {
                    let field = &store.field.text;
                    let error = error::lost_in_loop(store.span, name, field, store.update);
                    (error, Some(Rc::clone(field)))
                });
            }
        });
    }

    /// Finds the writes to fields of a name that nothing in its scope reads; `lost` gives the error and [`Lost::field`].
    fn find(&mut self, of: &str, body: &Block, lost: impl Fn(&Store<'_>) -> (Error, Option<Rc<str>>)) {
        let (mut stores, mut uses) = (Vec::new(), Vec::new());
        if !visit(of, body, &mut stores, &mut uses) {
            return;
        }
        for store in &stores {
            let from = store.repeats_from.unwrap_or(store.stmt.hi);
            let is_later = |at: u32| at >= from && !(store.stmt.lo..store.stmt.hi).contains(&at);
            let mut calls = Vec::new();
            let is_read = uses.iter().filter(|(_, at)| is_later(*at)).any(|(used, _)| match used {
                Use::Whole => true,
                Use::Field(name) => **name == store.field.text,
                Use::Call(name) => {
                    calls.push(Rc::clone(name));
                    **name == store.field.text
                }
            });
            if !is_read {
                let (error, field) = lost(store);
                self.lost.push(Lost { error, calls, field });
            }
        }
    }

    /// The warnings.
    pub fn warnings(self, catalog: &dyn Catalog) -> impl Iterator<Item = Error> {
        let Selves { lost, methods, fields } = self;
        lost.into_iter()
            .filter(move |one| {
                let is_of_record = |field: &Rc<str>| fields.contains(field) && !catalog.is_attribute(field);
                !one.calls.iter().any(|call| methods.contains(call))
                    && one.field.as_ref().is_none_or(is_of_record)
            })
            .map(|one| one.error)
    }
}

fn binds(pattern: &Pattern, wanted: &str) -> bool {
    let mut found = false;
    super::scope::bound_names(pattern, &mut |name, _| found |= **name == *wanted);
    found
}

fn takes_self(function: &Function) -> bool {
    let first = function.params.first().map(|param| &param.pattern.kind);
    matches!(first, Some(PatternKind::Bind(name)) if *name.text == *SELF)
}

/// Finds the writes to fields of a name, and its uses, in a block. False if that gives the name another meaning.
fn visit<'e>(
    of_name: &str,
    body: &'e Block,
    stores: &mut Vec<Store<'e>>,
    uses: &mut Vec<(Use<'e>, u32)>,
) -> bool {
    let is_it = |e: &Expr| matches!(&e.kind, ExprKind::Name(name) if **name == *of_name);
    let binds_it = |pattern: &Pattern| binds(pattern, of_name);
    let mut left = vec![(Left::Part(Part::Block(body)), Inside::default())];
    while let Some((next, inside)) = left.pop() {
        // A nested function may run at any later time.
        let at = |span: Span| if inside.nested { u32::MAX } else { span.lo };
        let of = |e: &'e Expr| (Left::Part(Part::Expr(e)), inside);
        match next {
            Left::Stmt(stmt) => {
                let again = || Inside { loops: inside.loops.or(Some(stmt.span.lo)), ..inside };
                match &stmt.kind {
                    StmtKind::Let(pattern, e) => {
                        if binds_it(pattern) {
                            return false;
                        }
                        left.push(of(e));
                    }
                    StmtKind::Assign(target, e) | StmtKind::Update(target, _, e) => {
                        left.push(of(e));
                        let update = match stmt.kind {
                            StmtKind::Update(_, operator, _) => Some(operator),
                            _ => None,
                        };
                        match &target.kind {
                            ExprKind::Name(_) if is_it(target) => return false,
                            ExprKind::Member(base, field) if is_it(base) => stores.push(Store {
                                field,
                                span: target.span,
                                stmt: stmt.span,
                                repeats_from: inside.loops,
                                update,
                            }),
                            _ => left.push(of(target)),
                        }
                    }
                    StmtKind::For(pattern, e, body) => {
                        if binds_it(pattern) {
                            return false;
                        }
                        left.push(of(e));
                        left.push((Left::Part(Part::Block(body)), again()));
                    }
                    StmtKind::While(e, body) => {
                        left.push((Left::Part(Part::Expr(e)), again()));
                        left.push((Left::Part(Part::Block(body)), again()));
                    }
                    StmtKind::Fn(name, function) => {
                        if *name.text == *of_name {
                            return false;
                        }
                        left.push((Left::Part(Part::Function(function)), inside));
                    }
                    StmtKind::Return(e) => left.extend(e.as_ref().map(of)),
                    StmtKind::Throw(e) | StmtKind::Expr(e) | StmtKind::Discard(e) => left.push(of(e)),
                    StmtKind::Defer(e) => {
                        left.push((Left::Part(Part::Expr(e)), Inside { nested: true, ..inside }));
                    }
                    StmtKind::Test(_, body) => left.push((Left::Part(Part::Block(body)), inside)),
                    StmtKind::Break | StmtKind::Continue | StmtKind::Import(_) | StmtKind::Error => {}
                }
            }
            Left::Part(Part::Block(block)) => {
                left.extend(block.body.iter().map(|stmt| (Left::Stmt(stmt), inside)));
            }
            Left::Part(Part::Catch(name, block)) => {
                if name.is_some_and(|name| *name.text == *of_name) {
                    return false;
                }
                left.push((Left::Part(Part::Block(block)), inside));
            }
            Left::Part(Part::Arm(arm)) => {
                if binds_it(&arm.pattern) {
                    return false;
                }
                left.extend(arm.guard.as_ref().map(of));
                left.push(of(&arm.body));
            }
            Left::Part(Part::Function(function)) => {
                let defaults = function.params.iter().filter_map(|param| param.default.as_ref());
                left.extend(defaults.map(of));
                if !function.params.iter().any(|param| binds_it(&param.pattern)) {
                    let nested = Inside { nested: true, ..inside };
                    left.push((Left::Part(Part::Block(&function.body)), nested));
                }
            }
            Left::Part(Part::Expr(e)) => match &e.kind {
                ExprKind::Name(_) if is_it(e) => uses.push((Use::Whole, at(e.span))),
                ExprKind::Member(base, name) if is_it(base) => {
                    uses.push((Use::Field(&name.text), at(e.span)));
                }
                ExprKind::Call(f, args) => {
                    match &f.kind {
                        ExprKind::Member(base, name) if is_it(base) => {
                            uses.push((Use::Call(&name.text), at(e.span)));
                        }
                        _ => left.push(of(f)),
                    }
                    left.extend(args.iter().map(|arg| match arg {
                        Arg::One(e) | Arg::Named(_, e) | Arg::Spread(e) => of(e),
                    }));
                }
                _ => parts(e, &mut |part| left.push((Left::Part(part), inside))),
            },
        }
    }
    true
}
