//! Pads, gathers and scatters of random programs, of values that the statement computes.

use super::generate::{Generator, Place, Var, seen};
use super::model::{Dtype, Num, Val, View, binary, converted, float, indices, int, sum, unary, wrapped};

/// A tensor, or a value computed from tensors within the statement.
#[derive(Clone)]
pub(super) struct Inline {
    pub text: String,
    pub dtype: Dtype,
    pub shape: Vec<usize>,
    pub elements: Vec<Val>,
    /// What it reads.
    pub views: Vec<View>,
    /// It has memory of its own.
    pub is_new: bool,
}

/// How a scatter combines values.
#[derive(Clone, Copy, PartialEq)]
enum Combine {
    Last,
    Sum,
    Most,
    Least,
    Product,
}

/// Elements at positions: their text, shape and values, and the tensors that the positions read.
type Taken = (String, Vec<usize>, Vec<Val>, Vec<View>);

/// Positions of a dimension: their text, and the tensors that it reads.
struct Positions {
    text: String,
    at: Vec<usize>,
    views: Vec<View>,
}

/// The elements of a value at the index that `from` gives for each index of a shape.
pub(super) fn picked(
    elements: &[Val],
    own: &[usize],
    shape: &[usize],
    from: impl Fn(&[usize]) -> Vec<usize>,
) -> Vec<Val> {
    indices(shape).iter().map(|index| elements[ordinal(&from(index), own)]).collect()
}

/// The row-major number of an index.
pub(super) fn ordinal(index: &[usize], shape: &[usize]) -> usize {
    index.iter().zip(shape).fold(0, |at, (i, n)| at * n + i)
}

/// A shape as a tuple.
fn tuple(shape: &[usize]) -> String {
    let list = shape.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
    if shape.len() == 1 { format!("({list},)") } else { format!("({list})") }
}

fn with(shape: &[usize], d: usize, n: usize) -> Vec<usize> {
    let mut to = shape.to_vec();
    to[d] = n;
    to
}

impl Generator {
    /// A tensor, or a value that is computed from it.
    pub(super) fn inline(&mut self, var: &Var, may_convert: bool) -> Inline {
        let view = &var.view;
        let elements = self.memory.read(view);
        let (dtype, shape, name) = (view.dtype, view.shape.clone(), &var.name);
        let plain = Inline {
            text: name.clone(),
            dtype,
            shape: shape.clone(),
            elements,
            views: vec![view.clone()],
            is_new: false,
        };
        let computed = |text: String, dtype: Dtype, elements: Option<Vec<Val>>| {
            let plain = plain.clone();
            elements.map(|elements| Inline { text, dtype, elements, is_new: true, ..plain })
        };
        let x = &plain.elements;
        let made = match self.draw.below(8) {
            0 => {
                let f = *self.draw.of(&["neg", "abs", "relu", "square"]);
                let known = unary(f, dtype, one(dtype)).is_some();
                let made = x.iter().map(|&x| unary(f, dtype, x)).collect();
                known.then(|| computed(format!("{f}({name})"), dtype, made)).flatten()
            }
            1 | 2 => {
                let f = *self.draw.of(&["+", "-", "*"]);
                let (value, number) = self.number(dtype);
                let made = x.iter().map(|&x| binary(f, dtype, x, value)).collect();
                let known = dtype != Dtype::Bool;
                known.then(|| computed(format!("({name} {f} {number})"), dtype, made)).flatten()
            }
            3 => {
                let other = self.partner(view, dtype, &shape);
                let read = other.and_then(|(text, view)| Some((text, view.broadcast(&shape)?, view)));
                read.filter(|_| dtype != Dtype::Bool).and_then(|(text, wide, other)| {
                    let f = *self.draw.of(&["+", "-", "*"]);
                    let y = self.memory.read(&wide);
                    let made = x.iter().zip(&y).map(|(&a, &b)| binary(f, dtype, a, b)).collect();
                    let mut both = computed(format!("({name} {f} {text})"), dtype, made)?;
                    both.views.push(other);
                    Some(both)
                })
            }
            4 if may_convert => {
                let to =
                    *self.draw.of(&[Dtype::F64, Dtype::I64, Dtype::F32, Dtype::U8, Dtype::F16, Dtype::BF16]);
                let known = to != dtype && converted(dtype, to, one(dtype)).is_some();
                let made = x.iter().map(|&x| converted(dtype, to, x)).collect();
                known.then(|| computed(format!("{name}.to({})", to.name()), to, made)).flatten()
            }
            5 => computed(format!("{name}.clone()"), dtype, Some(x.clone())),
            _ => None,
        };
        made.unwrap_or(plain)
    }

