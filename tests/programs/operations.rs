//! Operations of random programs: new results, writes in place, copies between devices.

use super::generate::{Generator, Place, Var, seen};
use super::model::{DTYPES, Dtype, Val, View, binary, compared, converted, float, indices, int, sum, unary};
use super::order::HOST;

/// Every element, or nothing.
fn all(elements: impl Iterator<Item = Option<Val>>) -> Option<Vec<Val>> {
    elements.collect()
}

/// An element that every function over the dtype accepts.
fn one(dtype: Dtype) -> Val {
    if dtype.is_float() || dtype.is_complex() { float(1.0) } else { int(1) }
}

impl Generator {
    /// Another tensor on the device of `view` that broadcasts to its shape: its name, possibly with an index.
    pub(super) fn partner(&mut self, view: &View, dtype: Dtype, shape: &[usize]) -> Option<(String, View)> {
        let place = self.place(view);
        let fits: Vec<Var> = (self.vars.iter())
            .filter(|var| self.place(&var.view) == place && var.view.dtype == dtype)
            .filter(|var| var.view.broadcast(shape).is_some())
            .cloned()
            .collect();
        if fits.is_empty() {
            return None;
        }
        let var = self.draw.of(&fits).clone();
        Some((var.name, var.view))
    }

    fn elementwise(&mut self) -> Option<()> {
        let var = self.some_var()?;
        let (dtype, shape) = (var.view.dtype, var.view.shape.clone());
        let place = self.place(&var.view);
        let x = self.memory.read(&var.view);
        let name = &var.name;
        let agent = self.agent(place);
        let place = if place == Place::Pinned { Place::Host } else { place };
        let kind = self.draw.below(10);
        if kind < 2 {
            let f = *self.draw.of(&["neg", "abs", "relu", "square", "logical_not"]);
            unary(f, dtype, one(dtype))?;
            let made = all(x.iter().map(|&x| unary(f, dtype, x)))?;
            let to = if f == "logical_not" { Dtype::Bool } else { dtype };
            self.note(agent, None, &[(&var.view, false)], true);
            self.bind(agent, place, &format!("{f}({name})"), (to, shape, made), false);
            return Some(());
        }
        if kind == 2 {
            let to = *self.draw.of(&DTYPES);
            converted(dtype, to, one(dtype))?;
            let made = all(x.iter().map(|&x| converted(dtype, to, x)))?;
            self.note(agent, None, &[(&var.view, false)], true);
            // Without a new dtype `to` gives the tensor itself.
            let text = match to == dtype {
                true => format!("{name}.clone()"),
                false => format!("{name}.to({})", to.name()),
            };
            self.bind(agent, place, &text, (to, shape, made), false);
            return Some(());
        }
        let other = match self.draw.once_in(3) {
            true => None,
            false => self.partner(&var.view, dtype, &shape),
        };
        let (text, y, second) = match other {
            Some((name, view)) => (name, self.memory.read(&view.broadcast(&shape)?), Some(view)),
            None => {
                let (value, text) = self.number(dtype);
                (text, vec![value; x.len()], None)
            }
        };
        let mut touches = vec![(&var.view, false)];
        touches.extend(second.as_ref().map(|view| (view, false)));
        let pairs = || x.iter().zip(&y);
        match kind {
            3..=6 => {
                let f = *self.draw.of(&["+", "-", "*", "&", "|", "^", "maximum", "minimum"]);
                let is_call = f.len() > 1;
                if is_call && second.is_none() {
                    return None;
                }
                binary(f, dtype, one(dtype), one(dtype))?;
                let made = all(pairs().map(|(&a, &b)| binary(f, dtype, a, b)))?;
                self.note(agent, None, &touches, !x.is_empty());
                let text =
                    if is_call { format!("{f}({name}, {text})") } else { format!("{name} {f} {text}") };
                self.bind(agent, place, &text, (dtype, shape, made), false);
            }
            7 => {
                let f = *self.draw.of(&["==", "<", ">="]);
                if dtype == Dtype::Bool || dtype.is_complex() && second.is_none() {
                    return None;
                }
                compared(f, dtype, one(dtype), one(dtype))?;
                let made = all(pairs().map(|(&a, &b)| compared(f, dtype, a, b)))?;
                self.note(agent, None, &touches, !x.is_empty());
                self.bind(agent, place, &format!("{name} {f} {text}"), (Dtype::Bool, shape, made), false);
            }
            _ => {
                second.as_ref()?;
                let (mask_name, mask) = self.partner(&var.view, Dtype::Bool, &shape)?;
                let chosen = self.memory.read(&mask.broadcast(&shape)?);
                let made =
                    pairs().zip(&chosen).map(|((&a, &b), c)| if c[0].i() != 0 { a } else { b }).collect();
                touches.push((&mask, false));
                self.note(agent, None, &touches, !x.is_empty());
                let text = format!("where({mask_name}, {name}, {text})");
                self.bind(agent, place, &text, (dtype, shape, made), false);
            }
        }
        Some(())
    }

