//! Logic over truth values, and bit operations over integers.

use super::params::{BINARY, UNARY};
use super::{Args, Form, Gradient, MapOp, Op, Out, Rule, Run, map};
use crate::array::Dtype;
use crate::base::Result;
use crate::kernel::host::define::{host_binary, host_unary};
use crate::kernel::{CudaText, MapFn};
use crate::plan::{MapArg, Runtime};

/// The operations of this file.
pub static OPS: &[Op] = &[
    Op {
        name: "logical_and",
        doc: "Tests elementwise whether both are true (not 0). Returns `bool`. Source: `torch.logical_and`.",
        search: &["and", "both", "conjunction"],
        params: BINARY,
        form: Form::ALL,
        example: "assert(equal(logical_and([1, 0], [2, 3]), [true, false]))",
        run: Run::Map(MapOp { rule: Rule::Logic, f: &AND }),
        gradient: Gradient::Constant,
        ..Op::BASE
    },
    Op {
        name: "logical_or",
        doc: "Tests elementwise whether at least one of the two is true (not 0). Returns `bool`. \
              Source: `torch.logical_or`.",
        search: &["or", "either", "disjunction"],
        params: BINARY,
        form: Form::ALL,
        example: "assert(equal(logical_or([1, 0], [0, 0]), [true, false]))",
        run: Run::Map(MapOp { rule: Rule::Logic, f: &OR }),
        gradient: Gradient::Constant,
        ..Op::BASE
    },
    Op {
        name: "logical_xor",
        doc: "Tests elementwise whether exactly one of the two is true (not 0). Returns `bool`. \
              Source: `torch.logical_xor`.",
        search: &["exclusive or", "either but not both"],
        params: BINARY,
        form: Form::ALL,
        example: "assert(equal(logical_xor([1, 2], [0, 3]), [true, false]))",
        run: Run::Map(MapOp { rule: Rule::Logic, f: &XOR }),
        gradient: Gradient::Constant,
        ..Op::BASE
    },
    Op {
        name: "logical_not",
        doc: "Tests which elements are false (0). Returns `bool`. Source: `torch.logical_not`.",
        search: &["not", "negation", "invert"],
        params: UNARY,
        form: Form::ALL,
        example: "assert(equal(logical_not([0, 2]), [true, false]))",
        run: Run::Map(MapOp { rule: Rule::Logic, f: &NOT }),
        gradient: Gradient::Constant,
        ..Op::BASE
    },
    Op {
        name: "bitwise_and",
        doc: "Combines the bits of integers or bools by `and`: `x & other`. Source: `torch.bitwise_and`.",
        search: &["bits", "mask", "&"],
        params: BINARY,
        form: Form::ALL,
        example: "assert(equal(tensor([6, 5]) & 3, [2, 1]))",
        run: Run::Map(MapOp { rule: Rule::Bits, f: &AND }),
        gradient: Gradient::Constant,
        ..Op::BASE
    },
    Op {
        name: "bitwise_or",
        doc: "Combines the bits of integers or bools by `or`: `x | other`. Source: `torch.bitwise_or`.",
        search: &["bits", "|"],
        params: BINARY,
        form: Form::ALL,
        example: "assert(equal(tensor([6, 5]) | 1, [7, 5]))",
        run: Run::Map(MapOp { rule: Rule::Bits, f: &OR }),
        gradient: Gradient::Constant,
        ..Op::BASE
    },
    Op {
        name: "bitwise_xor",
        doc: "Combines the bits of integers or bools by `exclusive or`: `x ^ other`. Source: \
              `torch.bitwise_xor`.",
        search: &["bits", "exclusive or", "^"],
        params: BINARY,
        form: Form::ALL,
        example: "assert(equal(tensor([6, 5]) ^ 3, [5, 6]))",
        run: Run::Map(MapOp { rule: Rule::Bits, f: &XOR }),
        gradient: Gradient::Constant,
        ..Op::BASE
    },
    Op {
        name: "bitwise_not",
        doc: "Flips the bits of integers (`~x` is `-x - 1` for signed ones), and negates bools. Source: \
              `torch.bitwise_not`.",
        search: &["bits", "complement", "invert", "~"],
        params: UNARY,
        form: Form::ALL,
        example: "assert(equal(~tensor([0, 5]), [-1, -6]))\nassert(equal(~tensor([true]), [false]))",
        run: Run::Primitive(bitwise_not),
        gradient: Gradient::Constant,
        ..Op::BASE
    },
    Op {
        name: "bitwise_left_shift",
        doc: "Shifts the bits of integers left: `x << other`. A shift by less than 0, or by the dtype's bits or more, \
              returns 0. Source: `torch.bitwise_left_shift`.",
        search: &["bits", "shift", "<<", "power of two"],
        params: BINARY,
        form: Form::ALL,
        example: "assert(equal(tensor([1, 3]) << 2, [4, 12]))",
        run: Run::Map(MapOp {
            rule: Rule::Ints,
            f: &MapFn {
                name: "shift_left",
                arity: 2,
                select: false,
                cuda: CudaText { f32: "", f64: "", i64: "shift_left(a, b)" },
                host: host_binary!(i64: |a, b| if (0..64).contains(&b) { a << b } else { 0 }),
                complex: None,
            },
        }),
        gradient: Gradient::Constant,
        ..Op::BASE
    },
    Op {
        name: "bitwise_right_shift",
        doc: "Shifts the bits of integers right and keeps the sign: `x >> other`. A shift by less than 0, or by the \
              dtype's bits or more, returns 0, or -1 for negative integers. Source: `torch.bitwise_right_shift`.",
        search: &["bits", "shift", ">>", "halve"],
        params: BINARY,
        form: Form::ALL,
        example: "assert(equal(tensor([12, -5]) >> 2, [3, -2]))",
        run: Run::Map(MapOp {
            rule: Rule::Ints,
            f: &MapFn {
                name: "shift_right",
                arity: 2,
                select: false,
                cuda: CudaText { f32: "", f64: "", i64: "shift_right(a, b)" },
                host: host_binary!(i64: |a, b| a >> if (0..64).contains(&b) { b } else { 63 }),
                complex: None,
            },
        }),
        gradient: Gradient::Constant,
        ..Op::BASE
    },
];

