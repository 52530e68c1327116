//! Fuel is charged by elements: what makes or reads a large value costs fuel in proportion to its size, whichever
//! function, method, operator or operation does it, on the host and on devices.

#![allow(clippy::unwrap_used)] // A test that cannot go on fails.

use runnel::Backend;
use runnel::device::{Config, Machine};
use runnel::library;
use runnel::plan::{Runtime, Settings};
use runnel::vm::{Mode, Vm};

/// Elements of the small and of the large values.
const SMALL: usize = 1 << 8;
const LARGE: usize = 1 << 14;

/// Expressions over `N` elements; `x` has `N` elements and `m` is `N / 64` by 64. Cheaper ones, such as views, are not
/// listed.
const MADE: &[&str] = &[
    "zeros(N)",
    "ones(N)",
    "full([N], 3.0)",
    "full([N // 64, 64], 3.0)",
    "arange(N)",
    "arange(0.0, N)",
    "arange(0, N * 4, 4)",
    "linspace(0, 1, N)",
    "logspace(0, 1, N)",
    "eye(64, N // 64)",
    "eye(N // 64, 64, dtype=bool)",
    "rand(N)",
    "randn(N)",
    "randint(0, 9, [N])",
    "randperm(N)",
    "tensor(list(0..N))",
    "tensor(0..N)",
    "zeros_like(x)",
    "ones_like(x)",
    "full_like(x, 2)",
    "rand_like(x)",
    "randn_like(x)",
    "randint_like(x, 9)",
    "x.new_zeros(N)",
    "x.new_ones(N)",
    "x.new_full([N], 1)",
    "x.new_tensor(list(0..N))",
    "x.clone()",
    "x.flip(0)",
    "x.roll(3)",
    "m.T.contiguous()",
    "m.tril()",
    "m.triu()",
    "ones(1).expand(N).clone()",
    "ones(1).expand(N).contiguous()",
    "ones(1).repeat(N)",
    "ones(1).tile([N])",
    "ones(1).repeat_interleave(N)",
    "ones(1).expand(N) + 1",
    "cat([x, x])",
    "stack([x, x])",
    "hstack([x, x])",
    "x.unbind()",
    "cartesian_prod(arange(64), arange(N // 64))",
    "combinations(arange(N // 64))",
    "one_hot(zeros(64, dtype=i64), N // 64)",
    "one_hot(zeros(N // 64, dtype=i64), 64)",
    "bincount(zeros(4, dtype=i64), minlength=N)",
    "bincount(zeros(N, dtype=i64))",
    "histc(x)",
    "x.sort().values",
    "x.argsort()",
    "x.topk(3).values",
    "x.unique()",
    "x.nonzero()",
    "x.cumsum(0)",
    "x.sum()",
    "x.max()",
    "x.diff()",
    "diag(ones(N // 64)).sum()",
    "diag_embed(ones(N // 64)).sum()",
    "block_diag(ones(1, N), ones(1, N))",
    "outer(ones(64), ones(N // 64))",
    "kron(ones(64), ones(N // 64))",
    "vander(ones(N // 64), 64)",
    "cdist(ones(64, 1), ones(N // 64, 1))",
    "ones(64, 1) @ ones(1, N // 64)",
    "x.masked_select(x > 0)",
    "x[x > 0]",
    "x[arange(N)]",
    "x.to(f64)",
    "x.tolist()",
    "list(x)",
    "fft.fftfreq(N)",
    "fft.rfftfreq(2 * N)",
    "fft.fft(x)",
    "fft.fftshift(x)",
    "pad(x, (1, 1))",
    "ones(8).unfold(0, 1, 1).expand(8, 1).clone().repeat(N, 1)",
    "multinomial(ones(4), N, replacement=true)",
    "bernoulli(x)",
    "normal(0.0, 1.0, [N])",
    "complex(x, x)",
    "polar(x, x)",
    "x.fill_(1)",
    "x.zero_()",
    "x.copy_(x + 1)",
    "x.normal_()",
    "x.uniform_()",
    "x.random_()",
    "x.exponential_()",
    "x.index_fill(0, arange(N), 1.0)",
    "list(0..N)",
    "tuple(0..N)",
    "dict(zip(0..N, 0..N))",
    "enumerate(0..N)",
    "zip(0..N, 0..N)",
    "map(|i| i, 0..N)",
    "filter(|i| true, 0..N)",
    "sorted(0..N)",
    "reversed(0..N)",
    "sum(0..N)",
    "min(0..N)",
    "any(map(|i| false, 0..N))",
    "numbers ++ numbers",
    "numbers.copy()",
    "[..0..N]",
    "[..numbers]",
    "numbers[..]",
    "numbers[.. by 2]",
    "numbers == numbers.copy()",
    "-1 in numbers",
    "numbers.index(N - 1)",
    "numbers.count(-1)",
    "numbers.copy().reverse()",
    "numbers.copy().sort()",
    "numbers.copy().extend(numbers)",
    "numbers.copy().insert(0, 1)",
    "table.copy()",
    "table.items()",
    "table.keys()",
    "table.values()",
    "table == table.copy()",
    "dict().update(table)",
    "tree_map(|x| x, numbers)",
    "tree_leaves(numbers)",
    "str(numbers)",
    "repr(numbers)",
    "\"{numbers}\"",
];