    /// Reductions, scans, joins, moves.
    fn other(&mut self) -> Option<()> {
        let var = self.some_var()?;
        let view = &var.view;
        let (dtype, shape, name) = (view.dtype, view.shape.clone(), &var.name);
        let place = self.place(view);
        let agent = self.agent(place);
        let place = if place == Place::Pinned { Place::Host } else { place };
        let rank = shape.len();
        let kind = self.draw.below(10);
        if kind == 0 || rank == 0 {
            let (to, total) = sum(dtype, &self.memory.read(view))?;
            self.note(agent, None, &[(view, false)], true);
            self.bind(agent, place, &format!("{name}.sum()"), (to, Vec::new(), vec![total]), true);
            return Some(());
        }
        let d = self.draw.below(rank);
        let n = shape[d];
        let memory = &self.memory;
        // Each row along the dimension, by the index without it.
        let without: Vec<usize> = [&shape[..d], &shape[d + 1..]].concat();
        let row =
            |index: &[usize]| memory.read(&view.chosen(&[n], |i| [&index[..d], i, &index[d..]].concat()));
        let rows: Vec<Vec<Val>> = indices(&without).iter().map(|index| row(index)).collect();
        // The elements of a result with `m` along the dimension.
        let along = |m: usize, rows: &[Vec<Val>]| -> Vec<Val> {
            let mut to = shape.clone();
            to[d] = m;
            let place = |i: &[usize]| {
                let index = [&i[..d], &i[d + 1..]].concat();
                index.iter().zip(&without).fold(0, |at, (i, n)| at * n + i)
            };
            indices(&to).iter().map(|i| rows[place(i)][i[d]]).collect()
        };
        let with = |m: usize| {
            let mut to = shape.clone();
            to[d] = m;
            to
        };
        let (text, made, second) = match kind {
            1 | 2 => {
                let sums: Option<Vec<(Dtype, Val)>> = rows.iter().map(|row| sum(dtype, row)).collect();
                let sums = sums?;
                let to = sums.first().map_or_else(|| sum(dtype, &[]).map(|s| s.0), |s| Some(s.0))?;
                let made = (to, without.clone(), sums.iter().map(|s| s.1).collect::<Vec<_>>());
                (format!("{name}.sum({d})"), made, None)
            }
            3 => {
                if n == 0 || dtype.is_complex() || dtype == Dtype::Bool {
                    return None;
                }
                let most = |row: &Vec<Val>| {
                    row.iter().copied().reduce(|a, b| {
                        let larger = if dtype.is_float() { b[0].f() > a[0].f() } else { b[0].i() > a[0].i() };
                        if larger { b } else { a }
                    })
                };
                (format!("{name}.amax({d})"), (dtype, without.clone(), all(rows.iter().map(most))?), None)
            }
            4 | 5 => {
                let mut to = sum(dtype, &[])?.0;
                let mut scanned = Vec::new();
                for row in &rows {
                    let sums: Option<Vec<(Dtype, Val)>> = (1..=n).map(|m| sum(dtype, &row[..m])).collect();
                    let sums = sums?;
                    to = sums.first().map_or(to, |s| s.0);
                    scanned.push(sums.iter().map(|s| s.1).collect());
                }
                // A complex number has no order to scan in.
                if dtype.is_complex() {
                    return None;
                }
                (format!("{name}.cumsum({d})"), (to, shape.clone(), along(n, &scanned)), None)
            }
            6 => {
                let turned: Vec<Vec<Val>> =
                    rows.iter().map(|row| row.iter().rev().copied().collect()).collect();
                (format!("{name}.flip({d})"), (dtype, shape.clone(), along(n, &turned)), None)
            }
            7 => {
                let by = self.draw.below(9) as i64 - 4;
                let rolled = |row: &Vec<Val>| {
                    let from = |i: usize| (i as i64 - by).rem_euclid(n as i64) as usize;
                    (0..n).map(|i| row[from(i)]).collect()
                };
                let rolled: Vec<Vec<Val>> = rows.iter().map(rolled).collect();
                (format!("{name}.roll({by}, {d})"), (dtype, shape.clone(), along(n, &rolled)), None)
            }
            8 => {
                if n == 0 {
                    return None;
                }
                let picks: Vec<usize> = (0..1 + self.draw.below(3)).map(|_| self.draw.below(n)).collect();
                let chosen: Vec<Vec<Val>> =
                    rows.iter().map(|row| picks.iter().map(|&at| row[at]).collect()).collect();
                let text = format!("{}[{}{picks:?}]", name, ".., ".repeat(d));
                (text, (dtype, with(picks.len()), along(picks.len(), &chosen)), None)
            }
            _ => {
                let near = |other: &&Var| {
                    let shape = &other.view.shape;
                    self.place(&other.view) == self.place(view)
                        && other.view.dtype == dtype
                        && shape.len() == rank
                        && (0..rank).all(|i| i == d || shape[i] == var.view.shape[i])
                };
                let fits: Vec<Var> = self.vars.iter().filter(near).cloned().collect();
                if fits.is_empty() {
                    return None;
                }
                let other = fits[self.draw.below(fits.len())].clone();
                let m = other.view.shape[d];
                let more = indices(&without)
                    .into_iter()
                    .map(|index| memory_of(&self.memory, &other.view, m, d, &index));
                let joined: Vec<Vec<Val>> =
                    rows.iter().zip(more).map(|(row, more)| [&row[..], &more].concat()).collect();
                let text = format!("cat([{name}, {}], dim={d})", other.name);
                (text, (dtype, with(n + m), along(n + m, &joined)), Some(other.view))
            }
        };
        let mut touches = vec![(view, false)];
        touches.extend(second.as_ref().map(|view| (view, false)));
        // Reads of dead work are not certain races.
        self.note(agent, None, &touches, !made.2.is_empty());
        self.bind(agent, place, &text, made, false);
        Some(())
    }

