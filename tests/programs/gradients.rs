//! Random differentiable functions: each statement is drawn according to the shapes of the existing values.

use super::draw::Draw;

/// Where a program runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// On two devices and several streams.
    Devices,
    /// On the host, with the same operations.
    Host,
}

#[derive(Clone)]
struct Var {
    name: String,
    shape: Vec<usize>,
    device: usize,
    /// Which memory it may share.
    memory: usize,
    /// Whether it can be written: it is not an argument, and its elements do not share memory.
    writable: bool,
    /// Whether it is a view of another variable.
    view: bool,
}

struct Generator {
    draw: Draw,
    place: Place,
    lines: Vec<String>,
    vars: Vec<Var>,
    /// Memory that a record keeps: writing it in place is an error of the backward pass.
    kept: Vec<bool>,
    named: usize,
    /// Whether some writes go to kept memory.
    careless: bool,
    dtype: &'static str,
}

/// The dtype of a program: most are in `f64`, where central differences are exact enough.
pub fn dtype(seed: u64) -> &'static str {
    match seed % 8 {
        1 => "f32",
        3 => "bf16",
        5 => "f16",
        _ => "f64",
    }
}

/// The program of a seed.
pub fn program(seed: u64, place: Place) -> String {
    let mut draw = Draw(seed ^ 0x9e1d_0bad_5eed_77aa);
    let careless = draw.once_in(12);
    let steps = 4 + draw.below(18);
    let aside = draw.once_in(4);
    let mut g = Generator {
        draw,
        place,
        lines: Vec::new(),
        vars: Vec::new(),
        kept: Vec::new(),
        named: 0,
        careless,
        dtype: dtype(seed),
    };
    let mut args = Vec::new();
    for name in ["a", "b", "c"] {
        let shape = g.shape();
        let memory = g.memory();
        args.push((name, shape.clone()));
        g.vars.push(Var { name: name.into(), shape, device: 0, memory, writable: false, view: false });
    }
    while g.lines.len() < steps {
        g.step();
    }
    let result = g.result();
    let body: String = g.lines.iter().map(|line| format!("        {line}\n")).collect();
    let mut text = String::from("fn main() {\n");
    if place == Place::Devices {
        text += "    let (d, e) = (cuda.default_stream(0), cuda.default_stream(1))\n";
        text += "    let (s, t, u) = (Stream(device=0), Stream(device=0), Stream(device=1))\n";
    }
    text += "    let watched = none\n";
    text += &format!("    fn f(a, b, c) {{\n{body}        {result}\n    }}\n");
    let home = g.device(0);
    let mut numbers = |shape: &[usize], spread: f64| {
        let count: usize = shape.iter().product();
        let all: Vec<String> = (0..count)
            .map(|_| format!("{:?}", (g.draw.below(2001) as f64 / 1000.0 - 1.0) * spread))
            .collect();
        let shape: Vec<String> = shape.iter().map(usize::to_string).collect();
        let (all, shape) = (all.join(", "), shape.join(", "));
        format!("tensor([{all}], dtype={}, device={home}).reshape([{shape}])", dtype(seed))
    };
    for (name, shape) in &args {
        text += &format!("    let {name} = {}\n", numbers(shape, 1.0));
        text += &format!("    let d{name} = {}\n", numbers(shape, 1.0));
    }
    let call = |inner: &str| match (aside, place) {
        (true, Place::Devices) => format!(
            "{{ s.wait_stream(d)\n        let y = with stream(s) {{ {inner} }}\n        d.wait_stream(s)\n        y }}"
        ),
        _ => format!("{{ {inner} }}"),
    };
    let called = call("f(a, b, c)");
    text += &format!("    fn run(a, b, c) {called}\n    let exact = {}\n", dtype(seed) == "f64");
    text += CHECKS;
    text + "}\nmain()\n"
}

