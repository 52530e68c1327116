//! Tensors as text, for `print` and `repr`.
//!
//! The rules are PyTorch's: four decimals, scientific notation when magnitudes differ by more than a factor
//! of a thousand, `1.` when all floats are integers, aligned columns, wrapped rows, only the corners of more
//! than a thousand elements, the device unless it is the host, and the dtype unless it can be inferred.
//! Source: `torch.set_printoptions`.
//!
//! Works on host bytes; independent of storages and transfers. For a summarised tensor it needs only the
//! corners ([`corner_shape`]), so that printing a large tensor copies a few hundred bytes.

use crate::array::{Dims, Dtype, Scalar};
use crate::driver::DeviceId;

/// Options for printing. The defaults are PyTorch's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PrintOptions {
    /// Digits after the decimal point.
    pub precision: usize,
    /// Tensors with more elements are summarised.
    pub threshold: usize,
    /// Number of items shown at each end of a summarised dimension.
    pub edge_items: usize,
    /// Line width in columns.
    pub line_width: usize,
    /// `Some` forces scientific notation on or off.
    pub scientific: Option<bool>,
}

impl Default for PrintOptions {
    fn default() -> PrintOptions {
        PrintOptions { precision: 4, threshold: 1000, edge_items: 3, line_width: 80, scientific: None }
    }
}

/// The shape of a tensor's corners: extents are limited to twice `edge_items`. `None` when the tensor is
/// printed in full.
pub fn corner_shape(shape: &[usize], options: &PrintOptions) -> Option<Dims> {
    let count = shape.iter().try_fold(1usize, |n, &e| n.checked_mul(e)).unwrap_or(usize::MAX);
    let kept = options.edge_items.saturating_mul(2);
    (count > options.threshold && !shape.contains(&0)).then(|| shape.iter().map(|&e| e.min(kept)).collect())
}

/// `tensor([1., 2.], device='cuda:1')`: the output of `print`. `bytes` are the elements, row-major.
pub fn format_tensor(
    bytes: &[u8],
    shape: &[usize],
    dtype: Dtype,
    device: DeviceId,
    options: &PrintOptions,
) -> String {
    match corner_shape(shape, options) {
        None => format_corner(bytes, shape, dtype, device, options),
        Some(corner) => {
            let bytes = take_corner(bytes, shape, &corner, dtype.size());
            format_corner(&bytes, shape, dtype, device, options)
        }
    }
}

/// [`format_tensor`] for a possibly summarised tensor; then `bytes` are the elements of its corners, in
/// [`corner_shape`].
pub fn format_corner(
    bytes: &[u8],
    shape: &[usize],
    dtype: Dtype,
    device: DeviceId,
    options: &PrintOptions,
) -> String {
    let mut suffixes = Vec::new();
    if device != DeviceId::Cpu {
        suffixes.push(format!("device='{device}'"));
    }
    let mut text = String::from("tensor(");
    let indent = text.len();
    if shape.contains(&0) {
        text.push_str("[]");
        if shape.len() != 1 {
            suffixes.push(format!("size={}", tuple_text(shape)));
        }
        if dtype != Dtype::F32 {
            suffixes.push(format!("dtype={dtype}"));
        }
    } else {
        if dtype.is_complex() {
            let pairs = Pairs::fit(bytes, dtype, options);
            write_nested(&mut text, indent, shape, options, pairs.width(), |i| pairs.text(i));
        } else {
            let values = decode(bytes, dtype);
            let column = Column::fit(&values, options);
            write_nested(&mut text, indent, shape, options, column.width, |i| column.text(values[i]));
        }
        if !matches!(dtype, Dtype::F32 | Dtype::I64 | Dtype::Bool | Dtype::C64) {
            suffixes.push(format!("dtype={dtype}"));
        }
    }
    close(text, &suffixes, indent, options.line_width)
}

