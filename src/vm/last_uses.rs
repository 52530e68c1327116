//! The last uses of variables.
//!
//! Note [Last uses]. A variable keeps its tensor until its block ends, as in PyTorch, also after the last instruction
//! that reads it. If the tensor is still pending then, the kernel that computes it would store a value that nothing
//! reads: `let d = x[none] - x[.., none]` in a function whose result is `(d * d).sum(-1)`. So an instruction in
//! [`Vm::step`](super::Vm::step) that reads a variable for the last time releases it if its tensor is pending and has
//! no memory. A tensor with memory stays, so that `memory_allocated` reports what PyTorch reports, and functions that
//! ask for memory statistics release nothing.

use super::bytecode::Op;
use super::function::Proto;
use super::value::Value;

/// Functions with more pairs of variables and loops than this have no table.
const MOST_PAIRS: usize = 1 << 20;

/// For each instruction, the variables to release after it, which no later instruction reads or writes.
#[derive(Default)]
pub struct LastUses {
    /// Where the registers of each instruction begin; one more than there are instructions. Empty if the table is.
    begins: Box<[u32]>,
    registers: Box<[u16]>,
}

impl LastUses {
    /// The registers that are dead after the instruction at `at`.
    #[inline]
    pub fn at(&self, at: usize) -> &[u16] {
        match self.begins.get(at..at + 2) {
            Some(&[begin, end]) => &self.registers[begin as usize..end as usize],
            _ => &[],
        }
    }

    /// The table of a function.
    pub fn of(proto: &Proto) -> LastUses {
        let loops = loops(&proto.code);
        if proto.places.names.len().saturating_mul(loops.len()) > MOST_PAIRS || asks_for_memory(proto) {
            return LastUses::default();
        }
        // The last access to each register within the range of each variable, in one pass over the code.
        let mut running: Vec<Vec<usize>> = vec![Vec::new(); usize::from(proto.registers)];
        let mut last: Vec<Option<(usize, bool)>> = vec![None; proto.places.names.len()];
        let mut begins: Vec<usize> = (0..last.len()).collect();
        begins.sort_by_key(|&i| proto.places.names[i].during.start);
        let mut begins = begins.into_iter().peekable();
        for (at, op) in proto.code.iter().enumerate() {
            while let Some(i) = begins.next_if(|&i| proto.places.names[i].during.start as usize <= at) {
                if let Some(running) = running.get_mut(usize::from(proto.places.names[i].register)) {
                    running.retain(|&i| proto.places.names[i].during.end as usize > at);
                    running.push(i);
                }
            }
            let mut note = |reg: u16, reads: bool| {
                for &i in running.get(usize::from(reg)).into_iter().flatten() {
                    if proto.places.names[i].during.contains(&(at as u32)) {
                        last[i] = Some((at, reads));
                    }
                }
            };
            op.reads(&proto.shapes, &mut |reg| note(reg, true));
            if let Some(reg) = op.written() {
                note(reg, false);
            }
        }
        let mut dead: Vec<(u32, u16)> = Vec::new();
        for (named, last) in proto.places.names.iter().zip(last) {
            // A variable that is written last keeps the value: nothing has used it yet.
            let Some((at, true)) = last else { continue };
            let repeats = |&(top, end): &(usize, usize)| {
                top >= named.during.start as usize && (top..=end).contains(&at)
            };
            if loops.iter().any(repeats) {
                continue;
            }
            let releases =
                releasing(&proto.code, at).map(|at| at as u32).filter(|at| named.during.contains(at));
            dead.extend(releases.map(|at| (at, named.register)));
        }
        dead.sort_unstable();
        dead.dedup();
        let mut begins = Vec::with_capacity(proto.code.len() + 1);
        let mut next = 0;
        for at in 0..=proto.code.len() {
            begins.push(next as u32);
            next += dead[next..].iter().take_while(|&&(of, _)| of as usize == at).count();
        }
        LastUses { begins: begins.into(), registers: dead.into_iter().map(|(_, reg)| reg).collect() }
    }
}

/// The first and last instruction of each loop.
fn loops(code: &[Op]) -> Vec<(usize, usize)> {
    let back = |(at, op): (usize, &Op)| {
        let top = (at as i64 + 1 + i64::from(op.offset()?)) as usize;
        (top <= at).then_some((top, at))
    };
    code.iter().enumerate().filter_map(back).collect()
}

/// The instructions that release a variable whose last use is at `at`: that one, or for the argument of a call, the
/// call and the instruction after it, because a call of a script function may have no step.
fn releasing(code: &[Op], at: usize) -> impl Iterator<Item = usize> + use<> {
    let mut at = at;
    let mut call = false;
    if let Op::Move { .. } = code[at] {
        let prepares = |op: &Op| {
            matches!(
                op,
                Op::Move { .. }
                    | Op::Load { .. }
                    | Op::LoadInt { .. }
                    | Op::GetGlobal { .. }
                    | Op::GetCell { .. }
                    | Op::GetCapture { .. }
            )
        };
        at += code[at..].iter().take_while(|op| prepares(op)).count();
        call = matches!(
            code.get(at),
            Some(Op::Call { .. } | Op::CallLocal { .. } | Op::CallCapture { .. } | Op::CallGlobal { .. })
        );
    }
    std::iter::once(at).chain(call.then_some(at + 1))
}

/// Whether the function itself asks for memory statistics, which count its variables.
fn asks_for_memory(proto: &Proto) -> bool {
    let is_text = |value: &Value| matches!(value, Value::Str(name) if name.as_str().contains("memory"));
    proto.names(|name| name.contains("memory")) || proto.consts.iter().any(is_text)
}