/// The checks and output of each program, for `run` at `a`, `b`, `c` in the direction `da`, `db`, `dc`.
const CHECKS: &str = r#"
    fn leaves() { map(|x| x.clone().requires_grad_(), [a, b, c]) }
    fn gradients(xs) { map(|x| if x.grad == none { zeros_like(x) } else { x.grad }, xs) }
    fn along(g) { (g[0] * da).sum() + (g[1] * db).sum() + (g[2] * dc).sum() }
    fn same(g, h, what) { for (x, y) in zip(g, h) { assert(equal(x, y), "{what}: {x} and {y}") } }
    let xs = leaves()
    let y = run(..xs)
    let value = y.item()
    if y.requires_grad { y.backward() }
    let g = gradients(xs)
    y = none
    print(value, map(|x| x.cpu().tolist(), g))
    let h = grad(run, argnums=[0, 1, 2])(a, b, c)
    same(g, h, "grad and backward")
    let xs = leaves()
    let y = checkpoint(run, ..xs)
    if y.requires_grad { y.backward() }
    same(g, gradients(xs), "checkpoint")
    let xs = leaves()
    watched = []
    let y = run(..xs)
    if y.requires_grad {
        y.backward(retain_graph=true)
        let kept = map(|x| x.grad, watched)
        let direct = if len(watched) > 0 { autograd.grad(y, watched, allow_unused=true, retain_graph=true) } else { [] }
        for (x, y) in zip(kept, direct) { assert(if y == none { x == none or not x.any() } else { equal(x, y) }, "retained: {x} and {y}") }
        y.backward()
    }
    # Products whose results retain gradients may be added in another order.
    let close = |x, y| if len(watched) == 0 { equal(x, y) } else { not exact or allclose(x, y) }
    for (x, y) in zip(map(|x| x * 2, g), gradients(xs)) { assert(close(x, y), "two passes: {x} and {y}") }
    watched = none
    y = none
    xs = none
    # Central differences of the value, then of the derivative; with smaller steps where it bends much.
    fn at(f, t) { f(a + t * da, b + t * db, c + t * dc) }
    fn agrees(f, x) {
        for step in [1e-5, 1e-6, 1e-7] {
            let y = (at(f, step) - at(f, -step)).item() / (2 * step)
            if abs(x - y) <= 1e-5 * (1 + abs(x) + abs(y)) { return true }
        }
        not exact
    }
    assert(agrees(run, along(g).item()), "central differences: {along(g)}")
    let slope = |a, b, c| along(grad(run, argnums=[0, 1, 2])(a, b, c))
    let h = grad(slope, argnums=[0, 1, 2])(a, b, c)
    print(map(|x| x.cpu().tolist(), h))
    assert(agrees(slope, along(h).item()), "second order: {along(h)}")
"#;

impl Generator {
    fn memory(&mut self) -> usize {
        self.kept.push(false);
        self.kept.len() - 1
    }

    fn device(&self, device: usize) -> String {
        match self.place {
            Place::Devices => format!("cuda:{device}"),
            Place::Host => "cpu".into(),
        }
    }

    fn shape(&mut self) -> Vec<usize> {
        let rank = *self.draw.of(&[0, 1, 1, 2, 2, 2, 3]);
        (0..rank).map(|_| *self.draw.of(&[1, 2, 3, 3])).collect()
    }

    /// One of the variables; newer ones are more likely.
    fn pick(&mut self) -> Var {
        let count = self.vars.len();
        let at = match self.draw.once_in(2) {
            true => count - 1 - self.draw.below(count.min(3)),
            false => self.draw.below(count),
        };
        self.vars[at].clone()
    }

    fn pick_where(&mut self, fits: impl Fn(&Var) -> bool) -> Option<Var> {
        let all: Vec<Var> = self.vars.iter().filter(|var| fits(var)).cloned().collect();
        match all.is_empty() {
            true => None,
            false => Some(self.draw.of(&all).clone()),
        }
    }

    fn keep(&mut self, var: &Var) {
        self.kept[var.memory] = true;
    }

    fn number(&mut self) -> f64 {
        (self.draw.below(40) as f64 - 20.0) / 16.0 + 0.03
    }

    /// Text that runs on a stream of a device, ordered with the device's current stream.
    fn on(&mut self, device: usize, text: &str, gives: bool) -> String {
        // The same draws on the host and on devices.
        let (aside, first) = (self.draw.once_in(4), self.draw.once_in(2));
        if self.place == Place::Host || !aside {
            return text.to_string();
        }
        let name = match (device, first) {
            (0, true) => "s",
            (0, false) => "t",
            _ => "u",
        };
        let result = if gives { "\n            v }" } else { " }" };
        let value = if gives { "let v = " } else { "" };
        format!(
            "{{ let w = cuda.current_stream({device})\n            {name}.wait_stream(w)\n            {value}with stream({name}) {{ {text} }}\n            w.wait_stream({name}){result}"
        )
    }