/// Source text that evaluates to the same tensor: the shortest digits that give the same bits, the dtype
/// unless the literal implies it, and always the device. Complex tensors are written as two tensors of their
/// parts. A tensor that would be summarised has no source form; it is printed instead.
///
/// Example: `tensor([0.1, 2.0], device=cuda:0)`.
pub fn tensor_source(
    bytes: &[u8],
    shape: &[usize],
    dtype: Dtype,
    device: DeviceId,
    options: &PrintOptions,
) -> String {
    if dtype.is_complex() && corner_shape(shape, options).is_none() && !shape.contains(&0) {
        return complex_source(bytes, shape, dtype, device, options);
    }
    if corner_shape(shape, options).is_some() {
        return format_tensor(bytes, shape, dtype, device, options);
    }
    let mut suffixes = Vec::new();
    let mut text;
    if shape.contains(&0) {
        let extents: Vec<String> = shape.iter().map(usize::to_string).collect();
        text = format!("zeros({}", extents.join(", "));
        if dtype != Dtype::F32 {
            suffixes.push(format!("dtype={dtype}"));
        }
    } else {
        text = String::from("tensor(");
        let values = decode(bytes, dtype);
        let texts: Vec<String> = values.iter().map(|&v| source_number(v, dtype)).collect();
        let width = texts.iter().map(String::len).max().unwrap_or(1);
        write_nested(&mut text, 7, shape, options, width, |i| format!("{:>width$}", texts[i]));
        if !matches!(dtype, Dtype::F32 | Dtype::I64 | Dtype::Bool) {
            suffixes.push(format!("dtype={dtype}"));
        }
    }
    suffixes.push(format!("device={device}"));
    close(text, &suffixes, 7, options.line_width)
}

/// An element to print.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Value {
    Bool(bool),
    Int(i64),
    Float(f64),
}

/// The values of elements; two of each complex one.
fn decode(bytes: &[u8], dtype: Dtype) -> Vec<Value> {
    let part = dtype.real();
    let value = |bytes| match Scalar::decode(bytes, part) {
        Scalar::Bool(b) => Value::Bool(b),
        Scalar::Int(i) => Value::Int(i),
        Scalar::Float(x) | Scalar::Complex(x, _) => Value::Float(x),
    };
    bytes.chunks_exact(part.size()).map(value).collect()
}

/// A complex tensor as source: `complex(tensor(..), tensor(..))`.
fn complex_source(
    bytes: &[u8],
    shape: &[usize],
    dtype: Dtype,
    device: DeviceId,
    options: &PrintOptions,
) -> String {
    let part = dtype.real();
    let parts = [0, 1].map(|which| {
        let size = part.size();
        let own = bytes.chunks_exact(size).skip(which).step_by(2).flatten().copied().collect::<Vec<u8>>();
        tensor_source(&own, shape, part, device, options)
    });
    format!("complex({}, {})", parts[0], parts[1])
}

/// The text of complex elements: `1.5000+2.0000j`. Each part is a column of its own.
struct Pairs {
    re: Vec<Value>,
    im: Vec<Value>,
    columns: [Column; 2],
}

impl Pairs {
    fn fit(bytes: &[u8], dtype: Dtype, options: &PrintOptions) -> Pairs {
        let values = decode(bytes, dtype);
        let part = |which: usize| values.iter().copied().skip(which).step_by(2).collect::<Vec<Value>>();
        let (re, im) = (part(0), part(1));
        let columns = [Column::fit(&re, options), Column::fit(&im, options)];
        Pairs { re, im, columns }
    }

    fn width(&self) -> usize {
        self.columns[0].width + self.columns[1].width + 1
    }

    fn text(&self, i: usize) -> String {
        let re = self.columns[0].text(self.re[i]);
        let im = self.columns[1].text(self.im[i]);
        // The sign joins the parts; a negative part has its own.
        match im.trim_start() {
            own if own.starts_with('-') => format!("{re}{own}j"),
            own => format!("{re}+{own}j"),
        }
    }
}

/// The format of all elements of one tensor.
struct Column {
    width: usize,
    precision: usize,
    whole: bool,
    scientific: bool,
}

impl Column {
    /// Chooses the format from the finite non-zero values.
    fn fit(values: &[Value], options: &PrintOptions) -> Column {
        let mut column = Column { width: 1, precision: options.precision, whole: true, scientific: false };
        let (mut least, mut most) = (f64::INFINITY, 0f64);
        for &value in values {
            let Value::Float(x) = value else { continue };
            if x.is_finite() && x != 0.0 {
                least = least.min(x.abs());
                most = most.max(x.abs());
                column.whole &= x == x.ceil();
            }
        }
        if most > 0.0 {
            column.scientific = most / least > 1000.0 || most > 1e8 || (!column.whole && least < 1e-4);
        }
        let counts = |v: &Value| !matches!(v, Value::Float(x) if !x.is_finite() || *x == 0.0);
        let widest = values.iter().filter(|v| counts(v)).map(|&v| column.bare(v).len()).max();
        column.width = widest.unwrap_or(1).max(1);
        if let Some(scientific) = options.scientific {
            column.scientific = scientific;
        }
        column
    }

