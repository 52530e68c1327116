//! The straight-line code of a map, for one element.

use super::{bits_type, class_name, class_type, convert};
use crate::array::Dtype;
use crate::kernel::{CAST, Instr, Map, Source, Store};
use std::cell::RefCell;
use std::fmt::Write;

/// Functions of a few instructions, and draws. They are never called: adjacent elements share most of a
/// draw's work, which calls would prevent.
const PLAIN: &[&str] = &[
    "fabs",
    "fabsf",
    "ceil",
    "ceilf",
    "copysign",
    "copysignf",
    "floor",
    "floorf",
    "fmax",
    "fmaxf",
    "fmin",
    "fminf",
    "rint",
    "rintf",
    "sqrtf",
    "trunc",
    "truncf",
    "clamp_to",
    "f32_of",
    "f64_of",
    "i64_of",
    "is_nan",
    "shift_left",
    "shift_right",
];

/// Functions that NVRTC compiles in 0.2 to 2 ms, such as divisions.
const LIGHT: &[&str] = &[
    "acosf",
    "asinf",
    "atanf",
    "cbrtf",
    "coshf",
    "erff",
    "exp2f",
    "expf",
    "gelu_tanh_of",
    "hypotf",
    "log10f",
    "log2f",
    "logf",
    "rsqrtf",
    "sigmoid_of",
    "sinhf",
    "sqrt",
    "tanhf",
];

/// Most inlined copies of other functions in one kernel: each takes NVRTC 4 to 40 ms. Above this they are
/// called, which costs a few percent in a kernel that does nothing else (docs/performance.md).
const MOST_HEAVY: usize = 4;

/// The same for light functions.
const MOST_LIGHT: usize = 256;

/// The costly functions that a kernel calls. Their definitions precede the kernel.
#[derive(Default)]
pub(in crate::kernel) struct Functions(RefCell<Vec<String>>);

impl Functions {
    /// The definitions.
    pub(in crate::kernel) fn text(&self) -> String {
        self.0.borrow().concat()
    }

    /// A call of an instruction's function with `arguments`.
    fn call(&self, map: &Map, instr: &Instr, arguments: &str) -> String {
        let params: Vec<String> = (["a", "b", "c", "d"].iter().zip(&instr.args))
            .map(|(name, arg)| format!("const {} {name}", class_type(map.dtype(*arg).class())))
            .collect();
        let class = class_type(instr.dtype.class());
        let body = format!(
            "({}) {{ return round_{}({}); }}\n",
            params.join(", "),
            instr.dtype,
            instr.f.cuda.of(instr.class)
        );
        let mut known = self.0.borrow_mut();
        let is_it = |text: &String| text.ends_with(&body) && text.contains(&format!(" {class} called_"));
        let number = known.iter().position(is_it).unwrap_or_else(|| {
            let number = known.len();
            known.push(format!("static __device__ __noinline__ {class} called_{number}{body}"));
            number
        });
        format!("called_{number}({arguments})")
    }
}

/// Number of light and heavy functions in a text.
pub(in crate::kernel) fn weight(text: &str) -> [usize; 2] {
    let mut name = String::new();
    let mut weight = [0, 0];
    for c in text.chars() {
        match c {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '_' => {
                name.push(c);
                continue;
            }
            '(' if LIGHT.contains(&name.as_str()) => weight[0] += 1,
            '(' if name.is_empty() || PLAIN.contains(&name.as_str()) || name.starts_with("random_") => {}
            '(' => weight[1] += 1,
            '/' | '%' => weight[0] += 1,
            _ => {}
        }
        name.clear();
    }
    weight
}

/// How the surrounding kernel loads an element's inputs and stores its results.
pub(in crate::kernel) struct Surroundings<'a> {
    /// How many copies of the code the kernel contains: loops over elements are unrolled.
    pub copies: usize,
    /// Collects the functions that are called.
    pub functions: &'a Functions,
    /// An expression for the bits of the view's element.
    pub load: &'a dyn Fn(u16, Dtype) -> String,
    /// The parameter word of a number.
    pub number: &'a dyn Fn(u16) -> usize,
    /// A statement that stores bits.
    pub store: &'a dyn Fn(&Store, &str) -> String,
}