    fn device_of(&self, view: &View) -> String {
        match self.place(view) {
            Place::Device(device) => format!("cuda:{device}"),
            _ => "cpu".into(),
        }
    }

    /// Positions below `n`, over a shape, on the device of a tensor.
    fn positions(&mut self, like: &View, n: usize, shape: &[usize]) -> Option<Positions> {
        let (count, device): (usize, _) = (shape.iter().product(), self.device_of(like));
        if count == 0 {
            let text = format!("zeros({}, dtype=i64, device={device})", tuple(shape));
            return Some(Positions { text, at: Vec::new(), views: Vec::new() });
        }
        if n == 0 {
            return None;
        }
        let kind = self.draw.below(4);
        let dtype = *self.draw.of(&[Dtype::I64, Dtype::I64, Dtype::I32, Dtype::U8, Dtype::Bool]);
        if kind < 2
            && let Some((name, view)) = self.partner(like, dtype, shape)
        {
            let wide = view.broadcast(shape)?;
            let at = self.memory.read(&wide).iter().map(|i| i[0].i().rem_euclid(n as i64) as usize).collect();
            let name = if dtype == Dtype::I64 { name } else { format!("{name}.to(i64)") };
            let list = shape.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
            let wider = if view.shape == shape { String::new() } else { format!(".expand({list})") };
            return Some(Positions { text: format!("({name} % {n}){wider}"), at, views: vec![view] });
        }
        if kind == 2 {
            let (step, first) = (1 + self.draw.below(4), self.draw.below(n));
            let text = format!(
                "((arange({count}, device={device}) * {step} + {first}) % {n}).reshape({})",
                tuple(shape)
            );
            let at = (0..count).map(|i| (i * step + first) % n).collect();
            return Some(Positions { text, at, views: Vec::new() });
        }
        let at: Vec<usize> = (0..count).map(|_| self.draw.below(n)).collect();
        let text = format!("tensor({at:?}, device={device}).reshape({})", tuple(shape));
        Some(Positions { text, at, views: Vec::new() })
    }

    /// The result of an expression that reads these tensors.
    fn bind_value(&mut self, like: &View, views: &[View], text: &str, made: (Dtype, Vec<usize>, Vec<Val>)) {
        let place = self.place(like);
        let agent = self.agent(place);
        let place = if place == Place::Pinned { Place::Host } else { place };
        let touches: Vec<(&View, bool)> = views.iter().map(|view| (view, false)).collect();
        // Reads of dead work are not certain races.
        self.note(agent, None, &touches, !made.2.is_empty());
        self.bind(agent, place, text, made, false);
    }

    /// A padded tensor.
    pub(super) fn pad(&mut self) -> Option<()> {
        let var = self.some_var()?;
        let source = self.inline(&var, true);
        let Inline { dtype, ref shape, .. } = source;
        let rank = shape.len();
        if rank == 0 {
            return None;
        }
        let mode = *self.draw.of(&["constant", "constant", "reflect", "replicate", "circular"]);
        if dtype.is_complex() && mode != "constant" {
            return None;
        }
        let dims = 1 + self.draw.below(rank.min(if mode == "constant" { 3 } else { 2 }));
        let (mut sizes, mut to, mut text) = (vec![[0i64; 2]; rank], shape.clone(), Vec::new());
        for d in (rank - dims..rank).rev() {
            let n = shape[d] as i64;
            for side in &mut sizes[d] {
                *side = match mode {
                    "constant" if self.draw.once_in(6) && n > 1 => -(self.draw.below(2) as i64),
                    "constant" => self.draw.below(4) as i64,
                    "reflect" => self.draw.below(n.clamp(1, 4) as usize) as i64,
                    "circular" => self.draw.below(n.min(3) as usize + 1) as i64,
                    _ => self.draw.below(4) as i64,
                };
            }
            let whole = n + sizes[d][0] + sizes[d][1];
            if whole < 0 || mode != "constant" && n == 0 {
                return None;
            }
            to[d] = whole as usize;
            text.push(format!("{}, {}", sizes[d][0], sizes[d][1]));
        }
        let (value, number) = self.number(dtype);
        let zero = if dtype.is_float() || dtype.is_complex() { float(0.0) } else { int(0) };
        let (value, number) = match dtype.is_complex() || self.draw.once_in(3) {
            true => (zero, String::new()),
            false => (value, format!(", value={number}")),
        };
        let own = |d: usize, i: usize| {
            let (at, n) = (i as i64 - sizes[d][0], shape[d] as i64);
            match mode {
                _ if (0..n).contains(&at) => Some(at as usize),
                "constant" => None,
                "reflect" => Some(if at < 0 { -at } else { 2 * (n - 1) - at } as usize),
                "circular" => Some(at.rem_euclid(n) as usize),
                _ => Some(at.clamp(0, n - 1) as usize),
            }
        };
        let element = |index: &Vec<usize>| {
            let from: Option<Vec<usize>> = index.iter().enumerate().map(|(d, &i)| own(d, i)).collect();
            from.map_or(value, |from| source.elements[ordinal(&from, shape)])
        };
        let elements = indices(&to).iter().map(element).collect();
        let more = if mode == "constant" { number } else { format!(", mode=\"{mode}\"") };
        let text = format!("pad({}, [{}]{more})", source.text, text.join(", "));
        self.bind_value(&var.view, &source.views, &text, (dtype, to, elements));
        Some(())
    }

