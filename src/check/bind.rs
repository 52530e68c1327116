//! Checks whether the arguments of a call fit a function's parameters.
//!
//! Applies the same rules as the VM when the call runs, but without values.

use super::error;
use crate::base::{self, Error, Span};
use crate::ops::signature::{Default, Signature, other_name};
use crate::syntax::ast::{Arg, Function, PatternKind};
use std::rc::Rc;

/// The arguments of a call.
pub struct Given {
    /// Positional arguments.
    positional: Vec<Span>,
    /// Named arguments.
    named: Vec<(Rc<str>, Span)>,
    /// True if `..x` adds arguments whose number is unknown here.
    spread: bool,
    /// The span to report when an argument is missing.
    span: Span,
}

impl Given {
    /// The arguments of a call, after the value that a pipeline passes first.
    pub fn new(first: Option<Span>, args: &[Arg], span: Span) -> Given {
        let mut given =
            Given { positional: first.into_iter().collect(), named: Vec::new(), spread: false, span };
        for arg in args {
            match arg {
                Arg::One(e) => given.positional.push(e.span),
                Arg::Named(name, _) => given.named.push((name.text.clone(), name.span)),
                Arg::Spread(_) => given.spread = true,
            }
        }
        given
    }
}

/// A parameter of any kind of function.
struct Slot<'a> {
    name: &'a str,
    other_name: Option<&'static str>,
    required: bool,
    rest: bool,
    /// A rest parameter that may be given by name, as one list.
    listed: bool,
    named_only: bool,
}

/// The errors in a call of a native function.
pub fn native(function: &str, signature: &Signature, given: &Given) -> Vec<Error> {
    let slots: Vec<Slot<'_>> = signature
        .params
        .iter()
        .map(|p| Slot {
            name: p.name,
            other_name: other_name(p.name),
            required: p.default == Default::Required && !p.rest,
            rest: p.rest,
            listed: p.listed(),
            named_only: p.named_only,
        })
        .collect();
    fit(function, &slots, given, &signature.to_string())
}

/// The errors in a call of a method; the receiver is not an argument.
pub fn method(name: &str, signature: &Signature, given: &Given) -> Vec<Error> {
    let params = match signature.params {
        [receiver, others @ ..] if !receiver.rest => others,
        all => all,
    };
    native(name, &Signature { params }, given)
}

/// The errors in a call of a script function.
pub fn script(name: &str, function: &Function, given: &Given) -> Vec<Error> {
    let mut after_rest = false;
    let slots: Vec<Slot<'_>> = function
        .params
        .iter()
        .map(|p| {
            let name = match &p.pattern.kind {
                PatternKind::Bind(name) => &*name.text,
                _ => "_",
            };
            let slot = Slot {
                name,
                other_name: None,
                required: p.default.is_none() && !p.rest,
                rest: p.rest,
                listed: false,
                named_only: after_rest,
            };
            after_rest |= p.rest;
            slot
        })
        .collect();
    let shown = slots.iter().zip(&function.params).map(|(slot, param)| match (slot.rest, &param.default) {
        (true, _) => format!("*{}", slot.name),
        (_, Some(_)) => format!("{}=...", slot.name),
        _ => slot.name.to_string(),
    });
    let signature = format!("({})", shown.collect::<Vec<_>>().join(", "));
    fit(name, &slots, given, &signature)
}

fn fit(function: &str, slots: &[Slot<'_>], given: &Given, signature: &str) -> Vec<Error> {
    let mut errors = Vec::new();
    let by_place = slots.iter().take_while(|s| !s.rest && !s.named_only).count();
    let has_rest = slots.iter().any(|s| s.rest);
    if let Some(extra) = given.positional.get(by_place)
        && !has_rest
    {
        errors.push(error::extra_argument(*extra, function, by_place, given.positional.len(), signature));
    }
    let mut filled: Vec<Option<Span>> = vec![None; slots.len()];
    for (place, span) in filled.iter_mut().zip(&given.positional).take(by_place) {
        *place = Some(*span);
    }
    for (name, span) in &given.named {
        match slots.iter().position(|s| {
            (*s.name == **name || s.other_name == Some(name)) && (!s.rest || s.listed) && s.name != "_"
        }) {
            Some(at) if slots[at].rest && given.positional.len() > by_place => {
                errors.push(error::argument_twice(*span, function, name, Some(given.positional[by_place])));
            }
            Some(at) => match filled[at] {
                Some(first) => errors.push(error::argument_twice(*span, function, name, Some(first))),
                None => filled[at] = Some(*span),
            },
            None => {
                let names = || slots.iter().filter(|s| !s.rest && s.name != "_").map(|s| s.name);
                let suggestion = base::suggest(name, names());
                errors.push(error::unknown_argument(*span, function, name, suggestion, signature));
            }
        }
    }
    if !given.spread {
        let missing = slots.iter().zip(&filled).filter(|(slot, place)| slot.required && place.is_none());
        let missing: Vec<&str> = missing.map(|(slot, _)| slot.name).collect();
        // An unknown name is probably a misspelling of the missing one.
        if !missing.is_empty() && errors.is_empty() {
            errors.push(error::missing_argument(given.span, function, &missing, signature));
        }
    }
    errors
}
