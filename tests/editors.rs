//! Compares the TextMate grammar in `editors/` with the language: it has the lexer's keywords, and classifies
//! the tokens of every script of this repository like the lexer.

#![cfg(feature = "cli")]
#![allow(clippy::unwrap_used)] // A test that cannot go on fails.

use fancy_regex::Regex;
use runnel::Dtype;
use runnel::syntax::tokens::{KEYWORDS, VALUE_WORDS};
use runnel::syntax::{Class, classify};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

const GRAMMAR: &str = "editors/vscode/syntaxes/runnel.tmLanguage.json";

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn json(path: &str) -> Value {
    serde_json::from_str(&std::fs::read_to_string(root().join(path)).unwrap()).unwrap()
}

#[test]
fn the_words_of_the_grammar_are_the_lexer_s() {
    let grammar = json(GRAMMAR);
    let rules = &grammar["repository"];
    let words = |rule: &str| -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        let mut rules = vec![&rules[rule]];
        while let Some(rule) = rules.pop() {
            rules.extend(rule["patterns"].as_array().into_iter().flatten());
            let list = rule["match"]
                .as_str()
                .and_then(|m| m.strip_prefix("\\b("))
                .and_then(|m| m.strip_suffix(")\\b"));
            found.extend(list.into_iter().flat_map(|list| list.split('|')).map(str::to_string));
        }
        found
    };
    let keywords: BTreeSet<String> = KEYWORDS.iter().map(|(word, _)| word.to_string()).collect();
    assert_eq!(words("keywords"), keywords);
    assert_eq!(words("dtypes"), Dtype::ALL.iter().map(Dtype::to_string).collect());
    let values = words("numbers").into_iter().chain(words("devices")).map(|w| w.replace("(:[0-9]+)?", ""));
    assert_eq!(values.collect::<BTreeSet<String>>(), VALUE_WORDS.iter().map(|w| w.to_string()).collect());
}

#[test]
fn the_extension_refers_to_existing_files() {
    let package = json("editors/vscode/package.json");
    for path in [
        &package["contributes"]["languages"][0]["configuration"],
        &package["contributes"]["grammars"][0]["path"],
    ] {
        json(&format!("editors/vscode/{}", path.as_str().unwrap().trim_start_matches("./")));
    }
    assert_eq!(package["contributes"]["grammars"][0]["scopeName"], json(GRAMMAR)["scopeName"]);
    assert_eq!(package["version"], env!("CARGO_PKG_VERSION"));
}

#[test]
fn every_script_is_coloured_as_the_lexer_reads_it() {
    let grammar = Grammar::read();
    let mut scripts = Vec::new();
    for folder in ["examples", "tests/lang", "tests/conformance", "stdlib"] {
        let entries = std::fs::read_dir(root().join(folder)).unwrap();
        scripts
            .extend(entries.map(|e| e.unwrap().path()).filter(|p| p.extension().is_some_and(|e| e == "rnl")));
    }
    assert!(scripts.len() > 50);
    let mut wrong = Vec::new();
    for path in &scripts {
        let text = std::fs::read_to_string(path).unwrap();
        compare(&grammar, &shown(path), &text, &mut wrong);
    }
    let hard = "let s = \"a {f(\"b\", {x}):>8.2f} {{no}} \\\" \\u{1F600} {c[cuda:1]:{n}d}\" # c \"\nlet r = r\"\\{x}\"\nx.on.match(0..10 by 2, 64KiB, 1_0.5e-3, .5, 0xff)\n\
                match x { [a, ..rest] if a == 0x1F => cuda:1, _ => none }\nlet t = \"\"\"\n  {a} # \"in\n\"\"\"\ntest \"name\" { by = 1 }\nlet test = by\n";
    compare(&grammar, "hard", hard, &mut wrong);
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong[..wrong.len().min(20)].join("\n"));
}

fn shown(path: &Path) -> String {
    path.strip_prefix(root()).unwrap().display().to_string()
}

fn compare(grammar: &Grammar, name: &str, text: &str, wrong: &mut Vec<String>) {
    let scopes = grammar.colour(text);
    for (range, class) in classify(text) {
        let Some(wanted) = scope_of(class) else { continue };
        let scope = scopes[range.start].as_str();
        if !wanted.iter().any(|w| scope.starts_with(w)) {
            let line = text[..range.start].matches('\n').count() + 1;
            wrong.push(format!(
                "{name}:{line}: `{}` is a {class:?} and has the scope `{scope}`",
                &text[range]
            ));
        }
    }
}

/// The scopes of tokens of a class.
fn scope_of(class: Class) -> Option<&'static [&'static str]> {
    Some(match class {
        Class::Keyword => &["keyword.control", "storage.type", "constant.language", "keyword.other.test"],
        Class::Operator => &["keyword.operator"],
        Class::Number => &["constant.numeric"],
        Class::Str => &["string.quoted", "constant.character", "constant.other.format"],
        Class::Device => &["support.constant.device"],
        Class::Dtype => &["support.type.dtype"],
        Class::Comment => &["comment"],
        Class::Name => &["variable.other", "entity.name"],
        Class::Function => &["entity.name.function", "variable.other.member"],
        Class::Field => &["variable.other.member"],
        Class::Punctuation | Class::Unknown => return None,
    })
}

/// An interpreter for the subset of TextMate grammars that this one uses: line by line, the earliest match wins, then
/// the first rule.
struct Grammar {
    top: Vec<usize>,
    rules: Vec<Rule>,
    groups: BTreeMap<String, Vec<Part>>,
}

/// A rule, or a group of rules.
#[derive(Clone)]
enum Part {
    Rule(usize),
    Group(String),
}