/// Expressions over several devices.
const DEVICES: &[&str] = &[
    "x on cuda:1",
    "x.cpu()",
    "x.copy_(y)",
    "comm.broadcast(x, [0, 1])",
    "comm.broadcast(x, out=[y])",
    "comm.broadcast_coalesced([x, x], [0, 1])",
    "comm.scatter(x, [0, 1])",
    "comm.scatter(x.cpu(), [0, 1])",
    "comm.gather([x, y], 0)",
    "comm.reduce_add([x, y], 0)",
    "comm.reduce_add_coalesced([[x, x], [y, y]], 0)",
    "captured.replay()",
    "graphed(x)",
];

/// Expressions over strings of `N * 64` bytes, which are charged by pieces.
const TEXTS: &[&str] = &[
    "\"x\" * N * 64",
    "(N * 64) * \"x\"",
    "\"x\".center(N * 64)",
    "\"x\".ljust(N * 64)",
    "\"x\".rjust(N * 64)",
    "\"x\".zfill(N * 64)",
    "\"\\t\".expandtabs(N * 64)",
    "text ++ text",
    "text[1..]",
    "text[.. by -1]",
    "text[.. by 2]",
    "list(text)",
    "text.upper()",
    "text.lower()",
    "text.title()",
    "text.capitalize()",
    "text.swapcase()",
    "text.replace(\"a\", \"bb\")",
    "text.replace(\"\", \"b\")",
    "text.split(\"a\")",
    "text.split()",
    "text.rsplit(\"a\")",
    "text.splitlines()",
    "text.strip()",
    "text.find(\"zz\")",
    "text.rfind(\"zz\")",
    "text.count(\"a\")",
    "text.partition(\"zz\")",
    "text.rpartition(\"zz\")",
    "\"zz\" in text",
    "text == text[1..] ++ \"b\"",
    "text < text[1..] ++ \"b\"",
    "repr(text)",
    "str(text) ++ \"a\"",
    "\"{text}\"",
    "\",\".join(words)",
    "text.join(words[..2])",
    "text.isalpha()",
    "text.isdigit()",
    "text.islower()",
    "text.casefold()",
    "dict([(text ++ \"1\", 1)])",
    "write(folder ++ \"/out.txt\", text)",
    "read(folder ++ \"/text.txt\")",
];

struct Lab {
    vm: Vm,
    _folder: tempfile::TempDir,
}

impl Lab {
    /// A machine with values of `n` elements on a device.
    fn new(n: usize, device: &str) -> Lab {
        let config = Config {
            backend: Backend::Emu,
            devices: Some(2),
            device_memory: Some(2 << 30),
            ..Config::default()
        };
        let vm = library::machine(Runtime::new(Machine::open(&config).unwrap(), Settings::default()));
        let folder = tempfile::tempdir().unwrap();
        let mut lab = Lab { vm, _folder: folder };
        let path = lab._folder.path().display().to_string();
        lab.vm.limits.files = runnel::vm::FileAccess::All;
        let setup = format!(
            "import nn\nlet N = {n}\nlet folder = \"{path}\"\nlet numbers = list(0..N)\n\
             let table = dict(zip(0..N, 0..N))\nlet text = \"ab\" * N * 32\nlet words = map(|i| \"a\" * 64, 0..N)\n\
             write(folder ++ \"/text.txt\", text)\n\
             let x = ones(N, device={device})\nlet m = ones(N // 64, 64, device={device})\n\
             let y = ones(N, device=\"cuda:1\")\nlet places = zeros(N, dtype=i64, device={device})\n\
             let flags = ones(N, dtype=bool, device={device})\nlet complexes = complex(x, x)\nlet captured = Graph()\nlet z = ones(N)\n\
             with graph(captured) {{ z += 1 }}\nlet graphed = cuda.graphed(|x| x + 1, (z,))"
        );
        lab.vm.eval("<setup>", &setup, Mode::Input).unwrap();
        lab
    }

