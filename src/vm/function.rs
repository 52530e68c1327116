//! Callable values: closures over bytecode, natives, bound methods; and modules.

use std::cell::{self, OnceCell, RefCell};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use indexmap::IndexMap;

use super::Vm;
use super::account::note;
use super::bytecode::Op;
use super::heap::{Cell, head};
use super::last_uses::LastUses;
use super::value::Value;
use crate::base::guard::Owned;
use crate::base::{Result, Site, Source, Span};
use crate::ops::signature::{Kind, Signature};
use crate::ops::table::{is_product, is_transform};
use crate::syntax::ast::Binary;

/// A compiled function.
///
/// Invariant (established by the compiler; unchecked register access relies on it): every register operand in
/// `code` is below `registers`, every constant operand is inside `consts`, every jump lands inside `code`,
/// and the last instruction returns. Register 0 holds the closure itself and is never written; registers 1 to
/// n are the parameters. A call's result goes to a register below those of its callee and arguments.
pub struct Proto {
    /// `fib`; `<lambda>`, `<script>`.
    pub name: Rc<str>,
    /// The instructions.
    pub code: Vec<Op>,
    /// Constants: numbers, strings, names, natives.
    pub consts: Vec<Value>,
    /// Functions defined inside this one.
    pub protos: Vec<Rc<Proto>>,
    /// Number of registers of a call.
    pub registers: u16,
    /// The parameters.
    pub params: Vec<ParamInfo>,
    /// The number of positional arguments with which a call needs no binding; `NEVER_PLAIN` if every call
    /// needs it, as with a rest parameter.
    pub plain: u16,
    /// The sources of captured variables when a closure is made.
    pub captures: Vec<Capture>,
    /// Their names.
    pub captured: Box<[Rc<str>]>,
    /// The doc comment above `fn`.
    pub doc: Option<Rc<str>>,
    /// The position of its definition.
    pub span: Span,
    /// The name of the function that this one is defined in.
    pub maker: Option<Rc<str>>,
    /// True for code of a library module, whose faults are reported where the script called it.
    pub is_library: bool,
    /// The source that its spans refer to.
    pub source: Option<Arc<Source>>,
    /// Source positions of the instructions, read only for errors.
    pub places: Places,
    /// Operand shapes: calls by name, record fields, patterns.
    pub shapes: Shapes,
    /// Made when the code first runs an instruction while tensors are pending.
    pub last_uses: OnceCell<LastUses>,
}

/// See [`Proto::plain`].
pub const NEVER_PLAIN: u16 = u16::MAX;

impl Proto {
    /// Returns whether this code, or a function in it, may multiply matrices.
    pub fn multiplies(&self) -> bool {
        let operator = |op: &Op| matches!(op, Op::Binary { op, .. } if *op == Binary::MatMul as u8);
        let inner = || self.protos.iter().any(|proto| proto.multiplies());
        self.code.iter().any(operator) || self.names(is_product) || inner()
    }

    /// Returns whether this code, or a function in it, names a Fourier transform.
    pub fn transforms(&self) -> bool {
        self.names(is_transform) || self.protos.iter().any(|proto| proto.transforms())
    }

    /// Returns whether this code, or a function in it, names floats of 16 bits.
    pub fn names_halves(&self) -> bool {
        let dtype = |value: &Value| matches!(value, Value::Dtype(dtype) if dtype.is_half());
        let inner = || self.protos.iter().any(|proto| proto.names_halves());
        self.consts.iter().any(dtype) || self.names(|name| ["autocast", "half"].contains(&name)) || inner()
    }

    /// Returns whether this code names a native or method that satisfies the predicate.
    pub(super) fn names(&self, like: impl Fn(&str) -> bool) -> bool {
        let mut calls = self.shapes.calls.iter().filter_map(|call| call.method.as_deref());
        let mut methods = self.shapes.methods.iter().map(|site| &*site.name);
        let native = |value: &Value| matches!(value, Value::Native(native) if like(&native.name));
        self.consts.iter().any(native) || methods.any(&like) || calls.any(&like)
    }

    /// A constant.
    pub(super) fn constant(&self, k: u16) -> Value {
        self.consts[k as usize].clone()
    }
}

/// The named arguments of a call: each argument's number, and the span of its name.
pub type GivenNames = Box<[(usize, Span)]>;

