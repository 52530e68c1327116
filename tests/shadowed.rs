//! Random programs in which variables hide others of the same name, compared with the same programs with distinct
//! names: reusing a register must not be observable.

#![allow(clippy::unwrap_used)] // A test that cannot go on fails.

#[path = "common/draw.rs"]
mod draw;

use draw::Draw;
use runnel::Backend;
use runnel::device::{Config, Machine};
use runnel::library;
use runnel::plan::{Runtime, Settings};
use runnel::vm::{Mode, Vm};

/// A program under construction. Variables have distinct numbers: `a_17`.
struct Program {
    numbers: Draw,
    variables: usize,
}

impl Program {
    fn draw(&mut self, below: usize) -> usize {
        self.numbers.below(below)
    }

    fn pick<'a>(&mut self, list: &[&'a str]) -> &'a str {
        list[self.draw(list.len())]
    }

    /// A new variable, which hides those of its letter.
    fn declare(&mut self, scope: &mut Vec<String>) -> String {
        let letter = self.pick(&["a", "b", "c"]);
        self.variables += 1;
        let name = format!("{letter}_{}", self.variables);
        scope.push(name.clone());
        name
    }

    /// A variable that is not hidden, or a number.
    fn variable(&mut self, scope: &[String]) -> String {
        let letter = self.pick(&["a", "b", "c"]);
        let found = scope.iter().rev().find(|name| name.starts_with(letter)).or(scope.last());
        found.cloned().unwrap_or_else(|| "4".into())
    }

    fn expr(&mut self, depth: usize, scope: &[String]) -> String {
        let kind = if depth == 0 { self.draw(3) } else { self.draw(14) };
        let mut inner = scope.to_vec();
        let mut part = || self.expr(depth.saturating_sub(1), scope);
        match kind {
            0 => self.draw(9).to_string(),
            1 | 2 => self.variable(scope),
            3 => format!("(({} + {}) % 11)", part(), part()),
            4 => format!("[{}, {}][{}]", part(), part(), self.draw(2)),
            5 => format!("({}, {})[{}]", part(), part(), self.draw(2)),
            6 => format!("(x = {}, y = {}).{}", part(), part(), self.pick(&["x", "y"])),
            7 => {
                let (a, b) = (part(), part());
                let blocks = (self.block(depth - 1, scope), self.block(depth - 1, scope));
                format!("if {a} > {b} {} else {}", blocks.0, blocks.1)
            }
            8 => {
                let value = part();
                let name = self.declare(&mut inner);
                format!("(|{name}| {})({value})", self.block(depth - 1, &inner))
            }
            9 => {
                let tried = self.block(depth - 1, scope);
                let name = self.declare(&mut inner);
                let index = self.expr(0, scope);
                format!("try {{ {tried}; [1, 2][{index}] }} catch {name} {{ let {name}_ = 3; {name}_ }}")
            }
            10 => {
                let value = (part(), part());
                let first = self.declare(&mut inner);
                let arm = self.block(depth - 1, &inner);
                let mut both = scope.to_vec();
                let names = loop {
                    let names = (self.declare(&mut both), self.declare(&mut both));
                    if names.0[..1] != names.1[..1] {
                        break names;
                    }
                    both.truncate(scope.len());
                };
                let other = self.block(depth - 1, &both);
                format!(
                    "match ({}, {}) {{ ({first}, 3) => {arm}\n ({}, {}) if {} < 9 => {other}\n _ => 5 }}",
                    value.0, value.1, names.0, names.1, names.0
                )
            }
            11 => format!("({} and {})", part(), part()),
            12 => format!("max({}, {})", part(), part()),
            _ => self.block(depth - 1, scope),
        }
    }

    /// The statements of a file, and a last expression.
    fn file(&mut self) -> String {
        let (mut scope, mut text) = (Vec::new(), String::new());
        for _ in 0..4 + self.draw(12) {
            text += &format!("{}\n", self.statement(2, &mut scope));
        }
        text + &format!("let result = {}", self.expr(1, &scope))
    }

    fn block(&mut self, depth: usize, scope: &[String]) -> String {
        let mut scope = scope.to_vec();
        let mut text = String::from("{ ");
        for _ in 0..self.draw(4) {
            text += &format!("{}; ", self.statement(depth, &mut scope));
        }
        text + &self.expr(depth, &scope) + " }"
    }

    fn statement(&mut self, depth: usize, scope: &mut Vec<String>) -> String {
        let value = self.expr(depth, scope);
        match self.draw(12) {
            0..=4 => format!("let {} = {value}", self.declare(scope)),
            5 => {
                let other = self.expr(depth, scope);
                let before = scope.len();
                let (first, second) = loop {
                    let names = (self.declare(scope), self.declare(scope));
                    if names.0[..1] != names.1[..1] {
                        break names;
                    }
                    scope.truncate(before);
                };
                match self.draw(3) {
                    0 => format!("let ({first}, {second}) = ({value}, {other})"),
                    1 => format!("let [{first}, {second}] = [{value}, {other}]"),
                    _ => format!("let (x = {first}, y = {second}) = (y = {value}, x = {other})"),
                }
            }
            6 if !scope.is_empty() => format!("{} = {value}", self.variable(scope)),
            7 if !scope.is_empty() => {
                let name = self.variable(scope);
                format!("later.append(|| {{ {name} = ({name} + 1) % 11; {name} }})")
            }
            8 => format!("defer log.append({})", self.expr(depth.min(1), scope)),
            9 if depth > 0 => {
                let mut inner = scope.clone();
                let name = self.declare(&mut inner);
                let over = self.pick(&["0..3", "[5, 2, 1]"]);
                let body = self.block(depth - 1, &inner);
                let leave = self.pick(&["", "continue", "break"]);
                let old = name.clone();
                let new = format!("{}_{}", &name[..1], self.variables + 1);
                self.variables += 1;
                format!(
                    "for {old} in {over} {{ log.append({body}); if {old} == 1 {{ {leave} }}; let {new} = [{old}]; log.append({new}[0]) }}"
                )
            }
            10 if depth > 0 => {
                let mut inner = scope.clone();
                let parameter = self.declare(&mut inner);
                self.variables += 1;
                let name = format!("inner{}", self.variables);
                format!(
                    "fn {name}({parameter}) {}; log.append({name}({value}))",
                    self.block(depth - 1, &inner)
                )
            }
            _ => format!("log.append({value})"),
        }
    }
}

