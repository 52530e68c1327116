//! Several reductions of random programs: over the same elements, with writes between them.

use super::generate::{Generator, Place};
use super::model::{Dtype, Val, View, indices, int, sum};
use super::moves::{Inline, ordinal, product};

/// The result of a reduction: its text, dtype and elements.
type Reduced = (String, Dtype, Vec<Val>);

impl Generator {
    /// A few reductions, mostly of one tensor and over the same dimensions.
    pub(super) fn several(&mut self) -> Option<()> {
        let var = self.some_var()?;
        let place = self.place(&var.view);
        let rank = var.view.shape.len();
        if rank == 0 || var.view.dtype.is_complex() {
            return None;
        }
        let agent = self.agent(place);
        let mut dims = self.dims(rank);
        self.focus = Some((var.name.clone(), agent));
        for _ in 0..2 + self.draw.below(4) {
            if self.draw.once_in(4) {
                dims = self.dims(rank);
            }
            let near = self.vars.iter().filter(|other| {
                self.place(&other.view) == place
                    && other.view.shape == var.view.shape
                    && !other.view.dtype.is_complex()
            });
            let near: Vec<_> = near.cloned().collect();
            if near.is_empty() {
                break;
            }
            let own = near.iter().find(|other| other.name == var.name).filter(|_| !self.draw.once_in(3));
            let from = own.cloned().unwrap_or_else(|| self.draw.of(&near).clone());
            let operand = self.inline(&from, true);
            let keepdim = self.draw.once_in(4);
            if let Some(((text, dtype, elements), shape)) = self.reduced(&operand, &dims, keepdim) {
                let touches: Vec<(&View, bool)> = operand.views.iter().map(|view| (view, false)).collect();
                self.note(agent, None, &touches, !elements.is_empty());
                let place = if place == Place::Pinned { Place::Host } else { place };
                self.bind(agent, place, &text, (dtype, shape, elements), true);
            }
            match self.draw.below(6) {
                0 => self.run_in_place(),
                1 => self.run_elementwise(),
                _ => {}
            }
        }
        self.focus = None;
        if self.draw.once_in(3) {
            self.drop_named(&var.name);
        }
        Some(())
    }

    /// Dimensions to reduce; none for all.
    fn dims(&mut self, rank: usize) -> Vec<usize> {
        match self.draw.below(6) {
            0 => Vec::new(),
            1 if rank > 1 => {
                let left = self.draw.below(rank);
                (0..rank).filter(|&d| d != left).collect()
            }
            _ => vec![self.draw.below(rank)],
        }
    }

    /// A reduction, and the shape of its result.
    fn reduced(&mut self, x: &Inline, dims: &[usize], keepdim: bool) -> Option<(Reduced, Vec<usize>)> {
        let rank = x.shape.len();
        let is_reduced = |d: usize| dims.is_empty() || dims.contains(&d);
        let kept: Vec<usize> = (0..rank).filter(|&d| !is_reduced(d)).map(|d| x.shape[d]).collect();
        let whole: Vec<usize> = (0..rank).map(|d| if is_reduced(d) { 1 } else { x.shape[d] }).collect();
        let mut rows: Vec<Vec<Val>> = vec![Vec::new(); kept.iter().product()];
        for index in indices(&x.shape) {
            let own: Vec<usize> = (0..rank).filter(|&d| !is_reduced(d)).map(|d| index[d]).collect();
            rows[ordinal(&own, &kept)].push(x.elements[ordinal(&index, &x.shape)]);
        }
        let (dtype, text) = (x.dtype, &x.text);
        let is_one = dims.len() == 1;
        let kind = self.draw.below(12);
        let is_nothing = x.elements.is_empty();
        // Extremes of nothing do not exist; positions are those of one dimension.
        if is_nothing && kind > 2 || (3..=8).contains(&kind) && dtype == Dtype::Bool {
            return None;
        }
        let keep = if keepdim && !dims.is_empty() { ", keepdim=true" } else { "" };
        let list = match dims {
            [] => String::new(),
            [one] => one.to_string(),
            all => format!("({})", all.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")),
        };
        let call = |name: &str| format!("{text}.{name}({list}{keep})");
        let each =
            |f: &dyn Fn(&[Val]) -> Option<Val>| rows.iter().map(|row| f(row)).collect::<Option<Vec<Val>>>();
        let more = |a: Val, b: Val| if dtype.is_float() { a[0].f() > b[0].f() } else { a[0].i() > b[0].i() };
        let first = |row: &[Val], larger: bool| {
            let best = |best: usize, at: usize| {
                let is_more = if larger { more(row[at], row[best]) } else { more(row[best], row[at]) };
                if is_more { at } else { best }
            };
            (1..row.len()).fold(0, best)
        };
        let is_set = |x: &Val| x[0].f() != 0.0;
        let truth = |is: bool| Some(int(i64::from(is)));
        let reduced: Reduced = match kind {
            0..=2 => {
                let to = sum(dtype, &[])?.0;
                (call("sum"), to, each(&|row| Some(sum(dtype, row)?.1))?)
            }
            3 => (call("amax"), dtype, each(&|row| Some(row[first(row, true)]))?),
            4 => (call("amin"), dtype, each(&|row| Some(row[first(row, false)]))?),
            5 if is_one || dims.is_empty() => {
                (call("argmax"), Dtype::I64, each(&|row| Some(int(first(row, true) as i64)))?)
            }
            6 if is_one || dims.is_empty() => {
                (call("argmin"), Dtype::I64, each(&|row| Some(int(first(row, false) as i64)))?)
            }
            7 if is_one => {
                (call("max") + ".indices", Dtype::I64, each(&|row| Some(int(first(row, true) as i64)))?)
            }
            8 if is_one => (call("min") + ".values", dtype, each(&|row| Some(row[first(row, false)]))?),
            9 if is_one || dims.is_empty() => {
                (call("any"), Dtype::Bool, each(&|row| truth(row.iter().any(is_set)))?)
            }
            10 if is_one || dims.is_empty() => {
                let to = if dtype.is_float() { dtype } else { Dtype::I64 };
                (call("prod"), to, each(&|row| product(to, row))?)
            }
            11 if keep.is_empty() => {
                let count = |row: &[Val]| Some(int(row.iter().filter(|x| is_set(x)).count() as i64));
                (call("count_nonzero"), Dtype::I64, each(&count)?)
            }
            _ => return None,
        };
        Some((reduced, if keep.is_empty() { kept } else { whole }))
    }
}