    /// The fuel that an expression costs, the second time.
    fn cost(&mut self, text: &str, device: &str) -> Result<u64, String> {
        let text = format!("(|| {{ with device({device}) {{ {text} }} }})()");
        let mut cost = 0;
        for _ in 0..2 {
            self.vm.limits.fuel = Some(u64::MAX / 2);
            let value = self.vm.eval("<cost>", &text, Mode::Input);
            let _ = self.vm.charge(0);
            cost = self.vm.rt.quota.fuel.map_or(0, |left| u64::MAX / 2 - left);
            self.vm.limits.fuel = None;
            match value {
                Ok(value) => self.vm.let_go(value),
                Err(error) => return Err(error.to_string()),
            }
        }
        Ok(cost)
    }
}

/// `foreach` repeats the operations of the first tensor.
#[test]
fn repeated_operations_cost_what_they_would_alone() {
    for device in ["cpu", "cuda"] {
        let mut lab = Lab::new(LARGE, device);
        let body = "y = y * 2 + 1\n ".repeat(20);
        let one = |of: &str| format!("foreach(|i| {{ let y = all[i]\n {body} all[i].copy_(y) }}, {of})");
        lab.vm.eval("<all>", "let all = map(|i| x.clone(), 0..40)", Mode::Input).unwrap();
        let (few, all) =
            (lab.cost(&one("all[..2]"), device).unwrap(), lab.cost(&one("all"), device).unwrap());
        assert!(all > 10 * few, "{device}: {few} and {all}");
    }
}

/// A replay costs about as much as the operations that it repeats, whatever launches they became.
#[test]
fn a_replay_costs_what_its_operations_do() {
    const BODIES: &[&str] = &[
        "z += 1",
        "for i in 0..12 { z = z * 2 + 1 }",
        "z = softmax(z.reshape(64, -1), -1).sum(0)",
        "z = (z.reshape(64, -1) - z.mean()).square().mean(1)",
        "foreach(|i| { all[i] *= 0.5\n all[i] += 1 }, range(40))",
        "foreach(|i| { all[i].lerp_(few[i % 4], 0.5) }, range(20))",
        "z = z.reshape(64, -1) @ z.reshape(64, -1).T",
        "z = z.sort().values.cumsum(0)",
        "z = cat([z, z * 2, z[..7]])",
    ];
    let mut lab = Lab::new(LARGE, "cuda");
    let setup =
        "fn range(n) { list(0..n) }\nlet all = map(|i| x.clone(), 0..40)\nlet few = map(|i| x.clone(), 0..4)";
    lab.vm.eval("<all>", setup, Mode::Input).unwrap();
    for (i, body) in BODIES.iter().enumerate() {
        let cost = lab.cost(&format!("let z = x.clone()\n {body}\n cuda.synchronize()"), "cuda").unwrap();
        let capture = format!("let g{i} = Graph()\nlet z = x.clone()\nwith graph(g{i}) {{ {body} }}");
        lab.vm.eval("<capture>", &capture, Mode::Input).unwrap();
        let replay = lab.cost(&format!("g{i}.replay()"), "cuda").unwrap();
        assert!(replay >= cost / 3 && replay <= cost * 3, "{body}: {cost} and {replay}");
    }
}

#[test]
fn fuel_is_charged_by_elements() {
    /// Lists are copied in pieces.
    const PIECE: u64 = 16;
    let least = (LARGE - SMALL) as u64;
    let mut wrong = Vec::new();
    for device in ["cpu", "cuda"] {
        let (mut small, mut large) = (Lab::new(SMALL, device), Lab::new(LARGE, device));
        let (more, texts) = if device == "cpu" { (&[][..], TEXTS) } else { (DEVICES, &[][..]) };
        for text in MADE.iter().chain(more).chain(texts) {
            let costs = small.cost(text, device).and_then(|a| Ok((a, large.cost(text, device)?)));
            match costs {
                Ok((a, b)) if b.saturating_sub(a) >= least / PIECE => {}
                other => wrong.push(format!("{device}: {text}: {other:?}")),
            }
        }
    }
    assert!(wrong.is_empty(), "{least} {wrong:#?}");
}
