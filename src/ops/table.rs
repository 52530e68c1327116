//! All operations, by name and by operator.
//!
//! To add a file of operations, append its table to `TABLES` with its page of the reference.

use super::Op;
use foldhash::HashMap;
use std::sync::LazyLock;

/// The tables, one per file, each with its page of the reference.
static TABLES: &[(&str, &[Op])] = &[
    ("arithmetic", super::arith::OPS),
    ("comparison", super::compare::OPS),
    ("logic", super::logic::OPS),
    ("rounding", super::round::OPS),
    ("rounding", super::neighbours::OPS),
    ("elementary", super::elementary::OPS),
    ("elementary", super::special::OPS),
    ("complex", super::complex::OPS),
    ("choosing", super::select::OPS),
    ("activations", super::activation::OPS),
    ("activations", super::losses::OPS),
    ("activations", super::gates::OPS),
    ("layers", super::layers::OPS),
    ("layers", super::bags::OPS),
    ("layers", super::cells::OPS),
    ("layers", super::recurrent::OPS),
    ("layers", super::norms::OPS),
    ("reductions", super::reduce::OPS),
    ("reductions", super::moments::OPS),
    ("reductions", super::statistics::OPS),
    ("reductions", super::histogram::OPS),
    ("scans", super::slopes::OPS),
    ("scans", super::scan::OPS),
    ("products", super::matmul::OPS),
    ("products", super::einsum::OPS),
    ("products", super::contract::OPS),
    ("shapes", super::shape::OPS),
    ("joining", super::join::OPS),
    ("joining", super::split::OPS),
    ("joining", super::stacks::OPS),
    ("diagonals", super::diagonal::OPS),
    ("indexing", super::index::OPS),
    ("indexing", super::masks::OPS),
    ("indexing", super::strided::OPS),
    ("sorting", super::sort::OPS),
    ("sorting", super::frequent::OPS),
    ("sorting", super::distinct::OPS),
    ("sorting", super::search::OPS),
    ("places", super::transfer::OPS),
    ("places", super::inspect::OPS),
    ("assertions", super::assertion::OPS),
    ("creation", super::factory::OPS),
    ("creation", super::ranges::OPS),
    ("random", super::random::OPS),
    ("random", super::random::laws::OPS),
    ("fft", super::fft::OPS),
];

/// The operations behind binary operators.
pub static BINARY_OPERATORS: &[(&str, &str)] = &[
    ("+", "add"),
    ("-", "sub"),
    ("*", "mul"),
    ("/", "div"),
    ("//", "floor_divide"),
    ("%", "remainder"),
    ("**", "pow"),
    ("==", "eq"),
    ("!=", "ne"),
    ("<", "lt"),
    ("<=", "le"),
    (">", "gt"),
    (">=", "ge"),
    ("&", "bitwise_and"),
    ("|", "bitwise_or"),
    ("^", "bitwise_xor"),
    ("<<", "bitwise_left_shift"),
    (">>", "bitwise_right_shift"),
    ("@", "matmul"),
];

/// The operations behind unary operators.
pub static UNARY_OPERATORS: &[(&str, &str)] = &[("-", "neg"), ("~", "bitwise_not")];

static BY_NAME: LazyLock<HashMap<&'static str, &'static Op>> =
    LazyLock::new(|| all().map(|op| (op.name, op)).collect());

/// The names of in-place forms in scripts: `add_`. Created once per process.
static IN_PLACE: LazyLock<HashMap<&'static str, &'static str>> = LazyLock::new(|| {
    let forms = all().filter(|op| op.form.in_place);
    forms.map(|op| (op.name, &*format!("{}_", op.name).leak())).collect()
});

/// Every operation, in the order of the reference pages.
pub fn all() -> impl Iterator<Item = &'static Op> {
    TABLES.iter().flat_map(|(_, table)| table.iter())
}

/// The tables and their page names in the reference; several tables may share a page.
pub fn pages() -> impl Iterator<Item = (&'static str, &'static [Op])> {
    TABLES.iter().copied()
}

/// Returns whether a name is that of an operation that multiplies matrices, in one of its forms.
pub fn is_product(name: &str) -> bool {
    let own = |op: &Op| op.name == name || op.aliases.contains(&name);
    pages().any(|(page, ops)| page == "products" && ops.iter().any(own))
}

/// Returns whether a name is that of a Fourier transform, with or without `fft.`.
pub fn is_transform(name: &str) -> bool {
    let own = |op: &Op| op.name == name || op.name.strip_prefix("fft.") == Some(name);
    let transforms =
        super::fft::OPS.iter().filter(|op| !op.name.ends_with("shift") && !op.name.ends_with("freq"));
    transforms.into_iter().any(own)
}

/// Finds an operation by name, regardless of its form.
pub fn find(name: &str) -> Option<&'static Op> {
    BY_NAME.get(name).copied()
}

/// Finds the operation that has this name in another library, if Runnel does not accept the name.
pub fn foreign(name: &str) -> Option<&'static Op> {
    all().find(|op| op.foreign.names.contains(&name))
}

/// Finds the operation that can be called as a function with this name.
pub fn find_function(name: &str) -> Option<&'static Op> {
    find(name).filter(|op| op.form.function)
}

/// Finds the operation that can be called as a method with this name, and whether it is the in-place form:
/// `add_` is `add`, in place.
pub fn find_method(name: &str) -> Option<(&'static Op, bool)> {
    if let Some(op) = find(name).filter(|op| op.form.method) {
        return Some((op, false));
    }
    let op = find(name.strip_suffix('_')?).filter(|op| op.form.in_place)?;
    Some((op, true))
}

/// The name of an operation's in-place form in scripts.
pub fn in_place_name(op: &Op) -> &'static str {
    IN_PLACE.get(op.name).copied().unwrap_or(op.name)
}

/// Finds the operation of a binary operator by its symbol.
pub fn binary_operator(symbol: &str) -> Option<&'static Op> {
    operator(BINARY_OPERATORS, symbol)
}

/// Finds the operation of a unary operator by its symbol.
pub fn unary_operator(symbol: &str) -> Option<&'static Op> {
    operator(UNARY_OPERATORS, symbol)
}

fn operator(table: &[(&str, &str)], symbol: &str) -> Option<&'static Op> {
    table.iter().find(|(s, _)| *s == symbol).and_then(|(_, name)| find(name))
}
