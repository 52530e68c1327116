//! Tables of callable natives: by name, and by receiver type.

use std::any::TypeId;
use std::cell::Cell;
use std::rc::Rc;

use foldhash::HashMap;
use parking_lot::Mutex;

use super::Vm;
use super::function::{Module, Native, NativeDef, Quick, Run};
use super::value::Value;
use crate::base::Result;
use crate::ops::Op;
use crate::syntax::ast::Binary;

/// Reads an attribute of a value.
pub type Attribute = fn(&mut Vm, &Value) -> Result<Value>;

/// Assigns an attribute; takes the object and the new value.
pub type Setter = fn(&mut Vm, &Value, &Value) -> Result<()>;

/// An attribute of a type, `x.shape`, as tables define it.
pub struct AttributeDef {
    /// `shape`
    pub name: &'static str,
    /// The type that has it: `tensor`.
    pub receiver: &'static str,
    /// Markdown: one summary line, then details.
    pub doc: &'static str,
    /// A runnable script that demonstrates it.
    pub example: &'static str,
    /// Reads it from a value of that type.
    pub read: Attribute,
}

/// The operations behind operators on tensors.
#[derive(Default)]
pub struct Operators {
    binary: [Option<&'static Op>; 22],
    /// `-x`
    pub neg: Option<&'static Op>,
    /// `~x`
    pub bit_not: Option<&'static Op>,
}

impl Operators {
    /// Makes `op` the operation of an operator.
    pub fn set(&mut self, operator: Binary, op: &'static Op) {
        self.binary[operator as usize] = Some(op);
    }

    /// The operation of an operator.
    pub fn get(&self, operator: Binary) -> Option<&'static Op> {
        self.binary[operator as usize]
    }
}

/// Everything that scripts may call. Built once per VM, from tables.
#[derive(Default)]
pub struct Natives {
    functions: HashMap<Rc<str>, Value>,
    methods: HashMap<&'static str, HashMap<Rc<str>, Rc<Native>>>,
    attributes: HashMap<&'static str, HashMap<&'static str, Attribute>>,
    setters: HashMap<&'static str, HashMap<&'static str, Setter>>,
    /// Fields of the embedder's own types, by type and name.
    fields: HashMap<&'static str, HashMap<Rc<str>, Rc<Native>>>,
    /// The names of these types: as requested, and as scripts see them.
    host_types: HashMap<TypeId, (&'static str, &'static str)>,
    /// Functions that call a function of a library and return its result.
    from_libraries: Vec<&'static str>,
    /// The operations behind operators.
    pub operators: Operators,
}

/// Names of Runnel's own types, including those without methods or attributes.
const OWN_TYPES: [&str; 34] = [
    "none",
    "ellipsis",
    "bool",
    "int",
    "float",
    "dtype",
    "device",
    "str",
    "list",
    "tuple",
    "record",
    "dict",
    "range",
    "fn",
    "module",
    "error",
    "tensor",
    "variable",
    "context",
    "elements",
    "stream",
    "event",
    "generator",
    "graph",
    "iterable",
    "mem_pool",
    "graph_pool",
    "graphed",
    "plan_cache",
    "opaque",
    "hook",
    "gradient_function",
    "gradient_rule",
    "checkpoint",
];

