//! Elements of tensors as Rust numbers.

use crate::array::Dtype;
use half::{bf16, f16};
use num_complex::Complex;

/// A Rust type that tensors of one dtype hold. Sealed.
pub trait Element: Copy + sealed::Sealed + 'static {
    /// Its dtype.
    const DTYPE: Dtype;
    #[doc(hidden)]
    fn put(self, out: &mut Vec<u8>);
    #[doc(hidden)]
    fn take(bytes: &[u8]) -> Self;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! elements {
    ($($type:ty: $dtype:ident),*) => {$(
        impl sealed::Sealed for $type {}
        impl Element for $type {
            const DTYPE: Dtype = Dtype::$dtype;
            fn put(self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_ne_bytes());
            }
            fn take(bytes: &[u8]) -> $type {
                let mut own = [0; size_of::<$type>()];
                own.copy_from_slice(bytes);
                <$type>::from_ne_bytes(own)
            }
        }
    )*};
}

elements!(u8: U8, i8: I8, i16: I16, i32: I32, i64: I64, f16: F16, bf16: BF16, f32: F32, f64: F64);

macro_rules! complex {
    ($($part:ty: $dtype:ident),*) => {$(
        impl sealed::Sealed for Complex<$part> {}
        impl Element for Complex<$part> {
            const DTYPE: Dtype = Dtype::$dtype;
            fn put(self, out: &mut Vec<u8>) {
                self.re.put(out);
                self.im.put(out);
            }
            fn take(bytes: &[u8]) -> Complex<$part> {
                let (re, im) = bytes.split_at(size_of::<$part>());
                Complex::new(<$part>::take(re), <$part>::take(im))
            }
        }
    )*};
}

complex!(f32: C64, f64: C128);

impl sealed::Sealed for bool {}
impl Element for bool {
    const DTYPE: Dtype = Dtype::Bool;
    fn put(self, out: &mut Vec<u8>) {
        out.push(u8::from(self));
    }
    fn take(bytes: &[u8]) -> bool {
        bytes.first().is_some_and(|&b| b != 0)
    }
}

/// The bytes of elements.
pub(super) fn bytes_of<T: Element>(elements: &[T]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(size_of_val(elements));
    elements.iter().for_each(|e| e.put(&mut bytes));
    bytes
}

/// Elements from their bytes.
pub(super) fn elements_of<T: Element>(bytes: &[u8]) -> Vec<T> {
    bytes.chunks_exact(T::DTYPE.size()).map(T::take).collect()
}
