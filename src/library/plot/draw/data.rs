//! Converts script values to plot into numbers on the host.

use crate::array::Dtype;
use crate::base::Result;
use crate::vm::{Value, Vm, charge, error};

/// Maximum number of data sets in one chart.
const SETS: usize = 100;

/// Numbers in row-major order.
pub struct Numbers {
    pub values: Vec<f64>,
    pub shape: Vec<usize>,
    /// The original dtype.
    pub dtype: Dtype,
}

impl Numbers {
    /// The numbers of a tensor on any device (waits for it), a range, or a list or tuple of numbers and
    /// one-element tensors. `index` is the argument that errors point at.
    pub fn of(vm: &mut Vm, value: &Value, index: usize) -> Result<Numbers> {
        match value {
            Value::Tensor(tensor) => {
                if tensor.dtype().is_complex() {
                    return Err(error::bad_value(index, "complex numbers cannot be plotted")
                        .help("plot `x.real`, `x.imag` or `abs(x)`"));
                }
                vm.charge(tensor.count())?;
                charge(tensor.count().saturating_mul(16))?;
                let wide = vm.rt.convert(tensor, Dtype::F64)?;
                let bytes = vm.rt.read(&wide)?;
                let mut values = Vec::with_capacity(tensor.count());
                for some in bytes.as_chunks().0.chunks(1 << 14) {
                    crate::driver::error::paced(some.len())?;
                    values.extend(some.iter().map(|b| f64::from_ne_bytes(*b)));
                }
                Ok(Numbers { values, shape: tensor.shape().to_vec(), dtype: tensor.dtype() })
            }
            Value::List(_) | Value::Tuple(_) | Value::Range(_) => {
                let items = vm.collect(value)?;
                if let Some(Value::List(_) | Value::Tuple(_)) = items.first() {
                    let Some(tensor) = vm.as_tensor(value, None)? else {
                        return Err(no_numbers(value, index));
                    };
                    return Numbers::of(vm, &Value::Tensor(tensor), index);
                }
                charge(items.len().saturating_mul(8))?;
                let mut values = Vec::with_capacity(items.len());
                for item in &items {
                    vm.charge(1)?;
                    values
                        .push(number(vm, item).transpose().unwrap_or_else(|| Err(no_numbers(item, index)))?);
                }
                Ok(Numbers { shape: vec![values.len()], values, dtype: Dtype::F64 })
            }
            other => Err(no_numbers(other, index)),
        }
    }
}

/// A number, or the only element of a tensor.
fn number(vm: &mut Vm, value: &Value) -> Result<Option<f64>> {
    match value {
        Value::Tensor(tensor) if tensor.count() == 1 && !tensor.dtype().is_complex() => {
            vm.rt.item(tensor).map(|scalar| Some(scalar.as_f64()))
        }
        other => Ok(other.as_scalar().map(|scalar| scalar.as_f64())),
    }
}

#[cold]
fn no_numbers(value: &Value, index: usize) -> crate::base::Error {
    let found = error::a(value.type_name());
    error::bad_value(index, format!("only numbers can be plotted, not {found}"))
        .help("give a tensor, a range or a list of numbers; a record or dict of them draws several")
}

/// One named data set.
pub struct Set {
    /// Empty for none.
    pub name: String,
    pub values: Vec<f64>,
}

/// The data sets of a value: the fields of a record or dict, the columns of a matrix, or a single set.
pub fn sets(vm: &mut Vm, value: &Value, index: usize) -> Result<Vec<Set>> {
    let named: Option<Vec<(String, Value)>> = match value {
        Value::Record(record) => Some(record.fields().map(|(n, v)| (n.to_string(), v.clone())).collect()),
        Value::Dict(dict) => {
            let pairs: Vec<_> = dict.borrow().iter().map(|(k, v)| (k.value().clone(), v.clone())).collect();
            let mut named = Vec::with_capacity(pairs.len());
            for (key, value) in pairs {
                named.push((vm.display(&key)?, value));
            }
            Some(named)
        }
        _ => None,
    };
    let Some(named) = named else {
        let numbers = Numbers::of(vm, value, index)?;
        return match *numbers.shape.as_slice() {
            [_] => Ok(vec![Set { name: String::new(), values: numbers.values }]),
            [rows, columns] => {
                check_count(columns, index)?;
                let column = |c: usize| (0..rows).map(|r| numbers.values[r * columns + c]).collect();
                Ok((0..columns).map(|c| Set { name: String::new(), values: column(c) }).collect())
            }
            _ => Err(error::bad_value(index, format!("a tensor of shape {:?} is not a line", numbers.shape))
                .help("give one dimension, or two: each column is a line")),
        };
    };
    check_count(named.len(), index)?;
    named.into_iter().map(|(name, value)| Ok(Set { name, values: row(vm, &value, index)? })).collect()
}

/// One-dimensional numbers.
pub fn row(vm: &mut Vm, value: &Value, index: usize) -> Result<Vec<f64>> {
    let numbers = Numbers::of(vm, value, index)?;
    match numbers.shape.len() {
        1 => Ok(numbers.values),
        _ => Err(error::bad_value(
            index,
            format!("a tensor of shape {:?} is not a row of numbers", numbers.shape),
        )
        .help("give one dimension: `x.flatten()`, or a part of it such as `x[.., 0]`")),
    }
}

fn check_count(count: usize, index: usize) -> Result<()> {
    match count <= SETS {
        true => Ok(()),
        false => Err(error::bad_value(index, format!("{count} sets of data are too many for one chart"))
            .help(format!(
                "a chart shows up to {SETS}; of a matrix each column is one, `.T` swaps rows and columns"
            ))),
    }
}
