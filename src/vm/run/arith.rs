//! Operators on values.
//!
//! Numbers are computed here. Tensors, and lists of numbers next to an arithmetic operator, go to the
//! operation of the operator (`vm::tensors`). Ints never wrap: overflow is a coded error. `//` and `%` round
//! towards negative infinity, as in Python. A float divided by zero is infinite or nan, as for tensors; an
//! int divided by zero is an error.

use super::super::compare::{contains, equal, order};
use super::super::value::Value;
use super::super::{Vm, charge, error, habits};
use crate::base::Result;
use crate::syntax::ast::{Binary, Unary};

/// The indices of `in` and `not in` in [`BINARY`].
pub(super) const IN: u8 = Binary::In as u8;
pub(super) const NOT_IN: u8 = Binary::NotIn as u8;

/// The binary operators, indexed by the number in instructions.
pub static BINARY: [Binary; 22] = [
    Binary::Add,
    Binary::Sub,
    Binary::Mul,
    Binary::Div,
    Binary::FloorDiv,
    Binary::Mod,
    Binary::Pow,
    Binary::MatMul,
    Binary::BitAnd,
    Binary::BitOr,
    Binary::BitXor,
    Binary::Shl,
    Binary::Shr,
    Binary::Join,
    Binary::Eq,
    Binary::Ne,
    Binary::Lt,
    Binary::Le,
    Binary::Gt,
    Binary::Ge,
    Binary::In,
    Binary::NotIn,
];

/// The symbol of each operator, with the same index.
static SYMBOLS: [&str; 22] = [
    "+", "-", "*", "/", "//", "%", "**", "@", "&", "|", "^", "<<", ">>", "++", "==", "!=", "<", "<=", ">",
    ">=", "in", "not in",
];

/// The symbol of an operator.
pub fn symbol(op: Binary) -> &'static str {
    SYMBOLS[op as usize]
}

/// `left op right`.
pub fn binary(vm: &mut Vm, op: Binary, left: Value, right: Value) -> Result<Value> {
    if let (Some(a), Some(b)) = (number(&left), number(&right)) {
        return numbers(op, a, b);
    }
    if let Some(index) = habits::empty_operand(op, &left, &right) {
        return Err(error::empty_operand(symbol(op), index));
    }
    if vm.takes_tensor(op, &left, &right) {
        return vm.tensor_binary(op, left, right);
    }
    match op {
        Binary::Eq => equal(vm, &left, &right).map(Value::Bool),
        Binary::Ne => equal(vm, &left, &right).map(|e| Value::Bool(!e)),
        Binary::Lt => order(vm, op, &left, &right).map(|o| Value::Bool(o.is_lt())),
        Binary::Le => order(vm, op, &left, &right).map(|o| Value::Bool(o.is_le())),
        Binary::Gt => order(vm, op, &left, &right).map(|o| Value::Bool(o.is_gt())),
        Binary::Ge => order(vm, op, &left, &right).map(|o| Value::Bool(o.is_ge())),
        Binary::In | Binary::NotIn if matches!(right, Value::Tensor(_)) => {
            let found = vm.tensor_contains(right, left)?;
            Ok(Value::Bool(found == (op == Binary::In)))
        }
        Binary::In => contains(vm, &right, &left).map(Value::Bool),
        Binary::NotIn => contains(vm, &right, &left).map(|c| Value::Bool(!c)),
        Binary::Add | Binary::Join => join(vm, op, &left, &right),
        Binary::Mul => match (&left, &right) {
            (Value::Str(text), Value::Int(n)) | (Value::Int(n), Value::Str(text)) => {
                repeat(vm, text.as_str(), *n)
            }
            _ => Err(refused(op, &left, &right)),
        },
        _ => Err(refused(op, &left, &right)),
    }
}

fn refused(op: Binary, left: &Value, right: &Value) -> crate::base::Error {
    error::operator_types(symbol(op), left.type_name(), right.type_name())
}

