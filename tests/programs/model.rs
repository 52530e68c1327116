//! A minimal model of tensors: a storage is a list of numbers, and a view is a list of positions in it. Statements run
//! in order.

/// Element types.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dtype {
    Bool,
    U8,
    I8,
    I16,
    I32,
    I64,
    F16,
    BF16,
    F32,
    F64,
    C64,
    C128,
}

pub const DTYPES: [Dtype; 12] = [
    Dtype::Bool,
    Dtype::U8,
    Dtype::I8,
    Dtype::I16,
    Dtype::I32,
    Dtype::I64,
    Dtype::F16,
    Dtype::BF16,
    Dtype::F32,
    Dtype::F64,
    Dtype::C64,
    Dtype::C128,
];

impl Dtype {
    pub fn name(self) -> &'static str {
        ["bool", "u8", "i8", "i16", "i32", "i64", "f16", "bf16", "f32", "f64", "c64", "c128"][self as usize]
    }

    pub fn is_int(self) -> bool {
        (Dtype::U8 as usize..=Dtype::I64 as usize).contains(&(self as usize))
    }

    pub fn is_float(self) -> bool {
        (Dtype::F16 as usize..=Dtype::F64 as usize).contains(&(self as usize))
    }

    pub fn is_complex(self) -> bool {
        self as usize >= Dtype::C64 as usize
    }

    /// The dtype of the parts of a number.
    pub fn real(self) -> Dtype {
        match self {
            Dtype::C64 => Dtype::F32,
            Dtype::C128 => Dtype::F64,
            other => other,
        }
    }

    /// Numbers of a storage per element.
    pub fn parts(self) -> usize {
        1 + usize::from(self.is_complex())
    }

    /// Whole numbers up to here are exact, and so are their sums.
    pub fn exact(self) -> f64 {
        match self.real() {
            Dtype::F16 => 2048.0,
            Dtype::BF16 => 256.0,
            Dtype::F32 => 16_777_216.0,
            _ => 1e15,
        }
    }
}

/// A number in a storage. Bools are the ints 0 and 1.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Num {
    I(i64),
    F(f64),
}

/// An element: a number, or two of a complex one.
pub type Val = [Num; 2];

const ZERO: Num = Num::F(0.0);

pub fn int(i: i64) -> Val {
    [Num::I(i), ZERO]
}

pub fn float(f: f64) -> Val {
    [Num::F(f), ZERO]
}

impl Num {
    pub fn f(self) -> f64 {
        match self {
            Num::I(i) => i as f64,
            Num::F(f) => f,
        }
    }

    pub fn i(self) -> i64 {
        match self {
            Num::I(i) => i,
            Num::F(f) => f as i64,
        }
    }
}

/// A tensor: a shape, and for each element, in row-major order, its position in the storage.
#[derive(Clone, PartialEq, Debug)]
pub struct View {
    pub storage: usize,
    pub dtype: Dtype,
    pub shape: Vec<usize>,
    pub places: Vec<usize>,
}

impl View {
    pub fn count(&self) -> usize {
        self.places.len()
    }

    /// The half-open range of positions; `None` if they are not ascending without gaps.
    pub fn run(&self) -> Option<(usize, usize)> {
        let (&first, step) = (self.places.first()?, self.dtype.parts());
        let in_order = self.places.iter().enumerate().all(|(i, &place)| place == first + i * step);
        in_order.then_some((first, first + self.count() * step))
    }

    /// True if two elements share a position.
    pub fn overlaps_itself(&self) -> bool {
        let mut places = self.places.clone();
        places.sort_unstable();
        places.windows(2).any(|pair| pair[0] == pair[1])
    }

    /// All positions in the storage that it covers.
    pub fn numbers(&self) -> Vec<usize> {
        let parts = self.dtype.parts();
        self.places.iter().flat_map(|&place| place..place + parts).collect()
    }

    fn strides(&self) -> Vec<usize> {
        let mut strides = vec![1; self.shape.len()];
        for d in (1..self.shape.len()).rev() {
            strides[d - 1] = strides[d] * self.shape[d];
        }
        strides
    }