pub static AND: MapFn = MapFn {
    name: "and",
    arity: 2,
    select: false,
    cuda: CudaText { f32: "", f64: "", i64: "(a & b)" },
    host: host_binary!(whole: |a, b| a & b),
    complex: None,
};

pub static OR: MapFn = MapFn {
    name: "or",
    arity: 2,
    select: false,
    cuda: CudaText { f32: "", f64: "", i64: "(a | b)" },
    host: host_binary!(whole: |a, b| a | b),
    complex: None,
};

pub static XOR: MapFn = MapFn {
    name: "xor",
    arity: 2,
    select: false,
    cuda: CudaText { f32: "", f64: "", i64: "(a ^ b)" },
    host: host_binary!(whole: |a, b| a ^ b),
    complex: None,
};

static NOT: MapFn = MapFn {
    name: "not",
    arity: 1,
    select: false,
    cuda: CudaText { f32: "", f64: "", i64: "(i64)(a == 0)" },
    host: host_unary!(whole: |a| i64::from(a == 0)),
    complex: None,
};

static COMPLEMENT: MapFn = MapFn {
    name: "complement",
    arity: 1,
    select: false,
    cuda: CudaText { f32: "", f64: "", i64: "(~a)" },
    host: host_unary!(whole: |a| !a),
    complex: None,
};

fn bitwise_not(rt: &mut Runtime, args: &Args<'_>) -> Result<Out> {
    let x = args.tensor(0)?;
    let f = if x.dtype() == Dtype::Bool { &NOT } else { &COMPLEMENT };
    let op = MapOp { rule: Rule::Bits, f };
    map(rt, "bitwise_not", &op, &[MapArg::Tensor(x)]).map(Out::Tensor)
}
