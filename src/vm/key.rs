//! Dict keys: valid values, equality and hashes.
//!
//! Hashes are seeded per process, so that a script cannot choose colliding keys. Nothing visible to scripts depends on
//! them.

use std::hash::{BuildHasher, Hash, Hasher};
use std::rc::Rc;
use std::sync::LazyLock;

use foldhash::fast::RandomState;

use super::error;
use super::value::Value;
use crate::base::{Error, Result};

static STATE: LazyLock<RandomState> = LazyLock::new(RandomState::default);
static SEED: LazyLock<u64> = LazyLock::new(|| STATE.hash_one("int"));

/// A dict key.
///
/// Invariant: one of none, bool, int, float, str, dtype, device, or a tuple of keys nested at most
/// `KEY_DEPTH` deep. `1`, `1.0` and `true` are the same key, as in Python; nan equals itself.
#[derive(Clone)]
pub struct Key(Value);

const KEY_DEPTH: usize = 64;
/// Maximum number of values in one key: tuples may share other tuples, so a depth limit alone does not bound the size.
const KEY_VALUES: usize = 10_000;

impl Key {
    /// Makes a key from a value.
    pub fn new(value: &Value) -> Result<Key> {
        check_key(value)?;
        Ok(Key(value.clone()))
    }

    /// The value of this key.
    #[inline]
    pub fn value(&self) -> &Value {
        &self.0
    }

    /// Converts the key back into its value.
    pub(super) fn into_value(self) -> Value {
        self.0
    }
}

#[inline(always)]
pub(super) fn check_key(value: &Value) -> Result<()> {
    match value {
        Value::Int(_) | Value::Str(_) => Ok(()),
        other => check_parts(other, 0, &mut 0),
    }
}

#[inline(never)]
fn check_parts(value: &Value, depth: usize, values: &mut usize) -> Result<(), Error> {
    *values += 1;
    match value {
        Value::None | Value::Bool(_) | Value::Int(_) | Value::Float(_) | Value::Str(_) => Ok(()),
        Value::Dtype(_) | Value::Device(_) => Ok(()),
        Value::Tuple(_) if depth >= KEY_DEPTH || *values > KEY_VALUES => Err(error::nesting("a dict key")),
        Value::Tuple(tuple) => tuple.items().iter().try_for_each(|v| check_parts(v, depth + 1, values)),
        other => Err(error::bad_key(other.type_name())),
    }
}

/// Returns whether two values are the same key. A value that cannot be a key equals no key.
#[inline(always)]
pub(super) fn same_key(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => a == b,
        (Value::Str(a), Value::Str(b)) => Rc::ptr_eq(a, b) || a.as_str() == b.as_str(),
        (a, b) => same_other(a, b),
    }
}

#[inline(never)]
fn same_other(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Tuple(a), Value::Tuple(b)) => {
            let (a, b) = (a.items(), b.items());
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same_key(a, b))
        }
        (Value::None, Value::None) => true,
        (Value::Dtype(a), Value::Dtype(b)) => a == b,
        (Value::Device(a), Value::Device(b)) => a == b,
        (a, b) => match (number_bits(a), number_bits(b)) {
            (Some(a), Some(b)) => a == b,
            _ => false,
        },
    }
}

/// The seed of [`hash_int`].
pub(super) fn seed() -> u64 {
    *SEED
}

/// The hash of an int: both halves of a product, combined.
#[inline(always)]
pub(super) fn hash_int(bits: u64, seed: u64) -> u32 {
    let product = u128::from(bits ^ seed) * 0x9e37_79b9_7f4a_7c15_u128;
    (((product >> 64) as u64) ^ product as u64) as u32
}

/// A hash for any other value; equal values have equal hashes.
pub(super) fn hash_of(value: impl Hash) -> u32 {
    let hash = STATE.hash_one(value);
    (hash ^ (hash >> 32)) as u32
}

/// The hash of a key; `seed` comes from [`seed`].
#[inline(always)]
pub(super) fn hash_key(value: &Value, seed: u64) -> u32 {
    match value {
        Value::Int(i) => hash_int(*i as u64, seed),
        Value::Str(text) => text.hash_code(),
        other => hash_other(other, seed),
    }
}

#[inline(never)]
fn hash_other(value: &Value, seed: u64) -> u32 {
    match value {
        Value::Tuple(_) => hash_of(Parts(value)),
        Value::Dtype(dtype) => hash_of(dtype),
        Value::Device(device) => hash_of(device),
        // An integral float has the hash of its int.
        value => hash_int(number_bits(value).map_or(0, |(_, bits)| bits), seed),
    }
}

/// A key inside a tuple.
struct Parts<'a>(&'a Value);

impl Hash for Parts<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self.0 {
            Value::Tuple(tuple) => {
                state.write_usize(tuple.items().len());
                tuple.items().iter().for_each(|v| Parts(v).hash(state));
            }
            value => state.write_u32(hash_key(value, seed())),
        }
    }
}

/// The int that a number equals, if any.
pub(super) fn whole(value: &Value) -> Option<i64> {
    match number_bits(value) {
        Some((true, bits)) => Some(bits as i64),
        _ => None,
    }
}

/// The bits of a number; equal numbers have equal bits. Integral floats become ints.
fn number_bits(value: &Value) -> Option<(bool, u64)> {
    match *value {
        Value::Bool(b) => Some((true, u64::from(b))),
        Value::Int(i) => Some((true, i as u64)),
        Value::Float(f) if f == (f as i64) as f64 && f.abs() < 9.2e18 => Some((true, (f as i64) as u64)),
        Value::Float(f) if f.is_nan() => Some((false, f64::NAN.to_bits())),
        Value::Float(f) => Some((false, f.to_bits())),
        _ => None,
    }
}