struct Rule {
    scope: String,
    start: Regex,
    captures: BTreeMap<usize, String>,
    end: Option<(Regex, BTreeMap<usize, String>)>,
    parts: Vec<Part>,
    inner: Vec<usize>,
}

impl Grammar {
    fn read() -> Grammar {
        let json = json(GRAMMAR);
        let mut grammar = Grammar { top: Vec::new(), rules: Vec::new(), groups: BTreeMap::new() };
        for (name, group) in json["repository"].as_object().unwrap() {
            let parts = grammar.rule(group);
            grammar.groups.insert(name.clone(), parts);
        }
        let top = grammar.patterns(&json["patterns"]);
        let mut used = BTreeSet::new();
        grammar.top = grammar.flat(&top, &mut used);
        for at in 0..grammar.rules.len() {
            grammar.rules[at].inner = grammar.flat(&grammar.rules[at].parts, &mut used);
        }
        assert_eq!(used, grammar.groups.keys().cloned().collect(), "groups that are included, and all");
        grammar
    }

    /// The rules of parts.
    fn flat(&self, parts: &[Part], used: &mut BTreeSet<String>) -> Vec<usize> {
        let mut rules = Vec::new();
        for part in parts {
            match part {
                Part::Rule(rule) => rules.push(*rule),
                Part::Group(name) => {
                    used.insert(name.clone());
                    rules.extend(self.flat(&self.groups[name], used));
                }
            }
        }
        rules
    }

    fn patterns(&mut self, list: &Value) -> Vec<Part> {
        list.as_array().into_iter().flatten().flat_map(|rule| self.rule(rule)).collect()
    }

    fn rule(&mut self, rule: &Value) -> Vec<Part> {
        if let Some(name) = rule["include"].as_str() {
            return vec![Part::Group(name.strip_prefix('#').unwrap().to_string())];
        }
        let regex = |text: &str| Regex::new(text).unwrap_or_else(|e| panic!("{text}: {e}"));
        let captures = |value: &Value| -> BTreeMap<usize, String> {
            let pairs = value.as_object().into_iter().flatten();
            pairs.map(|(k, v)| (k.parse().unwrap(), v["name"].as_str().unwrap().to_string())).collect()
        };
        let Some(start) = rule["match"].as_str().or(rule["begin"].as_str()) else {
            return self.patterns(&rule["patterns"]);
        };
        let parts = self.patterns(&rule["patterns"]);
        let given = if rule["captures"].is_object() { &rule["captures"] } else { &rule["beginCaptures"] };
        self.rules.push(Rule {
            scope: rule["name"].as_str().unwrap_or_default().to_string(),
            start: regex(start),
            captures: captures(given),
            end: rule["end"].as_str().map(|end| (regex(end), captures(&rule["endCaptures"]))),
            parts,
            inner: Vec::new(),
        });
        vec![Part::Rule(self.rules.len() - 1)]
    }

    /// The scope of each byte.
    fn colour(&self, text: &str) -> Vec<String> {
        let mut scopes = vec![String::new(); text.len()];
        let mut open: Vec<usize> = Vec::new();
        let mut offset = 0;
        for line in text.split('\n') {
            let mut at = 0;
            let mut steps = 0;
            loop {
                steps += 1;
                assert!(steps < 10_000, "the grammar stays at `{line}`");
                let of = open.last().map(|&rule| &self.rules[rule]);
                let inner = of.map_or(&self.top, |rule| &rule.inner);
                let end = of
                    .and_then(|rule| rule.end.as_ref())
                    .and_then(|(end, captures)| Some((end.captures_from_pos(line, at).unwrap()?, captures)));
                let mut next: Option<(usize, usize)> = None;
                for &rule in inner {
                    let found = self.rules[rule].start.find_from_pos(line, at).unwrap();
                    if let Some(found) = found.filter(|f| next.is_none_or(|(_, start)| f.start() < start)) {
                        next = Some((rule, found.start()));
                    }
                }
                let mut paint = |from: usize, to: usize, scope: &str| {
                    for slot in &mut scopes[offset + from..offset + to] {
                        scope.clone_into(slot);
                    }
                };
                let scope = of.map_or("", |rule| rule.scope.as_str());
                let end_start = end.as_ref().map_or(usize::MAX, |(e, _)| e.get(0).unwrap().start());
                match next {
                    Some((rule, start)) if start < end_start => {
                        paint(at, start, scope);
                        let rule_of = &self.rules[rule];
                        let found = rule_of.start.captures_from_pos(line, start).unwrap().unwrap();
                        let whole = found.get(0).unwrap();
                        paint(whole.start(), whole.end(), &rule_of.scope);
                        for (group, name) in &rule_of.captures {
                            if let Some(part) = found.get(*group) {
                                paint(part.start(), part.end(), name);
                            }
                        }
                        if rule_of.end.is_some() {
                            open.push(rule);
                        }
                        at = whole.end();
                    }
                    _ => match end {
                        Some((found, captures)) => {
                            let whole = found.get(0).unwrap();
                            paint(at, whole.end(), scope);
                            for (group, name) in captures {
                                if let Some(part) = found.get(*group) {
                                    paint(part.start(), part.end(), name);
                                }
                            }
                            open.pop();
                            at = whole.end();
                        }
                        None => {
                            paint(at, line.len(), scope);
                            break;
                        }
                    },
                }
            }
            offset += line.len() + 1;
            if let (Some(slot), Some(&rule)) = (scopes.get_mut(offset - 1), open.last()) {
                slot.clone_from(&self.rules[rule].scope);
            }
        }
        scopes
    }
}