    /// The view whose element at an index is this view's element at `from(index)`.
    pub fn chosen(&self, shape: &[usize], from: impl Fn(&[usize]) -> Vec<usize>) -> View {
        let strides = self.strides();
        let place = |index: Vec<usize>| {
            let own = from(&index);
            self.places[own.iter().zip(&strides).map(|(i, s)| i * s).sum::<usize>()]
        };
        let places = indices(shape).into_iter().map(place).collect();
        View { shape: shape.to_vec(), places, ..self.clone() }
    }

    /// The view broadcast to a larger shape.
    pub fn broadcast(&self, shape: &[usize]) -> Option<View> {
        let front = shape.len().checked_sub(self.shape.len())?;
        let fits = |(&have, &want): (&usize, &usize)| have == want || have == 1;
        if !self.shape.iter().zip(&shape[front..]).all(fits) {
            return None;
        }
        let own = |index: &[usize]| {
            let dims = index[front..].iter().zip(&self.shape);
            dims.map(|(&i, &n)| if n == 1 { 0 } else { i }).collect()
        };
        Some(self.chosen(shape, own))
    }
}

/// Every index of a shape, row by row.
pub fn indices(shape: &[usize]) -> Vec<Vec<usize>> {
    let mut all = vec![Vec::new()];
    for &n in shape {
        all = all.iter().flat_map(|head| (0..n).map(move |i| [&head[..], &[i]].concat())).collect();
    }
    all
}

/// All storages.
#[derive(Default)]
pub struct Memory {
    pub storages: Vec<Vec<Num>>,
}

impl Memory {
    /// A new tensor of these elements.
    pub fn make(&mut self, dtype: Dtype, shape: &[usize], elements: &[Val]) -> View {
        let parts = dtype.parts();
        let numbers = elements.iter().flat_map(|element| element[..parts].iter().copied()).collect();
        self.storages.push(numbers);
        let places = (0..elements.len()).map(|i| i * parts).collect();
        View { storage: self.storages.len() - 1, dtype, shape: shape.to_vec(), places }
    }

    pub fn read(&self, view: &View) -> Vec<Val> {
        let numbers = &self.storages[view.storage];
        let second = |place: usize| if view.dtype.is_complex() { numbers[place + 1] } else { ZERO };
        view.places.iter().map(|&place| [numbers[place], second(place)]).collect()
    }

    pub fn write(&mut self, view: &View, elements: &[Val]) {
        let parts = view.dtype.parts();
        for (&place, element) in view.places.iter().zip(elements) {
            self.storages[view.storage][place..place + parts].copy_from_slice(&element[..parts]);
        }
    }
}

/// A float rounded to a dtype.
pub fn rounded(dtype: Dtype, f: f64) -> f64 {
    match dtype.real() {
        Dtype::F16 => half::f16::from_f64(f).to_f64(),
        Dtype::BF16 => half::bf16::from_f64(f).to_f64(),
        Dtype::F32 => f64::from(f as f32),
        _ => f,
    }
}

/// An int wrapped to a dtype.
pub fn wrapped(dtype: Dtype, i: i64) -> i64 {
    match dtype {
        Dtype::Bool => i64::from(i != 0),
        Dtype::U8 => i64::from(i as u8),
        Dtype::I8 => i64::from(i as i8),
        Dtype::I16 => i64::from(i as i16),
        Dtype::I32 => i64::from(i as i32),
        _ => i,
    }
}

/// A result of arithmetic in a dtype; `None` for floats that are too large to continue with.
fn result(dtype: Dtype, element: Val) -> Option<Val> {
    if dtype.is_int() || dtype == Dtype::Bool {
        return Some(int(wrapped(dtype, element[0].i())));
    }
    let parts = element.map(|part| rounded(dtype, part.f()));
    parts.iter().all(|part| part.abs() <= 30_000.0).then_some(parts.map(Num::F))
}

/// An element in another dtype; `None` if the result is unspecified.
pub fn converted(from: Dtype, to: Dtype, element: Val) -> Option<Val> {
    let is_zero = element.iter().all(|part| part.f() == 0.0);
    match (from, to) {
        (_, Dtype::Bool) => Some(int(i64::from(!is_zero))),
        _ if from.is_complex() && !to.is_complex() => None,
        _ if to.is_complex() || to.is_float() => {
            let small = element[0].f().abs() < 16_777_216.0;
            small.then(|| result(to, [Num::F(element[0].f()), Num::F(element[1].f())])).flatten()
        }
        _ if from.is_float() => {
            let whole = element[0].f().trunc();
            let low = if to == Dtype::U8 { 0.0 } else { -127.0 };
            ((low..=127.0).contains(&whole)).then(|| int(whole as i64))
        }
        _ => result(to, element),
    }
}