    fn bind(&mut self, text: &str, shape: Vec<usize>, device: usize, memory: Option<usize>) -> Var {
        let (writable, view) = (true, memory.is_some());
        let memory = memory.unwrap_or_else(|| self.memory());
        self.named += 1;
        let name = format!("v{}", self.named);
        let text = self.on(device, text, true);
        self.lines.push(format!("let {name} = {text}"));
        let var = Var { name, shape, device, memory, writable, view };
        self.vars.push(var.clone());
        var
    }

    fn step(&mut self) {
        let _ = match self.draw.below(13) {
            0..=2 => self.binary(),
            3 => self.unary(),
            4 => self.reduction(),
            5 | 6 => self.view(),
            7 => self.joined(),
            8 | 9 => self.in_place(),
            10 => self.transfer(),
            11 => self.watched(),
            _ => self.other(),
        };
    }

    fn binary(&mut self) -> Option<()> {
        let x = self.pick();
        let device = x.device;
        let y = self.pick_where(|y| y.device == device && broadcast(&x.shape, &y.shape).is_some())?;
        let shape = broadcast(&x.shape, &y.shape)?;
        let (n, m) = (&x.name, &y.name);
        let (text, keeps) = match self.draw.below(7) {
            0 => (format!("{n} + {m}"), false),
            1 => (format!("{n} - {m} * 0.5"), false),
            2 | 3 => (format!("{n} * {m}"), true),
            4 => (format!("{n} / (1.5 + {m} * {m})"), true),
            5 => (format!("atan2({n}, 2 + {m} * {m})"), true),
            _ => (format!("lerp({n}, {n} + {m}, 0.3)"), true),
        };
        if keeps {
            self.keep(&x);
            self.keep(&y);
        }
        let made = self.bind(&text, shape, device, None);
        if keeps {
            self.keep(&made);
        }
        Some(())
    }

    fn unary(&mut self) -> Option<()> {
        let x = self.pick();
        let n = &x.name;
        let text = match self.draw.below(8) {
            0 => format!("{n}.sin()"),
            1 => format!("tanh({n})"),
            2 => format!("sigmoid({n})"),
            3 => format!("exp({n}.tanh())"),
            4 => format!("({n} * {n} + 0.5).sqrt()"),
            5 => format!("tanh({n}) ** 3"),
            6 => format!("{n} * {:?} + {:?}", self.number(), self.number()),
            _ => format!("softplus({n})"),
        };
        self.keep(&x);
        let made = self.bind(&text, x.shape.clone(), x.device, None);
        self.keep(&made);
        Some(())
    }

    fn reduction(&mut self) -> Option<()> {
        let x = self.pick_where(|x| !x.shape.is_empty())?;
        let d = self.draw.below(x.shape.len());
        let keep = self.draw.once_in(2);
        let n = &x.name;
        let mut shape = x.shape.clone();
        let kind = self.draw.below(6);
        let text = match kind {
            0 => format!("{n}.sum({d}, keepdim={keep})"),
            1 => format!("{n}.mean({d}, keepdim={keep})"),
            2 => format!("{n}.logsumexp({d}, keepdim={keep})"),
            3 => format!("softmax({n}, {d})"),
            4 => format!("{n}.cumsum({d})"),
            _ => format!("({n} * {n} + 0.1).prod({d}, keepdim={keep})"),
        };
        match (kind, keep) {
            (3 | 4, _) => {}
            (_, true) => shape[d] = 1,
            (_, false) => drop(shape.remove(d)),
        }
        self.keep(&x);
        let made = self.bind(&text, shape, x.device, None);
        self.keep(&made);
        Some(())
    }

