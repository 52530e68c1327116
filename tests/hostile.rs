//! Numbers at the ends of the range of ints, in every place that takes an int: bounds, steps, counts, extents, strides,
//! dimensions, widths, exponents. Each call gives a value or an error in time, and the machine stays sound.

#![cfg(all(feature = "cli", feature = "cuda", feature = "dist", feature = "files", feature = "plot"))]
#![allow(clippy::unwrap_used, clippy::expect_used)] // A test that cannot go on fails.

use runnel::Backend;
use runnel::device::{Config, Machine};
use runnel::library;
use runnel::plan::{Runtime, Settings};
use runnel::vm::{Mode, Vm};
use std::time::{Duration, Instant};

/// Values for `A`, `B` and `C`, in this and in other orders.
const NUMBERS: &[[&str; 3]] = &[
    ["MAX", "MAX", "MAX"],
    ["MIN", "MIN", "MIN"],
    ["MAX", "MIN", "-1"],
    ["MIN", "MAX", "1"],
    ["0", "MAX", "1"],
    ["3", "MAX", "0"],
    ["1", "1 << 62", "4"],
    ["4294967297", "4294967297", "4294967297"],
    ["2147483648", "2147483648", "1"],
    ["3037000500", "3037000500", "1"],
    ["65536", "65536", "65536"],
    ["0", "0", "0"],
    ["-1", "-1", "-1"],
];