/// Side tables from instructions to source. They cost nothing until an error happens.
#[derive(Default)]
pub struct Places {
    /// The span of each instruction.
    pub spans: Vec<Span>,
    /// The spans of an instruction's operands; sorted by instruction.
    pub operands: Vec<(u32, Box<[Span]>)>,
    /// The named arguments of calls, with the numbers of the arguments; sorted by instruction.
    pub given: Vec<(u32, GivenNames)>,
    /// The method names of calls; sorted by instruction.
    pub methods: Vec<(u32, Span)>,
    /// The variables in registers, in the order of declaration.
    pub names: Vec<Named>,
    /// Registers from this one on are dead after the instruction. It releases its operands among them, so
    /// that intermediate tensors are freed as soon as they have been used.
    pub dead_from: Vec<u16>,
    /// Instructions of updates; sorted. Those that compute must not replace a tensor with a gradient: `w -=
    /// g` as an optimiser does. Those that write, `x[i] += v`, must not lose digits that the dtype of the
    /// tensor cannot represent. Those that read `x[i]` for `x[i] *= v` copy what a gradient may need.
    pub updates: Vec<u32>,
}

/// A variable in a register, or in the cell there, for a range of instructions.
pub struct Named {
    /// The variable.
    pub name: Rc<str>,
    /// Its register.
    pub register: u16,
    /// The instructions during which it is there.
    pub during: Range<u32>,
}

impl Places {
    /// The variables in registers when the instruction at `pc` runs.
    pub fn names_at(&self, pc: usize) -> impl Iterator<Item = &Named> {
        self.names.iter().filter(move |named| named.during.contains(&(pc as u32)))
    }

    /// The span of the instruction at `pc`.
    #[inline]
    pub fn span(&self, pc: usize) -> Span {
        self.spans.get(pc).copied().unwrap_or(Span::NONE)
    }

    /// The span of the method name of the call at `pc`.
    fn method(&self, pc: usize) -> Option<Span> {
        let found = self.methods.binary_search_by_key(&(pc as u32), |(at, _)| *at);
        found.ok().map(|i| self.methods[i].1)
    }
}

impl Proto {
    /// The span of the instruction at `pc`, and of its parts.
    pub fn site(&self, pc: usize) -> Site<'_> {
        fn of<T>(table: &[(u32, Box<[T]>)], pc: usize) -> &[T] {
            let found = table.binary_search_by_key(&(pc as u32), |(at, _)| *at);
            found.map_or(&[], |i| &table[i].1)
        }
        let operands = of(&self.places.operands, pc);
        let names = of(&self.places.given, pc);
        let (receiver, attribute) = match self.code.get(pc) {
            Some(Op::CallMethod { .. } | Op::CallMethodOf { .. }) => (true, self.places.method(pc)),
            Some(Op::CallShaped { shape, .. }) => {
                let is_method = self.shapes.calls.get(*shape as usize).is_some_and(|c| c.method.is_some());
                (is_method, self.places.method(pc))
            }
            Some(Op::Field { .. } | Op::SetField { .. }) => (true, operands.get(1).copied()),
            _ => (false, None),
        };
        Site { here: self.places.span(pc), operands, receiver, names, attribute }
    }
}

/// A method call in the source.
pub struct MethodSite {
    /// The method.
    pub name: Rc<str>,
    /// The register of the variable that is the receiver; `None` if the receiver precedes the arguments.
    pub receiver: Option<u16>,
    /// For a receiver in a variable, the register of each argument: that of a variable, or one after the receiver.
    pub args: Box<[u16]>,
    /// The type of the first receiver seen here, and its method of that name.
    pub found: OnceCell<(&'static str, Rc<Native>)>,
    /// Its fast path, and the tag of the receivers that have one.
    pub quick: cell::Cell<Option<(u64, Quick)>>,
}

/// Operand data that does not fit in an instruction.
#[derive(Default)]
pub struct Shapes {
    /// Method calls with positional arguments only.
    pub methods: Vec<MethodSite>,
    /// Calls with other than positional arguments.
    pub calls: Vec<CallShape>,
    /// Field names of record literals.
    pub records: Vec<super::heap::Names>,
    /// Bindings of sequence patterns.
    pub patterns: Vec<PatternShape>,
}

/// A call with named or spread arguments.
#[derive(Debug)]
pub struct CallShape {
    /// The method's name, for `x.name(...)`.
    pub method: Option<Rc<str>>,
    /// The way in which each argument is passed.
    pub args: Box<[Passed]>,
}

impl CallShape {
    /// The number of positional arguments, if those come first and none is spread; the others have
    /// [names](CallShape::names).
    pub fn by_position(&self) -> Option<usize> {
        let count = self.args.iter().take_while(|passed| matches!(passed, Passed::One)).count();
        let named = |passed: &Passed| matches!(passed, Passed::Named(_));
        self.args[count..].iter().all(named).then_some(count)
    }