/// `+` on strings, `++` on strings, lists and tuples.
fn join(vm: &mut Vm, op: Binary, left: &Value, right: &Value) -> Result<Value> {
    match (left, right) {
        (Value::Str(a), Value::Str(b)) => {
            let length = a.as_str().len() + b.as_str().len();
            charge(length)?;
            let mut text = String::with_capacity(length);
            vm.push_text(&mut text, a.as_str())?;
            vm.push_text(&mut text, b.as_str())?;
            Ok(Value::str(text))
        }
        (Value::List(a), Value::List(b)) if op == Binary::Join => {
            vm.joined(&a.borrow(), &b.borrow()).map(Value::list)
        }
        (Value::Tuple(a), Value::Tuple(b)) if op == Binary::Join => {
            vm.joined(a.items(), b.items()).map(Value::tuple)
        }
        _ => Err(refused(op, left, right)),
    }
}

fn repeat(vm: &mut Vm, text: &str, count: i64) -> Result<Value> {
    let count = usize::try_from(count).unwrap_or(0);
    let length = text.len().saturating_mul(count);
    charge(length)?;
    let mut all = String::new();
    vm.push_repeated(&mut all, text, count)?;
    Ok(Value::str(all))
}

/// A number operand: bools count as ints.
#[derive(Clone, Copy)]
enum Number {
    Bool(bool),
    Int(i64),
    Float(f64),
}

fn number(value: &Value) -> Option<Number> {
    match *value {
        Value::Bool(b) => Some(Number::Bool(b)),
        Value::Int(i) => Some(Number::Int(i)),
        Value::Float(f) => Some(Number::Float(f)),
        _ => None,
    }
}

impl Number {
    fn float(self) -> f64 {
        match self {
            Number::Bool(b) => f64::from(u8::from(b)),
            Number::Int(i) => i as f64,
            Number::Float(f) => f,
        }
    }

    fn int(self) -> Option<i64> {
        match self {
            Number::Bool(b) => Some(i64::from(b)),
            Number::Int(i) => Some(i),
            Number::Float(_) => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Number::Bool(_) => "bool",
            Number::Int(_) => "int",
            Number::Float(_) => "float",
        }
    }
}

fn numbers(op: Binary, a: Number, b: Number) -> Result<Value> {
    use std::cmp::Ordering::{Equal, Greater, Less};
    let ordered = |accepted: &[std::cmp::Ordering]| {
        let found = order_numbers(a, b);
        Ok(Value::Bool(found.is_some_and(|o| accepted.contains(&o))))
    };
    match op {
        Binary::Eq => return ordered(&[Equal]),
        Binary::Ne => return Ok(Value::Bool(order_numbers(a, b) != Some(Equal))),
        Binary::Lt => return ordered(&[Less]),
        Binary::Le => return ordered(&[Less, Equal]),
        Binary::Gt => return ordered(&[Greater]),
        Binary::Ge => return ordered(&[Greater, Equal]),
        _ => {}
    }
    if let (Number::Bool(x), Number::Bool(y)) = (a, b) {
        match op {
            Binary::BitAnd => return Ok(Value::Bool(x & y)),
            Binary::BitOr => return Ok(Value::Bool(x | y)),
            Binary::BitXor => return Ok(Value::Bool(x ^ y)),
            _ => {}
        }
    }
    match (a.int(), b.int()) {
        (Some(x), Some(y)) => ints(op, x, y).unwrap_or_else(|| Err(refuse(op, a, b))),
        _ => floats(op, a.float(), b.float()).ok_or_else(|| refuse(op, a, b)).map(Value::Float),
    }
}

fn refuse(op: Binary, a: Number, b: Number) -> crate::base::Error {
    error::operator_types(symbol(op), a.name(), b.name())
}

/// The order of two numbers, exact between ints and floats; `None` for nan.
fn order_numbers(a: Number, b: Number) -> Option<std::cmp::Ordering> {
    match (a.int(), b.int()) {
        (Some(x), Some(y)) => Some(x.cmp(&y)),
        (Some(x), None) => int_float_order(x, b.float()),
        (None, Some(y)) => int_float_order(y, a.float()).map(std::cmp::Ordering::reverse),
        (None, None) => a.float().partial_cmp(&b.float()),
    }
}

