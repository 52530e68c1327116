//! Translates encoded programs of the ready-made kernel to PTX. The driver's assembler turns PTX into machine code in
//! milliseconds, where NVRTC takes 50 or more, and needs no toolkit. The parameter is the same, so an encoded launch
//! runs either way.
//!
//! The text depends on the code and the form of the views, not on sizes, addresses or numbers ([`Encoded::structure`]).
//! A thread holds four elements of each register. The bits are those of the interpreter: the same functions
//! ([`bodies`]), in the same order.

pub(crate) mod bodies;
mod code;
#[cfg(test)]
pub(crate) mod samples;

use super::interpret::{Encoded, HEAD, op};
use bodies::Bodies;
use code::{Code, Reg, Unit};
use std::fmt::Write;

/// Threads of a block of a map.
const MAP_THREADS: usize = 128;

/// Maximum threads of a block of a reduction over columns.
const COLUMN_THREADS: usize = 512;

/// Bytes of shared memory that a block may declare on every device.
const MOST_SHARED: usize = 48 << 10;

/// Limit on the text's length; longer texts take the assembler hundreds of milliseconds.
const MOST_LINES: usize = 12_000;

/// The name of the kernel.
pub(crate) const ENTRY: &str = "translated";

impl Encoded {
    /// Everything that the text depends on. Equal structures have equal texts.
    pub fn structure(&self) -> Vec<u64> {
        let (code, first) = self.code();
        let mut structure = Vec::with_capacity(8 + 2 * code.len());
        structure.extend([self.words[1], u64::from(self.lanes() > 0) * self.threads as u64, self.lanes()]);
        structure.extend(&self.words[2..6]);
        structure.extend([self.words[10], u64::from(self.words[9] > 1), first as u64]);
        for &word in code {
            structure.push(word);
            if let Some(view) = moved(word) {
                structure.push(self.words[view.at + 1]);
            }
        }
        structure
    }

    /// The instructions, and the index of the first one.
    fn code(&self) -> (&[u64], usize) {
        let first = (2..6).map(|word| half(self.words[word], 0)).filter(|at| *at > 0).min().unwrap_or(HEAD);
        (&self.words[first..half(self.words[1], 0)], first)
    }

    /// True where positions need more than 32 bits.
    fn is_wide(&self) -> bool {
        self.words[10] & 1 != 0
    }

    /// Lanes of a reduction; 0 for a map.
    fn lanes(&self) -> u64 {
        self.words[6]
    }

    /// Instructions times elements.
    pub fn work(&self) -> u64 {
        let elements = self.words[0].saturating_mul(if self.lanes() > 0 { self.words[8] } else { 1 });
        elements.saturating_mul(self.code().0.len() as u64)
    }

    /// Blocks and threads with which the translated kernel runs.
    pub fn translated_grid(&self) -> (u32, u32) {
        match self.lanes() {
            0 => (super::blocks(self.words[0].div_ceil(4), MAP_THREADS as u64), MAP_THREADS as u32),
            _ => {
                let segments = (self.reduction_threads() / self.segment_threads()) as u64;
                (self.words[0].div_ceil(segments) as u32, self.reduction_threads() as u32)
            }
        }
    }

    /// Threads of a segment of a reduction.
    fn segment_threads(&self) -> usize {
        (self.lanes() as usize / 4).max(1)
    }

    /// True for a reduction whose results are adjacent in memory; then adjacent threads have adjacent results.
    fn columns(&self) -> bool {
        self.words[10] & 2 != 0
    }

    /// Threads of a block of a reduction. A block takes sixteen adjacent columns, or eight if a segment has many
    /// threads.
    fn reduction_threads(&self) -> usize {
        if !self.columns() {
            return self.threads;
        }
        let mut threads = (16 * self.segment_threads()).clamp(128, COLUMN_THREADS);
        while 2 * self.exchanged() * threads > MOST_SHARED {
            threads /= 2;
        }
        threads
    }

    /// Bytes that a thread exchanges in one step of the combination of lanes.
    fn exchanged(&self) -> usize {
        let code = &self.words[self.phase(2).code];
        code.iter()
            .map(|word| [16, 32].get((word & 0x3fff) as usize - op::LANES_AWAY as usize).unwrap_or(&0))
            .sum()
    }