/// The same program with one letter for each variable.
fn shadowing(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('_') {
        let (before, after) = rest.split_at(at);
        let end = after[1..].find(|c: char| !c.is_ascii_digit() && c != '_').map_or(after.len(), |n| n + 1);
        // `_` alone is a pattern.
        out += before;
        out += if end == 1 { "_" } else { "" };
        rest = &after[end..];
    }
    out + rest
}

fn shown(vm: &mut Vm, text: &str, mode: Mode) -> String {
    let value = vm.eval("<test>", text, mode).unwrap_or_else(|e| panic!("{e:?}\n{text}"));
    vm.display(&value).unwrap()
}

#[test]
fn earlier_closures_see_hidden_variables() {
    let config = Config { backend: Backend::Emu, devices: Some(1), ..Config::default() };
    let mut vm = library::machine(Runtime::new(Machine::open(&config).unwrap(), Settings::default()));
    let (mut hiding, seeds) = (0, 400);
    for seed in 0..2 * seeds {
        let mut program = Program { numbers: Draw(seed), variables: 0 };
        let end = "let all = map(|f| f(), later)\n(result, log, all, map(|f| f(), later))";
        let text = if seed % 2 == 0 {
            let mut scope = Vec::new();
            let parameters = (program.declare(&mut scope), program.draw(9));
            let body = program.block(3, &scope);
            format!(
                "fn program({}) {body}\nlet (log, later) = ([], [])\nlet result = program({})\n{end}",
                parameters.0, parameters.1
            )
        } else {
            format!("let (log, later) = ([], [])\n{}\n{end}", program.file())
        };
        let short = shadowing(&text);
        hiding += usize::from(text.matches("let ").count() > 6);
        let wanted = shown(&mut vm, &text, Mode::Script);
        assert_eq!(shown(&mut vm, &short, Mode::Script), wanted, "\n{short}\n\n{text}");
        assert_eq!(shown(&mut vm, &short, Mode::Input), wanted, "\n{short}\n\n{text}");
    }
    assert!(hiding > seeds as usize / 2, "only {hiding} programs hide variables");
}

