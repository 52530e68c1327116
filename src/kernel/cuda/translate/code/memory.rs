//! Loads and stores of translated programs.

use super::super::{Moved, Phase};
use super::{Code, Lanes, Reg, Unit, Value, is_wide, parts};
use crate::array::Dtype;
use smallvec::smallvec;

/// The location of a view's elements.
enum Addressing {
    /// All at one address.
    Same(Reg),
    /// `size` bytes apart; four of them may be moved at once if the flag is set.
    Adjacent(Reg, bool),
    Each(Lanes),
}

impl Code<'_> {
    fn place(&mut self, moved: &Moved, phase: &Phase, unit: &Unit) -> Option<Addressing> {
        let (shift, mode) = (moved.shift, self.encoded.words[moved.at + 1]);
        let base = self.param(moved.at);
        match mode & 3 {
            0 => {
                let at = self.long();
                self.line(&format!("shl.b64 {at}, {}, {shift};", unit.first?));
                self.line(&format!("add.s64 {at}, {at}, {base};"));
                Some(Addressing::Adjacent(at, mode & 4 != 0))
            }
            1 => Some(Addressing::Same(base)),
            _ => {
                let units = mode & 8 != 0 && !unit.apart;
                let computed = if units { 1 } else { unit.most };
                let mut each = [base; 4];
                for (j, at) in each.iter_mut().enumerate().take(computed) {
                    *at = self.address(base, moved, phase, unit, j)?;
                }
                if !units {
                    return Some(Addressing::Each(each));
                }
                if mode & 4 != 0 {
                    return Some(Addressing::Adjacent(each[0], true));
                }
                let step = self.param(moved.at + 1 + phase.rank);
                self.line(&format!("shl.b64 {step}, {step}, {shift};"));
                for j in 1..unit.most {
                    let (at, before) = (self.long(), each[j - 1]);
                    self.line(&format!("add.s64 {at}, {before}, {step};"));
                    each[j] = at;
                }
                Some(Addressing::Each(each))
            }
        }
    }

    /// The address of element `j` of the unit in a view with strides.
    fn address(&mut self, base: Reg, moved: &Moved, phase: &Phase, unit: &Unit, j: usize) -> Option<Reg> {
        if self.coordinates[j].is_none() {
            self.coordinates[j] = Some(self.split(phase, unit.first?, j));
        }
        let coordinates = self.coordinates[j].clone()?;
        let offset = self.long();
        self.line(&format!("mov.u64 {offset}, 0;"));
        for (d, coordinate) in coordinates.into_iter().enumerate() {
            let stride = self.param(moved.at + 2 + d);
            self.line(&format!("mad.lo.s64 {offset}, {coordinate}, {stride}, {offset};"));
        }
        self.line(&format!("shl.b64 {offset}, {offset}, {};", moved.shift));
        self.line(&format!("add.s64 {offset}, {offset}, {base};"));
        Some(offset)
    }

    /// The coordinates of an element.
    fn split(&mut self, phase: &Phase, first: Reg, j: usize) -> Vec<Reg> {
        let position = self.long();
        self.line(&format!("add.s64 {position}, {first}, {j};"));
        let wide = self.encoded.is_wide();
        let mut all = vec![position; phase.rank];
        let mut rest = position;
        if !wide {
            rest = self.word();
            self.line(&format!("cvt.u32.u64 {rest}, {position};"));
        }
        for d in (0..phase.rank).rev() {
            let word = phase.space + 2 * d;
            let coordinate = self.long();
            all[d] = coordinate;
            if wide {
                if d == 0 {
                    self.line(&format!("mov.b64 {coordinate}, {rest};"));
                    break;
                }
                let (extent, quotient) = (self.param(word), self.long());
                self.line(&format!("div.u64 {quotient}, {rest}, {extent};"));
                self.line(&format!("mul.lo.s64 {coordinate}, {quotient}, {extent};"));
                self.line(&format!("sub.s64 {coordinate}, {rest}, {coordinate};"));
                rest = quotient;
                continue;
            }
            if d == 0 {
                self.line(&format!("cvt.u64.u32 {coordinate}, {rest};"));
                break;
            }
            // `quotient` of the prelude.
            let [extent, magic, shift, quotient, remainder] = [(); 5].map(|()| self.word());
            for (register, at) in [(extent, 8 * word), (magic, 8 * word + 8), (shift, 8 * word + 12)] {
                self.line(&format!("ld.param.u32 {register}, [p+{at}];"));
            }
            self.line(&format!("mul.hi.u32 {quotient}, {rest}, {magic};"));
            self.line(&format!("add.u32 {quotient}, {quotient}, {rest};"));
            self.line(&format!("shr.u32 {quotient}, {quotient}, {shift};"));
            self.line(&format!("mul.lo.u32 {remainder}, {quotient}, {extent};"));
            self.line(&format!("sub.u32 {remainder}, {rest}, {remainder};"));
            self.line(&format!("cvt.u64.u32 {coordinate}, {remainder};"));
            rest = quotient;
        }
        all
    }

    pub(super) fn load(&mut self, moved: &Moved, phase: &Phase, unit: &Unit) -> Option<Value> {
        let size = 1usize << moved.shift;
        let parts = parts(0, Dtype::ALL.get(moved.dtype)?.class());
        let wide = size / parts.len() == 8;
        let place = self.place(moved, phase, unit)?;
        let form = form(size, parts.len());
        let raw: Value = parts.iter().map(|_| self.lanes(wide)).collect();
        if let Addressing::Same(at) = place {
            self.line(&format!("ld.global.{form} {}, [{at}];", element(&raw, 0)));
            let raw: Value = raw.iter().map(|lanes| [lanes[0]; 4]).collect();
            return self.open(moved, raw, 1);
        }
        let address = |j: usize| match &place {
            Addressing::Each(each) => format!("[{}]", each[j]),
            Addressing::Adjacent(at, _) | Addressing::Same(at) => format!("[{at}+{}]", j * size),
        };
        let vector = unit.whole.filter(|_| matches!(place, Addressing::Adjacent(_, true)));
        let label = self.label();
        if let Some(whole) = vector {
            self.line(&format!("@{whole} bra V{label};"));
        }
        for j in 0..unit.most {
            match unit.has {
                Some(has) => {
                    for lanes in &raw {
                        self.line(&format!("mov.b{} {}, 0;", if wide { 64 } else { 32 }, lanes[j]));
                    }
                    self.line(&format!("@{} ld.global.{form} {}, {};", has[j], element(&raw, j), address(j)));
                }
                None => self.line(&format!("ld.global.{form} {}, {};", element(&raw, j), address(j))),
            }
        }
        if vector.is_some() {
            self.line(&format!("bra.uni W{label};"));
            self.line(&format!("V{label}:"));
            let Addressing::Adjacent(at, _) = place else { return None };
            match raw[..] {
                [lanes] => self.load_four(lanes, at, size),
                _ => {
                    for (form, registers, offset) in pairs(&raw, wide) {
                        self.line(&format!("ld.global.{form} {registers}, [{at}+{offset}];"));
                    }
                }
            }
            self.line(&format!("W{label}:"));
        }
        self.open(moved, raw, unit.most)
    }

    /// Loads four adjacent elements.
    fn load_four(&mut self, [a, b, c, d]: Lanes, at: Reg, size: usize) {
        match size {
            1 => {
                let all = self.word();
                self.line(&format!("ld.global.u32 {all}, [{at}];"));
                for (j, raw) in [a, b, c, d].iter().enumerate() {
                    self.line(&format!("bfe.u32 {raw}, {all}, {}, 8;", 8 * j));
                }
            }
            2 => {
                let (low, high) = (self.word(), self.word());
                self.line(&format!("ld.global.v2.u32 {{{low}, {high}}}, [{at}];"));
                for (pair, [even, odd]) in [(low, [a, b]), (high, [c, d])] {
                    self.line(&format!("and.b32 {even}, {pair}, 65535;"));
                    self.line(&format!("shr.u32 {odd}, {pair}, 16;"));
                }
            }
            4 => self.line(&format!("ld.global.v4.u32 {{{a}, {b}, {c}, {d}}}, [{at}];")),
            _ => {
                self.line(&format!("ld.global.v2.u64 {{{a}, {b}}}, [{at}];"));
                self.line(&format!("ld.global.v2.u64 {{{c}, {d}}}, [{at}+16];"));
            }
        }
    }

    pub(super) fn store(&mut self, moved: &Moved, value: &Value, phase: &Phase, unit: &Unit) -> Option<()> {
        let size = 1usize << moved.shift;
        let form = form(size, value.len());
        let raw = self.close(moved, value, unit.most)?;
        let place = self.place(moved, phase, unit)?;
        let address = |j: usize| match &place {
            Addressing::Each(each) => format!("[{}]", each[j]),
            Addressing::Adjacent(at, _) => format!("[{at}+{}]", j * size),
            Addressing::Same(at) => format!("[{at}]"),
        };
        let vector = unit.whole.filter(|_| matches!(place, Addressing::Adjacent(_, true)));
        let label = self.label();
        if let Some(whole) = vector {
            self.line(&format!("@{whole} bra V{label};"));
        }
        for j in 0..unit.most {
            let guard = unit.has.map_or(String::new(), |has| format!("@{} ", has[j]));
            self.line(&format!("{guard}st.global.{form} {}, {};", address(j), element(&raw, j)));
        }
        if vector.is_some() {
            self.line(&format!("bra.uni W{label};"));
            self.line(&format!("V{label}:"));
            let Addressing::Adjacent(at, _) = place else { return None };
            match raw[..] {
                [lanes] => self.store_four(lanes, at, size),
                _ => {
                    for (form, registers, offset) in pairs(&raw, size == 16) {
                        self.line(&format!("st.global.{form} [{at}+{offset}], {registers};"));
                    }
                }
            }
            self.line(&format!("W{label}:"));
        }
        Some(())
    }

    fn store_four(&mut self, [a, b, c, d]: Lanes, at: Reg, size: usize) {
        match size {
            1 => {
                let (low, high) = (self.word(), self.word());
                self.line(&format!("prmt.b32 {low}, {a}, {b}, 0x0040;"));
                self.line(&format!("prmt.b32 {high}, {c}, {d}, 0x0040;"));
                self.line(&format!("prmt.b32 {low}, {low}, {high}, 0x5410;"));
                self.line(&format!("st.global.u32 [{at}], {low};"));
            }
            2 => {
                let (low, high) = (self.word(), self.word());
                self.line(&format!("prmt.b32 {low}, {a}, {b}, 0x5410;"));
                self.line(&format!("prmt.b32 {high}, {c}, {d}, 0x5410;"));
                self.line(&format!("st.global.v2.u32 [{at}], {{{low}, {high}}};"));
            }
            4 => self.line(&format!("st.global.v4.u32 [{at}], {{{a}, {b}, {c}, {d}}};")),
            _ => {
                self.line(&format!("st.global.v2.u64 [{at}], {{{a}, {b}}};"));
                self.line(&format!("st.global.v2.u64 [{at}+16], {{{c}, {d}}};"));
            }
        }
    }

    /// The values of elements' bits. Those of complex numbers are the parts themselves.
    fn open(&mut self, moved: &Moved, raw: Value, most: usize) -> Option<Value> {
        let [bits] = raw[..] else { return Some(raw) };
        let wide = is_wide(Dtype::ALL.get(moved.dtype)?.class());
        let lanes =
            self.function(&format!("load_{}", moved.dtype), &[(bits, moved.shift == 3)], wide, most)?;
        Some(smallvec![lanes])
    }

    /// The bits of rounded values.
    fn close(&mut self, moved: &Moved, value: &Value, most: usize) -> Option<Value> {
        let [lanes] = value[..] else { return Some(value.clone()) };
        let wide = is_wide(Dtype::ALL.get(moved.dtype)?.class());
        let bits =
            self.function(&format!("store_{}", moved.dtype), &[(lanes, wide)], moved.shift == 3, most)?;
        Some(smallvec![bits])
    }
}

/// The type of an element in memory.
fn form(size: usize, parts: usize) -> String {
    match parts {
        2 => format!("v2.u{}", 4 * size),
        _ => format!("u{}", 8 * size),
    }
}

/// The registers of an element.
fn element(value: &Value, j: usize) -> String {
    match value[..] {
        [re, im] => format!("{{{}, {}}}", re[j], im[j]),
        _ => value[0][j].to_string(),
    }
}

/// Four adjacent complex elements, as [`vectors`].
fn pairs(value: &Value, wide: bool) -> Vec<(&'static str, String, usize)> {
    let of = |j: usize| element(value, j).trim_matches(['{', '}']).to_string();
    match wide {
        true => (0..4).map(|j| ("v2.u64", format!("{{{}}}", of(j)), 16 * j)).collect(),
        false => [0, 2].map(|j| ("v4.u32", format!("{{{}, {}}}", of(j), of(j + 1)), 8 * j)).into(),
    }
}
