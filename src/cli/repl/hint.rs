//! Hints at the remaining parameters of a call while it is written.

use super::commands::{self, Takes};
use super::complete::called;
use super::place::{self, Spot};
use crate::vm::Vm;

/// The remaining parameters of the call at the end of `line`: `dim=none, keepdim=false)`.
pub fn hint(vm: &mut Vm, line: &str) -> Option<String> {
    let code = match line.trim_start().strip_prefix(':') {
        Some(command) => match command.split_once(char::is_whitespace) {
            Some((name, code)) if matches!(commands::find(name)?.takes, Takes::Code(_)) => code,
            _ => return None,
        },
        None => line,
    };
    let place = place::at_end(code);
    if matches!(place.spot, Spot::Text { .. }) {
        return None;
    }
    let call = place.call?;
    let function = called(vm, &call)?;
    let left = function.remaining(&call.given);
    let current = function.current(&call.given, call.name).map(|param| param.name.clone());
    let mut words: Vec<&str> = Vec::new();
    let mut named = false;
    for param in left {
        // The current parameter is not repeated, unless it takes several arguments.
        if !call.is_empty && current.as_deref() == Some(&param.name) && !param.rest {
            continue;
        }
        if param.named_only && !named {
            named = true;
            if !function.params.iter().any(|p| p.rest) {
                words.push("*");
            }
        }
        words.push(&param.shown);
    }
    let joined = words.join(", ");
    Some(match (call.is_empty, joined.is_empty()) {
        (_, true) => ")".to_string(),
        (true, false) => format!("{joined})"),
        (false, false) => format!(", {joined})"),
    })
}
