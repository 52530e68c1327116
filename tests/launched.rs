//! Faults of work that functions of the library launch are reported at the script's own call.

#![allow(clippy::unwrap_used)] // A test that cannot go on fails.

use runnel::base::{Error, Place};
use runnel::device::{Backend, Config, Machine};
use runnel::plan::{Runtime, Settings};
use runnel::vm::{Mode, Vm};

/// Calls whose index or assertion is wrong, each with the code of its fault.
const CALLS: &[(&str, &str)] = &[
    ("x[bad]", "E0802"),
    ("nn.cross_entropy(x, bad)", "E0802"),
    ("nn.cross_entropy(x, bad, label_smoothing=0.1)", "E0802"),
    ("nn.cross_entropy(x, bad, weight=ones(3))", "E0802"),
    ("nn.nll_loss(x, bad)", "E0802"),
    ("nn.nll_loss(x, bad, weight=ones(3))", "E0802"),
    ("nn.multi_margin_loss(x, bad)", "E0802"),
    ("nn.multilabel_margin_loss(x, tensor([[0, 3, -1], [1, -1, 0]]))", "E0802"),
    ("nn.ctc_loss(ones(4, 1, 3), tensor([[1, 5]]), [4], [2])", "E0802"),
    ("nn.embedding(3, 4)(bad)", "E0802"),
    ("nn.embedding(3, 4, max_norm=1.0)(bad)", "E0802"),
    ("nn.embedding_bag(3, 4)(bad.reshape(1, 2))", "E0802"),
    ("nn.sequential(nn.embedding(3, 4), nn.linear(4, 1))(bad)", "E0802"),
    ("nn.binary_cross_entropy(tensor([0.5, 2.0]), tensor([0.0, 1.0]))", "E0804"),
    ("nn.binary_cross_entropy(tensor([0.5, 0.5]), tensor([0.0, -1.0]))", "E0804"),
    ("nn.gaussian_nll_loss(x, x, tensor([[1.0], [-1.0]]))", "E0804"),
    ("map(|t| nn.cross_entropy(x, t), [bad])[0]", "E0802"),
];

fn vm(blocking: bool) -> Vm {
    let config = Config { backend: Backend::Emu, ..Config::default() };
    let settings = Settings { launch_blocking: blocking, ..Settings::default() };
    runnel::library::machine(Runtime::new(Machine::open(&config).unwrap(), settings))
}

/// The error of a script, and the text of its first label.
fn labelled(vm: &mut Vm, script: &str) -> (Error, String) {
    let error =
        vm.eval("script.rnl", script, Mode::Script).err().unwrap_or_else(|| panic!("no error:\n{script}"));
    let Some(Place::Span(span)) = error.labels().first().map(|label| label.place) else {
        panic!("nothing is labelled: {error:?}\n{script}")
    };
    let file = vm.sources.find(span).map(|id| vm.sources.name(id).to_string());
    assert_eq!(file.as_deref(), Some("script.rnl"), "{error:?}\n{script}");
    let text = vm.sources.snippet(span).to_string();
    (error, text)
}

#[test]
fn a_fault_is_reported_at_the_script_s_call_of_the_library() {
    let head = "import nn\nlet x = randn(2, 3)\nlet bad = tensor([0, 3])\n";
    let mut sessions = [false, true].map(vm);
    for (call, code) in CALLS {
        let wanted = call
            .strip_prefix("map(|t| ")
            .and_then(|rest| rest.split_once(", [bad]"))
            .map_or(*call, |(f, _)| f);
        for script in [
            format!("{head}let y = {call}\nlet n = 1\nprint(y)"),
            format!("{head}fn work() {{\n    let y = {call}\n    y\n}}\nlet y = work()\nprint(y)"),
            format!("{head}let net = (forward = |self| {call})\nlet y = net()\nprint(y)"),
            format!("{head}let y = {call}\ncuda.synchronize()"),
        ] {
            for vm in &mut sessions {
                let (error, text) = labelled(vm, &script);
                assert_eq!((error.code().id, text.as_str()), (*code, wanted), "{error:?}\n{script}");
            }
        }
    }
}

#[test]
fn the_line_of_a_caught_fault_is_that_of_the_call() {
    let script = "import nn\nlet x = randn(2, 3)\nlet loss = nn.cross_entropy(x, tensor([0, 3]))\n\
                  let e = try { loss.item() } catch e { e }\ne.line";
    let line = vm(false).eval("script.rnl", script, Mode::Script).unwrap();
    assert_eq!(line.as_int(), Some(3));
}

#[test]
fn a_fault_of_captured_work_is_reported_at_the_script_s_call() {
    let script = "import nn\nlet x = randn(2, 3)\nlet t = tensor([0, 1])\nlet step = cuda.graphed(|x, t| {\n\
                  nn.cross_entropy(x, t)\n}, (x, t))\nlet y = step(x, tensor([0, 3]))\nprint(y)";
    let (error, text) = labelled(&mut vm(false), script);
    assert_eq!((error.code().id, text.as_str()), ("E0802", "nn.cross_entropy(x, t)"), "{error:?}");
}

#[test]
fn a_user_s_function_that_the_library_calls_is_named_itself() {
    let script = "import nn\nlet table = randn(3, 2)\nlet net = nn.sequential(|ids| {\ntable[ids]\n}, nn.linear(2, 1))\n\
                  let y = net(tensor([0, 3]))\nprint(y)";
    assert_eq!(labelled(&mut vm(false), script).1, "table[ids]");
}
