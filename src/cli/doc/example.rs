//! Shows an example as a session would: its statements and their values.
//!
//! Examples in the tables test themselves with `assert`. A reader wants to see the compared value, so each
//! assertion is shown as its operand with the value. The example is run, on emulated devices, without file
//! access and with a short time limit; one that cannot run is shown as written.

use crate::base::Result;
use crate::device::Backend;
use crate::engine::Engine;
use crate::syntax::ast::{Arg, Binary, Block, Expr, ExprKind, Stmt, StmtKind};
use crate::vm::{Mode, Value};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The prompt before a statement, and before its further lines.
const PROMPTS: [&str; 2] = ["> ", "  "];

/// The example with its output, or its plain text.
pub fn transcript(example: &str) -> String {
    let parsed = crate::syntax::parse(BASE, example);
    let shown = match parsed.errors.is_empty() {
        true => run(example, &parsed.block).ok(),
        false => None,
    };
    shown.unwrap_or_else(|| example.to_string())
}

/// The source position of an example's first byte.
const BASE: u32 = 1;

fn run(example: &str, block: &Block) -> Result<String> {
    let printed = Arc::new(Mutex::new(String::new()));
    let sink = printed.clone();
    let mut engine = Engine::builder()
        .backend(Backend::Emu)
        .devices(2)
        .files(false)
        .time(Duration::from_secs(2))
        .output(move |text| sink.lock().unwrap_or_else(PoisonError::into_inner).push_str(text))
        .build()?;
    let mut shown = String::new();
    for (at, statement) in block.body.iter().enumerate() {
        let text = text_of(example, statement);
        for (line, prompt) in text.lines().zip(PROMPTS.iter().chain(std::iter::repeat(&PROMPTS[1]))) {
            shown.push_str(&format!("{prompt}{line}\n"));
        }
        let name = format!("<example:{at}>");
        let value = engine.evaluate(&name, text, Mode::Input, |vm, value| match value {
            Value::None => Ok(None),
            value => vm.inspect(&value).map(Some),
        })?;
        shown.push_str(&std::mem::take(&mut *printed.lock().unwrap_or_else(PoisonError::into_inner)));
        if let Some(value) = value {
            shown.push_str(&format!("{value}\n"));
        }
    }
    Ok(shown.trim_end().to_string())
}

/// The part of a statement to run and show; of an assertion, its operand.
fn text_of<'a>(example: &'a str, statement: &Stmt) -> &'a str {
    let about = match &statement.kind {
        StmtKind::Expr(e) => called(e, "assert").and_then(|args| args.first().copied()).map(compared),
        _ => None,
    };
    let span = about.map_or(statement.span, |e| e.span);
    example.get((span.lo - BASE) as usize..(span.hi - BASE) as usize).unwrap_or(example)
}

const COMPARISONS: [Binary; 5] = [Binary::Eq, Binary::Lt, Binary::Le, Binary::Gt, Binary::Ge];

/// The first operand of a comparison; any other condition as a whole.
fn compared(condition: &Expr) -> &Expr {
    match &condition.kind {
        ExprKind::Binary(operator, left, _) if COMPARISONS.contains(operator) => left,
        _ => match called(condition, "equal").as_deref() {
            Some([left, _]) => left,
            _ => condition,
        },
    }
}

/// The positional arguments of a call of the function `name`.
fn called<'a>(e: &'a Expr, name: &str) -> Option<Vec<&'a Expr>> {
    let ExprKind::Call(function, args) = &e.kind else { return None };
    let named = matches!(&function.kind, ExprKind::Name(text) if **text == *name);
    let args = args.iter().map(|arg| match arg {
        Arg::One(e) => Some(e),
        _ => None,
    });
    if named { args.collect() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assertions_show_their_operands() {
        let example = "let x = tensor([[1, 2], [3, 4]])\nassert(equal(x.sum(1), [3, 7]))\nassert(x.shape == (2, 2))\nassert(x.is_contiguous())\nfor i in 0..2 {\n    print(i)\n}";
        let shown = "> let x = tensor([[1, 2], [3, 4]])\n> x.sum(1)\ntensor([3, 7], device='cuda:0')\n> x.shape\n(2, 2)\n> x.is_contiguous()\ntrue\n> for i in 0..2 {\n      print(i)\n  }\n0\n1";
        assert_eq!(transcript(example), shown);
        // Examples that cannot run are shown as written.
        for plain in ["let = 1", "throw \"no\"", "write(\"x\", \"y\")"] {
            assert_eq!(transcript(plain), plain);
        }
    }
}