    /// The names of the named arguments.
    pub fn names(&self) -> impl Iterator<Item = &Rc<str>> + Clone {
        self.args.iter().filter_map(|passed| match passed {
            Passed::Named(name) => Some(name),
            Passed::One | Passed::Spread => None,
        })
    }
}

/// The way in which an argument is passed.
#[derive(Clone, Debug)]
pub enum Passed {
    /// By position.
    One,
    /// By name.
    Named(Rc<str>),
    /// `..e`
    Spread,
}

/// A tuple, list or record pattern: the number of elements, the position of the rest, the field names.
#[derive(Debug)]
pub struct PatternShape {
    /// Number of patterns, without the rest.
    pub count: u16,
    /// Position of `..rest` among them, and whether its elements are bound.
    pub rest: Option<(u16, bool)>,
    /// The fields that the last patterns take by name. If there are any, only a record matches.
    pub names: Box<[Rc<str>]>,
    /// True if only a list matches (in `match`), false if only tuples and records do.
    pub list: bool,
}

impl PatternShape {
    /// Returns whether it takes fields by name.
    pub fn takes_names(&self) -> bool {
        !self.names.is_empty()
    }
}

/// A parameter of a function written in Runnel.
#[derive(Debug)]
pub struct ParamInfo {
    /// Its name; empty for a pattern.
    pub name: Rc<str>,
    /// Whether it may be left out.
    pub optional: bool,
    /// `*rest`
    pub rest: bool,
    /// Whether it follows the rest parameter.
    pub named_only: bool,
}

impl std::fmt::Display for ParamInfo {
    /// `b=...`, `*rest`
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.rest, self.optional) {
            (true, _) => write!(f, "*{}", self.name),
            (_, true) => write!(f, "{}=...", self.name),
            _ => f.write_str(&self.name),
        }
    }
}

/// The source of a captured variable when a closure is made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Capture {
    /// In a register of the function that makes it.
    Register(u16),
    /// Among that function's own captures.
    Outer(u16),
}

/// A function and the variables it captured.
pub struct Closure {
    /// The code.
    pub proto: Rc<Proto>,
    /// The captured variables.
    pub captures: Box<[Rc<Cell>]>,
}

impl Closure {
    /// The function, to be shared.
    pub fn shared(proto: Rc<Proto>, captures: Box<[Rc<Cell>]>) -> Rc<Closure> {
        let closure = Closure { proto, captures };
        note(closure.bytes());
        Rc::new(closure)
    }

    /// The bytes of the function itself.
    fn bytes(&self) -> isize {
        head::<Closure>() + (self.captures.len() * size_of::<Rc<Cell>>()) as isize
    }
}

impl Drop for Closure {
    fn drop(&mut self) {
        note(-self.bytes());
    }
}

/// A function registered by an embedder.
pub type Dynamic = RefCell<Owned<Box<dyn FnMut(&mut Vm, &mut [Value]) -> Result<Value> + Send>>>;

/// The fast path of a native. It takes its arguments from their registers: the first argument or the
/// receiver, the other arguments, and the place of the result, which holds `none`. It raises no errors and
/// runs no script code. It returns false if it does not apply, and has then done nothing.
pub type Quick = fn(&Value, &[&Value], &mut Value) -> bool;

/// Longest argument list after the first argument that a fast path handles.
pub const QUICK_ARGS: usize = 3;

