//! Several reductions of the same elements; see Note [Several reductions] in `plan/several.rs`.
//!
//! One launch holds a value of each reduction per lane. Each is combined in the order that it has alone, so the bits are
//! the same. The host and the interpreter run the reductions one after the other.

use super::{Also, Reduce};
use crate::array::Class;
use crate::kernel::cuda::element::counts;
use crate::kernel::cuda::{class_type, literal};
use crate::kernel::{Instr, Launch, Map, ReduceFn, Source};
use std::fmt::Write;

/// The largest number of reductions of a launch.
pub(crate) const MOST: usize = 8;

/// 32-bit registers of a thread for the lanes of columns.
const LANE_WORDS: usize = 64;

impl Reduce {
    /// The registers to reduce, and the reductions.
    pub(super) fn all(&self) -> impl Iterator<Item = (u16, &'static ReduceFn)> {
        std::iter::once((self.value, self.f)).chain(self.also.iter().map(|also| (also.value, also.f)))
    }

    fn class(&self, value: u16) -> Class {
        self.map.dtype(value).class()
    }

    /// The widest vectors of columns whose lanes fit registers; `groups` lanes of each element.
    pub(super) fn widest(&self, groups: usize) -> usize {
        let words = |(value, _)| if self.class(value) == Class::F32 { 1 } else { 2 };
        let words: usize = self.all().map(words).sum();
        let most = LANE_WORDS / (groups * words);
        if self.also.is_empty() { 4 } else { 1 << most.clamp(1, 4).ilog2() }
    }

    /// Its parts: each reduction alone, then the stores of elements, which may overwrite operands of the reductions.
    pub(super) fn parts(&self) -> (impl Iterator<Item = Reduce>, Option<Map>) {
        let first = Also { value: self.value, f: self.f, dtype: self.dtype, out: self.out };
        let all: Vec<Also> = std::iter::once(first).chain(self.also.iter().cloned()).collect();
        let map = self.map.clone();
        // Only the first one may have positions.
        let (index, stores) = (self.out_index, self.store_value);
        let alone = all.into_iter().enumerate().map(move |(number, Also { value, f, dtype, out })| {
            let (map, value) = only(&map, value);
            let (out_index, store_value) = if number == 0 { (index, stores) } else { (None, true) };
            Reduce { map, value, f, dtype, out, out_index, store_value, also: Vec::new() }
        });
        (alone, (!self.map.stores.is_empty()).then(|| self.map.clone()))
    }

    /// The definitions of what a lane holds.
    pub(super) fn held(&self) -> String {
        if self.also.is_empty() {
            return "typedef Acc Held;\n\
                    INLINE Held start() { return INIT; }\n\
                    INLINE Held combine(Acc a, Acc b) { return @COMBINE@; }\n\
                    INLINE Held append(Acc a, Acc b) { return combine(a, b); }\n\
                    INLINE Held from_lane(Held x, int delta) { return __shfl_down_sync(FULL_WARP, x, delta, SHUFFLE_WIDTH); }"
                .replace("@COMBINE@", self.f.cuda.of(self.class(self.value)));
        }
        let (mut text, mut fields) = (String::new(), String::new());
        let (mut start, mut both, mut from) = (String::new(), String::new(), String::new());
        for (n, (value, f)) in self.all().enumerate() {
            let class = self.class(value);
            let acc = class_type(class);
            let _ = writeln!(
                text,
                "INLINE {acc} combine{n}({acc} a, {acc} b) {{ return {}; }}",
                f.cuda.of(class)
            );
            let _ = write!(fields, " {acc} v{n};");
            let _ = write!(start, "{}, ", literal((f.init)(class), class));
            let _ = write!(both, "combine{n}(a.v{n}, b.v{n}), ");
            let _ = write!(from, "__shfl_down_sync(FULL_WARP, x.v{n}, delta, SHUFFLE_WIDTH), ");
        }
        let _ = write!(
            text,
            "struct Held {{{fields} }};\n\
             INLINE Held start() {{ return Held{{{start}}}; }}\n\
             INLINE Held combine(Held a, Held b) {{ return Held{{{both}}}; }}\n\
             INLINE Held append(Held a, Held b) {{ return combine(a, b); }}\n\
             INLINE Held from_lane(Held x, int delta) {{ return Held{{{from}}}; }}"
        );
        text
    }

    /// What a new element appends to a lane.
    pub(super) fn appended(&self) -> String {
        let values: Vec<String> = self.all().map(|(value, _)| format!("r{value}")).collect();
        match &values[..] {
            [value] => format!("lane = append(lane, {value});\n"),
            values => format!("lane = append(lane, Held{{{}}});\n", values.join(", ")),
        }
    }

    /// The statement that stores the partial results of a segment.
    pub(super) fn store_partial(&self) -> String {
        if self.also.is_empty() {
            return "memory<Acc>(p.w[4])[kept * p.w[3] + part] = held;".into();
        }
        let store = |(n, (value, _)): (usize, (u16, _))| {
            let acc = class_type(self.class(value));
            format!("memory<{acc}>(p.w[4] + {n} * 8 * p.w[0] * p.w[3])[kept * p.w[3] + part] = held.v{n};\n")
        };
        self.all().enumerate().map(store).collect()
    }

    /// The statement that loads partial results.
    pub(super) fn load_partial(&self) -> String {
        if self.also.is_empty() {
            return "x[u] = memory<const Acc>(p.w[4])[(u64)kept * reduced + r];\n".into();
        }
        let load = |(n, (value, _)): (usize, (u16, _))| {
            let acc = class_type(self.class(value));
            let array = format!("memory<const {acc}>(p.w[4] + {n} * 8 * p.w[0] * reduced)");
            format!("x[u].v{n} = {array}[(u64)kept * reduced + r];\n")
        };
        self.all().enumerate().map(load).collect()
    }
}

/// True if a launch stores elements over those that it reduces: the host reads these in place.
pub(super) fn overwrites(reduce: &Reduce, launch: &Launch) -> bool {
    let place = |view: u16| launch.views[usize::from(view)].ptr;
    match reduce.map.sources.get(usize::from(reduce.value)) {
        Some(&Source::Load { view, .. }) => {
            reduce.map.stores.iter().any(|store| place(store.view) == place(view))
        }
        _ => false,
    }
}

/// The launch of the elements of a reduction.
pub(super) fn elements(map: &Map, launch: &Launch) -> Launch {
    let views = launch.views[..counts(map).0].iter().cloned().collect();
    Launch { views, reduced: 0, ..launch.clone() }
}

/// The part of a map that computes a register, and the number that the register has there.
fn only(map: &Map, value: u16) -> (Map, u16) {
    let sources = map.sources.len();
    let mut used = vec![false; sources + map.instrs.len()];
    used[usize::from(value)] = true;
    for (at, instr) in map.instrs.iter().enumerate().rev() {
        if used[sources + at] {
            instr.args.iter().for_each(|&arg| used[usize::from(arg)] = true);
        }
    }
    let mut number: Vec<u16> = (0..sources as u16).collect();
    let mut instrs: Vec<Instr> = Vec::new();
    for (at, instr) in map.instrs.iter().enumerate() {
        number.push((sources + instrs.len()) as u16);
        if used[sources + at] {
            let args = instr.args.iter().map(|&arg| number[usize::from(arg)]).collect();
            instrs.push(Instr { args, ..*instr });
        }
    }
    let value = number[usize::from(value)];
    (Map { sources: map.sources.clone(), instrs, stores: Vec::new() }, value)
}