/// Calls with ints `A`, `B` and `C`.
const CALLS: &[&str] = &[
    "x[A..B]",
    "nn.cross_entropy(m, i[..3] + A, ignore_index=B)",
    "nn.nll_loss(m, i[..3] + A, ignore_index=B)",
    "nn.embedding(A, B)",
    "nn.embedding(4, 2, padding_idx=A)(i + B)",
    "nn.linear(A, B)",
    "nn.layer_norm(A)(x)",
    "nn.group_norm(A, B)(im)",
    "nn.multihead_attention(A, B)",
    "nn.pixel_shuffle(A)(im)",
    "data.random_split(x, (A, B))",
    "data.train_test_split(x, test_size=A)",
    "list(data.loader(x, batch_size=A, prefetch=B))",
    "data.random_crop(im, A, padding=B)",
    "parallel.data_parallel(|p, x| x, m, x, devices=[A, B], output_device=C)",
    "parallel.data_parallel(|p, x| x, m, x, dim=A)",
    "x[A]",
    "x[A..B by C]",
    "l[A..B]",
    "l[A..B by C]",
    "l[A]",
    "s[A..B]",
    "s[A..B by C]",
    "s[A]",
    "t[A..B by C]",
    "(A..B)[C]",
    "(A..B by C)[A]",
    "(A..B by C)[A..B]",
    "len(A..B)",
    "len(A..B by C)",
    "range(A, B, C)",
    "list((A..B by C)[..3])",
    "A in (B..C)",
    "C in (A..B by C)",
    "(A..B by C).start",
    "l.insert(A, 1)",
    "l.pop(A)",
    "l.index(1, A, B)",
    "s.find(\"a\", A, B)",
    "s.count(\"a\", A, B)",
    "s.startswith(\"a\", A, B)",
    "s.center(A)",
    "s.zfill(A)",
    "s.ljust(A)",
    "s.expandtabs(A)",
    "s.split(\"a\", A)",
    "s.replace(\"a\", \"b\", A)",
    "s * A",
    "A * s",
    "x.narrow(0, A, B)",
    "x.select(0, A)",
    "x.unfold(0, A, B)",
    "x.as_strided((A,), (B,), C)",
    "x.as_strided((2, 2), (A, B), C)",
    "x.view(A)",
    "x.view(A, B)",
    "x.reshape(A, B, C)",
    "x.expand(A)",
    "x.expand(A, B)",
    "x.repeat(A)",
    "x.repeat(A, B)",
    "x.tile((A, B))",
    "x.flatten(A, B)",
    "x.unflatten(0, (A, B))",
    "x.transpose(A, B)",
    "x.permute(A)",
    "x.unsqueeze(A)",
    "x.squeeze(A)",
    "x.roll(A)",
    "x.roll(A, B)",
    "x.flip(A)",
    "x.rot90(A)",
    "m.rot90(A, (B, C))",
    "x.split(A)",
    "x.chunk(A)",
    "x.tensor_split(A)",
    "x.tensor_split((A, B))",
    "x.split((A, B))",
    "x.diff(A)",
    "x.cumsum(A)",
    "x.sum(A)",
    "x.topk(A)",
    "x.kthvalue(A)",
    "x.sort(A)",
    "x.gather(A, i)",
    "x.scatter(A, i, x)",
    "x.index_select(A, i)",
    "x.index_fill(A, i, 1)",
    "x.index_add(A, i, x)",
    "x.take(i + A)",
    "x[i + A]",
    "x.diagonal(A)",
    "m.diagonal(A, B, C)",
    "m.diag(A)",
    "x.diag(A)",
    "x.diag_embed(A)",
    "x.diag_embed(A, B, C)",
    "m.tril(A)",
    "m.triu(A)",
    "tril_indices(A, B, C)",
    "triu_indices(A, B, C)",
    "tril_indices(3, 3, A)",
    "eye(A, B)",
    "eye(A)",
    "zeros(A, B)",
    "zeros(A)",
    "ones((A, B))",
    "full((A, B), 1)",
    "empty(A)",
    "rand(A)",
    "randn(A, B)",
    "randint(A, B, [3])",
    "randint(A, B, [C])",
    "randperm(A)",
    "arange(A)",
    "arange(A, B)",
    "arange(A, B, C)",
    "linspace(A, B, C)",
    "linspace(A, B, 3)",
    "logspace(0, 1, A)",
    "vander(x, A)",
    "one_hot(i, A)",
    "bincount(i, minlength=A)",
    "combinations(x, A)",
    "x.repeat_interleave(A)",
    "x.bernoulli()",
    "multinomial(x, A)",
    "histc(x, A)",
    "x.histc(A, 0, 1)",
    "pad(x, (A, B))",
    "pad(m, (A, B, C, A))",
    "fft.fft(x, A)",
    "fft.rfft(x, A)",
    "fft.irfft(x, A)",
    "fft.fftfreq(A)",
    "fft.fftshift(x, A)",
    "nn.dropout(x, A)",
    "pixel_shuffle(im, A)",
    "pixel_unshuffle(im, A)",
    "embedding(m, i + A)",
    "embedding_bag(m, i, tensor([A]))",
    "layer_norm(x, (A,))",
    "group_norm(im, A)",
    "tensor([A]).to(i32)",
    "tensor([A]) // tensor([B])",
    "tensor([A]) % tensor([B])",
    "tensor([A]) ** tensor([B])",
    "tensor([A]) << tensor([B])",
    "tensor([A]) >> tensor([B])",
    "tensor([A]) * B",
    "tensor([A]).abs()",
    "-tensor([A])",
    "tensor([A]).sum()",
    "tensor([A, B]).prod()",
    "tensor([A]).to(f32)",
    "tensor([A]).cumsum(0)",
    "A // B",
    "A % B",
    "divmod(A, B)",
    "A ** B",
    "A << B",
    "A >> B",
    "abs(A)",
    "-A",
    "math.gcd(A, B)",
    "math.lcm(A, B)",
    "math.comb(A, B)",
    "math.factorial(A)",
    "math.isqrt(A)",
    "round(A, B)",
    "round(1.5, A)",
    "\"{A:{B}}\"",
    "\"{1.5:.{A}f}\"",
    "format(1.5, \".{A}f\")",
    "format(A, \"{B}d\")",
    "format(A, \",\")",
    "format(A, \"x\")",
    "format(A, \"b\")",
    "chr(A)",
    "int(\"{A}\", B)",
    "sleep(A / 1e30)",
    "cuda.sleep(A)",
    "device(\"cuda:{A}\")",
    "Stream(priority=A)",
    "cuda.manual_seed(A)",
    "manual_seed(A)",
    "Generator().manual_seed(A)",
    "Generator().set_offset(A)",
    "cuda.set_device(A)",
    "cuda.memory_stats(A)",
    "comm.scatter(x, [0, 1], (A, B))",
    "comm.scatter(x, [0, 1], none, A)",
    "comm.broadcast(x, [A, B])",
    "comm.gather([x, x], 0, A)",
    "enumerate(l, A)",
    "sum(l, A)",
    "list(zip(l, A..B))",
    "list(map(|q| q, (A..B)[..2]))",
    "x.movedim(A, B)",
    "x.swapaxes(A, B)",
    "stack([x, x], A)",
    "cat([x, x], A)",
    "x.unbind(A)",
    "x.argmax(A)",
    "x.std(A)",
    "x.var(0, correction=A)",
    "x.norm(A)",
    "x.renorm(A, B, C)",
    "x.quantile(0.5, A)",
    "x.logsumexp(A)",
    "softmax(x, A)",
    "x.nonzero()",
    "x.clamp(A, B)",
    "i.clamp(A, B)",
    "x.fill_(A)",
    "i.fill_(A)",
    "x.pow(A)",
    "i.pow(A)",
    "x.polygamma(A)",
    "x.ldexp(i + A)",
    "ldexp(x, i + A)",
    "x.logit(A)",
    "einsum(\"i,i\", x, x)",
    "tensordot(m, m, A)",
    "tensordot(m, m, ([A], [B]))",
    "searchsorted(x, A)",
    "bucketize(A, x)",
    "x.random_(A, B)",
    "x.geometric_(0.5)",
    "x.uniform_(A, B)",
    "x.normal_(A, B)",
    "x.masked_fill(x > 0, A)",
    "x.to(u8) + A",
    "dist.recv(x, A)",
    "nvtx.range_end(A)",
    "progress(l, A)",
    "plot.hist(x, A)",
    "scaled_dot_product_attention(im, im, im, scale=A)",
    "cuda.caching_allocator_alloc(A)",
    "cuda.caching_allocator_delete(A)",
    "cuda.cufft_plan_cache().set_max_size(A)",
    "cuda.set_per_process_memory_fraction(A)",
    "cuda.record_memory_history(A)",
    "x.put_(i + A, x)",
    "x.index_copy(0, i + A, x)",
    "x.view(dtype=f64)",
    "x.new_zeros(A, B)",
    "x.new_full((A,), B)",
    "one_hot(i + A)",
    "bincount(i + A)",
];