    /// A view of a variable: its text, its shape, and whether it can be written.
    fn view_of(&mut self, x: &Var) -> Option<(String, Vec<usize>, bool)> {
        let (n, rank) = (&x.name, x.shape.len());
        if rank == 0 {
            return Some((format!("{n}.unsqueeze(0)"), vec![1], true));
        }
        let d = self.draw.below(rank);
        let extent = x.shape[d];
        let at = self.draw.below(extent);
        let mut shape = x.shape.clone();
        let lead: String = (0..d).map(|_| "0.., ".to_string()).collect();
        Some(match self.draw.below(9) {
            0 => {
                shape.remove(d);
                (format!("{n}.select({d}, {at})"), shape, true)
            }
            1 => {
                shape[d] = extent - at;
                (format!("{n}[{lead}{at}..]"), shape, true)
            }
            2 if rank >= 2 => {
                let e = (d + 1) % rank;
                shape.swap(d, e);
                (format!("{n}.transpose({d}, {e})"), shape, true)
            }
            3 => {
                shape.insert(d, 1);
                (format!("{n}.unsqueeze({d})"), shape, true)
            }
            4 => (format!("{n}.reshape([-1])"), vec![shape.iter().product()], true),
            5 => {
                shape[d] = extent.div_ceil(2);
                (format!("{n}[{lead}0..{extent} by 2]"), shape, true)
            }
            6 => {
                shape.insert(0, 2);
                let text: Vec<String> = shape.iter().map(usize::to_string).collect();
                (format!("{n}.expand([{}])", text.join(", ")), shape, false)
            }
            7 if rank == 2 => {
                let least = shape[0].min(shape[1]);
                (format!("{n}.diagonal()"), vec![least], true)
            }
            _ => {
                shape[d] = 1;
                (format!("{n}.narrow({d}, {at}, 1)"), shape, true)
            }
        })
    }

    fn view(&mut self) -> Option<()> {
        let x = self.pick();
        let (text, shape, writable) = self.view_of(&x)?;
        self.bind(&text, shape, x.device, Some(x.memory));
        let last = self.vars.len() - 1;
        self.vars[last].writable = x.writable && writable;
        Some(())
    }

    fn joined(&mut self) -> Option<()> {
        let x = self.pick_where(|x| !x.shape.is_empty())?;
        let (n, d) = (&x.name, self.draw.below(x.shape.len()));
        let extent = x.shape[d];
        let mut shape = x.shape.clone();
        let text = match self.draw.below(13) {
            kind @ 7.. => return self.moved(kind, &x, d),
            0 => {
                let y = self.pick_where(|y| y.device == x.device && y.shape == x.shape)?;
                shape[d] *= 2;
                format!("cat([{n}, {}], {d})", y.name)
            }
            1 => {
                let y = self.pick_where(|y| y.device == x.device && y.shape == x.shape)?;
                shape.insert(d, 2);
                format!("stack([{n}, {}], {d})", y.name)
            }
            2 => format!("{n}.roll(1, {d})"),
            3 => format!("{n}.flip({d})"),
            4 => {
                let picks: Vec<usize> = (0..3).map(|_| self.draw.below(extent)).collect();
                shape[d] = 3;
                let lead: String = (0..d).map(|_| "0.., ".to_string()).collect();
                format!("{n}[{lead}{picks:?}]")
            }
            5 => {
                let y = self.pick_where(|y| y.device == x.device && y.shape == x.shape)?;
                let count: usize = shape.iter().product();
                let list: Vec<String> = shape.iter().map(usize::to_string).collect();
                let device = self.device(x.device);
                let even =
                    format!("(arange({count}, device={device}) % 2 == 0).reshape([{}])", list.join(", "));
                format!("where({even}, {n}, {})", y.name)
            }
            _ => {
                shape[d] *= 2;
                let times: Vec<String> =
                    (0..shape.len()).map(|i| if i == d { "2" } else { "1" }.into()).collect();
                format!("{n}.repeat([{}])", times.join(", "))
            }
        };
        if shape.iter().product::<usize>() > 64 {
            return None;
        }
        self.bind(&text, shape, x.device, None);
        Some(())
    }