    /// Elements at positions.
    pub(super) fn gather(&mut self) -> Option<()> {
        let var = self.some_var()?;
        let source = self.inline(&var, true);
        let (text, shape, elements, views) = self.gathered(&var.view, &source)?;
        let views = [&source.views[..], &views].concat();
        self.bind_value(&var.view, &views, &text, (source.dtype, shape, elements));
        Some(())
    }

    fn gathered(&mut self, like: &View, source: &Inline) -> Option<Taken> {
        let Inline { text, shape, elements, .. } = source;
        let rank = shape.len();
        let kind = self.draw.below(6);
        let small = |generator: &mut Generator| 1 + generator.draw.below(4);
        if rank == 0 || kind == 0 {
            let to: Vec<usize> = (0..1 + self.draw.below(2)).map(|_| small(self)).collect();
            let ids = self.positions(like, elements.len(), &to)?;
            let made = ids.at.iter().map(|&at| elements[at]).collect();
            return Some((format!("{text}.take({})", ids.text), to, made, ids.views));
        }
        let d = self.draw.below(rank);
        if kind < 3 {
            let mut to = shape.clone();
            for (e, n) in to.iter_mut().enumerate() {
                *n = if e == d { small(self) } else { *n - self.draw.below(2).min(*n) };
            }
            let ids = self.positions(like, shape[d], &to)?;
            let made = picked(elements, shape, &to, |i| with(i, d, ids.at[ordinal(i, &to)]));
            return Some((format!("{text}.gather({d}, {})", ids.text), to, made, ids.views));
        }
        let own: Vec<usize> =
            (0..1 + usize::from(kind > 3) * self.draw.below(2)).map(|_| small(self)).collect();
        let ids = self.positions(like, shape[d], &own)?;
        let to = [&shape[..d], &own, &shape[d + 1..]].concat();
        let k = own.len();
        let made = picked(elements, shape, &to, |i| {
            [&i[..d], &[ids.at[ordinal(&i[d..d + k], &own)]], &i[d + k..]].concat()
        });
        let text = match kind {
            3 => format!("{text}.index_select({d}, {})", ids.text),
            4 if rank == 2 && d == 0 && source.dtype.is_float() => format!("embedding({}, {text})", ids.text),
            _ => format!("{text}[{}{}]", ".., ".repeat(d), ids.text),
        };
        Some((text, to, made, ids.views))
    }