    /// Words of the translated kernel's parameter.
    pub fn translated_words(&self) -> &[u64] {
        &self.words[..half(self.words[1], 0) + half(self.words[1], 1)]
    }

    /// The kernel; `None` if it would be too long.
    pub(crate) fn translate(&self, bodies: &Bodies) -> Option<String> {
        let mut code = Code::new(self, bodies);
        match self.lanes() {
            0 => self.map(&mut code)?,
            lanes => self.reduction(&mut code, lanes as u32)?,
        }
        if code.lines() > MOST_LINES {
            return None;
        }
        let (_, threads) = self.translated_grid();
        let mut text = String::from(".version 8.0\n.target sm_80\n.address_size 64\n");
        text.push_str(&bodies.texts(&code.called));
        let _ = writeln!(
            text,
            ".visible .entry {ENTRY}(.param .align 8 .b8 p[{}])\n.maxntid {threads}, 1, 1\n{{",
            8 * self.translated_words().len()
        );
        code.finish(&mut text);
        text.push_str("ret;\n}\n");
        Some(text)
    }

    fn phase(&self, number: usize) -> Phase {
        let word = self.words[2 + number];
        Phase { code: half(word, 0)..half(word, 1), space: half(word, 2), rank: half(word, 3) }
    }

    /// Four elements per thread; more blocks than the interpreter has.
    fn map(&self, code: &mut Code<'_>) -> Option<()> {
        let (index, count) = (code.long(), code.long());
        code.line("mov.u32 %t, %tid.x;");
        code.line("mov.u32 %b, %ctaid.x;");
        code.line(&format!("mul.wide.u32 {index}, %b, {MAP_THREADS};"));
        code.line(&format!("cvt.u64.u32 {count}, %t;"));
        code.line(&format!("add.s64 {index}, {index}, {count};"));
        code.line(&format!("shl.b64 {index}, {index}, 2;"));
        code.line(&format!("ld.param.u64 {count}, [p];"));
        let (ends, rest) = (code.flag(), code.long());
        code.line(&format!("setp.ge.u64 {ends}, {index}, {count};"));
        code.line(&format!("@{ends} bra END;"));
        code.line(&format!("sub.s64 {rest}, {count}, {index};"));
        let unit = Unit::of(code, index, None, rest, false);
        code.phase(&self.phase(0), &unit)?;
        code.line("END:");
        Some(())
    }