const VALUES: &str = "import nn\nimport data\nimport parallel\nlet MAX = 9223372036854775807\nlet MIN = -MAX - 1\nlet x = arange(6.0)\n\
    let m = rand(3, 3)\nlet i = zeros(6, dtype=i64)\nlet l = [1, 2, 3]\nlet s = \"abcä\"\nlet t = (1, 2, 3)\n\
    let im = rand(1, 2, 6, 6)\nlet im1 = rand(1, 2, 6)";

fn machine() -> Vm {
    let config = Config {
        backend: Backend::Emu,
        devices: Some(2),
        device_memory: Some(64 << 20),
        ..Config::default()
    };
    library::machine(Runtime::new(Machine::open(&config).unwrap(), Settings::default()))
}

#[test]
fn ints_at_the_ends_of_their_range_give_values_or_errors_in_time() {
    const LIMIT: Duration = Duration::from_millis(20);
    /// Debug builds on busy machines are slow.
    const LATE: Duration = Duration::from_secs(5);
    let (mut late, mut unknown) = (Vec::new(), Vec::new());
    for device in ["cpu", "cuda"] {
        let mut vm = machine();
        for call in CALLS {
            for numbers in NUMBERS {
                for turn in 0..if device == "cpu" { 2 } else { 1 } {
                    let number = |at: usize| format!("({})", numbers[(at + turn) % 3]);
                    let text = with_numbers(call, &number);
                    vm.eval("<values>", VALUES, Mode::Input).unwrap();
                    vm.limits.time = Some(LIMIT);
                    vm.limits.host_bytes = 64 << 20;
                    let start = Instant::now();
                    let code = format!(
                        "(|| {{ with device({device}) {{ let r = {text}\ncuda.synchronize()\nr }} }})()"
                    );
                    let result = vm.eval("<call>", &code, Mode::Input);
                    let took = start.elapsed();
                    vm.limits = runnel::vm::Limits::default();
                    match result {
                        Ok(value) => vm.let_go(value),
                        Err(error) => {
                            let code = error.code().id;
                            if code.starts_with("E01") || code.starts_with("E02") || code == "E0328" {
                                unknown.push(format!("{call}: {error}"));
                            }
                            assert!(code != "E0963", "{text}: {error}");
                        }
                    }
                    if took > LIMIT + LATE {
                        late.push(format!("{took:?} {device} {text}"));
                    }
                }
            }
        }
        let sound = vm.eval("<check>", "tensor([1, 2, 3]).sum().item() + sum([1, 2])", Mode::Input).unwrap();
        assert!(matches!(sound, runnel::vm::Value::Int(9)));
    }
    unknown.sort();
    unknown.dedup();
    assert!(unknown.is_empty(), "{unknown:#?}");
    assert!(late.is_empty(), "{late:#?}");
}