fn int_float_order(int: i64, float: f64) -> Option<std::cmp::Ordering> {
    use std::cmp::Ordering::{Greater, Less};
    if float.is_nan() {
        return None;
    }
    if float >= 9_223_372_036_854_775_808.0 {
        return Some(Less);
    }
    if float < -9_223_372_036_854_775_808.0 {
        return Some(Greater);
    }
    let whole = float.trunc();
    Some(int.cmp(&(whole as i64)).then_with(|| 0.0.partial_cmp(&(float - whole)).unwrap_or(Less)))
}

/// The order of two values, if both are numbers.
pub(in crate::vm) fn number_order(a: &Value, b: &Value) -> Option<Option<std::cmp::Ordering>> {
    Some(order_numbers(number(a)?, number(b)?))
}

/// An operator on ints; `None` if it is not defined for them.
fn ints(op: Binary, x: i64, y: i64) -> Option<Result<Value>> {
    let checked = |value: Option<i64>| value.map(Value::Int).ok_or_else(|| error::overflow(symbol(op), x, y));
    Some(match op {
        Binary::Add => checked(x.checked_add(y)),
        Binary::Sub => checked(x.checked_sub(y)),
        Binary::Mul => checked(x.checked_mul(y)),
        Binary::Div if y == 0 => Err(error::division_by_zero("/")),
        Binary::Div => Ok(Value::Float(quotient(x, y))),
        Binary::FloorDiv | Binary::Mod if y == 0 => Err(error::division_by_zero(symbol(op))),
        Binary::FloorDiv => checked(floor_div(x, y)),
        Binary::Mod => Ok(Value::Int(floor_mod(x, y))),
        Binary::Pow => return Some(power(x, y)),
        Binary::BitAnd => Ok(Value::Int(x & y)),
        Binary::BitOr => Ok(Value::Int(x | y)),
        Binary::BitXor => Ok(Value::Int(x ^ y)),
        Binary::Shl | Binary::Shr if !(0..64).contains(&y) => Err(error::shift_range(y)),
        Binary::Shl => checked((x << y >> y == x).then_some(x << y)),
        Binary::Shr => Ok(Value::Int(x >> y)),
        _ => return None,
    })
}

fn floor_div(x: i64, y: i64) -> Option<i64> {
    let quotient = x.checked_div(y)?;
    if x % y != 0 && (x < 0) != (y < 0) { quotient.checked_sub(1) } else { Some(quotient) }
}

fn floor_mod(x: i64, y: i64) -> i64 {
    let rest = x.wrapping_rem(y);
    if rest != 0 && (rest < 0) != (y < 0) { rest + y } else { rest }
}

fn power(x: i64, y: i64) -> Result<Value> {
    if y < 0 {
        return if x == 0 {
            Err(error::division_by_zero("**"))
        } else {
            Ok(Value::Float((x as f64).powf(y as f64)))
        };
    }
    let exponent = u32::try_from(y).unwrap_or(u32::MAX);
    let small = match x {
        0 | 1 => Some(x.pow(u32::from(y > 0))),
        -1 => Some(if y % 2 == 0 { 1 } else { -1 }),
        _ => x.checked_pow(exponent),
    };
    small.map(Value::Int).ok_or_else(|| error::overflow("**", x, y))
}

fn floats(op: Binary, x: f64, y: f64) -> Option<f64> {
    Some(match op {
        Binary::Add => x + y,
        Binary::Sub => x - y,
        Binary::Mul => x * y,
        Binary::Div => x / y,
        Binary::FloorDiv => float_div_mod(x, y).0,
        Binary::Mod => float_div_mod(x, y).1,
        Binary::Pow => x.powf(y),
        _ => return None,
    })
}