    fn bare(&self, value: Value) -> String {
        match value {
            Value::Bool(b) => b.to_string(),
            Value::Int(i) => i.to_string(),
            Value::Float(x) if x.is_nan() => "nan".into(),
            Value::Float(x) if x.is_infinite() => if x > 0.0 { "inf" } else { "-inf" }.into(),
            Value::Float(x) if self.scientific => scientific(x, self.precision),
            Value::Float(x) if self.whole => format!("{x:.0}."),
            Value::Float(x) => format!("{x:.*}", self.precision),
        }
    }

    fn text(&self, value: Value) -> String {
        format!("{:>1$}", self.bare(value), self.width)
    }
}

/// `1.5000e-05`: the exponent has a sign and at least two digits, as in C and Python.
fn scientific(x: f64, precision: usize) -> String {
    let text = format!("{x:.precision$e}");
    match text.split_once('e') {
        Some((digits, exponent)) => {
            let (sign, exponent) = match exponent.strip_prefix('-') {
                Some(rest) => ('-', rest),
                None => ('+', exponent),
            };
            format!("{digits}e{sign}{exponent:0>2}")
        }
        None => text,
    }
}

fn source_number(value: Value, dtype: Dtype) -> String {
    match value {
        Value::Bool(b) => b.to_string(),
        Value::Int(i) => i.to_string(),
        Value::Float(x) if x.is_nan() => "nan".into(),
        Value::Float(x) if x.is_infinite() => if x > 0.0 { "inf" } else { "-inf" }.into(),
        Value::Float(x) if dtype == Dtype::F64 => format!("{x:?}"),
        Value::Float(x) => format!("{:?}", x as f32),
    }
}

/// Writes nested brackets; `element(i)` is the text of element i of the corners. Iterates over rows without
/// recursion: ranks may be large.
fn write_nested(
    text: &mut String,
    indent: usize,
    shape: &[usize],
    options: &PrintOptions,
    width: usize,
    element: impl Fn(usize) -> String,
) {
    let Some((&length, outer)) = shape.split_last() else {
        text.push_str(&element(0));
        return;
    };
    let edge = options.edge_items;
    let summarised = corner_shape(shape, options);
    let corner: Dims = summarised.clone().unwrap_or_else(|| shape.into());
    if corner.contains(&0) {
        text.push_str("[...]");
        return;
    }
    let cut = |d: usize| summarised.is_some() && shape[d] > 2 * edge;
    let last = outer.len();
    let row_length = corner[last];
    let per_line = (options.line_width.saturating_sub(indent + last) / (width + 2)).max(1);
    let mut index: Dims = Dims::from_elem(0, last);
    let repeat = |text: &mut String, c: char, n: usize| text.extend(std::iter::repeat_n(c, n));
    repeat(text, '[', last);
    let rows: usize = corner[..last].iter().product();
    for row in 0..rows {
        if row > 0 {
            // The dimension whose index increases; those below it restart.
            let mut d = last - 1;
            while index[d] + 1 == corner[d] {
                index[d] = 0;
                d -= 1;
            }
            index[d] += 1;
            repeat(text, ']', last - 1 - d);
            let separate = |text: &mut String| {
                text.push(',');
                repeat(text, '\n', last - d);
                repeat(text, ' ', indent + d + 1);
            };
            separate(text);
            if cut(d) && index[d] == edge {
                text.push_str("...");
                separate(text);
            }
            repeat(text, '[', last - 1 - d);
        }
        let mut items: Vec<String> = (0..row_length).map(|i| element(row * row_length + i)).collect();
        if cut(last) && length > 2 * edge {
            items.insert(edge, " ...".into());
        }
        text.push('[');
        for (i, line) in items.chunks(per_line).enumerate() {
            if i > 0 {
                text.push_str(",\n");
                repeat(text, ' ', indent + last + 1);
            }
            text.push_str(&line.join(", "));
        }
        text.push(']');
    }
    repeat(text, ']', last);
}

