//! Readable listings of launches.

use super::{Beside, Launch, Map, Padding, Source};
use crate::array::{Class, Dtype, Scalar};
use std::fmt::Write;

impl Launch {
    /// The program as lines: one per register, store and reduction.
    ///
    /// ```text
    /// r0 = load f32 by (128, 1)
    /// r1 = 2.0 f32
    /// r2 = mul r0, r1 -> f32
    /// store r2 f32 by (128, 1)
    /// ```
    pub fn listing(&self) -> String {
        let mut text = String::new();
        self.program.kind.list(self, &mut text);
        text
    }

    /// The lines of elementwise code.
    pub(super) fn list_map(&self, text: &mut String, map: &Map) {
        for (reg, source) in map.sources.iter().enumerate() {
            let shown = match source {
                Source::Load { view, dtype } => format!("load {dtype} by {}", self.steps_of(*view)),
                Source::Gathered { view, index, dtype } => {
                    format!("load {dtype} by {} at index r{index}", self.steps_of(*view))
                }
                Source::Number { slot, dtype } => {
                    let bits = self.numbers.get(usize::from(*slot)).copied().unwrap_or(0);
                    format!("{} {dtype}", number(bits, *dtype))
                }
                Source::Position => "position".to_string(),
                Source::Inside { view } => format!("inside {}", self.steps_of(*view)),
            };
            let _ = writeln!(text, "r{reg} = {shown}");
        }
        for (at, instr) in map.instrs.iter().enumerate() {
            let args: Vec<String> = instr.args.iter().map(|arg| format!("r{arg}")).collect();
            let reg = map.sources.len() + at;
            let _ = writeln!(text, "r{reg} = {} {} -> {}", instr.f.name, args.join(", "), instr.dtype);
        }
        for store in &map.stores {
            let dtype = map.dtype(store.reg);
            let _ = writeln!(text, "store r{} {dtype} by {}", store.reg, self.steps_of(store.view));
        }
    }

    fn steps_of(&self, view: u16) -> String {
        let Some(view) = self.views.get(usize::from(view)) else { return String::new() };
        let steps = steps(&view.strides);
        if let Some(wraps) = &view.wraps {
            return format!("{steps}, wraps at {wraps:?}");
        }
        let Some(Padding { inside, beside }) = view.padding.as_deref() else { return steps };
        let inside: Vec<String> = inside.iter().map(|[first, end]| format!("{first}..{end}")).collect();
        let beside = match *beside {
            Beside::Number(bits) => {
                let element = Scalar::decode(&bits.to_le_bytes()[..view.dtype.size()], view.dtype);
                number(element.bits_as(view.dtype), view.dtype)
            }
            Beside::Nearest => "the nearest".to_string(),
            Beside::Mirrored => "mirrored".to_string(),
            Beside::Wrapped => "repeated".to_string(),
        };
        format!("{steps} at [{}], else {beside}", inside.join(", "))
    }
}

/// Strides in elements, per dimension.
pub(super) fn steps(strides: &[isize]) -> String {
    let steps: Vec<String> = strides.iter().map(isize::to_string).collect();
    format!("({})", steps.join(", "))
}

/// A number of a launch; see [`Launch::numbers`].
fn number(bits: u64, dtype: Dtype) -> String {
    match dtype.class() {
        _ if dtype == Dtype::Bool => (bits != 0).to_string(),
        Class::F32 | Class::C64 => format!("{:?}", f32::from_bits(bits as u32)),
        Class::F64 | Class::C128 => format!("{:?}", f64::from_bits(bits)),
        Class::I64 => (bits as i64).to_string(),
    }
}