/// Functions of a file exist from its beginning. A name in one means what was defined before it, or else after it.
#[test]
fn functions_of_a_file_see_what_was_defined_before_them() {
    let config = Config { backend: Backend::Emu, devices: Some(1), ..Config::default() };
    let mut vm = library::machine(Runtime::new(Machine::open(&config).unwrap(), Settings::default()));
    for (code, wanted) in [
        ("let x = 1\nfn f() { x }\nlet x = 2\n(f(), x)", "(1, 2)"),
        ("let x = 1\nfn f(y = x) { y }\nlet (x, z) = (2, 3)\n(f(), x + z)", "(1, 5)"),
        ("fn f() { x }\nlet x = 1\nlet a = f()\nlet x = 2\n(a, f(), x)", "(1, 1, 2)"),
        ("fn f() { 1 }\nfn g() { f() }\nlet a = g()\nfn f() { 2 }\n(a, g(), f())", "(1, 1, 2)"),
        (
            "fn f(n) { if n == 0 { 0 } else { f(n - 1) + 1 } }\nlet a = f(3)\nlet f = |x| x * 10\n(a, f(3))",
            "(3, 30)",
        ),
        ("let f = |n| 1\nlet f = |n| f(n) + n\nlet f = |n| f(n) * 2\nf(5)", "12"),
        ("let x = 0\nfn up() { x += 1; x }\nup()\nlet x = 10\nx += 1\n(up(), x)", "(2, 11)"),
        (
            "let x = 1\nfn f() { || x }\nlet g = f()\nlet x = 2\nfn h() { x }\nlet x = 3\n(g(), h(), x)",
            "(1, 2, 3)",
        ),
        // The native of a name that is defined later.
        ("let a = sum([1, 2])\nlet sum = 5\nfn f() { sum }\nlet sum = 6\n(a, f(), sum)", "(3, 5, 6)"),
        ("fn f() { sum([4]) }\nlet a = f()\nlet sum = 5\nlet sum = 6\n(a, sum)", "(4, 6)"),
        (
            "fn f() { q }\nlet a = try { f() } catch e { e.message }\nlet q = 1\nlet q = 2\n(a, f(), q)",
            "(\"`q` has no value yet\", 1, 2)",
        ),
        (
            "let x = 1\nfn f() { x }\nlet r = { let x = 5; let x = x + f(); x }\nlet x = 2\n(r, f(), x)",
            "(6, 1, 2)",
        ),
        (
            "let x = 1\nlet fs = [|| x]\nfor i in 0..2 { fs.append(|| x + i) }\nlet x = 7\nfs.append(|| x)\nmap(|f| f(), fs)",
            "[1, 1, 2, 7]",
        ),
        (
            "let log = []\nlet x = 1\nfn f() { x }\nfn run() { defer log.append(x + f()); x += 1 }\nrun()\nlet x = 9\nrun()\n(log, x)",
            "([4, 6], 9)",
        ),
    ] {
        for mode in [Mode::Script, Mode::Input] {
            let mut vm = library::machine(Runtime::new(Machine::open(&config).unwrap(), Settings::default()));
            assert_eq!(shown(&mut vm, code, mode), wanted, "{code}");
        }
        // What an earlier program defined does not matter.
        assert_eq!(shown(&mut vm, code, Mode::Script), wanted, "{code}");
    }
}
