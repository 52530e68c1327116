//! Random programs with their expected output: each statement is generated and run in the model at once, so that the
//! next one can be chosen according to the current values.

use super::draw::Draw;
use super::graphs::{Captured, Function};
use super::model::{DTYPES, Dtype, Memory, Val, View, float, int};
use super::order::{Agent, HOST, Order};

/// Where a storage is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    Host,
    /// Page-locked: copies may run asynchronously.
    Pinned,
    Device(usize),
}

/// Streams by their numbers: names, and devices.
pub const STREAMS: [(&str, usize); 5] = [("d", 0), ("s", 0), ("t", 0), ("e", 1), ("u", 1)];

/// A program and its output.
pub struct Program {
    pub text: String,
    /// The output of each `print`: shape, dtype, elements.
    pub prints: Vec<(String, Dtype, Vec<usize>, Vec<Val>)>,
    /// The lines, from 1, at which a wait is certainly missing.
    pub races: Vec<usize>,
}

#[derive(Clone)]
pub(super) struct Var {
    pub name: String,
    pub view: View,
    /// Row-major over the whole storage, regardless of the strides that results keep.
    plain: bool,
}

pub struct Generator {
    pub(super) draw: Draw,
    lines: Vec<String>,
    prints: Vec<(String, Dtype, Vec<usize>, Vec<Val>)>,
    races: Vec<usize>,
    pub(super) memory: Memory,
    places: Vec<Place>,
    pub(super) vars: Vec<Var>,
    order: Order,
    events: Vec<(String, Agent, u128)>,
    named: usize,
    streams: usize,
    /// One wait in this many is left out; 0 for none.
    omit: usize,
    /// The next operation lacks a required wait.
    races_next: bool,
    /// The tensor that the next statements mostly use, and their stream.
    pub(super) focus: Option<(String, Agent)>,
    pub(super) graphs: Vec<Captured>,
    pub(super) functions: Vec<Function>,
}

/// The program of a seed, for this number of devices.
pub fn program(seed: u64, devices: usize) -> Program {
    let mut draw = Draw(seed ^ 0x005e_ed0f_9406_7a35);
    let omit = if draw.once_in(3) { 2 + draw.below(4) } else { 0 };
    let steps = 8 + draw.below(26);
    let streams = if devices > 1 && draw.once_in(3) { 5 } else { 3 };
    let mut generator = Generator {
        draw,
        lines: Vec::new(),
        prints: Vec::new(),
        races: Vec::new(),
        memory: Memory::default(),
        places: Vec::new(),
        vars: Vec::new(),
        order: Order::new(STREAMS.len()),
        events: Vec::new(),
        named: 0,
        streams,
        omit,
        races_next: false,
        focus: None,
        graphs: Vec::new(),
        functions: Vec::new(),
    };
    generator.line("let d = cuda.default_stream(0)".into());
    generator.line("let s = Stream(device=0)".into());
    generator.line("let t = Stream(device=0)".into());
    if streams == 5 {
        generator.line("let e = cuda.default_stream(1)".into());
        generator.line("let u = Stream(device=1)".into());
    }
    for _ in 0..2 {
        generator.factory();
    }
    while generator.lines.len() < steps && generator.order.len() < Order::MOST - 40 {
        generator.step();
    }
    generator.end()
}

impl Generator {
    pub(super) fn line(&mut self, text: String) {
        self.lines.push(text);
    }

    pub(super) fn fresh_name(&mut self) -> String {
        self.named += 1;
        format!("v{}", self.named)
    }

    pub(super) fn place(&self, view: &View) -> Place {
        self.places[view.storage]
    }

    /// A stream of a device, or the host.
    pub(super) fn agent(&mut self, place: Place) -> Agent {
        let Place::Device(device) = place else { return HOST };
        if let Some((_, agent)) = self.focus
            && agent != HOST
            && STREAMS[agent].1 == device
        {
            return agent;
        }
        let all: Vec<Agent> = (0..self.streams).filter(|&stream| STREAMS[stream].1 == device).collect();
        if self.draw.once_in(2) { all[0] } else { *self.draw.of(&all) }
    }

    /// Text that runs on a stream.
    fn on(&self, agent: Agent, text: &str) -> String {
        match agent {
            0 | HOST => text.to_string(),
            stream => format!("with stream({}) {{ {text} }}", STREAMS[stream].0),
        }
    }