/// `x // y` and `x % y` as in Python: the remainder is exact and has the sign of `y`, and the quotient matches it. So
/// `1.0 // 0.1` is 9.0, though `1.0 / 0.1` rounds to 10.0.
fn float_div_mod(x: f64, y: f64) -> (f64, f64) {
    if y == 0.0 {
        return ((x / y).floor(), f64::NAN);
    }
    let rest = x % y;
    let quotient = (x - rest) / y;
    let (quotient, rest) = match rest {
        0.0 => (quotient, 0f64.copysign(y)),
        _ if (rest < 0.0) != (y < 0.0) => (quotient - 1.0, rest + y),
        _ => (quotient, rest),
    };
    // Rounding may have moved the quotient off an integer by its last bit.
    let whole = quotient.floor();
    let whole = if quotient - whole > 0.5 { whole + 1.0 } else { whole };
    (if quotient == 0.0 { 0f64.copysign(x / y) } else { whole }, rest)
}

/// `-x`, `not x`, `~x`.
pub fn unary(vm: &mut Vm, op: Unary, value: Value) -> Result<Value> {
    match (op, &value) {
        (Unary::Not, Value::Bool(b)) => Ok(Value::Bool(!b)),
        (Unary::Not, _) => vm.truth(&value).map(|t| Value::Bool(!t)),
        (Unary::Neg, Value::Int(i)) => {
            i.checked_neg().map(Value::Int).ok_or_else(|| error::overflow("-", 0, *i))
        }
        (Unary::Neg, Value::Float(f)) => Ok(Value::Float(-f)),
        (Unary::Neg, Value::Bool(b)) => Ok(Value::Int(-i64::from(*b))),
        (Unary::BitNot, Value::Int(i)) => Ok(Value::Int(!i)),
        (Unary::BitNot, Value::Bool(b)) => Ok(Value::Bool(!b)),
        (_, Value::Tensor(_) | Value::List(_)) => vm.tensor_unary(op, value),
        (Unary::Neg, other) => Err(error::unary_type("-", other.type_name())),
        (Unary::BitNot, other) => Err(error::unary_type("~", other.type_name())),
    }
}

/// True if both convert to floats without rounding.
#[inline(always)]
pub(super) fn are_exact(x: i64, y: i64) -> bool {
    (x.unsigned_abs() | y.unsigned_abs()) <= 1 << 53
}

