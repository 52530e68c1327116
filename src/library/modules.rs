//! Library modules written in Runnel: their source texts and documentation.
//!
//! A library module is an ordinary module whose text is part of the program (`stdlib/NAME.rnl`). The checker
//! and the compiler do not treat it specially. Its documentation is the comment at its start, and that of its
//! functions the comment above each `fn`, as in every script.

use crate::syntax::ast::{Function, PatternKind, StmtKind};

/// A module written in Runnel that is embedded in the program.
pub struct Embedded {
    /// Its name in `import`.
    pub name: &'static str,
    /// Its source text.
    pub text: &'static str,
}

/// The modules written in Runnel, by name.
pub static MODULES: &[Embedded] = &[
    Embedded { name: "data", text: include_str!("../../stdlib/data.rnl") },
    Embedded {
        name: "nn",
        text: concat!(
            include_str!("../../stdlib/nn.rnl"),
            include_str!("../../stdlib/nn/init.rnl"),
            include_str!("../../stdlib/nn/activations.rnl"),
            include_str!("../../stdlib/nn/layers.rnl"),
            include_str!("../../stdlib/nn/sequences.rnl"),
            include_str!("../../stdlib/nn/modules.rnl"),
            include_str!("../../stdlib/nn/optim.rnl"),
            include_str!("../../stdlib/nn/lbfgs.rnl"),
            include_str!("../../stdlib/nn/schedules.rnl"),
        ),
    },
    Embedded { name: "parallel", text: include_str!("../../stdlib/parallel.rnl") },
];

/// A documented function of such a module.
pub struct Documented {
    /// `data_parallel`
    pub name: String,
    /// `(f, params, batch, devices=none)`, with defaults as in the source.
    pub signature: String,
    /// The comment above it, without comment marks.
    pub doc: String,
    /// The part after `Example:`: a runnable script that demonstrates it.
    pub example: String,
}

impl Embedded {
    /// The comment at the start of the text: the purpose of the module.
    pub fn doc(&self) -> String {
        let lines = self.text.lines().take_while(|line| line.starts_with('#'));
        let bare = lines.map(|line| line.trim_start_matches('#').trim());
        bare.collect::<Vec<_>>().join("\n")
    }

    /// Its documented functions, in source order. The others are private.
    pub fn functions(&self) -> Vec<Documented> {
        let parsed = crate::syntax::parse(1, self.text);
        let functions = parsed.block.body.iter().filter_map(|stmt| match &stmt.kind {
            StmtKind::Fn(name, function) => Some((name, function)),
            _ => None,
        });
        let documented = functions.filter_map(|(name, function)| {
            let text = function.doc.as_ref()?;
            let (doc, example) = text.split_once("\n\nExample:\n").unwrap_or((text, ""));
            let example = example.lines().map(|line| line.strip_prefix("    ").unwrap_or(line));
            Some(Documented {
                name: name.text.to_string(),
                signature: self.signature(function),
                doc: doc.to_string(),
                example: example.collect::<Vec<_>>().join("\n"),
            })
        });
        documented.collect()
    }

    fn signature(&self, function: &Function) -> String {
        let text = |span: crate::base::Span| {
            let (lo, hi) = (span.lo.saturating_sub(1) as usize, span.hi.saturating_sub(1) as usize);
            self.text.get(lo..hi).unwrap_or("...")
        };
        let params = function.params.iter().map(|param| {
            let name = match &param.pattern.kind {
                PatternKind::Bind(name) => &name.text,
                _ => text(param.pattern.span),
            };
            match &param.default {
                _ if param.rest => format!("*{name}"),
                Some(default) => format!("{name}={}", text(default.span)),
                None => name.to_string(),
            }
        });
        format!("({})", params.collect::<Vec<_>>().join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_module_parses_and_documents_itself_and_its_functions() {
        assert!(MODULES.is_sorted_by_key(|m| m.name));
        for module in MODULES {
            let parsed = crate::syntax::parse(1, module.text);
            assert!(parsed.errors.is_empty(), "{}: {:?}", module.name, parsed.errors);
            assert!(module.doc().ends_with('.'), "{}", module.name);
            let functions = module.functions();
            assert!(!functions.is_empty(), "{}", module.name);
            for function in functions {
                let name = format!("{}.{}", module.name, function.name);
                assert!(function.doc.ends_with('.'), "{name}: {}", function.doc);
                assert!(function.signature.starts_with('('), "{name}");
            }
        }
    }

    #[test]
    fn signatures_show_defaults_as_the_source_writes_them() {
        let text = "# Shows.\n\n# Adds.\nfn add(x, y = [1, 2], (a, b) = (1, 2), *rest, key = none) { x }\n\nfn own() { 1 }";
        let module = Embedded { name: "m", text };
        assert_eq!(module.doc(), "Shows.");
        let functions = module.functions();
        assert_eq!(functions.len(), 1);
        assert_eq!(functions[0].signature, "(x, y=[1, 2], (a, b)=(1, 2), *rest, key=none)");
        assert_eq!(functions[0].doc, "Adds.");
    }
}