    /// Emits the waits that these accesses need, or leaves them out on purpose; then records the accesses.
    pub(super) fn note(
        &mut self,
        agent: Agent,
        also: Option<Agent>,
        touches: &[(&View, bool)],
        may_omit: bool,
    ) {
        let needs = self.order.needs(agent, also, touches);
        if self.omit > 0 && needs.certain && may_omit && self.draw.once_in(self.omit) {
            self.races_next = true;
        } else {
            for other in needs.waits {
                self.wait(agent, other);
            }
        }
        self.order.run(agent, touches, may_omit);
    }

    /// Orders an agent after a stream, by a random kind of wait.
    fn wait(&mut self, agent: Agent, other: Agent) {
        let other_name = STREAMS[other].0;
        if agent == HOST || self.draw.once_in(5) {
            match self.draw.below(3) {
                0 => {
                    self.line(format!("{other_name}.synchronize()"));
                    self.order.synchronize(other);
                }
                1 => self.synchronize(STREAMS[other].1),
                _ => {
                    self.line(format!("{other_name}.record_event().synchronize()"));
                    let event = self.order.event(other);
                    self.order.wait_event(HOST, event);
                }
            }
            return;
        }
        let name = STREAMS[agent].0;
        if self.draw.once_in(2) {
            self.line(format!("{name}.wait_stream({other_name})"));
            self.order.wait_stream(agent, other);
        } else {
            self.line(format!("{name}.wait_event({other_name}.record_event())"));
            let event = self.order.event(other);
            self.order.wait_event(agent, event);
        }
    }

    pub(super) fn has_device(&self, device: usize) -> bool {
        device == 0 || self.streams == 5
    }

    /// A new tensor on another device, written by a stream there.
    pub(super) fn bind_on(
        &mut self,
        agent: Agent,
        writer: Agent,
        place: Place,
        text: &str,
        made: (Dtype, Vec<usize>, Vec<Val>),
    ) {
        let text = self.on(agent, text);
        self.bind(writer, place, &text, made, false);
    }

    /// The host waits for a device.
    fn synchronize(&mut self, device: usize) {
        self.line(format!("cuda.synchronize({device})"));
        self.device_waits(device);
    }

    /// The host has waited for a device.
    pub(super) fn device_waits(&mut self, device: usize) {
        (0..self.streams)
            .filter(|&stream| STREAMS[stream].1 == device)
            .for_each(|s| self.order.synchronize(s));
    }

    pub(super) fn wait_both(&mut self, stream: Agent, other: Agent) {
        self.order.wait_stream(stream, other);
    }

    pub(super) fn host_waits(&mut self, stream: Agent) {
        self.order.synchronize(stream);
    }

    /// A new tensor with a name.
    pub(super) fn bind(
        &mut self,
        agent: Agent,
        place: Place,
        text: &str,
        made: (Dtype, Vec<usize>, Vec<Val>),
        plain: bool,
    ) {
        let view = self.memory.make(made.0, &made.1, &made.2);
        self.places.push(place);
        self.order_write(agent, &view);
        let name = self.fresh_name();
        let text = self.on(agent, text);
        self.operation(format!("let {name} = {text}"));
        self.vars.push(Var { name, view, plain });
    }

    fn order_write(&mut self, agent: Agent, view: &View) {
        // Recording an operation twice does not change any order.
        self.order.run(agent, &[(view, true)], true);
    }

    pub(super) fn statement(&mut self, agent: Agent, text: &str) {
        let text = self.on(agent, text);
        self.operation(text);
    }

    fn operation(&mut self, text: String) {
        self.line(text);
        if std::mem::take(&mut self.races_next) {
            self.races.push(self.lines.len());
        }
    }

    pub(super) fn some_var(&mut self) -> Option<Var> {
        let count = self.vars.len();
        if count == 0 {
            return None;
        }
        if let Some((name, _)) = &self.focus
            && let Some(var) = self.vars.iter().find(|var| var.name == *name).cloned()
            && !self.draw.once_in(3)
        {
            return Some(var);
        }
        // Newer ones are more likely, which makes chains.
        let at = if self.draw.once_in(2) {
            count - 1 - self.draw.below(count.min(3))
        } else {
            self.draw.below(count)
        };
        Some(self.vars[at].clone())
    }