/// Replaces the words `A`, `B` and `C`.
fn with_numbers(call: &str, number: &dyn Fn(usize) -> String) -> String {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut out = String::new();
    let mut before = ' ';
    let mut rest = call.chars().peekable();
    while let Some(c) = rest.next() {
        let alone = !is_word(before) && !rest.peek().copied().is_some_and(is_word);
        match "ABC".find(c) {
            Some(at) if alone => out += &number(at),
            // In `{1.5:.{A}f}`, a brace ends the word.
            _ => out.push(c),
        }
        before = c;
    }
    out
}

/// Results beyond the range of ints are errors, never other ints.
#[test]
fn results_that_no_int_holds_are_errors() {
    const WRONG: &[&str] = &[
        "MAX + 1",
        "-MIN",
        "abs(MIN)",
        "MIN // -1",
        "sum([MAX, 1])",
        "enumerate([1, 2], MAX)",
        "list(enumerate(iterable(|| { let k = 0\n || { k += 1\n if k < 3 { k } } }), MAX))",
        "(|| { for (n, x) in enumerate([1, 2], MAX) { } })()",
        "len(MIN..MAX)",
        "(MIN..MAX)[-1]",
    ];
    const RIGHT: &[&str] = &[
        "enumerate([1], MAX) == [(MAX, 1)]",
        "len(0..MAX) == MAX",
        "(0..MAX)[-1] == MAX - 1",
        "(MIN..MAX)[0] == MIN",
        "list(MAX - 5..MAX by 4) == [MAX - 5, MAX - 1]",
        "\"abc\"[MAX..MIN by -1] == \"cba\"",
    ];
    let mut vm = machine();
    vm.eval("<values>", VALUES, Mode::Input).unwrap();
    for text in WRONG {
        let error = vm.eval("<wrong>", text, Mode::Input).err().expect(text);
        assert_eq!(error.code().id, "E0312", "{text}: {error}");
    }
    for text in RIGHT {
        let value = vm.eval("<right>", text, Mode::Input).unwrap();
        assert!(matches!(value, runnel::vm::Value::Bool(true)), "{text}");
    }
}