/// A name with a number, leaked once per process because type names are static.
fn numbered(name: &'static str, number: usize) -> &'static str {
    static NAMES: Mutex<Option<HashMap<(&'static str, usize), &'static str>>> = Mutex::new(None);
    let mut names = NAMES.lock();
    let names = names.get_or_insert_with(HashMap::default);
    names.entry((name, number)).or_insert_with(|| Box::leak(format!("{name}_{number}").into_boxed_str()))
}

impl Natives {
    /// Empty tables.
    pub fn new() -> Natives {
        Natives::default()
    }

    /// Adds a native under its name, or as a method of its receiver type.
    pub fn add(&mut self, def: &'static NativeDef) {
        let native = Rc::new(Native {
            name: def.name.into(),
            signature: def.signature,
            doc: Some(def.doc),
            run: Run::Static(def.run),
            plain: None,
            quick: Cell::new(None),
            lazy: Default::default(),
        });
        self.add_native(def.name, def.receiver, native);
    }

    /// States that a function returns what a function of a library returns (see [`Vm::library_function`]), which may
    /// be a record with functions.
    pub fn returns_from_library(&mut self, name: &'static str) {
        debug_assert!(self.functions.contains_key(name), "`{name}` is a native");
        self.from_libraries.push(name);
    }

    /// Whether a function returns what a function of a library returns.
    pub fn is_from_library(&self, name: &str) -> bool {
        self.from_libraries.contains(&name)
    }

    /// Sets the fast path of a function or method.
    pub fn add_quick(&mut self, receiver: &str, name: &str, quick: Quick) {
        let native = match receiver {
            "" => {
                self.functions.get(name).and_then(|f| if let Value::Native(f) = f { Some(f) } else { None })
            }
            of => self.methods.get(of).and_then(|methods| methods.get(name)),
        };
        debug_assert!(native.is_some(), "`{receiver}.{name}` is a native");
        if let Some(native) = native {
            native.quick.set(Some(quick));
        }
    }

    /// Sets the code of a function for the sequence of a `for`: it returns the elements one by one.
    pub fn add_lazy(&mut self, name: &str, run: fn(&mut Vm, &mut [Value]) -> Result<Value>) {
        let Some(Value::Native(native)) = self.functions.get(name) else { return };
        let lazy = Native {
            name: Rc::clone(&native.name),
            signature: native.signature,
            doc: native.doc,
            run: Run::Static(run),
            plain: None,
            quick: Cell::new(None),
            lazy: Default::default(),
        };
        let _ = native.lazy.set(Rc::new(lazy));
    }

    /// Adds an operation in all its forms. A library function of the same name is kept for calls without
    /// tensors.
    pub fn add_op(&mut self, op: &'static Op) {
        let native = |name: &str, run, plain: Option<Rc<Native>>| {
            let (signature, doc) = (op.signature(), Some(op.doc));
            let quick = Cell::new(plain.as_ref().and_then(|plain| plain.quick.get()));
            Rc::new(Native { name: name.into(), signature, doc, run, plain, quick, lazy: Default::default() })
        };
        if op.form.function {
            let plain = match self.functions.get(op.name) {
                Some(Value::Native(plain)) => Some(Rc::clone(plain)),
                _ => None,
            };
            self.add_native(op.name, "", native(op.name, Run::Op(op), plain));
        }
        if op.form.method {
            self.add_native(op.name, "tensor", native(op.name, Run::Op(op), None));
        }
        if op.form.in_place {
            let name = format!("{}_", op.name);
            self.add_native(&name, "tensor", native(&name, Run::OpInPlace(op), None));
        }
    }

    /// Adds an alias of an existing operation, in each of its forms.
    pub fn add_alias(&mut self, alias: &str, op: &'static Op) {
        if let Some(function) = self.functions.get(op.name).cloned().filter(|_| op.form.function) {
            self.functions.insert(alias.into(), function);
        }
        let forms = [(op.form.method, ""), (op.form.in_place, "_")];
        for (_, end) in forms.into_iter().filter(|(has, _)| *has) {
            let methods = self.methods.entry("tensor").or_default();
            if let Some(method) = methods.get(format!("{}{end}", op.name).as_str()).cloned() {
                methods.insert(format!("{alias}{end}").into(), method);
            }
        }
    }

    fn add_native(&mut self, name: &str, receiver: &'static str, native: Rc<Native>) {
        if !receiver.is_empty() {
            self.methods.entry(receiver).or_default().insert(name.into(), native);
            return;
        }
        match name.split_once('.') {
            Some((space, inner)) => self.add_to(space, inner, Value::Native(native)),
            // The function of a namespace is stored in it under the empty name.
            None if matches!(self.functions.get(name), Some(Value::Module(_))) => {
                self.add_to(name, "", Value::Native(native));
            }
            None => drop(self.functions.insert(name.into(), Value::Native(native))),
        }
    }

    /// Adds a value to a namespace that scripts see as a module: `fft.fft`.
    pub fn add_to(&mut self, space: &str, name: &str, value: Value) {
        if let Some(Value::Native(function)) = self.functions.get(space) {
            let module = Module::new(space);
            module.natives.borrow_mut().insert("".into(), Value::Native(Rc::clone(function)));
            self.functions.insert(space.into(), Value::Module(Rc::new(module)));
        }
        let module = self.functions.entry(space.into());
        let module = module.or_insert_with(|| Value::Module(Rc::new(Module::new(space))));
        if let Value::Module(module) = module {
            module.natives.borrow_mut().insert(name.into(), value);
        }
    }

    /// Adds a constant: `pi`.
    pub fn constant(&mut self, name: &str, value: Value) {
        self.functions.insert(name.into(), value);
    }

    /// Adds a function of the embedder: under its name, as `space.name` for one of a module, or as a method
    /// of its receiver type.
    pub fn add_host(&mut self, receiver: &'static str, name: &str, native: Native) {
        self.add_native(name, receiver, Rc::new(native));
    }

    /// Adds a type of the embedder and returns the name that scripts see. It differs from `name` if Runnel or
    /// another type already uses that, because methods are looked up by type name.
    pub fn add_type(&mut self, of: TypeId, name: &'static str) -> &'static str {
        if let Some((asked, own)) = self.host_types.get(&of)
            && *asked == name
        {
            return own;
        }
        let is_taken = |name: &str| {
            OWN_TYPES.contains(&name)
                || self.methods.contains_key(name)
                || self.attributes.contains_key(name)
                || self.host_types.values().any(|(_, own)| *own == name)
        };
        let own = match is_taken(name) {
            false => name,
            true => (2..).map(|n| numbered(name, n)).find(|name| !is_taken(name)).unwrap_or(name),
        };
        self.host_types.insert(of, (name, own));
        self.methods.entry(own).or_default();
        own
    }

    /// The script name of an embedder's type.
    pub fn host_type(&self, of: TypeId) -> Option<&'static str> {
        self.host_types.get(&of).map(|(_, own)| *own)
    }

    /// Adds a field `value.name` of an embedder's type.
    pub fn add_field(&mut self, of: &'static str, name: &str, native: Native) {
        self.fields.entry(of).or_default().insert(name.into(), Rc::new(native));
    }

    /// The reader of the field `value.name` of an embedder's type.
    pub fn field(&self, of: &str, name: &str) -> Option<Rc<Native>> {
        self.fields.get(of)?.get(name).cloned()
    }

    /// Adds an attribute of a type.
    pub fn add_attribute(&mut self, def: &AttributeDef) {
        self.attributes.entry(def.receiver).or_default().insert(def.name, def.read);
    }

    /// Makes an attribute of a type assignable.
    pub fn add_setter(&mut self, receiver: &'static str, name: &'static str, setter: Setter) {
        self.setters.entry(receiver).or_default().insert(name, setter);
    }

    /// The code that assigns an attribute of a value.
    pub fn setter(&self, object: &Value, name: &str) -> Option<Setter> {
        self.setters.get(object.type_name())?.get(name).copied()
    }

    /// All functions, constants and namespaces by name.
    pub fn functions(&self) -> &HashMap<Rc<str>, Value> {
        &self.functions
    }

    /// The method `name` of a value. Lists also have the methods of tensors, because lists of numbers convert
    /// to tensors.
    #[inline]
    pub fn method(&self, receiver: &Value, name: &str) -> Option<Rc<Native>> {
        let own = self.methods.get(receiver.type_name()).and_then(|m| m.get(name));
        match (own, receiver) {
            (None, Value::List(_)) => self.methods.get("tensor").and_then(|m| m.get(name)).cloned(),
            (own, _) => own.cloned(),
        }
    }

    /// The reader of an attribute of a value.
    pub fn attribute(&self, object: &Value, name: &str) -> Option<Attribute> {
        let own = self.attributes.get(object.type_name()).and_then(|a| a.get(name)).copied();
        match (own, object) {
            (None, Value::List(_)) => self.attributes.get("tensor").and_then(|a| a.get(name)).copied(),
            (own, _) => own,
        }
    }

    /// The methods and attributes of a type.
    pub fn names_of(&self, type_name: &str) -> Vec<Rc<str>> {
        let methods = self.methods.get(type_name).into_iter().flat_map(|m| m.keys().cloned());
        let attributes =
            self.attributes.get(type_name).into_iter().flat_map(|a| a.keys().map(|n| Rc::from(*n)));
        let fields = self.fields.get(type_name).into_iter().flat_map(|f| f.keys().cloned());
        let mut names: Vec<Rc<str>> = methods.chain(attributes).chain(fields).collect();
        names.sort();
        names
    }

    /// The methods of this name, with the types that have one.
    pub fn methods_named<'n>(
        &'n self,
        name: &'n str,
    ) -> impl Iterator<Item = (&'static str, &'n Rc<Native>)> {
        self.methods.iter().filter_map(move |(of, methods)| Some((*of, methods.get(name)?)))
    }

    /// Returns whether values of some type have an attribute of this name.
    pub fn has_attribute(&self, name: &str) -> bool {
        self.attributes.values().any(|attributes| attributes.contains_key(name))
            || self.fields.values().any(|fields| fields.contains_key(name))
    }

    /// The types that have methods.
    pub fn types(&self) -> Vec<&'static str> {
        let mut types: Vec<&'static str> = self.methods.keys().copied().collect();
        types.sort_unstable();
        types
    }

    /// The methods of a type.
    pub fn methods_of(&self, type_name: &str) -> Vec<Rc<Native>> {
        let mut all: Vec<Rc<Native>> =
            self.methods.get(type_name).into_iter().flat_map(|m| m.values().cloned()).collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }
}