    /// A number that the dtype represents exactly, and its text.
    pub(super) fn number(&mut self, dtype: Dtype) -> (Val, String) {
        if dtype == Dtype::Bool {
            let truth = self.draw.once_in(2);
            return (int(i64::from(truth)), truth.to_string());
        }
        if dtype.is_int() {
            let i = self.draw.below(if dtype == Dtype::U8 { 6 } else { 9 }) as i64;
            let i = if dtype == Dtype::U8 { i } else { i - 3 };
            return (int(i), i.to_string());
        }
        let f = (self.draw.below(17) as f64 - 6.0) / if self.draw.once_in(4) { 2.0 } else { 1.0 };
        let f = if self.draw.once_in(2) { f.trunc() } else { f };
        (float(f), format!("{f:?}"))
    }

    /// A number to store, or an element beyond the dtype, which wraps to the value.
    pub(super) fn stored(&mut self, dtype: Dtype) -> (Val, String) {
        let (value, text) = self.stored_number(dtype);
        let turn: i64 = match dtype {
            Dtype::U8 | Dtype::I8 => 1 << 8,
            Dtype::I16 => 1 << 16,
            Dtype::I32 => 1 << 32,
            _ => return (value, text),
        };
        let element = |wide: i64| (value, format!("tensor({wide}, device=cpu)"));
        match self.draw.below(6) {
            0 => element(value[0].i() + turn),
            1 => element(value[0].i() - 2 * turn),
            _ => (value, text),
        }
    }

    /// A number to store. Negative numbers stand for those modulo 256 in `u8`.
    pub(super) fn stored_number(&mut self, dtype: Dtype) -> (Val, String) {
        let (value, text) = self.number(dtype);
        match dtype {
            Dtype::U8 if value[0].i() > 0 && self.draw.once_in(3) => {
                (value, (value[0].i() - 256).to_string())
            }
            _ => (value, text),
        }
    }

    fn shape(&mut self) -> Vec<usize> {
        let rank = *self.draw.of(&[0, 1, 1, 1, 2, 2, 2, 3]);
        let empty = self.draw.once_in(8);
        let mut shape: Vec<usize> = (0..rank).map(|_| *self.draw.of(&[1, 2, 3, 3, 4, 5])).collect();
        if empty && rank > 0 {
            let at = self.draw.below(rank);
            shape[at] = 0;
        }
        shape
    }

    /// A tensor of numbers.
    pub(super) fn factory(&mut self) {
        let dtype = *self.draw.of(&DTYPES);
        let shape = self.shape();
        let count: usize = shape.iter().product();
        let place = match self.draw.below(8) {
            0 => Place::Host,
            1 if self.streams == 5 => Place::Device(1),
            _ => Place::Device(0),
        };
        let agent = self.agent(place);
        let device = match place {
            Place::Device(device) => format!("cuda:{device}"),
            _ => "cpu".into(),
        };
        let list = |shape: &[usize]| shape.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
        let (size, ends) = (list(&shape), if shape.len() == 1 { "," } else { "" });
        let args = format!("dtype={}, device={device}", dtype.name());
        let (value, number) = self.stored_number(dtype);
        let (text, elements) = match self.draw.below(5) {
            0 => (format!("full(({size}{ends}), {number}, {args})"), vec![value; count]),
            1 => (
                format!(
                    "empty({}).fill_({number})",
                    [&size, &args].map(String::as_str).join(if size.is_empty() { "" } else { ", " })
                ),
                vec![value; count],
            ),
            2 | 3 if dtype != Dtype::Bool && count > 0 => {
                let first = self.draw.below(3) as i64;
                let all = (first..first + count as i64)
                    .map(|i| if dtype.is_int() { int(i) } else { float(i as f64) });
                let elements = all.collect();
                let range = match dtype.is_complex() {
                    true => format!(
                        "arange({first}, {}, device={device}).to({})",
                        first + count as i64,
                        dtype.name()
                    ),
                    false => format!("arange({first}, {}, {args})", first + count as i64),
                };
                (format!("{range}.reshape(({size}{ends}))"), elements)
            }
            _ if count > 0 && !dtype.is_complex() => {
                let drawn: Vec<(Val, String)> = (0..count).map(|_| self.number(dtype)).collect();
                let texts: Vec<&str> = drawn.iter().map(|(_, text)| &text[..]).collect();
                let text = format!("tensor([{}], {args}).reshape(({size}{ends}))", texts.join(", "));
                (text, drawn.iter().map(|(value, _)| *value).collect())
            }
            _ => (format!("full(({size}{ends}), {number}, {args})"), vec![value; count]),
        };
        let elements =
            elements.into_iter().map(|e: Val| [e[0], if dtype.is_complex() { float(0.0)[0] } else { e[1] }]);
        self.bind(agent, place, &text, (dtype, shape, elements.collect()), true);
    }