    /// Pads, gathers and scatters, some of values that the statement computes; several sums of the same elements.
    fn moved(&mut self, kind: usize, x: &Var, d: usize) -> Option<()> {
        let (n, extent, mut shape) = (&x.name, x.shape[d], x.shape.clone());
        let count: usize = shape.iter().product();
        let list: Vec<String> = shape.iter().map(usize::to_string).collect();
        let device = self.device(x.device);
        let source = match self.draw.below(3) {
            0 => n.clone(),
            1 => format!("({n} * {n})"),
            _ => format!("({n} * 0.5 + 0.25)"),
        };
        let step = 1 + self.draw.below(4);
        let ids =
            format!("(arange({count}, device={device}) * {step} % {extent}).reshape([{}])", list.join(", "));
        let picks: Vec<usize> = (0..3).map(|_| self.draw.below(extent)).collect();
        let lead: String = (0..d).map(|_| "0.., ".to_string()).collect();
        let last = shape.len() - 1;
        let text = match kind {
            7 => {
                shape[last] += 3;
                format!("pad({source}, [1, 2], value=0.25)")
            }
            8 => {
                let mode = *self.draw.of(&["replicate", "circular", "reflect"]);
                if mode == "reflect" && shape[last] < 2 {
                    return None;
                }
                shape[last] += 1;
                format!("pad({source}, [1, 0], mode=\"{mode}\")")
            }
            9 => format!(
                "{n}.index_add({d}, tensor({picks:?}, device={device}), {source}[{lead}{picks:?}] * 0.5)"
            ),
            10 => format!("{n}.scatter_add({d}, {ids}, {source})"),
            11 => format!("{source}.gather({d}, {ids})"),
            _ => {
                shape.remove(d);
                format!("{n}.sum({d}) + ({n} * {n}).sum({d}) * {source}.mean({d})")
            }
        };
        if shape.iter().product::<usize>() > 64 {
            return None;
        }
        self.keep(x);
        self.bind(&text, shape, x.device, None);
        Some(())
    }

    fn in_place(&mut self) -> Option<()> {
        let careless = self.careless;
        let kept = self.kept.clone();
        let found = self.pick_where(|x| x.writable && (careless || !kept[x.memory]));
        let x = match found {
            Some(x) => x,
            None => {
                let y = self.pick();
                self.bind(&format!("{}.clone()", y.name), y.shape.clone(), y.device, None)
            }
        };
        let (target, shape) = match self.draw.once_in(2) {
            true => (x.name.clone(), x.shape.clone()),
            false => {
                let (text, shape, writable) = self.view_of(&x)?;
                // `reshape` may return a copy, and writes to a copy do not change the original.
                if !writable {
                    return None;
                }
                (text, shape)
            }
        };
        let other = self.pick_where(|y| {
            y.device == x.device
                && y.memory != x.memory
                && broadcast(&shape, &y.shape).as_ref() == Some(&shape)
        });
        let number = self.number();
        let bracket = target.ends_with(']');
        let (text, keeps) = match (self.draw.below(8), other) {
            (0, Some(y)) => (format!("{target}.add_({})", y.name), None),
            (1, Some(y)) => (format!("{target}.mul_({})", y.name), Some(y)),
            (2, Some(y)) if bracket => (format!("{target} = {}", y.name), None),
            (2 | 3, Some(y)) => (format!("{target}.copy_({})", y.name), None),
            (4, _) => (format!("{target}.mul_({number:?})"), None),
            (5, _) => (format!("{target}.sin_()"), None),
            (6, _) => (format!("{target}.fill_({number:?})"), None),
            (7, _) if !shape.is_empty() => (format!("{target}.index_fill_(0, [0], {number:?})"), None),
            _ => (format!("{target}.tanh_()"), None),
        };
        if let Some(y) = keeps {
            self.keep(&y);
        }
        let text = self.on(x.device, &text, false);
        self.lines.push(text);
        Some(())
    }

    /// What does not change gradients: hooks that return nothing or the same, retained gradients, detached tensors.
    fn watched(&mut self) -> Option<()> {
        // The gradient of a view that was written through another one is that of its old value.
        let x = self.pick_where(|x| !x.view)?;
        let n = &x.name;
        let kind = self.draw.below(4);
        let text = match kind {
            0 => format!("if {n}.requires_grad {{ {n}.register_hook(|g| none) }}"),
            1 => format!("if {n}.requires_grad {{ {n}.register_hook(|g| g.clone()) }}"),
            2 => format!("with no_grad() {{ {n}.detach() * 2 }}"),
            _ => format!(
                "if watched != none and {n}.requires_grad {{ {n}.retain_grad()\n            watched.append({n}) }}"
            ),
        };
        let text = if kind == 2 { self.on(x.device, &text, false) } else { text };
        self.lines.push(text);
        Some(())
    }

