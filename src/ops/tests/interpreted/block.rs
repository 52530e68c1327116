//! A model of one block of `kernels/interpret.cu`.

use super::{Bits, closed, function, opened};
use crate::array::{Class, Dtype};
use crate::kernel::cuda::interpret::{Function, part_class, slots};
use foldhash::HashMap;

#[derive(Clone, Copy, Default)]
struct Unit {
    first: u64,
    within: u64,
    count: u64,
    /// Threads between adjacent lanes of four.
    step: u64,
}

/// One block of the kernel.
pub(super) struct Block<'a> {
    pub words: &'a [u64],
    pub functions: &'a HashMap<u64, Function<'static>>,
    pub threads: usize,
    pub shared: Vec<u8>,
}

impl Block<'_> {
    fn part(&self, word: usize, at: usize) -> usize {
        (self.words[word] >> (16 * at) & 0xffff) as usize
    }

    /// The offset of element `j` of an operand, in bytes.
    fn at(&self, operand: u64, thread: usize, j: usize, size: usize) -> usize {
        let index = (operand & 0x1ff) as usize;
        let (slot, step) = match operand & 0x200 {
            0 => (index * self.threads + thread, self.threads),
            _ => (self.part(1, 2) * self.threads + index, 0),
        };
        if size == 4 { 16 * slot + 4 * j } else { 16 * (slot + (j >> 1) * step) + 8 * (j & 1) }
    }

    /// The offsets of the parts of an element, and their size.
    fn parts(&self, operand: u64, thread: usize, j: usize, class: Class) -> ([usize; 2], usize) {
        let size = if part_class(class) == Class::F32 { 4 } else { 8 };
        let next = operand + slots(part_class(class)) as u64;
        ([operand, next].map(|operand| self.at(operand, thread, j, size)), size)
    }

    fn get(&self, operand: u64, thread: usize, j: usize, class: Class) -> Bits {
        assert!(!class.is_complex() || operand & 0x200 == 0, "numbers are copied to registers first");
        let (places, size) = self.parts(operand, thread, j, class);
        let mut bits = [0; 2];
        for (bits, at) in bits.iter_mut().zip(places).take(1 + usize::from(class.is_complex())) {
            let mut bytes = [0; 8];
            bytes[..size].copy_from_slice(&self.shared[at..at + size]);
            *bits = u64::from_le_bytes(bytes);
        }
        bits
    }

    fn set(&mut self, operand: u64, thread: usize, j: usize, class: Class, bits: Bits) {
        let (places, size) = self.parts(operand, thread, j, class);
        for (bits, at) in bits.iter().zip(places).take(1 + usize::from(class.is_complex())) {
            self.shared[at..at + size].copy_from_slice(&bits.to_le_bytes()[..size]);
        }
    }

    fn address(&self, dims: [usize; 2], view: usize, size: u64, position: u64) -> u64 {
        let (base, mode) = (self.words[view], self.words[view + 1]);
        let mut rest = position;
        let offset = match mode & 3 {
            0 => position,
            1 => 0,
            _ => (0..dims[1]).rev().fold(0u64, |sum, d| {
                let extent = self.words[dims[0] + 2 * d];
                let coordinate = rest % extent;
                rest /= extent;
                sum.wrapping_add(coordinate.wrapping_mul(self.words[view + 2 + d]))
            }),
        };
        let address = base.wrapping_add(offset.wrapping_mul(size));
        // A load that the kernel makes with one instruction.
        if mode & 4 != 0 && position.is_multiple_of(4) {
            assert_eq!(address % (4 * size).min(16), 0, "the mode of a view");
        }
        address
    }

    fn execute(&mut self, code: [usize; 2], dims: [usize; 2], unit: Unit, thread: usize) {
        for pc in code[0]..code[1] {
            let word = self.words[pc];
            let (op, d) = (word & 0x3fff, word >> 14 & 0x3ff);
            let operands = [24, 34, 44, 54].map(|shift| word >> shift & 0x3ff);
            if op >= 0x2000 {
                let dtype = Dtype::ALL[(op - 0x2000) as usize / 2];
                let size = dtype.size();
                assert_eq!(1 << (operands[1] & 7), size);
                for j in 0..4u64 {
                    let there = j < unit.count;
                    let position = if unit.count == 0 { 0 } else { unit.first + if there { j } else { 0 } };
                    let address = self.address(dims, operands[0] as usize, size as u64, position);
                    let mut bytes = [0u8; 16];
                    if op & 1 == 0 {
                        // SAFETY: the test's views.
                        unsafe {
                            std::ptr::copy_nonoverlapping(address as *const u8, bytes.as_mut_ptr(), size)
                        };
                        self.set(d, thread, j as usize, dtype.class(), opened(dtype, bytes));
                    } else if there {
                        bytes = closed(dtype, self.get(d, thread, j as usize, dtype.class()));
                        // SAFETY: as above.
                        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), address as *mut u8, size) };
                    }
                }
                continue;
            }
            let wide = if matches!(op, 1 | 3 | 5) { Class::F32 } else { Class::I64 };
            let away = (unit.count as usize, thread + unit.count as usize / 4 * unit.step as usize);
            let values: [Bits; 4] = std::array::from_fn(|j| match op {
                0 => [unit.first + j as u64, 0],
                1 | 2 => self.get(operands[usize::from((j as u64) < unit.count)], thread, j, wide),
                3 | 4 if away.0 >= 4 => self.get(operands[0], away.1, j, wide),
                3 | 4 => self.get(operands[0], thread, (j + away.0) & 3, wide),
                5 | 6 => self.get(operands[0], thread, j, wide),
                7 => [unit.within + j as u64, 0],
                _ => {
                    let f = &self.functions[&op];
                    let arguments = operands.into_iter().zip(f.arguments());
                    let arguments: Vec<Bits> =
                        arguments.map(|(operand, class)| self.get(operand, thread, j, class)).collect();
                    function(f, &arguments)
                }
            });
            let class = if op < 8 { wide } else { self.functions[&op].result };
            values.iter().enumerate().for_each(|(j, &bits)| self.set(d, thread, j, class, bits));
        }
    }

    fn phase(&self, word: usize) -> ([usize; 2], [usize; 2]) {
        ([self.part(word, 0), self.part(word, 1)], [self.part(word, 2), self.part(word, 3)])
    }

    pub fn run(&mut self, block: u64, blocks: u64) {
        let words = self.words;
        for i in 0..self.part(1, 1) {
            let number = words[self.part(1, 0) + i].to_le_bytes();
            let at = 16 * (self.part(1, 2) * self.threads + i);
            self.shared[at..at + 8].copy_from_slice(&number);
            self.shared[at + 8..at + 16].copy_from_slice(&number);
        }
        let (main, init, tree, last) = (self.phase(2), self.phase(3), self.phase(4), self.phase(5));
        let (threads, lanes) = (self.threads as u64, words[6]);
        if lanes == 0 {
            for thread in 0..threads {
                let mut first = (block * threads + thread) * 4;
                while first < words[0] {
                    let unit = Unit { first, within: 0, count: (words[0] - first).min(4), step: 1 };
                    self.execute(main.0, main.1, unit, thread as usize);
                    first += blocks * threads * 4;
                }
            }
            return;
        }
        let each = (lanes / 4).max(1);
        let (columns, together) = (words[10] & 2 != 0, threads / each);
        let place = |thread: u64| {
            if !columns {
                return (block * together + thread / each, thread % each * 4);
            }
            let (number, kept) = (block * together + thread % together, words[0] / words[9]);
            let segment = if number < words[0] { number % kept * words[9] + number / kept } else { number };
            (segment, thread / together * 4)
        };
        let step = if columns { together } else { 1 };
        for thread in 0..threads {
            self.execute(init.0, init.1, Unit::default(), thread as usize);
            let (segment, lane) = place(thread);
            let begin = segment % words[9] * words[8];
            let left = if segment < words[0] { (words[7] - begin).min(words[8]) } else { 0 };
            let mut round = 0;
            while round < words[8] && round < words[7] {
                let at = round + lane;
                let count = left.saturating_sub(at).min(4);
                let first = segment / words[9] * words[7] + begin + at;
                let unit = Unit { first, within: begin + at, count, step };
                self.execute(main.0, main.1, unit, thread as usize);
                round += lanes;
            }
        }
        let mut half = lanes / 2;
        while half > 0 {
            for thread in (0..threads).filter(|&thread| half < 4 || place(thread).1 < half) {
                self.execute(tree.0, tree.1, Unit { count: half, step, ..Unit::default() }, thread as usize);
            }
            half /= 2;
        }
        for thread in 0..threads {
            let (segment, lane) = place(thread);
            let count = u64::from(lane == 0 && segment < words[0]);
            let unit = Unit { first: segment, within: 0, count, step };
            self.execute(last.0, last.1, unit, thread as usize);
        }
    }
}