/// The float nearest to the exact quotient, as in Python; `y` is not 0.
fn quotient(x: i64, y: i64) -> f64 {
    if x == 0 || are_exact(x, y) {
        return x as f64 / y as f64;
    }
    // The quotient as an integer of at least 64 bits with a sticky lowest bit.
    let (n, d) = (u128::from(x.unsigned_abs()), u128::from(y.unsigned_abs()));
    let shift = n.leading_zeros();
    let (whole, rest) = ((n << shift) / d, (n << shift) % d);
    let size = (whole | u128::from(rest != 0)) as f64 / 2f64.powi(shift as i32);
    if (x < 0) == (y < 0) { size } else { -size }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floor_division_is_pythons() {
        for (x, y, q, r) in [(7, 2, 3, 1), (-7, 2, -4, 1), (7, -2, -4, -1), (-7, -2, 3, -1), (6, -3, -2, 0)] {
            assert_eq!((floor_div(x, y), floor_mod(x, y)), (Some(q), r));
        }
        assert_eq!(floor_div(i64::MIN, -1), None);
        assert_eq!(floor_mod(i64::MIN, -1), 0);
    }

    #[test]
    fn floor_division_of_floats_is_pythons() {
        // Python 3.11: `x // y`, `x % y`.
        let (inf, nan) = (f64::INFINITY, f64::NAN);
        for (x, y, q, r) in [
            (-1.0, 3.0, -1.0, 2.0),
            (1.0, 0.1, 9.0, 0.09999999999999995),
            (-1.0, 0.1, -10.0, 5.551115123125783e-17),
            (0.3, -0.1, -3.0, -2.7755575615628914e-17),
            (6.0, -3.0, -2.0, -0.0),
            (-0.0, 10.0, -0.0, 0.0),
            (0.0, -1.0, -0.0, -0.0),
            (1e22, -2.5, -4e21, -0.0),
            (-7.5, 2.0, -4.0, 0.5),
            (1e16, 3.0, 3333333333333333.0, 1.0),
            (-inf, 1e16, nan, nan),
            (1.0, inf, 0.0, 1.0),
            (-1.0, inf, -1.0, inf),
            (nan, 1.0, nan, nan),
        ] {
            let (quotient, rest) = float_div_mod(x, y);
            let same = |a: f64, b: f64| a.is_nan() && b.is_nan() || a.to_bits() == b.to_bits();
            assert!(same(quotient, q) && same(rest, r), "{x} by {y}: {quotient} {rest}");
        }
        assert_eq!(float_div_mod(1.0, 0.0).0, inf);
    }

    #[test]
    fn ints_and_floats_compare_exactly() {
        use std::cmp::Ordering::*;
        assert_eq!(int_float_order(i64::MAX, 9_223_372_036_854_775_807.0), Some(Less));
        assert_eq!(int_float_order(i64::MIN, -9_223_372_036_854_775_808.0), Some(Equal));
        assert_eq!(int_float_order(1, 1.5), Some(Less));
        assert_eq!(int_float_order(-1, -1.5), Some(Greater));
        assert_eq!(int_float_order(0, f64::NAN), None);
    }

    #[test]
    fn the_tables_agree_with_the_operators() {
        for (i, op) in BINARY.into_iter().enumerate() {
            assert_eq!(op as usize, i);
        }
    }

    #[test]
    fn quotients_of_large_ints_are_those_of_python() {
        let cases: &[(i64, i64, f64)] = &[
            (9007199254740993, 14, 643371375338642.4),
            (9007199254740992, -6, -1501199875790165.2),
            (-9007199254740993, 9, -1000799917193443.6),
            (9223372036854775807, 3, 3.0744573456182584e+18),
            (i64::MIN, 7, -1.3176245766935393e+18),
            (9223372036854775807, 9223372036854775807, 1.0),
            (9223372036854775807, i64::MIN, -1.0),
            (1, i64::MIN, -1.0842021724855044e-19),
            (3, 9223372036854775807, 3.2526065174565133e-19),
            (48567853699479330, 23917637, 2030629267.4096246),
            (893384427576554833, -203545555564, -4389112.919223881),
            (-96585512633709718, 28007119, -3448605786.039961),
            (534154967424371950, -5863687, -91095409325.97049),
            (-103748299389941897, -2353624618852674, 44.080223566201596),
            (-14518798407607747, 941933, -15413833476.062254),
            (-131908921642402249, -22840787992, 5775147.586353125),
            (-1011416247477678419, 5707156858392333, -177.21893274939484),
            (5894215045063675134, -53774666698003205, -109.6095133079187),
            (-320893592610843104, -24675935400108514, 13.004313206681193),
            (500133253092705, 307756980118559246, 0.0016250915020677528),
            (698987126243091515, 959838620174, 728234.0088757616),
            (5510914109771894336, 184680986074208, 29840.1813143748),
            (701199456600062618, 39343974537264, 17822.2832046603),
            (-3013422349884191493, -185301106859, 16262300.862439942),
            (-27920227573515179, -534877273, 52199315.58676485),
            (-4227197439686312713, -6244473469, 676950180.1347653),
            (995524589839714891, -4322948657565482, -230.28832139782014),
            (-3359955525076671755, 120471070140457, -27890.144257532582),
            (-66417502295523902, -81018535697431077, 0.8197815687951252),
            (-117201392499244246, 538547961172, -217624.8002948298),
            (1127509549989639997, -89501791482199866, -12.597619905897407),
            (3335770738085976616, 52108300, 64016111408.086174),
            (923030916124619063, 6, 1.5383848602076986e+17),
            (-14231498010577439, -224743657746622736, 0.06332324637441876),
            (343890980569432035, -27295409422146, -12598.85775116521),
            (-20986035379397219, 9695361860, -2164543.79758418),
            (285776904918935543, -39873981080953433, -7.167002069312871),
            (619140093446372715, 92521558527, 6691846.779317847),
            (1114690773369381, -35304036227546522, -0.0315740321074004),
            (-128659044958535092, 21387274872, -6015682.02253641),
        ];
        for &(x, y, expected) in cases {
            assert_eq!(quotient(x, y).to_bits(), expected.to_bits(), "{x} / {y}");
        }
    }
}
