//! What can be called: closures over bytecode, natives, bound methods; and modules.

use std::cell::{self, OnceCell, RefCell};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use indexmap::IndexMap;

use super::Vm;
use super::bytecode::Op;
use super::heap::Cell;
use super::value::Value;
use crate::base::guard::Owned;
use crate::base::{Result, Site, Source, Span};
use crate::ops::signature::{Kind, Signature};

/// A function as the compiler leaves it.
///
/// Invariant (the compiler's, on which unchecked register access rests): every register operand
/// in `code` is below `registers`, every constant operand inside `consts`, every jump lands
/// inside `code`, and the last instruction returns. Register 0 holds the closure itself and is
/// never written; registers 1 to n are the parameters. A call's result goes to a register below
/// those of its callee and arguments.
pub struct Proto {
    /// `fib`; `<lambda>`, `<script>`.
    pub name: Rc<str>,
    /// The instructions.
    pub code: Vec<Op>,
    /// Constants: numbers, texts, names, natives.
    pub consts: Vec<Value>,
    /// Functions defined inside.
    pub protos: Vec<Rc<Proto>>,
    /// Registers that a call needs.
    pub registers: u16,
    /// The parameters.
    pub params: Vec<ParamInfo>,
    /// How many arguments a call by position alone must have to need no binding; [`NEVER_PLAIN`] when
    /// no call is like that, as with a rest parameter.
    pub plain: u16,
    /// Where captured variables come from when a closure is made.
    pub captures: Vec<Capture>,
    /// The documentation above `fn`.
    pub doc: Option<Rc<str>>,
    /// Where it is defined.
    pub span: Span,
    /// The source that its places lie in.
    pub source: Option<Arc<Source>>,
    /// Places of the instructions; only errors read it.
    pub places: Places,
    /// Operand shapes: calls by name, record fields, patterns.
    pub shapes: Shapes,
}

/// See [`Proto::plain`].
pub const NEVER_PLAIN: u16 = u16::MAX;

impl Proto {
    /// A constant.
    pub(super) fn constant(&self, k: u16) -> Value {
        self.consts[k as usize].clone()
    }
}

/// The names that a call gives arguments by: each argument's number, and where its name stands.
pub type GivenNames = Box<[(usize, Span)]>;

/// Side tables from instruction to source, which cost nothing until an error happens.
#[derive(Default)]
pub struct Places {
    /// The span of each instruction.
    pub spans: Vec<Span>,
    /// The spans of an instruction's operands; sorted by instruction.
    pub operands: Vec<(u32, Box<[Span]>)>,
    /// The names that a call's arguments are given by, with the numbers of the arguments; sorted by
    /// instruction.
    pub given: Vec<(u32, GivenNames)>,
    /// The names of the methods that calls name; sorted by instruction.
    pub methods: Vec<(u32, Span)>,
    /// The variables that registers hold, in the order of their declarations.
    pub names: Vec<Named>,
    /// Registers from this one on are dead after the instruction: its operands among them are
    /// released by it, so that intermediate tensors die as soon as they are used.
    pub dead_from: Vec<u16>,
}

/// A variable that a register, or the cell in it, holds for some instructions.
pub struct Named {
    /// The variable.
    pub name: Rc<str>,
    /// Its register.
    pub register: u16,
    /// The first instruction that it is there for, and the one behind the last.
    pub during: Range<u32>,
}

impl Places {
    /// The variables that registers hold when the instruction at `pc` runs.
    pub fn names_at(&self, pc: usize) -> impl Iterator<Item = &Named> {
        self.names.iter().filter(move |named| named.during.contains(&(pc as u32)))
    }

    /// The span of the instruction at `pc`.
    #[inline]
    pub fn span(&self, pc: usize) -> Span {
        self.spans.get(pc).copied().unwrap_or(Span::NONE)
    }

    /// The name of the method that the call at `pc` names.
    fn method(&self, pc: usize) -> Option<Span> {
        let found = self.methods.binary_search_by_key(&(pc as u32), |(at, _)| *at);
        found.ok().map(|i| self.methods[i].1)
    }
}

impl Proto {
    /// Where the instruction at `pc` stands, and its parts.
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
    /// The register of the variable that is the receiver; without one it stands before the arguments.
    pub receiver: Option<u16>,
    /// Then, where each argument is: in a variable's register, or behind the receiver's place.
    pub args: Box<[u16]>,
    /// The type of the first receiver here, and its method of that name.
    pub found: OnceCell<(&'static str, Rc<Native>)>,
    /// Its plain case, and the tag of the receivers that have it.
    pub quick: cell::Cell<Option<(u64, Quick)>>,
}

/// Operand shapes that do not fit in an instruction.
#[derive(Default)]
pub struct Shapes {
    /// Calls of methods by position alone.
    pub methods: Vec<MethodSite>,
    /// Calls that are not by position alone.
    pub calls: Vec<CallShape>,
    /// Field names of record literals.
    pub records: Vec<super::heap::Names>,
    /// What sequence patterns bind.
    pub patterns: Vec<PatternShape>,
}

/// A call with named or spread arguments.
#[derive(Debug)]
pub struct CallShape {
    /// The method's name, for `x.name(...)`.
    pub method: Option<Rc<str>>,
    /// How each argument is passed.
    pub args: Box<[Passed]>,
}

impl CallShape {
    /// How many arguments are passed by position, where those come first and none is spread; the others have
    /// [names](CallShape::names).
    pub fn by_position(&self) -> Option<usize> {
        let count = self.args.iter().take_while(|passed| matches!(passed, Passed::One)).count();
        let named = |passed: &Passed| matches!(passed, Passed::Named(_));
        self.args[count..].iter().all(named).then_some(count)
    }