    fn transfer(&mut self) -> Option<()> {
        let x = self.pick();
        let n = x.name.clone();
        let there = 1 - x.device;
        let there_name = self.device(there);
        let devices = self.place == Place::Devices;
        match self.draw.below(6) {
            0..=2 => {
                // On the host it must be a new tensor as well.
                let text = if devices { format!("{n}.to({there_name})") } else { format!("{n}.clone()") };
                self.plain(&text, x.shape.clone(), there);
            }
            3 => {
                let text = match devices {
                    true => format!("comm.broadcast({n} * 1, [{there}])[0]"),
                    false => format!("{n} * 1"),
                };
                self.plain(&text, x.shape.clone(), there);
            }
            4 => {
                let y = self.pick_where(|y| y.device != x.device && y.shape == x.shape)?;
                let text = match devices {
                    true => format!("comm.reduce_add([{n}, {}], {there})", y.name),
                    false => format!("{n} + {}", y.name),
                };
                self.plain(&text, x.shape.clone(), there);
            }
            _ => {
                let y =
                    self.pick_where(|y| y.device != x.device && y.shape == x.shape && !y.shape.is_empty())?;
                let mut shape = x.shape.clone();
                shape[0] *= 2;
                if shape.iter().product::<usize>() > 64 {
                    return None;
                }
                let text = match devices {
                    true => format!("comm.gather([{n}, {}], 0, {there})", y.name),
                    false => format!("cat([{n}, {}])", y.name),
                };
                self.plain(&text, shape, there);
            }
        }
        Some(())
    }

    /// A new variable of a transfer, which runs on the current streams of both devices.
    fn plain(&mut self, text: &str, shape: Vec<usize>, device: usize) {
        let memory = self.memory();
        self.named += 1;
        let name = format!("v{}", self.named);
        self.lines.push(format!("let {name} = {text}"));
        self.vars.push(Var { name, shape, device, memory, writable: true, view: false });
    }

    fn other(&mut self) -> Option<()> {
        let x = self.pick();
        let n = x.name.clone();
        let shape = x.shape.clone();
        self.keep(&x);
        let text = match self.draw.below(7) {
            0 => format!("checkpoint(|t| t.sin() * t, {n})"),
            1 => format!("grad(|t| (t.sin() * t * t).sum())({n} * 1)"),
            2 => format!("custom_gradient(|t| {{ (t.tanh(), t.tanh()) }}, |y, g| g * (1 - y * y))({n})"),
            3 if !self.dtype.ends_with("16") => {
                let y = self.pick_where(|y| y.device == x.device && y.shape == x.shape)?;
                self.keep(&y);
                format!(
                    "{{ let z = complex({n}, {})\n            (z * z).real + (z * z.sin()).imag * 0.5 }}",
                    y.name
                )
            }
            4 if shape.len() == 2 => {
                let made = format!("{n} @ {n}.t()");
                let made = self.bind(&made, vec![shape[0], shape[0]], x.device, None);
                self.keep(&made);
                return Some(());
            }
            5 if !shape.is_empty() => {
                format!(
                    "{{ let z = {n}.clone()\n            for i in 1..{} {{ z[i] = z[i - 1].sin() + z[i] * 0.5 }}\n            z }}",
                    shape[0]
                )
            }
            _ => format!("{n}.detach() * {n} - {n} * {n}.clone() + {n} * 2"),
        };
        if text.contains("detach") {
            // Its derivative does not match its value.
            return None;
        }
        let made = self.bind(&text, shape, x.device, None);
        self.keep(&made);
        Some(())
    }

    /// A number that depends on the last values and some others.
    fn result(&mut self) -> String {
        let count = self.vars.len();
        let mut parts = Vec::new();
        for at in 0..count {
            if at + 4 >= count || self.draw.once_in(4) {
                let var = self.vars[at].clone();
                let weight = self.number();
                let (name, home) = (&var.name, self.device(0));
                parts.push(format!("({name}.sin() * {weight:?}).sum().to({home})"));
            }
        }
        parts.join(" + ")
    }
}

/// The broadcast shape of operands.
fn broadcast(a: &[usize], b: &[usize]) -> Option<Vec<usize>> {
    let rank = a.len().max(b.len());
    let of = |shape: &[usize], i: usize| (i + shape.len()).checked_sub(rank).map_or(1, |at| shape[at]);
    (0..rank)
        .map(|i| match (of(a, i), of(b, i)) {
            (n, m) if n == m => Some(n),
            (1, m) => Some(m),
            (n, 1) => Some(n),
            _ => None,
        })
        .collect()
}
