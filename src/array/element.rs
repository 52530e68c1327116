//! Elements of tensors as Rust values.

use super::{Dtype, Scalar, for_integers};
use half::{bf16, f16};
use num_complex::Complex;

/// A Rust type that tensors of one dtype hold. Sealed.
pub trait Element: Convert + 'static {
    /// Its dtype.
    const DTYPE: Dtype;
}

/// Conversions of an element.
pub trait Convert: Copy {
    /// Appends its bytes.
    fn put(self, out: &mut Vec<u8>);
    /// The element with these bytes; 0 when they are too few.
    fn take(bytes: &[u8]) -> Self;
    /// The element nearest to a number. Integers wrap.
    fn of(scalar: Scalar) -> Self;
    /// Its value.
    fn scalar(self) -> Scalar;
}

/// A `bool` in memory: any byte but 0 is true.
#[derive(Clone, Copy, Default, Debug)]
#[repr(transparent)]
pub struct Bool(pub u8);

macro_rules! numbers {
    ($($type:ty: $of:expr, $scalar:expr;)*) => {$(
        impl Convert for $type {
            #[inline]
            fn put(self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_ne_bytes());
            }
            #[inline]
            fn take(bytes: &[u8]) -> $type {
                <$type>::from_ne_bytes(bytes.first_chunk().copied().unwrap_or_default())
            }
            #[inline]
            fn of(scalar: Scalar) -> $type {
                $of(scalar)
            }
            #[inline]
            fn scalar(self) -> Scalar {
                $scalar(self)
            }
        }
    )*};
}

// Numbers become halves through `f32`, as they do in casts and in PyTorch. `half`'s `from_f64` ignores the low 32 bits.
numbers! {
    f16: |s: Scalar| f16::from_f32(s.as_f64() as f32), |x: f16| Scalar::Float(x.to_f64());
    bf16: |s: Scalar| bf16::from_f32(s.as_f64() as f32), |x: bf16| Scalar::Float(x.to_f64());
    f32: |s: Scalar| s.as_f64() as f32, |x| Scalar::Float(f64::from(x));
    f64: |s: Scalar| s.as_f64(), Scalar::Float;
}

macro_rules! integers {
    ($($name:ident $type:ty,)*) => {
        numbers! { $($type: |s: Scalar| s.as_i64() as $type, |x| Scalar::Int(i64::from(x));)* }
    };
}

for_integers!(integers);

impl<T: Convert> Convert for Complex<T> {
    fn put(self, out: &mut Vec<u8>) {
        self.re.put(out);
        self.im.put(out);
    }
    fn take(bytes: &[u8]) -> Complex<T> {
        let (re, im) = bytes.split_at(bytes.len().min(size_of::<T>()));
        Complex::new(T::take(re), T::take(im))
    }
    fn of(scalar: Scalar) -> Complex<T> {
        let im = if let Scalar::Complex(_, im) = scalar { im } else { 0.0 };
        Complex::new(T::of(Scalar::Float(scalar.as_f64())), T::of(Scalar::Float(im)))
    }
    fn scalar(self) -> Scalar {
        Scalar::Complex(self.re.scalar().as_f64(), self.im.scalar().as_f64())
    }
}

impl Convert for bool {
    fn put(self, out: &mut Vec<u8>) {
        out.push(u8::from(self));
    }
    fn take(bytes: &[u8]) -> bool {
        bytes.first().is_some_and(|&byte| byte != 0)
    }
    fn of(scalar: Scalar) -> bool {
        !scalar.is_zero()
    }
    fn scalar(self) -> Scalar {
        Scalar::Bool(self)
    }
}

impl Element for bool {
    const DTYPE: Dtype = <Bool as Element>::DTYPE;
}

impl Convert for Bool {
    fn put(self, out: &mut Vec<u8>) {
        out.push(self.0);
    }
    fn take(bytes: &[u8]) -> Bool {
        Bool(bytes.first().copied().unwrap_or(0))
    }
    fn of(scalar: Scalar) -> Bool {
        Bool(u8::from(!scalar.is_zero()))
    }
    fn scalar(self) -> Scalar {
        Scalar::Bool(self.0 != 0)
    }
}