/// The code of a native.
pub enum Run {
    /// A function of the library.
    Static(fn(&mut Vm, &mut [Value]) -> Result<Value>),
    /// A function that an embedder registered.
    Dynamic(Dynamic),
    /// An operation.
    Op(&'static crate::ops::Op),
    /// An operation's in-place form.
    OpInPlace(&'static crate::ops::Op),
}

impl Run {
    /// A function of an embedder.
    pub fn dynamic(code: impl FnMut(&mut Vm, &mut [Value]) -> Result<Value> + Send + 'static) -> Run {
        Run::Dynamic(RefCell::new(Owned::new(Box::new(code))))
    }
}

/// A native function with its documentation.
///
/// Its code receives one bound and checked value per parameter of the signature: a list for a rest parameter,
/// the default for a missing argument.
pub struct NativeDef {
    /// `split`
    pub name: &'static str,
    /// The type that it is a method of (`str`), or the empty text for a function.
    pub receiver: &'static str,
    /// The parameters; for a method the receiver is first.
    pub signature: Signature,
    /// Markdown: one summary line, then details.
    pub doc: &'static str,
    /// A runnable script that demonstrates it.
    pub example: &'static str,
    /// The code.
    pub run: fn(&mut Vm, &mut [Value]) -> Result<Value>,
}

/// A native as a value.
pub struct Native {
    /// `split`
    pub name: Rc<str>,
    /// The parameters.
    pub signature: Signature,
    /// Its documentation, if any.
    pub doc: Option<&'static str>,
    /// The code.
    pub run: Run,
    /// For an operation: the library function of the same name, which is called when no argument is a tensor
    /// (`max(3, 1)`, `sum([1, 2])`).
    pub plain: Option<Rc<Native>>,
    /// Its fast path, if it has one.
    pub quick: cell::Cell<Option<Quick>>,
    /// For a function that returns a list: what `for` calls instead. Its result yields the elements one by one.
    pub lazy: cell::OnceCell<Rc<Native>>,
}

impl Native {
    /// The library function that a call of an operation refers to, depending on the arguments. A list
    /// argument stays a list if that function takes any value. If the function takes a number, or an argument
    /// is named after a parameter that only the operation has (`max(items, dim=1)`), or has no place in that
    /// function (`prod(items, 1)`), the list becomes a tensor.
    pub fn of_plain_values<'a, 'n>(
        &'a self,
        args: &[Value],
        mut names: impl Iterator<Item = &'n str>,
    ) -> Option<&'a Rc<Native>> {
        let plain = self.plain.as_ref()?;
        let takes_lists = plain.signature.params.first().is_some_and(|p| p.kind == Kind::Any);
        let is_tensor = |value: &Value| match value {
            Value::Tensor(_) => true,
            Value::List(_) => !takes_lists,
            _ => false,
        };
        let knows = |native: &Native, name: &str| native.signature.params.iter().any(|p| p.is_called(name));
        let params = plain.signature.params;
        let places = params.iter().take_while(|p| !p.named_only).count();
        let is_extra = args.len() > places && !params.iter().any(|p| p.rest);
        let of_tensors =
            is_extra || args.iter().any(is_tensor) || names.any(|n| knows(self, n) && !knows(plain, n));
        (!of_tensors).then_some(plain)
    }
}

/// A method with its receiver: `let f = x.sum`.
pub struct Bound {
    /// The receiver.
    pub receiver: Value,
    /// The method.
    pub method: Rc<Native>,
}

/// A module: maps names to slots of the VM's global table.
pub struct Module {
    /// `nn`; the path of a file.
    pub name: Rc<str>,
    /// Global slots by name.
    pub names: RefCell<IndexMap<Rc<str>, u32, foldhash::fast::RandomState>>,
    /// Natives of an embedder's module, looked up after `names`.
    pub natives: RefCell<IndexMap<Rc<str>, Value, foldhash::fast::RandomState>>,
    /// The code of a program compiled by the embedder.
    pub unit: RefCell<Option<Rc<Proto>>>,
}

impl Module {
    /// An empty module.
    pub fn new(name: &str) -> Module {
        Module {
            name: name.into(),
            names: RefCell::default(),
            natives: RefCell::default(),
            unit: RefCell::default(),
        }
    }

    /// The function that a call of the module itself runs: `nvtx("forward")`.
    pub fn function(&self) -> Option<Rc<Native>> {
        match self.natives.borrow().get("") {
            Some(Value::Native(native)) => Some(Rc::clone(native)),
            _ => None,
        }
    }
}
