// Complex numbers in interpret.cu: a register is two registers of real numbers, one after the other, first the real
// parts. Numbers of a launch are copied to registers first.

INLINE Place other_part(const Place& a, float) { return Place{a.at + a.step, a.step}; }
INLINE Place other_part(const Place& a, double) { return Place{a.at + 2 * a.step, a.step}; }

template <class T> INLINE complex<T> element_of(const Place& a, int j, complex<T>) {
    return complex<T>{element_of(a, j, (T)0), element_of(other_part(a, (T)0), j, (T)0)};
}
template <class T> INLINE void set_element(const Place& d, int j, complex<T> x) {
    set_element(d, j, x.re);
    set_element(other_part(d, x.im), j, x.im);
}
template <class T> INLINE void get(complex<T> (&x)[4], const Place& a) {
    T re[4], im[4];
    get(re, a);
    get(im, other_part(a, (T)0));
#pragma unroll
    for (int j = 0; j < 4; j++) x[j] = complex<T>{re[j], im[j]};
}
template <class T> INLINE void set(const Place& d, const complex<T> (&x)[4]) {
    T re[4], im[4];
#pragma unroll
    for (int j = 0; j < 4; j++) {
        re[j] = x[j].re;
        im[j] = x[j].im;
    }
    set(d, re);
    set(other_part(d, (T)0), im);
}