    /// A value with this dtype and shape for a scatter.
    fn source(&mut self, like: &View, dtype: Dtype, shape: &[usize]) -> Option<Inline> {
        let count: usize = shape.iter().product();
        let list = shape.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
        if self.draw.once_in(3) {
            // Rows of another tensor.
            let place = self.place(like);
            let fits = |var: &&Var| {
                let view = &var.view;
                self.place(view) == place
                    && view.dtype == dtype
                    && view.shape.len() == shape.len()
                    && view.shape.first().is_some_and(|&n| n > 0)
                    && view.shape[1..] == shape[1..]
            };
            let fits: Vec<Var> = self.vars.iter().filter(fits).cloned().collect();
            if !fits.is_empty() {
                let var = self.draw.of(&fits).clone();
                let of = self.inline(&var, false);
                let ids = self.positions(like, of.shape[0], &shape[..1])?;
                let from = |i: &[usize]| [&[ids.at[i[0]]], &i[1..]].concat();
                let elements = picked(&of.elements, &of.shape, shape, from);
                let times = self.draw.once_in(2) && dtype != Dtype::Bool;
                let doubled = |x: &Val| binary("+", dtype, *x, *x);
                let elements =
                    if times { elements.iter().map(doubled).collect::<Option<_>>()? } else { elements };
                let text = format!("{}[{}]", of.text, ids.text);
                let text = if times { format!("({text} * 2)") } else { text };
                let views = [&of.views[..], &ids.views].concat();
                return Some(Inline { text, dtype, shape: shape.to_vec(), elements, views, is_new: true });
            }
        }
        if let Some((name, view)) = self.partner(like, dtype, shape) {
            let var = self.vars.iter().find(|var| var.name == name && var.view == view)?.clone();
            let of = self.inline(&var, false);
            let wide = picked(&of.elements, &of.shape, shape, |i| {
                let own = &i[i.len() - of.shape.len()..];
                own.iter().zip(&of.shape).map(|(&i, &n)| if n == 1 { 0 } else { i }).collect()
            });
            let wider = if of.shape == shape { String::new() } else { format!(".expand({list})") };
            let text = format!("{}{wider}", of.text);
            return Some(Inline { text, shape: shape.to_vec(), elements: wide, ..of });
        }
        let (value, number) = self.stored_number(dtype);
        let text = format!(
            "full({}, {number}, dtype={}, device={})",
            tuple(shape),
            dtype.name(),
            self.device_of(like)
        );
        let elements = vec![value; count];
        Some(Inline { text, dtype, shape: shape.to_vec(), elements, views: Vec::new(), is_new: true })
    }

