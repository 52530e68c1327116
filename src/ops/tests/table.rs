//! The tables themselves: every operation is documented, named once, and reachable.

use crate::ops::signature::Default;
use crate::ops::table;
use std::collections::BTreeMap;
use std::path::Path;

#[test]
fn every_operation_is_documented_and_named_once() {
    let mut names = BTreeMap::new();
    let mut wrong = Vec::new();
    for op in table::all() {
        *names.entry(op.name).or_insert(0) += 1;
        let first = op.doc.chars().next().unwrap_or(' ');
        let symbols = table::BINARY_OPERATORS.iter().chain(table::UNARY_OPERATORS);
        let mut spellings = symbols.filter(|(_, name)| *name == op.name).map(|(symbol, _)| *symbol);
        let shown = op.example.contains(op.name.trim_end_matches('_'));
        for (holds, what) in [
            (first.is_uppercase() || first == '`', "its doc starts with a small letter"),
            (op.doc.ends_with('.'), "its doc ends without a full stop"),
            (!op.search.is_empty(), "it has no search words"),
            (op.example.contains("assert"), "its example asserts nothing"),
            (shown || spellings.any(|s| op.example.contains(s)), "its example does not use it"),
            (op.form.function || op.form.method || op.form.in_place, "it cannot be called"),
            (!(op.form.in_place && op.name.ends_with('_')), "its in-place form would end in two `_`"),
        ] {
            if !holds {
                wrong.push(format!("`{}`: {what}", op.name));
            }
        }
    }
    let twice = names.iter().filter(|(_, n)| **n > 1).map(|(name, _)| format!("`{name}`: named twice"));
    wrong.extend(twice);
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn parameters_are_in_an_order_that_calls_can_fill() {
    for op in table::all() {
        let mut optional = false;
        for (i, param) in op.params.iter().enumerate() {
            assert!(
                !op.params[..i].iter().any(|p| p.name == param.name),
                "`{}` has `{}` twice",
                op.name,
                param.name
            );
            let required = param.default == Default::Required;
            assert!(
                !(required && optional && !param.named_only),
                "`{}`: `{}` after an optional one",
                op.name,
                param.name
            );
            optional |= !required && !param.named_only;
        }
    }
}

#[test]
fn operators_and_methods_find_their_operations() {
    for (symbol, name) in table::BINARY_OPERATORS {
        assert_eq!(table::binary_operator(symbol).map(|op| op.name), Some(*name));
    }
    for (symbol, name) in table::UNARY_OPERATORS {
        assert_eq!(table::unary_operator(symbol).map(|op| op.name), Some(*name));
    }
    let method = |name: &str| table::find_method(name).map(|(op, in_place)| (op.name, in_place));
    assert_eq!(method("add"), Some(("add", false)));
    assert_eq!(method("add_"), Some(("add", true)));
    assert_eq!(method("zero_"), Some(("zero", true)));
    assert_eq!(method("normal_"), Some(("normal_", false)));
    assert_eq!(method("eq_"), Some(("eq", true)));
    assert_eq!((method("zeros"), method("sum_"), method("_")), (None, None, None));
    assert!(table::find_function("zeros").is_some() && table::find_function("zero").is_none());
}

/// Programs are keyed by function names, so two functions with the same name would be confused.
#[test]
fn functions_of_kernel_programs_are_named_once() {
    let mut found: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src/ops")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            let mut kind = "";
            for line in text.lines().map(str::trim) {
                for opening in ["MapFn {", "ReduceFn {"] {
                    if line.ends_with(opening) && !line.starts_with("//") {
                        kind = opening;
                    }
                }
                if let Some(name) = line.strip_prefix("name: \"").filter(|_| !kind.is_empty()) {
                    let name = name.trim_end_matches("\",").to_string();
                    found.entry((kind.to_string(), name)).or_default().push(path.display().to_string());
                    kind = "";
                }
            }
        }
    }
    assert!(found.len() > 100, "only {} functions found", found.len());
    let twice: Vec<_> = found.iter().filter(|(_, files)| files.len() > 1).collect();
    assert!(twice.is_empty(), "{twice:#?}");
}
