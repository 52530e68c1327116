//! The signature of a function: names, kinds and defaults of its parameters.
//!
//! Describes operations, native functions, methods and (for the checker) functions written in Runnel. Arity
//! errors, completion, help and the reference pages are derived from it.

/// The values that a parameter accepts. Only kinds of tensors convert a numeric list to a tensor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A tensor, or a value that converts to one: a number, a numeric list.
    Tensor,
    /// A tensor or a number that stays a number (weak).
    TensorOrNumber,
    /// `int`, `float` or `bool`.
    Number,
    /// `int`.
    Int,
    /// `float` or `int`.
    Float,
    /// `bool`.
    Bool,
    /// `str`.
    Str,
    /// A shape: an int, several ints as further arguments, a list or a tuple of ints.
    Shape,
    /// A shape, or a dtype instead.
    ShapeOrDtype,
    /// One dimension or several: an int, a list or tuple of ints; negative ones count from the end.
    Dims,
    /// A list or tuple of tensors.
    Tensors,
    /// `dtype`.
    Dtype,
    /// `device`, or an index for a CUDA device.
    Device,
    /// `stream`.
    Stream,
    /// `event`.
    Event,
    /// `generator`.
    Generator,
    /// A value for `tensor(...)`: a number, numbers in nested lists, or a tensor.
    Data,
    /// `fn`.
    Fn,
    /// Anything.
    Any,
}

/// The value of a parameter that is left out.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Default {
    /// The parameter is required.
    Required,
    /// `none`; such a parameter also accepts `none`.
    None,
    /// None: a native learns that the argument was left out. `none` is a value as any other.
    Absent,
    /// A `bool`.
    Bool(bool),
    /// An `int`.
    Int(i64),
    /// A `float`.
    Float(f64),
    /// A `str`.
    Str(&'static str),
}

/// One parameter.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Param {
    /// Its name, for `name=value` and for help.
    pub name: &'static str,
    /// The values it accepts.
    pub kind: Kind,
    /// Its value when left out.
    pub default: Default,
    /// True for a parameter that takes all further positional arguments (`*shape`).
    pub rest: bool,
    /// True for a parameter that must be given by name.
    pub named_only: bool,
    /// True if its elements are written to a tensor like the first argument: a list is converted to that dtype.
    pub stored: bool,
}

/// The parameters of a function; for a method, the receiver comes first.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Signature {
    /// In order.
    pub params: &'static [Param],
}

impl Param {
    /// A required parameter.
    pub const fn new(name: &'static str, kind: Kind) -> Param {
        Param { name, kind, default: Default::Required, rest: false, named_only: false, stored: false }
    }

    /// A required parameter whose elements are written to a tensor like the first argument.
    pub const fn stored(name: &'static str, kind: Kind) -> Param {
        Param { stored: true, ..Param::new(name, kind) }
    }

    /// An optional parameter.
    pub const fn or(name: &'static str, kind: Kind, default: Default) -> Param {
        Param { name, kind, default, rest: false, named_only: false, stored: false }
    }

    /// An optional parameter that can only be given by name.
    pub const fn named(name: &'static str, kind: Kind, default: Default) -> Param {
        Param { name, kind, default, rest: false, named_only: true, stored: false }
    }

    /// True if an argument of this name belongs to the parameter. As in PyTorch, `axis` is another name of `dim`, and
    /// `keepdims` of `keepdim`.
    pub fn is_called(&self, name: &str) -> bool {
        self.name == name || other_name(self.name) == Some(name)
    }

    /// True for a rest parameter that can also be given by name, as one list: `flip(x, dims=[0])`.
    pub const fn listed(&self) -> bool {
        self.rest && matches!(self.kind, Kind::Shape | Kind::ShapeOrDtype | Kind::Dims | Kind::Tensors)
    }

    /// A parameter that takes all further positional arguments.
    pub const fn rest(name: &'static str, kind: Kind) -> Param {
        Param { name, kind, default: Default::None, rest: true, named_only: false, stored: false }
    }
}

/// The name that NumPy has for a parameter.
pub fn other_name(param: &str) -> Option<&'static str> {
    match param {
        "dim" => Some("axis"),
        "keepdim" => Some("keepdims"),
        _ => None,
    }
}

impl std::fmt::Display for Param {
    /// `keepdim=false`, `*shape`
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.rest {
            f.write_str("*")?;
        }
        f.write_str(self.name)?;
        match self.default {
            Default::Required => Ok(()),
            Default::None if self.rest => Ok(()),
            Default::None => f.write_str("=none"),
            Default::Absent => f.write_str("=..."),
            Default::Bool(b) => write!(f, "={b}"),
            Default::Int(i) => write!(f, "={i}"),
            Default::Float(x) => write!(f, "={x:?}"),
            Default::Str(s) => write!(f, "={s:?}"),
        }
    }
}

impl std::fmt::Display for Signature {
    /// `(x, dim=none, keepdim=false)`
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("(")?;
        let mut named = false;
        for (i, param) in self.params.iter().enumerate() {
            if i > 0 {
                f.write_str(", ")?;
            }
            if param.named_only && !named {
                named = true;
                if !self.params[..i].iter().any(|p| p.rest) {
                    f.write_str("*, ")?;
                }
            }
            param.fmt(f)?;
        }
        f.write_str(")")
    }
}