    fn step(&mut self) {
        if self.draw.once_in(5) {
            // Drop tensors so that memory is reused soon.
            self.drop_one();
        }
        match self.draw.below(30) {
            0 | 1 => self.factory(),
            2..=5 => self.view(),
            6..=8 => self.run_elementwise(),
            9 | 10 => self.run_other(),
            11..=15 => self.run_in_place(),
            16 => self.run_transfer(),
            17 => self.drop_one(),
            18 => self.print_one(),
            19 => self.event(),
            20 | 21 => drop(self.pad()),
            22 | 23 => drop(self.gather()),
            24..=26 => drop(self.scatter()),
            27 | 28 => drop(self.several()),
            _ => drop(self.graph()),
        }
    }

    fn drop_one(&mut self) {
        if self.vars.len() > 2 {
            let at = self.draw.below(self.vars.len());
            let var = self.vars.remove(at);
            self.line(format!("{} = none", var.name));
        }
    }

    pub(super) fn drop_named(&mut self, name: &str) {
        if self.vars.len() > 2
            && let Some(at) = self.vars.iter().position(|var| var.name == name)
        {
            self.vars.remove(at);
            self.line(format!("{name} = none"));
        }
    }

    fn event(&mut self) {
        match self.draw.below(3) {
            0 => {
                let stream = self.draw.below(self.streams);
                let name = format!("e{}", self.lines.len());
                self.line(format!("let {name} = {}.record_event()", STREAMS[stream].0));
                let event = self.order.event(stream);
                self.events.push((name, stream, event));
            }
            1 if !self.events.is_empty() => {
                let (name, _, event) = self.draw.of(&self.events).clone();
                let stream = self.draw.below(self.streams);
                self.line(format!("{}.wait_event({name})", STREAMS[stream].0));
                self.order.wait_event(stream, event);
            }
            2 => {
                let stream = self.draw.below(self.streams);
                let cycles = 1000 * (1 + self.draw.below(9));
                let text = self.on(stream, &format!("cuda.sleep({cycles})"));
                self.line(text);
            }
            _ => {}
        }
    }

    /// Prints a value in the middle of the program.
    fn print_one(&mut self) {
        let Some(var) = self.some_var() else { return };
        let place = self.place(&var.view);
        let agent = self.agent(place);
        self.note(agent, None, &[(&var.view, false)], true);
        let elements = self.memory.read(&var.view);
        self.prints.push((var.name.clone(), var.view.dtype, var.view.shape.clone(), elements));
        let what = listed(&var);
        self.statement(agent, &format!("print(\"{}\", {what})", var.name));
        // An empty tensor is read without a wait.
        if agent != HOST && var.view.count() > 0 {
            self.order.synchronize(agent);
        }
    }

    /// Waits for everything, and prints all tensors.
    fn end(mut self) -> Program {
        self.line("cuda.synchronize(0)".into());
        if self.streams == 5 {
            self.line("cuda.synchronize(1)".into());
        }
        for var in std::mem::take(&mut self.vars) {
            let elements = self.memory.read(&var.view);
            self.line(format!("print(\"{}\", {})", var.name, listed(&var)));
            self.prints.push((var.name, var.view.dtype, var.view.shape, elements));
        }
        Program { text: self.lines.join("\n") + "\n", prints: self.prints, races: self.races }
    }

    /// Another view of a tensor.
    fn view(&mut self) {
        let Some(var) = self.some_var() else { return };
        if self.place(&var.view) == Place::Pinned {
            return;
        }
        if let Some((suffix, view)) = self.view_of(&var) {
            let name = self.fresh_name();
            self.line(format!("let {name} = {}", seen(&var.name, &suffix)));
            self.vars.push(Var { name, view, plain: false });
        }
    }