/// Functions of one element.
pub fn unary(name: &str, dtype: Dtype, x: Val) -> Option<Val> {
    let is_float = dtype.is_float() || dtype.is_complex();
    match name {
        "neg" if is_float => result(dtype, x.map(|part| Num::F(-part.f()))),
        "neg" if dtype.is_int() => result(dtype, int(x[0].i().wrapping_neg())),
        "abs" if dtype.is_float() => result(dtype, float(x[0].f().abs())),
        "abs" if dtype.is_int() => result(dtype, int(x[0].i().wrapping_abs())),
        "relu" if dtype.is_float() => result(dtype, float(x[0].f().max(0.0))),
        "square" if is_float || dtype.is_int() => binary("*", dtype, x, x),
        "logical_not" if !dtype.is_complex() => Some(int(i64::from(x[0].f() == 0.0))),
        _ => None,
    }
}

/// Functions of two elements of a dtype.
pub fn binary(name: &str, dtype: Dtype, a: Val, b: Val) -> Option<Val> {
    let (i, j, f, g) = (a[0].i(), b[0].i(), a[0].f(), b[0].f());
    if dtype == Dtype::Bool {
        let out = match name {
            "&" => i & j,
            "|" => i | j,
            "^" => i ^ j,
            _ => return None,
        };
        return Some(int(out));
    }
    if dtype.is_int() {
        let out = match name {
            "+" => i.wrapping_add(j),
            "-" => i.wrapping_sub(j),
            "*" => i.wrapping_mul(j),
            "&" => i & j,
            "|" => i | j,
            "^" => i ^ j,
            "maximum" => i.max(j),
            "minimum" => i.min(j),
            _ => return None,
        };
        return result(dtype, int(out));
    }
    if dtype.is_complex() {
        let (h, k) = (a[1].f(), b[1].f());
        let whole = [f, g, h, k].iter().all(|part| part.trunc() == *part && part.abs() < 1000.0);
        let out = match name {
            "+" => [f + g, h + k],
            "-" => [f - g, h - k],
            // The rounding of complex products is unspecified; whole numbers are exact.
            "*" if whole => [f * g - h * k, f * k + h * g],
            _ => return None,
        };
        return result(dtype, out.map(Num::F));
    }
    let out = match name {
        "+" => f + g,
        "-" => f - g,
        "*" => f * g,
        "maximum" => f.max(g),
        "minimum" => f.min(g),
        _ => return None,
    };
    result(dtype, float(out))
}

/// Comparisons.
pub fn compared(name: &str, dtype: Dtype, a: Val, b: Val) -> Option<Val> {
    let order = match dtype.is_float() {
        true => a[0].f().partial_cmp(&b[0].f())?,
        false => a[0].i().cmp(&b[0].i()),
    };
    let truth = match name {
        "==" if dtype.is_complex() => a.map(Num::f) == b.map(Num::f),
        _ if dtype.is_complex() => return None,
        "==" => order.is_eq(),
        "<" => order.is_lt(),
        _ => order.is_ge(),
    };
    Some(int(i64::from(truth)))
}

/// The sum of elements, and its dtype; `None` where it depends on the order.
pub fn sum(dtype: Dtype, elements: &[Val]) -> Option<(Dtype, Val)> {
    if dtype.is_int() || dtype == Dtype::Bool {
        let total = elements.iter().fold(0i64, |all, element| all.wrapping_add(element[0].i()));
        return Some((Dtype::I64, int(total)));
    }
    let mut total = [0.0; 2];
    for part in 0..2 {
        let all = elements.iter().map(|element| element[part].f());
        let exact =
            all.clone().all(|f| f.trunc() == f) && all.clone().map(f64::abs).sum::<f64>() <= dtype.exact();
        total[part] = exact.then(|| all.sum())?;
    }
    result(dtype, total.map(Num::F)).map(|sum| (dtype, sum))
}