    /// A write into a tensor or a part of it.
    fn in_place(&mut self) -> Option<()> {
        let var = self.some_var()?;
        let (mut text, mut target) = (var.name.clone(), var.view.clone());
        let mut index = None;
        if self.place(&target) != Place::Pinned && self.draw.once_in(2) {
            let (suffix, view) = self.view_of(&var)?;
            if suffix.starts_with('[') && self.draw.once_in(2) {
                index = Some(suffix);
            } else {
                text = seen(&text, &suffix);
            }
            target = view;
        }
        if target.overlaps_itself() {
            return None;
        }
        let (dtype, shape) = (target.dtype, target.shape.clone());
        let place = self.place(&target);
        let agent = self.agent(place);
        let x = self.memory.read(&target);
        // The written value: a number, or another tensor.
        let neighbour = match (self.draw.below(4), target.shape.first()) {
            (0, Some(&n)) if n >= 2 && index.is_none() => Some(n),
            _ => None,
        };
        if let Some(n) = neighbour {
            // A part of it, from another part that overlaps.
            let cut = |from: usize| {
                let shape = [&[n - 1], &shape[1..]].concat();
                target.chosen(&shape, |i| [&[i[0] + from], &i[1..]].concat())
            };
            let (to, from) = if self.draw.once_in(2) { (0, 1) } else { (1, 0) };
            let (view, source) = (cut(to), cut(from));
            let (a, b) = (self.memory.read(&view), self.memory.read(&source));
            let f = *self.draw.of(&["+", "*", "="]);
            if f != "=" && dtype == Dtype::Bool {
                return None;
            }
            let made = match f {
                "=" => b,
                f => all(a.iter().zip(&b).map(|(&a, &b)| binary(f, dtype, a, b)))?,
            };
            let part = |from: usize| format!("[{from}..{}]", from + n - 1);
            let method = match f {
                "+" => "add_",
                "*" => "mul_",
                _ => "copy_",
            };
            self.note(agent, None, &[(&source, false), (&view, true)], true);
            self.memory.write(&view, &made);
            self.statement(agent, &format!("{text}{}.{method}({text}{})", part(to), part(from)));
            return Some(());
        }
        let kind = self.draw.below(8);
        let is_empty = target.count() == 0;
        if kind < 5 {
            // Another dtype is converted only in copies.
            let copies = index.is_some() || kind < 2;
            if dtype == Dtype::Bool && !copies {
                return None;
            }
            let from = if copies && self.draw.once_in(3) { *self.draw.of(&DTYPES) } else { dtype };
            let other = if self.draw.once_in(2) { self.partner(&target, from, &shape) } else { None };
            let (written, y, second) = match other {
                Some((_, view)) if view == target => return None,
                Some((name, view)) => {
                    converted(from, dtype, one(from))?;
                    let y = self.memory.read(&view.broadcast(&shape)?);
                    (name, all(y.into_iter().map(|y| converted(from, dtype, y)))?, Some(view))
                }
                None => {
                    let (value, text) = if copies { self.stored(dtype) } else { self.number(dtype) };
                    (text, vec![value; x.len()], None)
                }
            };
            let (method, made) = match kind {
                _ if copies => (if second.is_some() { "copy_" } else { "fill_" }, y),
                2 => ("add_", all(x.iter().zip(&y).map(|(&a, &b)| binary("+", dtype, a, b)))?),
                3 => ("sub_", all(x.iter().zip(&y).map(|(&a, &b)| binary("-", dtype, a, b)))?),
                _ => ("mul_", all(x.iter().zip(&y).map(|(&a, &b)| binary("*", dtype, a, b)))?),
            };
            let mut touches: Vec<(&View, bool)> = second.iter().map(|view| (view, false)).collect();
            touches.push((&target, true));
            // Reads of dead work are not certain races.
            self.note(agent, None, &touches, !is_empty);
            self.memory.write(&target, &made);
            match index {
                Some(index) => self.statement(agent, &format!("{text}{index} = {written}")),
                None => self.statement(agent, &format!("{text}.{method}({written})")),
            }
            return Some(());
        }
        let (value, number) = if kind < 7 { self.stored(dtype) } else { self.stored_number(dtype) };
        let text = text + &index.unwrap_or_default();
        if kind < 7 {
            let (mask_name, mask) = self.partner(&target, Dtype::Bool, &shape)?;
            if mask.storage == target.storage || dtype.is_complex() {
                return None;
            }
            let chosen = self.memory.read(&mask.broadcast(&shape)?);
            let made: Vec<Val> =
                x.iter().zip(&chosen).map(|(&x, c)| if c[0].i() != 0 { value } else { x }).collect();
            self.note(agent, None, &[(&mask, false), (&target, true)], !is_empty);
            self.memory.write(&target, &made);
            self.statement(agent, &format!("{text}.masked_fill_({mask_name}, {number})"));
            return Some(());
        }
        // Some rows.
        let &n = shape.first().filter(|&&n| n > 0 && !is_empty)?;
        if place == Place::Host || place == Place::Pinned {
            return None;
        }
        let at = self.draw.below(n);
        let rows = target.chosen(&[&[1], &shape[1..]].concat(), |i| [&[at], &i[1..]].concat());
        self.note(agent, None, &[(&target, true)], true);
        self.memory.write(&rows, &vec![value; rows.count()]);
        self.statement(agent, &format!("{text}.index_fill_(0, [{at}], {number})"));
        Some(())
    }