    /// The names of the arguments that have one.
    pub fn names(&self) -> impl Iterator<Item = &Rc<str>> + Clone {
        self.args.iter().filter_map(|passed| match passed {
            Passed::Named(name) => Some(name),
            Passed::One | Passed::Spread => None,
        })
    }
}

/// How an argument is passed.
#[derive(Clone, Debug)]
pub enum Passed {
    /// By position.
    One,
    /// By name.
    Named(Rc<str>),
    /// `..e`
    Spread,
}

/// A tuple, list or record pattern: how many elements, where the rest is, which fields.
#[derive(Debug)]
pub struct PatternShape {
    /// Patterns, the rest not counted.
    pub count: u16,
    /// Position of `..rest` among them, and whether its elements are kept.
    pub rest: Option<(u16, bool)>,
    /// The fields that the last of the patterns take by name; only a record fits where there are some.
    pub names: Box<[Rc<str>]>,
    /// True when only a list fits (in `match`), false when only tuples and records do.
    pub list: bool,
}

impl PatternShape {
    /// Whether it takes fields by name.
    pub fn takes_names(&self) -> bool {
        !self.names.is_empty()
    }
}

/// A parameter of a function written in Runnel.
#[derive(Debug)]
pub struct ParamInfo {
    /// Its name; a pattern has none.
    pub name: Rc<str>,
    /// It may be left out.
    pub optional: bool,
    /// `*rest`
    pub rest: bool,
    /// It follows the rest parameter.
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

/// Where a closure finds a captured variable when it is made.
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

/// A function of an embedder.
pub type Dynamic = RefCell<Owned<Box<dyn FnMut(&mut Vm, &mut [Value]) -> Result<Value> + Send>>>;

/// The plain case of a native, done where its arguments stand: the first, or the receiver, then the others, as
/// many as the call has, and where its result goes, which is none before. It raises nothing and runs no script
/// code. False: this is not the plain case, and nothing is done.
pub type Quick = fn(&Value, &[&Value], &mut Value) -> bool;

/// So many arguments behind the first has a call of a plain case at most.
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

/// A native function, documented where it is defined.
///
/// Its code receives one value per parameter of the signature, bound and checked; a rest
/// parameter's is a list, a missing one's its default.
pub struct NativeDef {
    /// `split`
    pub name: &'static str,
    /// The type whose method it is (`str`), or the empty text for a function.
    pub receiver: &'static str,
    /// The parameters; a method's receiver first.
    pub signature: Signature,
    /// Markdown: one line, then what else there is to say.
    pub doc: &'static str,
    /// A script that runs and shows it.
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
    /// Its documentation, when it has some.
    pub doc: Option<&'static str>,
    /// The code.
    pub run: Run,
    /// For an operation: the function of the library with the same name, which is called when no
    /// argument is a tensor (`max(3, 1)`, `sum([1, 2])`).
    pub plain: Option<Rc<Native>>,
    /// Its plain case, if it has one.
    pub quick: cell::Cell<Option<Quick>>,
}

impl Native {
    /// The function of the library that a call of an operation means, by its arguments. A list stays one
    /// where that function takes any value; where it takes a number, and where an argument has a name that
    /// the operation alone knows (`max(items, dim=1)`), the list is a tensor.
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
        let knows = |native: &Native, name: &str| native.signature.params.iter().any(|p| p.name == name);
        let of_tensors = args.iter().any(is_tensor) || names.any(|n| knows(self, n) && !knows(plain, n));
        (!of_tensors).then_some(plain)
    }
}

/// A method together with its receiver: `let f = x.sum`.
pub struct Bound {
    /// The receiver.
    pub receiver: Value,
    /// The method.
    pub method: Rc<Native>,
}

/// A module: names for slots of the machine's global table.
pub struct Module {
    /// `nn`; the path of a file.
    pub name: Rc<str>,
    /// Global slots by name.
    pub names: RefCell<IndexMap<Rc<str>, u32, rustc_hash::FxBuildHasher>>,
    /// Natives of an embedded module, looked up after its names.
    pub natives: RefCell<IndexMap<Rc<str>, Value, rustc_hash::FxBuildHasher>>,
    /// The code of a program that the embedding program has compiled.
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

    /// The function that a call of the module itself means: `nvtx("forward")`.
    pub fn function(&self) -> Option<Rc<Native>> {
        match self.natives.borrow().get("") {
            Some(Value::Native(native)) => Some(Rc::clone(native)),
            _ => None,
        }
    }
}
