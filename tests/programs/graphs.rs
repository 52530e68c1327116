//! Captured graphs of random programs: captured while values wait, replayed later.

use super::generate::{Generator, Place, STREAMS, Var};
use super::model::{Dtype, Memory, Val, View, binary, sum};
use std::rc::Rc;

/// What a captured statement does to the memory; `None` where the result is unspecified.
type Step = Rc<dyn Fn(&mut Memory) -> Option<()>>;

/// A captured statement: its text, what it does, and its accesses.
type Statement = (String, Step, Vec<(View, bool)>);

/// A captured graph.
#[derive(Clone)]
pub struct Captured {
    /// The text that replays it.
    text: String,
    steps: Vec<Step>,
    touches: Vec<(View, bool)>,
}

/// A function of `cuda.graphed`: its name, the shape and dtype of its argument, and what it computes of it.
#[derive(Clone)]
pub struct Function {
    name: String,
    shape: Vec<usize>,
    dtype: Dtype,
    f: &'static str,
    value: Val,
    other: Option<View>,
}

impl Function {
    /// Its result.
    fn of(&self, x: &[Val], memory: &Memory) -> Option<Vec<Val>> {
        let y = match &self.other {
            Some(view) => memory.read(&view.broadcast(&self.shape)?),
            None => vec![self.value; x.len()],
        };
        x.iter().zip(&y).map(|(&a, &b)| binary(self.f, self.dtype, a, b)).collect()
    }
}

impl Generator {
    /// A tensor that captured work may use.
    fn captured_var(&mut self) -> Option<Var> {
        self.some_var().filter(|var| self.place(&var.view) == Place::Device(0) && var.view.count() > 0)
    }

    /// A graph, or a replay of one.
    pub(super) fn graph(&mut self) -> Option<()> {
        let known = self.graphs.len() + self.functions.len();
        if known > 0 && !self.draw.once_in(3) {
            return match self.draw.below(known) {
                number if number < self.graphs.len() => self.replay(number),
                number => self.call(number - self.graphs.len()),
            };
        }
        if self.draw.once_in(2) { self.capture() } else { self.graphed() }
    }

    fn capture(&mut self) -> Option<()> {
        let (mut steps, mut touches, mut body) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..1 + self.draw.below(3) {
            let Some((text, step, more)) = self.step_of_graph() else { continue };
            body.push(text);
            steps.push(step);
            touches.extend(more);
        }
        if steps.is_empty() {
            return None;
        }
        let name = self.fresh_name();
        self.line(format!("let {name} = Graph()"));
        let body = body.join("; ");
        match self.draw.below(3) {
            0 => {
                // Nothing waits for the work before it.
                let stream = STREAMS[1 + self.draw.below(2)].0;
                self.line(format!(
                    "with stream({stream}) {{ {name}.capture_begin(); {body}; {name}.capture_end() }}"
                ));
            }
            _ => {
                self.line(format!("with graph({name}) {{ {body} }}"));
                self.device_waits(0);
            }
        }
        self.graphs.push(Captured { text: format!("{name}.replay()"), steps, touches });
        Some(())
    }

    /// A statement in a capture.
    fn step_of_graph(&mut self) -> Option<Statement> {
        let (var, from) = (self.captured_var()?, self.captured_var()?);
        let (target, source) = (var.view.clone(), from.view.clone());
        let (dtype, shape) = (target.dtype, target.shape.clone());
        if target.overlaps_itself() || source.dtype != dtype || dtype == Dtype::Bool {
            return None;
        }
        let touches = vec![(source.clone(), false), (target.clone(), true)];
        let f = *self.draw.of(&["+", "-", "*"]);
        let (name, other) = (&var.name, &from.name);
        if source.broadcast(&shape).is_some() && source != target {
            let wide = source.broadcast(&shape)?;
            let (value, number) = self.number(dtype);
            let is_copy = self.draw.once_in(2);
            let text = match is_copy {
                true => format!("{name}.copy_({other} {f} {number})"),
                false => {
                    let method = ["add_", "sub_", "mul_"][["+", "-", "*"].iter().position(|g| *g == f)?];
                    format!("{name}.{method}({other})")
                }
            };
            let step = move |memory: &mut Memory| {
                let (x, y) = (memory.read(&target), memory.read(&wide));
                let of = |(&x, &y): (&Val, &Val)| match is_copy {
                    true => binary(f, dtype, y, value),
                    false => binary(f, dtype, x, y),
                };
                let made = x.iter().zip(&y).map(of).collect::<Option<Vec<Val>>>()?;
                memory.write(&target, &made);
                Some(())
            };
            return Some((text, Rc::new(step), touches));
        }
        // A sum of everything.
        if sum(dtype, &[])?.0 != dtype {
            return None;
        }
        let text = format!("{name}.copy_({other}.sum())");
        let step = move |memory: &mut Memory| {
            let total = sum(dtype, &memory.read(&source))?.1;
            memory.write(&target, &vec![total; target.count()]);
            Some(())
        };
        Some((text, Rc::new(step), touches))
    }

    fn replay(&mut self, number: usize) -> Option<()> {
        let graph = self.graphs[number].clone();
        let mut memory = Memory { storages: self.memory.storages.clone() };
        graph.steps.iter().try_for_each(|step| step(&mut memory))?;
        let touches: Vec<(&View, bool)> = graph.touches.iter().map(|(view, write)| (view, *write)).collect();
        // Its memory is used by one stream.
        self.note(0, None, &touches, true);
        self.memory = memory;
        self.statement(0, &graph.text);
        Some(())
    }

    /// A function that replays a graph.
    fn graphed(&mut self) -> Option<()> {
        let var = self.captured_var()?;
        let (dtype, shape) = (var.view.dtype, var.view.shape.clone());
        let f = *self.draw.of(&["+", "-", "*"]);
        if dtype == Dtype::Bool {
            return None;
        }
        let (value, number) = self.number(dtype);
        let other = if self.draw.once_in(3) { None } else { self.partner(&var.view, dtype, &shape) };
        let (text, other) = match other {
            Some((name, view)) => (name, Some(view)),
            None => (number, None),
        };
        let name = self.fresh_name();
        let function = Function { name: name.clone(), shape, dtype, f, value, other };
        // The warm-up reads the other operand after a wait for the device.
        self.note(0, None, &[(&var.view, false)], false);
        self.line(format!("let {name} = cuda.graphed(|a| a {f} {text}, [{}], warmup=1)", var.name));
        self.device_waits(0);
        self.functions.push(function);
        Some(())
    }

    fn call(&mut self, number: usize) -> Option<()> {
        let function = self.functions[number].clone();
        let fits = |var: &&Var| {
            let view = &var.view;
            self.place(view) == Place::Device(0)
                && view.shape == function.shape
                && view.dtype == function.dtype
        };
        let fits: Vec<Var> = self.vars.iter().filter(fits).cloned().collect();
        if fits.is_empty() {
            return None;
        }
        let var = self.draw.of(&fits).clone();
        let made = function.of(&self.memory.read(&var.view), &self.memory)?;
        let mut touches = vec![(&var.view, false)];
        touches.extend(function.other.as_ref().map(|view| (view, false)));
        self.note(0, None, &touches, true);
        let text = format!("{}({}).clone()", function.name, var.name);
        self.bind(0, Place::Device(0), &text, (function.dtype, function.shape.clone(), made), true);
        Some(())
    }
}
