//! A race report points at the argument that races: for every operation with several tensors, each one is written on
//! another stream.

#![allow(clippy::unwrap_used)] // A test that cannot go on fails.

use runnel::base::Place;
use runnel::ops::signature::{Default, Kind};
use runnel::ops::{Op, table};
use runnel::{Backend, Engine};

/// Candidate arguments; every operation accepts one of them.
const TENSORS: &[&str] = &[
    "ones(2, 2)",
    "zeros(2, dtype=i64)",
    "zeros(2, 2, dtype=i64)",
    "ones(2, 2, dtype=bool)",
    "ones(2)",
    "ones(2, 2, 2)",
    "zeros(1, dtype=i64)",
    "tensor(1.0)",
];

/// The text of a call with variables, and their names; `None` for calls with fewer than two tensors.
fn call_of(op: &Op) -> Option<(String, Vec<String>)> {
    let mut names: Vec<String> = Vec::new();
    let mut args = Vec::new();
    let mut fresh = || {
        names.push(format!("t{}", names.len()));
        names[names.len() - 1].clone()
    };
    for param in op.params {
        let text = match param.kind {
            _ if param.default != Default::Required && !param.rest => continue,
            Kind::Tensor if param.rest => format!("{}, {}", fresh(), fresh()),
            Kind::Tensor | Kind::TensorOrNumber => fresh(),
            Kind::Tensors => format!("[{}, {}]", fresh(), fresh()),
            Kind::Int | Kind::Dims => "0".into(),
            Kind::Number | Kind::Float => "1".into(),
            Kind::Bool => "true".into(),
            Kind::Str if op.name == "einsum" => "\"ij,jk->ik\"".into(),
            Kind::Str => "\"sum\"".into(),
            Kind::Shape | Kind::ShapeOrDtype => "2".into(),
            _ => return None,
        };
        args.push(text);
    }
    if names.len() < 2 {
        return None;
    }
    let text = match op.form.function {
        true => format!("{}({})", op.name, args.join(", ")),
        false => {
            let mark = if op.form.method { "" } else { "_" };
            format!("{}.{}{mark}({})", args[0], op.name, args[1..].join(", "))
        }
    };
    Some((text, names))
}

/// Tensors that a call accepts, one for each name.
fn tensors(engine: &mut Engine, call: &str, names: &[String]) -> Option<Vec<&'static str>> {
    let choices = TENSORS.len().pow(names.len() as u32);
    (0..choices.min(600)).find_map(|mut choice| {
        let mut chosen = Vec::new();
        for _ in names {
            chosen.push(TENSORS[choice % TENSORS.len()]);
            choice /= TENSORS.len();
        }
        let made: Vec<String> =
            names.iter().zip(&chosen).map(|(n, text)| format!("let {n} = {text}")).collect();
        let script = format!("{}\n{call}\ncuda.synchronize()", made.join("\n"));
        engine.eval::<()>(&script).is_ok().then_some(chosen)
    })
}

/// The positions of the labels of a call if `raced` is written on another stream before it; `None` if there is no race.
fn shown(
    engine: &mut Engine,
    call: &str,
    made: &[(String, &'static str)],
    raced: &str,
) -> Option<Vec<String>> {
    let made: Vec<String> = made.iter().map(|(name, text)| format!("let {name} = {text}")).collect();
    let script = format!(
        "{}\ncuda.synchronize()\nwith stream(other) {{ {raced}.zero_() }}\n{call}\n()",
        made.join("\n")
    );
    let error = engine.eval::<()>(&script).err()?;
    assert_eq!(error.code().id, "E0601", "{script}\n{error:?}");
    let snippets = error.labels().iter().filter_map(|label| match label.place {
        Place::Span(span) => Some(engine.sources().snippet(span).to_string()),
        _ => None,
    });
    let snippets = snippets.collect();
    engine.eval::<()>("cuda.synchronize()").unwrap();
    Some(snippets)
}

fn check(engine: &mut Engine, call: &str, made: &[(String, &'static str)], wrong: &mut Vec<String>) -> usize {
    let mut races = 0;
    for (name, _) in made {
        if let Some(places) = shown(engine, call, made, name) {
            races += 1;
            if places.first() != Some(name) {
                wrong.push(format!("{call} where `{name}` races: {places:?}"));
            }
        }
    }
    races
}

#[test]
fn a_race_is_shown_at_the_argument_that_races() {
    let mut engine = Engine::builder().backend(Backend::Emu).devices(2).build().unwrap();
    engine.eval::<()>("let other = Stream()").unwrap();
    let (mut wrong, mut untried, mut races) = (Vec::new(), Vec::new(), 0);
    for op in table::all() {
        let Some((call, names)) = call_of(op) else { continue };
        let Some(chosen) = tensors(&mut engine, &call, &names) else {
            untried.push(op.name);
            continue;
        };
        let made: Vec<(String, &'static str)> = names.into_iter().zip(chosen).collect();
        races += check(&mut engine, &call, &made, &mut wrong);
    }
    // Operators, indices, in-place forms, names, lists in variables, functions other than operations.
    let plain = ["ones(2, 2)", "ones(2, 2)", "ones(2, 2)"];
    let rows = ["ones(2, 2)", "zeros(1, dtype=i64)", "ones(1, 2)"];
    let masked = ["ones(2, 2)", "ones(2, 2, dtype=bool)", "ones(2, 2)"];
    let table = [
        ("t0 + t1 * t2", plain),
        ("t0 @ t1", plain),
        ("t0.add_(t1)", plain),
        ("t0.copy_(t1)", plain),
        ("addmm(t0, t1, t2)", plain),
        ("addmm(t0, mat2=t2, mat1=t1)", plain),
        ("t0.addmm(t1, t2)", plain),
        ("t0 |> addmm(t1, t2)", plain),
        ("lerp(t0, t1, t2)", plain),
        ("t0[..] = t1", plain),
        ("t0[t1]", rows),
        ("t0[t1] = t2", rows),
        ("t0[t1, 0..1]", rows),
        ("t0[t1] = 1", masked),
        ("t0.masked_fill_(t1, 0.0)", masked),
        ("where(t1, t0, t2)", masked),
        ("cat([t0, t1, t2], dim=1)", plain),
        ("comm.broadcast(t0, out=[t1, t2])", plain),
    ];
    for (call, tensors) in table {
        let used = ["t0", "t1", "t2"].iter().zip(tensors).filter(|(name, _)| call.contains(**name));
        let made: Vec<(String, &'static str)> = used.map(|(name, text)| (name.to_string(), text)).collect();
        let found = check(&mut engine, call, &made, &mut wrong);
        assert!(found > 0, "{call}");
        races += found;
    }
    println!("{races} races; no arguments for {untried:?}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(races > 150, "{races}");
}