    /// A copy to another device, or to the host.
    fn transfer(&mut self) -> Option<()> {
        let var = self.some_var()?;
        let view = var.view.clone();
        let (dtype, shape, elements) = (view.dtype, view.shape.clone(), self.memory.read(&view));
        let made = (dtype, shape, elements);
        let name = &var.name;
        let place = self.place(&view);
        match place {
            Place::Host if self.draw.once_in(2) => {
                self.note(HOST, None, &[(&view, false)], true);
                self.bind(HOST, Place::Pinned, &format!("{name}.pin_memory()"), made, false);
            }
            Place::Host | Place::Pinned => {
                let agent = self.agent(Place::Device(0));
                let later = place == Place::Pinned && self.draw.once_in(2);
                if place == Place::Host && view.run().is_none() {
                    self.note(HOST, None, &[(&view, false)], false);
                }
                self.note(agent, None, &[(&view, false)], true);
                let text = format!("{name}.to(cuda:0, non_blocking={later})");
                self.bind(agent, Place::Device(0), &text, made, false);
                if !later {
                    self.host_waits(agent);
                }
            }
            Place::Device(device) => {
                let agent = self.agent(place);
                let other = 1 - device;
                if self.draw.once_in(2) && self.has_device(other) {
                    // The current stream of the other device is its default one.
                    let to = if other == 0 { 0 } else { 3 };
                    // A copy reads on its destination's stream, which waits for this one.
                    self.note(agent, None, &[(&view, false)], false);
                    self.wait_both(to, agent);
                    let text = format!("{name}.to(cuda:{other})");
                    self.bind_on(agent, to, Place::Device(other), &text, made);
                    self.wait_both(agent, to);
                    return Some(());
                }
                let later = self.draw.once_in(2);
                self.note(agent, None, &[(&view, false)], true);
                let text = format!("{name}.to(cpu, non_blocking={later})");
                let place = if later { Place::Pinned } else { Place::Host };
                self.bind(agent, place, &text, made, false);
                if !later {
                    self.host_waits(agent);
                }
            }
        }
        Some(())
    }

    pub(super) fn run_elementwise(&mut self) {
        let _ = self.elementwise();
    }

    pub(super) fn run_other(&mut self) {
        let _ = self.other();
    }

    pub(super) fn run_in_place(&mut self) {
        let _ = self.in_place();
    }

    pub(super) fn run_transfer(&mut self) {
        let _ = self.transfer();
    }
}

fn memory_of(memory: &super::model::Memory, view: &View, n: usize, d: usize, index: &[usize]) -> Vec<Val> {
    memory.read(&view.chosen(&[n], |i| [&index[..d], i, &index[d..]].concat()))
}
