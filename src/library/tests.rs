//! Every native's example runs, and every table is complete.

use super::*;
use crate::base::long::few_or_many;
use crate::device::{Backend, Config, Machine};
use crate::plan::{Runtime, Settings};
use crate::vm::Mode;

fn vm() -> crate::vm::Vm {
    let config = Config { backend: Backend::Emu, ..Config::default() };
    machine(Runtime::new(Machine::open(&config).unwrap(), Settings::default()))
}

/// Checks a script, as commands do before they run it, and runs it.
fn checked(script: &str) -> Result<()> {
    let mut vm = vm();
    let block = vm.parse("<example>", script)?;
    match vm.check("<example>", &block, true).errors.into_iter().next() {
        Some(error) => Err(error),
        None => vm.run(&block, Mode::Script).map(drop),
    }
}

#[test]
fn everything_has_an_example_that_runs() {
    let mut failures = Vec::new();
    let operations = |entry: &docs::Entry| crate::ops::table::find(&entry.name).is_some();
    for entry in docs::entries().iter().filter(|entry| !operations(entry)) {
        // Functions that need user input or leave files behind.
        if entry.example.is_empty() && !["input", "read", "write"].contains(&entry.name.as_str()) {
            failures.push(format!("{} has no example", entry.name));
        }
        if let Err(error) = checked(&entry.example) {
            failures.push(format!("{}: {error:?}", entry.name));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn every_code_s_example_ends_in_it() {
    let mut failures = Vec::new();
    let codes = crate::vm::error::CODES.iter().chain(crate::files::error::CODES);
    for code in codes.filter(|c| !c.example.is_empty()) {
        let mut vm = vm();
        vm.limits.host_bytes = 64 << 20;
        match vm.eval("<example>", code.example, Mode::Script) {
            Err(error) if std::ptr::eq(error.code(), *code) => {}
            Err(error) => failures.push(format!("{}: {error:?}", code.id)),
            Ok(_) => failures.push(format!("{}: no error", code.id)),
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn inputs_share_names_and_a_failed_one_keeps_them() {
    let mut vm = vm();
    vm.eval("<1>", "let x = 1\nfn f() { x + y }\nlet y = 2", Mode::Input).unwrap();
    assert!(matches!(vm.eval("<2>", "f()", Mode::Input), Ok(Value::Int(3))));
    assert!(vm.eval("<3>", "let x = 1 // 0\nlet z = 3", Mode::Input).is_err());
    assert!(matches!(vm.eval("<4>", "x = 5; f()", Mode::Input), Ok(Value::Int(7))));
    assert!(vm.global("z").is_none());
    assert!(vm.eval("<5>", "z", Mode::Input).is_err());
    assert!(matches!(vm.eval("<6>", "let max = max(1, 2)\nmax", Mode::Input), Ok(Value::Int(2))));
}

#[test]
fn code_that_may_multiply_matrices_is_found() {
    let found = |code: &str| {
        let Ok(Value::Fn(function)) = vm().eval("<test>", &format!("|a, b| {{ {code} }}"), Mode::Script)
        else {
            panic!("{code} is the body of a function");
        };
        (function.proto.multiplies(), function.proto.names_halves())
    };
    for code in ["a @ b", "a @= b", "a.linear(b)", "mm(a, b)", "map(|x| x.mv(b), a)", "let f = matmul"] {
        assert_eq!(found(code), (true, false), "{code}");
    }
    for code in ["a.to(bf16) @ b", "with autocast(f16) { a @ b }", "|x| x.half().mm(b)"] {
        assert_eq!(found(code), (true, true), "{code}");
    }
    for code in ["a * b", "print(a.mT)", "a.mul(b) + 1"] {
        assert_eq!(found(code), (false, false), "{code}");
    }
}

#[test]
fn code_that_may_transform_is_found() {
    let found = |code: &str| {
        let Ok(Value::Fn(function)) = vm().eval("<test>", &format!("|a| {{ {code} }}"), Mode::Script) else {
            panic!("{code} is the body of a function");
        };
        function.proto.transforms()
    };
    for code in ["fft.fft(a)", "|x| fft.irfft2(x)", "map(|x| fft.rfftn(x), [a])"] {
        assert!(found(code), "{code}");
    }
    for code in ["a.sum()", "fft.fftfreq(5)", "fft.fftshift(a)"] {
        assert!(!found(code), "{code}");
    }
}

#[test]
fn limits_stop_scripts_and_interrupts_are_not_caught() {
    let mut vm = vm();
    vm.limits.fuel = Some(100_000);
    let error = vm.eval("<1>", "while true { }", Mode::Script).err().unwrap();
    assert_eq!(error.code().id, "E1002");
    vm.limits.fuel = None;
    vm.interrupt_flag().store(true, std::sync::atomic::Ordering::Relaxed);
    let text = "let log = []\ntry { while true { } } catch e { log.append(1) }";
    let error = vm.eval("<2>", text, Mode::Input).err().unwrap();
    assert_eq!(error.code().id, "E1004");
    assert!(matches!(vm.eval("<3>", "len(log)", Mode::Input), Ok(Value::Int(0))));
    let text = "let n = 0\nfn f() { defer { n += 1 }\n while true { } }\nf()";
    vm.limits.time = Some(std::time::Duration::from_millis(20));
    assert_eq!(vm.eval("<4>", text, Mode::Input).err().unwrap().code().id, "E1008");
    vm.limits.time = None;
    assert!(matches!(vm.eval("<5>", "n", Mode::Input), Ok(Value::Int(1))));
}

#[test]
fn every_native_is_documented_and_defined_once() {
    let mut seen = std::collections::HashSet::new();
    for def in NATIVES.iter().flat_map(|(_, table)| *table).chain(device::natives()) {
        assert!(def.doc.ends_with('.'), "{}", def.name);
        assert!(!def.name.is_empty());
        assert!(
            seen.insert((def.receiver, def.name)),
            "{} is defined twice for `{}`",
            def.name,
            def.receiver
        );
    }
}

/// The scripts of the language tests.
fn scripts() -> Vec<String> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lang");
    let files = std::fs::read_dir(folder).unwrap().map(|f| f.unwrap().path());
    let files = files.filter(|f| f.extension().is_some_and(|e| e == "rnl"));
    let texts = files.map(|f| std::fs::read_to_string(f).unwrap());
    let without_marks = |text: String| {
        let lines = text.lines().filter(|l| !l.contains("# error: "));
        lines.collect::<Vec<_>>().join("\n")
    };
    texts.map(without_marks).collect()
}

#[test]
fn a_session_is_sound_after_every_limit() {
    // Each script is stopped at a part of the points, and the next script at another part.
    let part = few_or_many(9, 3);
    for (number, text) in scripts().into_iter().enumerate() {
        let mut vm = vm();
        let cuda = vm.rt.current_device();
        for fuel in (0..40).chain((40..4000).step_by(397)).skip(number % part).step_by(part) {
            vm.limits.fuel = Some(fuel);
            let _ = vm.eval("<limited>", &text, Mode::Input);
            vm.limits.fuel = None;
            assert_eq!(vm.rt.current_device(), cuda);
            assert!(matches!(vm.eval("<after>", "1 + 1", Mode::Input), Ok(Value::Int(2))));
        }
        for bytes in (0..6000).step_by(433).skip(number % part).step_by(part) {
            vm.limits.host_bytes = bytes;
            let _ = vm.eval("<limited>", &text, Mode::Input);
            vm.limits.host_bytes = 1 << 30;
            assert!(matches!(vm.eval("<after>", "1 + 1", Mode::Input), Ok(Value::Int(2))));
        }
    }
}

#[test]
fn damaged_scripts_never_panic() {
    // Shuffled pieces of the scripts: most do not parse, and the others are arbitrary programs.
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % below.max(1)
    };
    let texts = scripts();
    let mut vm = vm();
    vm.limits.fuel = Some(2000);
    vm.limits.host_bytes = 1 << 20;
    for _ in 0..1500 {
        let lines: Vec<&str> = texts[random(texts.len())].lines().collect();
        let mut words: Vec<&str> = lines[random(lines.len())].split_inclusive(' ').collect();
        for _ in 0..1 + random(3) {
            if words.is_empty() {
                break;
            }
            let (a, b) = (random(words.len()), random(words.len()));
            words.swap(a, b);
            if random(3) == 0 {
                words.remove(random(words.len()));
            }
        }
        let _ = vm.eval("<damaged>", &words.concat(), Mode::Input);
    }
    vm.limits = crate::vm::Limits::default();
    assert!(matches!(vm.eval("<after>", "1 + 1", Mode::Input), Ok(Value::Int(2))));
}

/// Operations have one entry point, in every way that scripts can call them.
#[test]
fn every_way_to_write_an_operation_applies_it() {
    let mut vm = vm();
    let setup = "let x = ones(3, 3); let y = ones(3, 3); let b = x > 0; let ids = tensor([0, 1])\n\
                 let z = complex([1.0], [2.0]); let list = [1.0, 2.0]; let v = ones(3)\n\
                 let g = cuda.graphed(|a| a + 1, (v,))";
    vm.eval("<setup>", setup, Mode::Input).unwrap();
    let mut applied = |text: &str| {
        let before = vm.rt.operations();
        vm.eval("<input>", text, Mode::Input).unwrap_or_else(|e| panic!("{text}: {e:?}"));
        vm.rt.operations() - before
    };
    for text in [
        "x + y",
        "x + 1",
        "2 ** x",
        "x < y",
        "x @ y",
        "list + x[0, ..2]",
        "-x",
        "~b",
        "x += 1",
        "add(x, y)",
        "x.add(y)",
        "x.add_(y)",
        "absolute(x)",
        "x.T",
        "x.mT",
        "z.real",
        "z.imag",
        "x[0]",
        "x[.., 1]",
        "x[b]",
        "x[ids]",
        "x[0] = 1",
        "x[b] = 0",
        "x[ids] = y[..2]",
        "x on cpu",
        "x.cpu()",
        "x.t_()",
        "x.sum()",
        "if (x == y).all() { }",
        "g(v)",
        "x |> relu()",
        "for row in v { row }",
        "comm.broadcast(v, [0, 1])",
        "comm.scatter(ones(4), [0, 1])",
        "comm.reduce_add([v, v on cuda:1], 0)",
    ] {
        assert!(applied(text) > 0, "`{text}` applies no operation");
    }
    for text in ["x + y", "x.add_(y)", "x.T", "z.imag", "x[ids]", "x[0] = 1", "x on cpu"] {
        assert_eq!(applied(text), 1, "`{text}`");
    }
    // Each operation's example applies it, whatever its row says.
    for op in crate::ops::table::all() {
        let mut vm = self::vm();
        let before = vm.rt.operations();
        vm.eval("<example>", op.example, Mode::Script).unwrap_or_else(|e| panic!("{}: {e:?}", op.name));
        assert!(vm.rt.operations() > before, "`{}`", op.name);
    }
}