    /// The phases of a reduction; see `kernels/interpret.cu`.
    fn reduction(&self, code: &mut Code<'_>, lanes: u32) -> Option<()> {
        let threads = self.segment_threads() as u32;
        let together = self.reduction_threads() as u32 / threads;
        let [segment, begin, row, left, lane, limit, round] = [(); 7].map(|()| code.long());
        let [of, segments, reduced, length, part, rest] = [(); 6].map(|()| code.long());
        code.line("mov.u32 %t, %tid.x;");
        code.line("mov.u32 %b, %ctaid.x;");
        code.line(&format!("mul.wide.u32 {segment}, %b, {together};"));
        // The number of the segment in the block, and of the thread in the segment.
        let [low, high] = if self.columns() { ["%n", "%l"] } else { ["%l", "%n"] };
        let adjacent = if self.columns() { together } else { threads };
        code.line(&format!("and.b32 {low}, %t, {};", adjacent - 1));
        code.line(&format!("shr.u32 {high}, %t, {};", adjacent.ilog2()));
        code.line(&format!("cvt.u64.u32 {of}, %n;"));
        code.line(&format!("add.s64 {segment}, {segment}, {of};"));
        code.line("shl.b32 %l, %l, 2;");
        code.line(&format!("cvt.u64.u32 {lane}, %l;"));
        for (register, word) in [(segments, 0), (reduced, 7), (length, 8)] {
            code.line(&format!("ld.param.u64 {register}, [p+{}];", 8 * word));
        }
        let (live, shorter) = (code.flag(), code.flag());
        code.line(&format!("setp.lt.u64 {live}, {segment}, {segments};"));
        for register in [begin, row, left] {
            code.line(&format!("mov.u64 {register}, 0;"));
        }
        code.line(&format!("@!{live} bra NONE;"));
        if self.words[9] > 1 {
            let [parts, kept] = [(); 2].map(|()| code.long());
            code.line(&format!("ld.param.u64 {parts}, [p+72];"));
            if self.columns() {
                // Columns are numbered part by part.
                self.divide(code, kept, segments, parts);
                self.divide(code, part, segment, kept);
                code.line(&format!("mul.lo.s64 {row}, {part}, {kept};"));
                code.line(&format!("sub.s64 {row}, {segment}, {row};"));
                code.line(&format!("mad.lo.s64 {segment}, {row}, {parts}, {part};"));
            } else {
                self.divide(code, row, segment, parts);
                code.line(&format!("mul.lo.s64 {part}, {row}, {parts};"));
                code.line(&format!("sub.s64 {part}, {segment}, {part};"));
            }
            code.line(&format!("mul.lo.s64 {begin}, {part}, {length};"));
        } else {
            code.line(&format!("mov.u64 {row}, {segment};"));
        }
        code.line(&format!("sub.s64 {left}, {reduced}, {begin};"));
        code.line(&format!("min.u64 {left}, {left}, {length};"));
        code.line(&format!("mad.lo.s64 {row}, {row}, {reduced}, {begin};"));
        code.line("NONE:");
        code.phase(&self.phase(1), &Unit::none())?;
        // All threads of a block run as many rounds as its longest segment.
        code.line(&format!("min.u64 {limit}, {length}, {reduced};"));
        code.line(&format!("mov.u64 {round}, 0;"));
        code.line("ROUND:");
        code.line(&format!("setp.ge.u64 {shorter}, {round}, {limit};"));
        code.line(&format!("@{shorter} bra TREE;"));
        let [at, first, within] = [(); 3].map(|()| code.long());
        code.line(&format!("add.s64 {at}, {round}, {lane};"));
        code.line(&format!("add.s64 {first}, {row}, {at};"));
        code.line(&format!("add.s64 {within}, {begin}, {at};"));
        code.line(&format!("sub.s64 {rest}, {left}, {at};"));
        code.line(&format!("max.s64 {rest}, {rest}, 0;"));
        let mut unit = Unit::of(code, first, Some(within), rest, true);
        unit.apart = lanes < 4;
        code.phase(&self.phase(0), &unit)?;
        code.line(&format!("add.s64 {round}, {round}, {lanes};"));
        code.line("bra.uni ROUND;");
        code.line("TREE:");
        let mut half = lanes / 2;
        while half > 0 {
            code.phase(&self.phase(2), &Unit::half(half))?;
            half /= 2;
        }
        let (first_lane, stores) = (code.flag(), code.flag());
        code.line(&format!("setp.eq.u32 {first_lane}, %l, 0;"));
        code.line(&format!("and.pred {stores}, {first_lane}, {live};"));
        code.line(&format!("@!{stores} bra END;"));
        code.phase(&self.phase(3), &Unit::one(segment))?;
        code.line("END:");
        Some(())
    }
}

impl Encoded {
    /// A quotient; in 32 bits, which is faster, if all segment numbers fit.
    fn divide(&self, code: &mut Code<'_>, quotient: Reg, a: Reg, b: Reg) {
        if self.is_wide() {
            return code.line(&format!("div.u64 {quotient}, {a}, {b};"));
        }
        let [short, by] = [(); 2].map(|()| code.word());
        code.line(&format!("cvt.u32.u64 {short}, {a};"));
        code.line(&format!("cvt.u32.u64 {by}, {b};"));
        code.line(&format!("div.u32 {short}, {short}, {by};"));
        code.line(&format!("cvt.u64.u32 {quotient}, {short};"));
    }
}

/// A range of instructions, and the words of its dimensions.
struct Phase {
    code: std::ops::Range<usize>,
    space: usize,
    rank: usize,
}

/// A load or a store.
struct Moved {
    /// Index of the dtype in `Dtype::ALL`.
    dtype: usize,
    is_store: bool,
    /// The word of the view.
    at: usize,
    /// The logarithm of the element's size in bytes.
    shift: u64,
}

fn moved(word: u64) -> Option<Moved> {
    let code = (word & 0x3fff).checked_sub(op::MOVE)?;
    Some(Moved {
        dtype: code as usize / 2,
        is_store: code % 2 == 1,
        at: (word >> 24) as usize & 0x3ff,
        shift: word >> 34 & 7,
    })
}

/// 16 bits of a word.
fn half(word: u64, at: usize) -> usize {
    (word >> (16 * at)) as usize & 0xffff
}
