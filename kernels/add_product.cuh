INLINE float add_product(float a, float b, float sum) { return __fmaf_rn(a, b, sum); }
INLINE double add_product(double a, double b, double sum) { return __fma_rn(a, b, sum); }
template <class T> INLINE complex<T> add_product(complex<T> a, complex<T> b, complex<T> sum) {
    return complex<T>{add_product(-a.im, b.im, add_product(a.re, b.re, sum.re)),
                      add_product(a.im, b.re, add_product(a.re, b.im, sum.im))};
}