    /// A view of a tensor, and the suffix that makes it.
    pub(super) fn view_of(&mut self, var: &Var) -> Option<(String, View)> {
        let view = &var.view;
        let rank = view.shape.len();
        let front = |d: usize| ".., ".repeat(d);
        if rank == 0 || self.draw.once_in(12) {
            return match self.draw.below(3) {
                0 => Some((
                    ".unsqueeze(0)".into(),
                    view.chosen(&[&[1], &view.shape[..]].concat(), |i| i[1..].to_vec()),
                )),
                1 if view.dtype.is_complex() => {
                    let shape = [&view.shape[..], &[2]].concat();
                    let places = view.numbers();
                    Some((REAL.into(), View { dtype: view.dtype.real(), shape, places, ..view.clone() }))
                }
                1 if var.plain && view.count() > 0 => {
                    Some((".view(-1)".into(), View { shape: vec![view.count()], ..view.clone() }))
                }
                2 => {
                    let n = self.draw.below(4);
                    let shape = [&[n], &view.shape[..]].concat();
                    let text = shape.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
                    Some((format!(".expand({text})"), view.broadcast(&shape)?))
                }
                _ => None,
            };
        }
        let d = self.draw.below(rank);
        let n = view.shape[d];
        let cut = |start: usize, count: usize, step: usize| {
            let mut shape = view.shape.clone();
            shape[d] = count;
            view.chosen(&shape, |i| {
                let mut own = i.to_vec();
                own[d] = start + i[d] * step;
                own
            })
        };
        match self.draw.below(12) {
            0..=3 => {
                let (a, b) = (self.draw.below(n + 1), self.draw.below(n + 1));
                let (a, b) = (a.min(b), a.max(b));
                Some((format!("[{}{a}..{b}]", front(d)), cut(a, b - a, 1)))
            }
            4 => {
                // An empty range.
                let a = self.draw.below(n + 1);
                Some((format!("[{}{a}..{a}]", front(d)), cut(a, 0, 1)))
            }
            5 if n > 0 => {
                let a = self.draw.below(n);
                Some((format!("[{}{a}..{n} by 2]", front(d)), cut(a, (n - a).div_ceil(2), 2)))
            }
            6 if n > 0 => {
                let at = self.draw.below(n);
                let mut shape = view.shape.clone();
                shape.remove(d);
                let chosen = view.chosen(&shape, |i| [&i[..d], &[at], &i[d..]].concat());
                Some((format!("[{}{at}]", front(d)), chosen))
            }
            7 | 8 if rank > 1 => {
                let e = (d + 1) % rank;
                let mut shape = view.shape.clone();
                shape.swap(d, e);
                let chosen = view.chosen(&shape, |i| {
                    let mut own = i.to_vec();
                    own.swap(d, e);
                    own
                });
                Some((format!(".transpose({d}, {e})"), chosen))
            }
            9 if n >= 2 => {
                let size = 1 + self.draw.below(n - 1);
                let mut shape = view.shape.clone();
                shape[d] = n - size + 1;
                shape.push(size);
                let chosen = view.chosen(&shape, |i| {
                    let mut own = i[..rank].to_vec();
                    own[d] += i[rank];
                    own
                });
                Some((format!(".unfold({d}, {size}, 1)"), chosen))
            }
            10 if rank == 2 => {
                let n = view.shape[0].min(view.shape[1]);
                Some((".diagonal()".into(), view.chosen(&[n], |i| vec![i[0], i[0]])))
            }
            11 if view.dtype.is_complex() => {
                let part = self.draw.below(2);
                let places = view.places.iter().map(|place| place + part).collect();
                let text = [".real", ".imag"][part].to_string();
                Some((text, View { dtype: view.dtype.real(), places, ..view.clone() }))
            }
            _ => None,
        }
    }
}

/// A view made by a function, not a method.
const REAL: &str = "view_as_real";

/// The text of a view.
pub(super) fn seen(name: &str, suffix: &str) -> String {
    if suffix == REAL { format!("{REAL}({name})") } else { format!("{name}{suffix}") }
}

/// The text that reads a tensor whole.
fn listed(var: &Var) -> String {
    let name = &var.name;
    let list = match var.view.dtype.is_complex() {
        true => format!("view_as_real({name})"),
        false => name.clone(),
    };
    format!("{name}.dtype, {name}.shape, {list}.tolist()")
}
