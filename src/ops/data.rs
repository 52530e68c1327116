//! Converts nested lists of numbers to tensors.

use super::{Data, error};
use crate::array::{Dims, Dtype};
use crate::base::Result;
use crate::driver::DeviceId;
use crate::driver::error::paced;
use crate::plan::Runtime;
use crate::plan::error::check_number;
use crate::tensor::Tensor;

/// Maximum nesting that is converted to dimensions.
const MAX_DEPTH: usize = 64;

/// A tensor of these numbers, written directly to its device (by default the current one). `index` is the
/// argument that they came from, for errors.
///
/// # Errors
/// Rows of different lengths, numbers mixed with lists, integers outside the dtype's range.
pub fn tensor(
    rt: &mut Runtime,
    data: &Data,
    index: usize,
    dtype: Option<Dtype>,
    device: Option<DeviceId>,
) -> Result<Tensor> {
    let shape = shape(data, index)?;
    let dtype = dtype.map_or_else(|| inferred(data), Ok)?;
    let count: usize = shape.iter().product();
    let mut bytes = Vec::with_capacity(count * dtype.size());
    encode(data, dtype, index, &mut bytes)?;
    let device = device.unwrap_or(rt.current_device());
    rt.from_host(&bytes, &shape, dtype, device)
}

/// The shape of nested lists; checks that they are rectangular.
pub fn shape(data: &Data, index: usize) -> Result<Dims> {
    let mut shape = Dims::new();
    let mut first = data;
    while let Data::List(items) = first {
        if shape.len() == MAX_DEPTH {
            return Err(error::nested_too_deep(index, MAX_DEPTH));
        }
        shape.push(items.len());
        match items.first() {
            Some(item) => first = item,
            None => break,
        }
    }
    check(data, &shape, index)?;
    Ok(shape)
}

/// The dtype of the numbers: `f32` if any is a float, else `i64` if any is an int, else `bool`. Without
/// numbers it is `f32`.
pub fn inferred(data: &Data) -> Result<Dtype> {
    fn widest(data: &Data) -> Result<Option<Dtype>> {
        paced(1)?;
        match data {
            Data::Number(number) => Ok(Some(number.dtype())),
            Data::List(items) => items.iter().try_fold(None, |most, item| Ok(most.max(widest(item)?))),
        }
    }
    widest(data).map(|dtype| dtype.unwrap_or(Dtype::F32))
}

fn check(data: &Data, shape: &[usize], index: usize) -> Result<()> {
    paced(1)?;
    match (data, shape.split_first()) {
        (Data::Number(_), None) => Ok(()),
        (Data::List(items), Some((&extent, rest))) if items.len() == extent => {
            items.iter().try_for_each(|item| check(item, rest, index))
        }
        (Data::List(items), Some((&extent, _))) => Err(error::ragged(
            index,
            format!("one list has {} and another of the same depth {}", amount(extent), items.len()),
        )),
        _ => Err(error::ragged(index, "numbers and lists are at the same depth".to_string())),
    }
}

fn amount(count: usize) -> String {
    if count == 1 { "1 element".to_string() } else { format!("{count} elements") }
}

fn encode(data: &Data, dtype: Dtype, index: usize, bytes: &mut Vec<u8>) -> Result<()> {
    paced(1)?;
    match data {
        Data::List(items) => items.iter().try_for_each(|item| encode(item, dtype, index, bytes)),
        Data::Number(number) => {
            // Floats round to infinity here: data may come from wider dtypes.
            if dtype.is_int() {
                check_number(index, *number, dtype)?;
            }
            number.encode(dtype, bytes);
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::Scalar;

    fn ints(numbers: &[i64]) -> Data {
        Data::List(numbers.iter().map(|&n| Data::Number(Scalar::Int(n))).collect())
    }

    #[test]
    fn nested_lists_have_a_shape_when_they_are_rectangular() {
        let whole = Data::List(vec![ints(&[1, 2, 3]), ints(&[4, 5, 6])]);
        assert_eq!(shape(&whole, 0).unwrap().as_slice(), [2, 3]);
        assert_eq!(shape(&Data::Number(Scalar::Int(1)), 0).unwrap().as_slice(), [0usize; 0]);
        assert_eq!(shape(&Data::List(vec![]), 0).unwrap().as_slice(), [0]);
        let ragged = Data::List(vec![ints(&[1]), ints(&[1, 2])]);
        assert_eq!(shape(&ragged, 0).unwrap_err().code().id, "E0404");
        let mixed = Data::List(vec![ints(&[1]), Data::Number(Scalar::Int(1))]);
        assert_eq!(shape(&mixed, 0).unwrap_err().code().id, "E0404");
        let mut deep = Data::Number(Scalar::Int(1));
        for _ in 0..100 {
            deep = Data::List(vec![deep]);
        }
        assert!(shape(&deep, 0).is_err());
    }

    #[test]
    fn the_dtype_is_the_widest_kind() {
        let list = |numbers: &[Scalar]| Data::List(numbers.iter().map(|&n| Data::Number(n)).collect());
        assert_eq!(inferred(&list(&[Scalar::Bool(true)])).unwrap(), Dtype::Bool);
        assert_eq!(inferred(&list(&[Scalar::Bool(true), Scalar::Int(2)])).unwrap(), Dtype::I64);
        assert_eq!(inferred(&list(&[Scalar::Float(1.0), Scalar::Int(2)])).unwrap(), Dtype::F32);
        assert_eq!(inferred(&list(&[])).unwrap(), Dtype::F32);
    }

    #[test]
    fn integers_must_fit() {
        let encoded = |number: Scalar, dtype: Dtype| {
            let mut bytes = Vec::new();
            encode(&Data::Number(number), dtype, 0, &mut bytes).map(|()| bytes).map_err(|e| e.code().id)
        };
        assert_eq!(encoded(Scalar::Int(255), Dtype::U8), Ok(vec![255]));
        assert_eq!(encoded(Scalar::Int(-1), Dtype::U8), Ok(vec![255]));
        assert_eq!(encoded(Scalar::Int(256), Dtype::U8), Err("E0353"));
        assert_eq!(encoded(Scalar::Int(-129), Dtype::I8), Err("E0353"));
        assert_eq!(encoded(Scalar::Float(f64::NAN), Dtype::I32), Err("E0353"));
        assert_eq!(encoded(Scalar::Float(1e19), Dtype::I64), Err("E0353"));
        assert_eq!(encoded(Scalar::Float(-2.7), Dtype::I8), Ok(vec![254]));
        assert_eq!(encoded(Scalar::Float(1e9), Dtype::F16), Ok(vec![0, 0x7c]));
    }
}