/// The statements that compute one element: registers `r0`, `r1`, ..., then the stores. A register stored as
/// it was loaded keeps its bits. Expects `position` (i64) in scope.
///
/// Every instruction's result is rounded to its dtype; see Note [Fusion never changes a bit].
pub(in crate::kernel) fn element(map: &Map, around: &Surroundings<'_>) -> String {
    let mut out = String::new();
    for (i, source) in map.sources.iter().enumerate() {
        let _ = match source {
            Source::Load { view, dtype } => {
                let (bits, class) = (bits_type(*dtype), class_type(dtype.class()));
                let load = (around.load)(*view, *dtype);
                writeln!(out, "const {bits} b{i} = {load}; const {class} r{i} = load_{dtype}(b{i});")
            }
            Source::Number { slot, dtype } => {
                let (class, name) = (class_type(dtype.class()), class_name(dtype.class()));
                writeln!(out, "const {class} r{i} = {name}_of(p.w[{}]);", (around.number)(*slot))
            }
            Source::Position => writeln!(out, "const i64 r{i} = position;"),
        };
    }
    let weight = |instr: &Instr| match std::ptr::eq(instr.f, &CAST) {
        true => [0, 0],
        false => weight(instr.f.cuda.of(instr.class)),
    };
    let all = map.instrs.iter().map(weight).fold([0, 0], |sum, one| [sum[0] + one[0], sum[1] + one[1]]);
    let calls_light = all[0] * around.copies > MOST_LIGHT;
    let calls_heavy = all[1] * around.copies > MOST_HEAVY;
    for (i, instr) in map.instrs.iter().enumerate() {
        let reg = map.sources.len() + i;
        let class = class_type(instr.dtype.class());
        if std::ptr::eq(instr.f, &CAST) {
            let arg = instr.args.first().copied().unwrap_or_default();
            let value = convert(&format!("r{arg}"), map.dtype(arg).class(), instr.dtype);
            let _ = writeln!(out, "const {class} r{reg} = {value};");
            continue;
        }
        let [light, heavy] = weight(instr);
        if calls_heavy && heavy > 0 || calls_light && light > 0 {
            let arguments: Vec<String> = instr.args.iter().map(|arg| format!("r{arg}")).collect();
            let call = around.functions.call(map, instr, &arguments.join(", "));
            let _ = writeln!(out, "const {class} r{reg} = {call};");
            continue;
        }
        let _ = write!(out, "{class} r{reg}; {{ ");
        for (name, arg) in ["a", "b", "c", "d"].iter().zip(&instr.args) {
            let _ = write!(out, "const {} {name} = r{arg}; ", class_type(map.dtype(*arg).class()));
        }
        let _ = writeln!(out, "r{reg} = round_{}({}); }}", instr.dtype, instr.f.cuda.of(instr.class));
    }
    for store in &map.stores {
        let dtype = map.dtype(store.reg);
        let bits = match map.sources.get(usize::from(store.reg)) {
            Some(Source::Load { dtype: from, .. }) if *from != Dtype::Bool => format!("b{}", store.reg),
            _ => format!("store_{dtype}(r{})", store.reg),
        };
        out.push_str(&(around.store)(store, &bits));
        out.push('\n');
    }
    out
}

/// One more than the highest index of views and numbers in a map.
pub(in crate::kernel) fn counts(map: &Map) -> (usize, usize) {
    let (mut views, mut numbers) = (0, 0);
    for source in &map.sources {
        match source {
            Source::Load { view, .. } => views = views.max(usize::from(*view) + 1),
            Source::Number { slot, .. } => numbers = numbers.max(usize::from(*slot) + 1),
            Source::Position => {}
        }
    }
    for store in &map.stores {
        views = views.max(usize::from(store.view) + 1);
    }
    (views, numbers)
}

/// The dtype of a view that the map loads or stores; the load comes first.
pub(in crate::kernel) fn view_dtype(map: &Map, view: usize) -> Option<Dtype> {
    loaded(map, view).or_else(|| {
        let store = map.stores.iter().find(|s| usize::from(s.view) == view)?;
        Some(map.dtype(store.reg))
    })
}

/// The dtype with which the map loads a view; `None` if it does not.
pub(in crate::kernel) fn loaded(map: &Map, view: usize) -> Option<Dtype> {
    map.sources.iter().find_map(|s| match s {
        Source::Load { view: v, dtype } if usize::from(*v) == view => Some(*dtype),
        _ => None,
    })
}

/// True when the map stores to the view.
pub(in crate::kernel) fn stored(map: &Map, view: usize) -> bool {
    map.stores.iter().any(|s| usize::from(s.view) == view)
}