    /// Values written to positions.
    pub(super) fn scatter(&mut self) -> Option<()> {
        let var = self.some_var()?;
        let (mut name, mut target) = (var.name.clone(), var.view.clone());
        if self.draw.once_in(3) {
            let (suffix, view) = self.view_of(&var)?;
            (name, target) = (seen(&name, &suffix), view);
        }
        let place = self.place(&target);
        if target.overlaps_itself() || place == Place::Pinned {
            return None;
        }
        let (dtype, shape) = (target.dtype, target.shape.clone());
        let rank = shape.len();
        let kind = self.draw.below(9);
        if rank == 0 || shape.contains(&0) {
            return None;
        }
        let d = self.draw.below(rank);
        let small = 1 + self.draw.below(5);
        // The arguments after the target, and for each written element its position in the target.
        let (call, ids, to, combine, ends): (&str, Positions, Vec<usize>, Combine, String) = match kind {
            0 | 1 => {
                let ids = self.positions(&target, shape[d], &[small])?;
                let to = with(&shape, d, small);
                let at = |i: &Vec<usize>| ordinal(&with(i, d, ids.at[i[d]]), &shape);
                let ids = Positions { at: indices(&to).iter().map(at).collect(), ..ids };
                match kind {
                    0 => ("index_add", ids, to, Combine::Sum, String::new()),
                    _ => ("index_copy", ids, to, Combine::Last, String::new()),
                }
            }
            2..=5 => {
                let mut to = shape.clone();
                for (e, n) in to.iter_mut().enumerate() {
                    *n = if e == d { small } else { (*n - self.draw.below(2)).max(1) };
                }
                let ids = self.positions(&target, shape[d], &to)?;
                let at = |i: &Vec<usize>| ordinal(&with(i, d, ids.at[ordinal(i, &to)]), &shape);
                let ids = Positions { at: indices(&to).iter().map(at).collect(), ..ids };
                let (mode, reduce) = *self.draw.of(&[
                    (Combine::Sum, "sum"),
                    (Combine::Most, "amax"),
                    (Combine::Least, "amin"),
                    (Combine::Product, "prod"),
                ]);
                match kind {
                    2 => ("scatter", ids, to, Combine::Last, String::new()),
                    3 => ("scatter_add", ids, to, Combine::Sum, String::new()),
                    _ => ("scatter_reduce", ids, to, mode, format!(", \"{reduce}\"")),
                }
            }
            6 => {
                let own = [small];
                let ids = self.positions(&target, shape.iter().product(), &own)?;
                match self.draw.once_in(2) {
                    true => ("put", ids, own.to_vec(), Combine::Last, String::new()),
                    false => ("put", ids, own.to_vec(), Combine::Sum, ", accumulate=true".into()),
                }
            }
            _ => {
                let ids = self.positions(&target, shape[0], &[small])?;
                let to = with(&shape, 0, small);
                let at = |i: &Vec<usize>| ordinal(&with(i, 0, ids.at[i[0]]), &shape);
                let ids = Positions { at: indices(&to).iter().map(at).collect(), ..ids };
                match self.draw.below(3) {
                    0 => ("index_put", ids, to, Combine::Last, String::new()),
                    1 => ("index_put", ids, to, Combine::Sum, ", accumulate=true".into()),
                    _ => ("[]", ids, to, Combine::Last, String::new()),
                }
            }
        };
        let is_least = matches!(combine, Combine::Most | Combine::Least | Combine::Product);
        if is_least && dtype.is_complex() || combine != Combine::Last && dtype == Dtype::Bool {
            return None;
        }
        let value = self.source(&target, dtype, &to)?;
        if !value.is_new && value.views.iter().any(|view| view.storage == target.storage) {
            return None;
        }
        let old = self.memory.read(&target);
        let mut given: Vec<Vec<Val>> = old.iter().map(|&x| vec![x]).collect();
        for (&at, &x) in ids.at.iter().zip(&value.elements) {
            given[at].push(x);
        }
        let made: Vec<Val> = given.iter().map(|all| combined(combine, dtype, all)).collect::<Option<_>>()?;
        let args = match call {
            "index_add" | "index_copy" | "scatter" | "scatter_add" | "scatter_reduce" => {
                format!("{d}, {}, {}{ends}", ids.text, value.text)
            }
            "put" => format!("{}, {}{ends}", ids.text, value.text),
            _ => format!("[{}], {}{ends}", ids.text, value.text),
        };
        let views = [&value.views[..], &ids.views].concat();
        if self.draw.once_in(4) && call != "[]" {
            let text = format!("{name}.{call}({args})");
            let views = [&views[..], std::slice::from_ref(&target)].concat();
            self.bind_value(&target, &views, &text, (dtype, shape, made));
            return Some(());
        }
        let agent = self.agent(place);
        let mut touches: Vec<(&View, bool)> = views.iter().map(|view| (view, false)).collect();
        touches.push((&target, true));
        self.note(agent, None, &touches, true);
        self.memory.write(&target, &made);
        match call {
            "[]" => self.statement(agent, &format!("{name}[{}] = {}", ids.text, value.text)),
            _ => self.statement(agent, &format!("{name}.{call}_({args})")),
        }
        Some(())
    }
}

/// An element that every function over the dtype accepts.
fn one(dtype: Dtype) -> Val {
    if dtype.is_float() || dtype.is_complex() { float(1.0) } else { int(1) }
}

/// The old value and those written to it; `None` where the result depends on the order.
fn combined(combine: Combine, dtype: Dtype, all: &[Val]) -> Option<Val> {
    let more = |larger: bool| {
        all.iter().copied().reduce(|a, b| {
            let is_more = if dtype.is_float() { b[0].f() > a[0].f() } else { b[0].i() > a[0].i() };
            if is_more == larger { b } else { a }
        })
    };
    match combine {
        Combine::Last => all.last().copied(),
        _ if all.len() == 1 => all.first().copied(),
        Combine::Sum => {
            let total = sum(dtype, all)?.1;
            Some(if dtype.is_int() { int(wrapped(dtype, total[0].i())) } else { total })
        }
        Combine::Most => more(true),
        Combine::Least => more(false),
        Combine::Product => product(dtype, all),
    }
}

/// The product of elements; `None` where it is rounded.
pub(super) fn product(dtype: Dtype, all: &[Val]) -> Option<Val> {
    if dtype.is_int() || dtype == Dtype::Bool {
        return Some(int(wrapped(dtype, all.iter().fold(1i64, |product, x| product.wrapping_mul(x[0].i())))));
    }
    let is_exact = all.iter().all(|x| x[0].f().trunc() == x[0].f());
    let most: f64 = all.iter().map(|x| x[0].f().abs().max(1.0)).product();
    (is_exact && most <= dtype.exact().min(30_000.0))
        .then(|| [Num::F(all.iter().map(|x| x[0].f()).product()), Num::F(0.0)])
}