/// Appends the suffixes, each on a new line if the line is full, and the closing bracket.
fn close(mut text: String, suffixes: &[String], indent: usize, line_width: usize) -> String {
    let mut line = text.len() + 1 - text.rfind('\n').map_or(0, |at| at + 1) + 1;
    for suffix in suffixes {
        if line + suffix.len() + 2 > line_width {
            text.push_str(",\n");
            text.extend(std::iter::repeat_n(' ', indent));
            line = indent + suffix.len();
        } else {
            text.push_str(", ");
            line += suffix.len() + 2;
        }
        text.push_str(suffix);
    }
    text.push(')');
    text
}

/// `(2, 0)`, `(0,)`
fn tuple_text(shape: &[usize]) -> String {
    let extents: Vec<String> = shape.iter().map(usize::to_string).collect();
    match extents.as_slice() {
        [one] => format!("({one},)"),
        many => format!("({})", many.join(", ")),
    }
}

/// Copies the corners out of row-major elements.
fn take_corner(bytes: &[u8], shape: &[usize], corner: &[usize], size: usize) -> Vec<u8> {
    let count: usize = corner.iter().product();
    let mut out = Vec::with_capacity(count * size);
    for i in 0..count {
        let (mut rest, mut at, mut step) = (i, 0, 1);
        for (&whole, &kept) in shape.iter().zip(corner).rev() {
            let index = rest % kept;
            rest /= kept;
            at += step * if index < kept.div_ceil(2) || whole == kept { index } else { whole - kept + index };
            step *= whole;
        }
        out.extend_from_slice(bytes.get(at * size..(at + 1) * size).unwrap_or(&[]));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::{bf16, f16};

    fn f32s(shape: &[usize], values: &[f32]) -> String {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_ne_bytes()).collect();
        format_tensor(&bytes, shape, Dtype::F32, DeviceId::Cpu, &PrintOptions::default())
    }

    fn i64s(shape: &[usize], values: &[i64]) -> String {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_ne_bytes()).collect();
        format_tensor(&bytes, shape, Dtype::I64, DeviceId::Cpu, &PrintOptions::default())
    }

    #[test]
    fn whole_floats_end_with_a_point() {
        assert_eq!(f32s(&[3], &[1.0, 2.0, -3.0]), "tensor([ 1.,  2., -3.])");
        assert_eq!(f32s(&[], &[5.0]), "tensor(5.)");
        assert_eq!(f32s(&[], &[-0.0]), "tensor(-0.)");
        assert_eq!(f32s(&[2], &[0.0, 0.0]), "tensor([0., 0.])");
        assert_eq!(f32s(&[2, 2], &[1.0, 0.0, 0.0, 1.0]), "tensor([[1., 0.],\n        [0., 1.]])");
        assert_eq!(f32s(&[2], &[100.0, 2.0]), "tensor([100.,   2.])");
    }

    #[test]
    fn fractions_have_four_decimals() {
        assert_eq!(f32s(&[2], &[1.5, 2.0]), "tensor([1.5000, 2.0000])");
        assert_eq!(f32s(&[], &[0.1]), "tensor(0.1000)");
        assert_eq!(f32s(&[3], &[-1.25, 10.0, 0.0]), "tensor([-1.2500, 10.0000,  0.0000])");
        assert_eq!(f32s(&[], &[0.00012]), "tensor(0.0001)");
        assert_eq!(f32s(&[], &[std::f32::consts::PI]), "tensor(3.1416)");
    }

    #[test]
    fn distant_magnitudes_are_scientific() {
        assert_eq!(f32s(&[2], &[1.0, 2000.0]), "tensor([1.0000e+00, 2.0000e+03])");
        assert_eq!(f32s(&[2], &[1.0, 1000.0]), "tensor([   1., 1000.])");
        assert_eq!(f32s(&[], &[1e-5]), "tensor(1.0000e-05)");
        assert_eq!(f32s(&[], &[1e9]), "tensor(1.0000e+09)");
        assert_eq!(f32s(&[], &[1e8]), "tensor(1.0000e+08)".replace("1.0000e+08", "100000000."));
        assert_eq!(f32s(&[2], &[-1e-6, 1.0]), "tensor([-1.0000e-06,  1.0000e+00])");
        assert_eq!(f32s(&[2], &[0.0001, 0.5]), "tensor([1.0000e-04, 5.0000e-01])");
        assert_eq!(f32s(&[2], &[0.5, 1e-30]), "tensor([5.0000e-01, 1.0000e-30])");
        let wide = [1e300f64, 1.0].map(f64::to_ne_bytes).concat();
        let text = format_tensor(&wide, &[2], Dtype::F64, DeviceId::Cpu, &PrintOptions::default());
        assert_eq!(text, "tensor([1.0000e+300, 1.0000e+00], dtype=f64)".replace(", 1.0", ",  1.0"));
    }

    #[test]
    fn infinities_and_nan_do_not_affect_the_number_format() {
        let (nan, inf) = (f32::NAN, f32::INFINITY);
        assert_eq!(f32s(&[3], &[1.0, nan, inf]), "tensor([1., nan, inf])");
        assert_eq!(f32s(&[2], &[-inf, 0.5]), "tensor([  -inf, 0.5000])");
        assert_eq!(f32s(&[2], &[nan, nan]), "tensor([nan, nan])");
        assert_eq!(f32s(&[], &[inf]), "tensor(inf)");
        assert_eq!(f32s(&[3], &[1e-8, 1.0, nan]), "tensor([1.0000e-08, 1.0000e+00,        nan])");
    }

    #[test]
    fn integers_and_bools_align() {
        assert_eq!(i64s(&[3], &[1, -20, 300]), "tensor([  1, -20, 300])");
        assert_eq!(i64s(&[], &[7]), "tensor(7)");
        let text = format_tensor(&[1, 0, 1], &[3], Dtype::Bool, DeviceId::Cpu, &PrintOptions::default());
        assert_eq!(text, "tensor([ true, false,  true])");
        let text = format_tensor(&[255, 0], &[2], Dtype::U8, DeviceId::Cpu, &PrintOptions::default());
        assert_eq!(text, "tensor([255,   0], dtype=u8)");
    }

    #[test]
    fn deeper_tensors_are_set_apart_by_blank_lines() {
        let values: Vec<i64> = (0..8).collect();
        let want = "tensor([[[0, 1],\n         [2, 3]],\n\n        [[4, 5],\n         [6, 7]]])";
        assert_eq!(i64s(&[2, 2, 2], &values), want);
        let want =
            "tensor([[[[0, 1]],\n\n         [[2, 3]]],\n\n\n        [[[4, 5]],\n\n         [[6, 7]]]])";
        assert_eq!(i64s(&[2, 2, 1, 2], &values), want);
    }

    #[test]
    fn devices_and_dtypes_follow() {
        let options = PrintOptions::default();
        let half = [0.5f32, 0.25].map(|x| f16::from_f32(x).to_ne_bytes()).concat();
        let text = format_tensor(&half, &[2], Dtype::F16, DeviceId::Cuda(1), &options);
        assert_eq!(text, "tensor([0.5000, 0.2500], device='cuda:1', dtype=f16)");
        let text = format_tensor(&[], &[0], Dtype::F32, DeviceId::Cpu, &options);
        assert_eq!(text, "tensor([])");
        let text = format_tensor(&[], &[2, 0], Dtype::I64, DeviceId::Cuda(0), &options);
        assert_eq!(text, "tensor([], device='cuda:0', size=(2, 0), dtype=i64)");
        let brain = bf16::from_f32(1.0).to_ne_bytes();
        assert_eq!(
            format_tensor(&brain, &[], Dtype::BF16, DeviceId::Cpu, &options),
            "tensor(1., dtype=bf16)"
        );
    }

    #[test]
    fn long_rows_wrap_at_the_line_width() {
        let values: Vec<i64> = (0..30).collect();
        let want = "tensor([ 0,  1,  2,  3,  4,  5,  6,  7,  8,  9, 10, 11, 12, 13, 14, 15, 16, 17,\n        \
                    18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29])";
        assert_eq!(i64s(&[30], &values), want);
        let bytes: Vec<u8> = (0..4i64).flat_map(i64::to_ne_bytes).collect();
        let narrow = PrintOptions { line_width: 14, ..PrintOptions::default() };
        let text = format_tensor(&bytes, &[4], Dtype::I64, DeviceId::Cpu, &narrow);
        assert_eq!(text, "tensor([0, 1,\n        2, 3])");
        let nothing = PrintOptions { line_width: 0, ..PrintOptions::default() };
        let text = format_tensor(&bytes, &[4], Dtype::I64, DeviceId::Cpu, &nothing);
        assert_eq!(text, "tensor([0,\n        1,\n        2,\n        3])");
    }

    #[test]
    fn a_suffix_that_does_not_fit_goes_to_the_next_line() {
        let bytes: Vec<u8> = (0..17).flat_map(|i: i64| (i + 10).to_ne_bytes()).collect();
        let text = format_tensor(&bytes, &[17], Dtype::I64, DeviceId::Cuda(3), &PrintOptions::default());
        assert!(text.ends_with("25, 26],\n       device='cuda:3')"), "{text}");
    }

    #[test]
    fn more_than_a_thousand_elements_show_their_corners() {
        let values: Vec<i64> = (0..1001).collect();
        assert_eq!(i64s(&[1001], &values), "tensor([   0,    1,    2,  ...,  998,  999, 1000])");
        assert!(!i64s(&[1000], &values[..1000]).contains("..."));
        let values: Vec<i64> = (0..40 * 30).collect();
        let want = "tensor([[   0,    1,    2,  ...,   27,   28,   29],\n        \
                    [  30,   31,   32,  ...,   57,   58,   59],\n        \
                    [  60,   61,   62,  ...,   87,   88,   89],\n        \
                    ...,\n        \
                    [1110, 1111, 1112,  ..., 1137, 1138, 1139],\n        \
                    [1140, 1141, 1142,  ..., 1167, 1168, 1169],\n        \
                    [1170, 1171, 1172,  ..., 1197, 1198, 1199]])";
        assert_eq!(i64s(&[40, 30], &values), want);
        // A short dimension is shown in full next to a long summarised one.
        let text = i64s(&[2, 600], &values);
        let want = "tensor([[   0,    1,    2,  ...,  597,  598,  599],\n        \
                    [ 600,  601,  602,  ..., 1197, 1198, 1199]])";
        assert_eq!(text, want);
        let text = i64s(&[7, 1, 200], &(0..1400).collect::<Vec<i64>>());
        assert!(text.contains("402,  ...,  597,  598,  599]],\n\n        ...,\n\n        [[ 800,"), "{text}");
    }

    #[test]
    fn only_visible_values_decide_the_form() {
        let mut values = vec![1.0f32; 1001];
        values[500] = 0.5;
        assert_eq!(f32s(&[1001], &values), "tensor([1., 1., 1.,  ..., 1., 1., 1.])");
    }

    #[test]
    fn edges_can_be_left_out_and_the_form_can_be_forced() {
        let bytes: Vec<u8> = (0..4).flat_map(|i: i64| i.to_ne_bytes()).collect();
        let options = PrintOptions { threshold: 2, edge_items: 0, ..PrintOptions::default() };
        assert_eq!(format_tensor(&bytes, &[4], Dtype::I64, DeviceId::Cpu, &options), "tensor([...])");
        let options = PrintOptions { threshold: 2, edge_items: 1, ..PrintOptions::default() };
        assert_eq!(format_tensor(&bytes, &[4], Dtype::I64, DeviceId::Cpu, &options), "tensor([0,  ..., 3])");
        let bytes = 2f32.to_ne_bytes();
        let options = PrintOptions { scientific: Some(true), precision: 2, ..PrintOptions::default() };
        assert_eq!(format_tensor(&bytes, &[], Dtype::F32, DeviceId::Cpu, &options), "tensor(2.00e+00)");
    }

    #[test]
    fn ranks_may_be_large() {
        let shape = vec![1usize; 5000];
        let text = i64s(&shape, &[3]);
        assert!(text.starts_with("tensor([[[") && text.contains("[3]"));
    }

    #[test]
    fn source_reads_back_to_the_same_bits() {
        let options = PrintOptions::default();
        let bytes = [0.1f32, 2.0, 1e-7, f32::NEG_INFINITY].map(f32::to_ne_bytes).concat();
        let text = tensor_source(&bytes, &[2, 2], Dtype::F32, DeviceId::Cuda(0), &options);
        assert_eq!(text, "tensor([[ 0.1,  2.0],\n        [1e-7, -inf]], device=cuda:0)");
        let half = f16::from_f32(0.1).to_ne_bytes();
        let text = tensor_source(&half, &[], Dtype::F16, DeviceId::Cpu, &options);
        assert_eq!(text, "tensor(0.099975586, dtype=f16, device=cpu)");
        assert_eq!(f16::from_f32(0.099975586), f16::from_f32(0.1));
        let text = tensor_source(&[], &[0, 3], Dtype::I64, DeviceId::Cpu, &options);
        assert_eq!(text, "zeros(0, 3, dtype=i64, device=cpu)");
    }
}
