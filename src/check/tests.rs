use super::*;
use crate::ops::signature::{Default, Kind, Param};
use crate::syntax::{MAX_DEPTH, parse};
use std::rc::Rc;

static RELU: &[Param] = &[Param::new("x", Kind::Tensor)];
static SUM: &[Param] = &[
    Param::new("x", Kind::Tensor),
    Param::or("dim", Kind::Dims, Default::None),
    Param::or("keepdim", Kind::Bool, Default::Bool(false)),
    Param::named("dtype", Kind::Dtype, Default::None),
];
static PRINT: &[Param] =
    &[Param::rest("values", Kind::Any), Param::named("end", Kind::Str, Default::Str("\n"))];
static APPEND: &[Param] = &[Param::new("self", Kind::Any), Param::new("value", Kind::Any)];
static CLEAR: &[Param] = &[Param::new("self", Kind::Any)];

/// A small replacement for the library.
struct Small;

impl Catalog for Small {
    fn find(&self, name: &str) -> Option<Entry> {
        match name {
            "relu" => Some(Entry::Function(Signature { params: RELU })),
            "sum" => Some(Entry::Function(Signature { params: SUM })),
            "max" => Some(Entry::Either(Signature { params: SUM }, Signature { params: PRINT })),
            "print" => Some(Entry::Function(Signature { params: PRINT })),
            "zeros" | "dict" | "xs" => Some(Entry::Value),
            "fft" => Some(Entry::Module),
            "scaler" => Some(Entry::Function(Signature { params: &[] })),
            _ => None,
        }
    }

    fn names(&self) -> Vec<Rc<str>> {
        ["relu", "sum", "print", "zeros", "dict", "xs", "fft"].map(Rc::from).into()
    }

    fn member(&self, module: &str, name: &str) -> Option<Entry> {
        match (module, name) {
            ("fft", "fft") | ("nn", "Linear") => Some(Entry::Function(Signature { params: RELU })),
            _ => None,
        }
    }

    fn members(&self, module: &str) -> Option<Vec<Rc<str>>> {
        match module {
            "fft" => Some(vec!["fft".into()]),
            "nn" => Some(vec!["Linear".into()]),
            _ => None,
        }
    }

    fn exports(&self, _: &str) -> Option<super::Exports> {
        None
    }

    fn libraries(&self) -> Vec<Rc<str>> {
        vec!["nn".into(), "optim".into()]
    }

    fn methods(&self, name: &str) -> Vec<(&'static str, Signature)> {
        match name {
            "sum" => vec![("tensor", Signature { params: SUM })],
            "append" => vec![("list", Signature { params: APPEND })],
            "clear" => vec![("list", Signature { params: CLEAR }), ("dict", Signature { params: CLEAR })],
            "get" => vec![("dict", Signature { params: SUM }), ("tensor", Signature { params: CLEAR })],
            "synchronize" => {
                vec![("device", Signature { params: CLEAR }), ("stream", Signature { params: SUM })]
            }
            _ => Vec::new(),
        }
    }

    fn is_from_library(&self, name: &str) -> bool {
        name == "scaler"
    }

    fn is_attribute(&self, name: &str) -> bool {
        name == "shape"
    }

    fn method_names(&self, of: Option<&str>) -> Vec<Rc<str>> {
        match of {
            Some("device") => vec!["synchronize".into(), "index".into()],
            Some(_) => Vec::new(),
            None => ["sum", "append", "clear", "get", "synchronize"].map(Rc::from).into(),
        }
    }
}

fn findings(text: &str, globals: &[&str]) -> Findings {
    let parsed = parse(1, text);
    assert!(parsed.errors.is_empty(), "{text}\n{:?}", parsed.errors);
    check(&parsed.block, &Small, globals)
}

/// `E0201@6..7 message | help`, one per line; positions count from 0.
fn lines(errors: &[Error]) -> String {
    let line = |e: &Error| {
        let (lo, hi) = (e.span().lo - 1, e.span().hi - 1);
        format!("{}@{lo}..{hi} {} | {}", e.code().id, e.message(), e.help_text().unwrap_or(""))
    };
    errors.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[track_caller]
fn wrong(table: &[(&str, &str)]) {
    for (text, wanted) in table {
        assert_eq!(lines(&findings(text, &[]).errors), *wanted, "\n{text}");
    }
}

#[track_caller]
fn right(programs: &[&str]) {
    for text in programs {
        assert_eq!(lines(&findings(text, &[]).errors), "", "\n{text}");
    }
}

#[test]
fn names_are_seen_where_they_are_bound() {
    right(&[
        "let a = 1; let a = a + 1; a",
        "let a = 1; { let a = a; a }; a",
        "fn f() { g() }\nfn g() { f() }\nf()",
        "f()\nfn f() { x }\nlet x = 1",
        "{ f() }\nfn f() { 1 }",
        "fn f() { fn a() { b() }\nfn b() { a() }\na() }",
        "let f = |n| f(n)",
        "fn f(a, b = a, *r, key = b) { (a, b, r, key) }",
        "for (i, x) in xs { i + x }",
        "try { 1 } catch e { e.kind }",
        "match xs { (a, ..r) if a == r => a, (k = v) => v, b => b }",
        "let (a, (w, b = c), ..r) = xs; (a, w, c, r)",
        "let s = 1; \"{s:{s}}\"",
        "|x| |y| x + y",
        "let sum = 1; sum = 2",
        "let x = 1; fn f() { x = 2 }",
        "let print = relu; print(1)",
        "with relu(1) { let y = 2; y }",
        "_ = 1",
        "test \"a\" { late }\nlet late = 1",
        "cuda.synchronize(); fft.fft(1); cuda:1.synchronize(); cuda.index",
    ]);
    wrong(&[
        ("a", "E0201@0..1 unknown name `a` | define it first: `let a = ...` or `fn a(...) { ... }`"),
        ("rleu(1)", "E0201@0..4 unknown name `rleu` | did you mean `relu`?"),
        ("pi", "E0201@0..2 unknown name `pi` | write `math.pi`"),
        ("det(1)", "E0201@0..3 unknown name `det` | there are no decompositions of matrices yet"),
        ("fold(1)", "E0201@0..4 unknown name `fold` | PyTorch has it, Runnel not yet"),
        (
            "unfold(1)",
            "E0201@0..6 unknown name `unfold` | windows are views of a tensor: `x.unfold(dim, size, step)`",
        ),
        ("let loss = 1; \"{los}\"", "E0201@16..19 unknown name `los` | did you mean `loss`?"),
        ("True; True", "E0201@0..4 unknown name `True` | write `true`"),
        (
            "torch.zeros(2); torch.nn.functional.foo(2)",
            "E0201@0..5 unknown name `torch` | PyTorch's functions are in scope: write `zeros(2)` and \
             `cuda.synchronize()`, without `torch.`",
        ),
        (
            "{ let a = 1 }\na",
            "E0201@14..15 unknown name `a` | define it first: `let a = ...` or `fn a(...) { ... }`",
        ),
        (
            "for i in xs { }\ni",
            "E0201@16..17 unknown name `i` | define it first: `let i = ...` or `fn i(...) { ... }`",
        ),
        (
            "let a = a",
            "E0204@8..9 `a` is used before its definition | the name has its value after the `let`; a function that \
             calls itself is `fn a(...) { ... }`",
        ),
        // Two uses, one report.
        (
            "fn main() { let g = |n| if n < 2 { n } else { g(n - 1) + g(n - 2) }; g(3) }",
            "E0204@46..47 `g` is used before its definition | the name has its value after the `let`; a function that \
             calls itself is `fn g(...) { ... }`",
        ),
        ("print(b)\nlet b = 1", "E0204@6..7 `b` is used before its definition | move the definition up"),
        (
            "fn f() { let g = || h; let h = 1; g }",
            "E0204@20..21 `h` is used before its definition | move the definition up",
        ),
        (
            "fn f() { g()\nfn g() { 1 } }",
            "E0204@9..10 `g` is used before its definition | move the definition up",
        ),
        (
            "fn f(a = b, b = 1) { a }",
            "E0201@9..10 unknown name `b` | define it first: `let b = ...` or `fn b(...) { ... }`",
        ),
        (
            "try { 1 } catch { e }",
            "E0201@18..19 unknown name `e` | define it first: `let e = ...` or `fn e(...) { ... }`",
        ),
    ]);
    assert!(findings("a + b", &["a", "b"]).errors.is_empty());
    assert!(findings("a = 1", &["a"]).errors.is_empty());
}

#[test]
fn assignments_need_a_name_to_assign_to() {
    wrong(&[
        (
            "x = 1; x = 2",
            "E0202@0..1 `x` is assigned to, but never introduced | write `let x = ...` to introduce it",
        ),
        (
            "let total = 0; totl += 1",
            "E0202@15..19 `totl` is assigned to, but never introduced | did you mean `total`? to introduce a name, \
             write `let totl = ...`",
        ),
        (
            "print = 1",
            "E0203@0..5 `print` belongs to Runnel and cannot be assigned to | write `let print = ...` for a name of \
             your own",
        ),
        ("x = 1\nlet x = 2", "E0204@0..1 `x` is used before its definition | move the definition up"),
        (
            "let a = 1; (a, [b, a.c]) = xs",
            "E0202@16..17 `b` is assigned to, but never introduced | write `let b = ...` to introduce it",
        ),
    ]);
}

#[test]
fn calls_fit_the_parameters() {
    right(&[
        "relu(1); sum(1, 0, true, dtype=f32); sum(x=1); print(); print(1, 2, end=\"\")",
        "1 |> relu |> sum(0, keepdim=true)",
        "relu(..xs); sum(..xs, keepdim=true)",
        "zeros(1, 2, 3); dict(a = 1)",
        "max(1, dtype=f32); max(1, 2, 3, 4, end=1)",
        "fn f(a, b = 1, *r, k, l = 2) { (a, b, r, k, l) }\nf(1, k = 2); f(1, 2, 3, 4, k = 5, l = 6); 1 |> f(k = 1)",
        "fn f(a) { a }\nf = zeros\nf(1, 2)",
        "fn f(a) { a }\nfn f(a, b) { a + b }\nf(1)",
        "fn f((a, b)) { a + b }\nf((1, 2))",
        "let f = |a| a; f(1, 2)",
    ]);
    wrong(&[
        ("relu()", "E0208@0..6 `relu` lacks a value for `x` | the parameters are `relu(x)`"),
        (
            "relu(1, 2)",
            "E0207@8..9 `relu` takes 1 argument by position, 2 are given | the parameters are `relu(x)`",
        ),
        (
            "sum(1, keepdimm=true)",
            "E0206@7..15 `sum` has no parameter `keepdimm` | did you mean `keepdim`? the parameters are \
             `sum(x, dim=none, keepdim=false, *, dtype=none)`",
        ),
        ("max(1, x=1)", "E0209@7..8 `max` gets two values for `x` | leave one of the two out"),
        ("sum(1, x=1)", "E0209@7..8 `sum` gets two values for `x` | leave one of the two out"),
        ("sum(x=1, x=2)", "E0209@9..10 `sum` gets two values for `x` | leave one of the two out"),
        (
            "sum(1, 2, true, f32)",
            "E0207@16..19 `sum` takes 3 arguments by position, 4 are given | the parameters are \
             `sum(x, dim=none, keepdim=false, *, dtype=none)`; those after `*` go by name: `dtype=...`",
        ),
        (
            "1 |> relu(2)",
            "E0207@10..11 `relu` takes 1 argument by position, 2 are given | the parameters are `relu(x)`",
        ),
        (
            "cuda.synchronize(1)",
            "E0207@17..18 `synchronize` takes 0 arguments by position, 1 is given | the parameters are `synchronize()`",
        ),
        ("cuda.synchronise()", "E0205@5..16 a device has no `synchronise` | did you mean `synchronize`?"),
        ("cuda.relu(1)", "E0205@5..9 a device has no `relu` | write `relu(...)`"),
        ("cuda.CUDAGraph()", "E0205@5..14 a device has no `CUDAGraph` | write `Graph()`"),
        ("cuda.fft.fft(1)", "E0214@9..12 no value has a method `fft` | write `fft.fft(...)`"),
        ("let f = fft.ftt", "E0205@12..15 `fft` has no `ftt` | did you mean `fft`?"),
        (
            "fn f(a, b, *r, k, l = 1) { (a, b, r, k, l) }\nf(1)",
            "E0208@45..49 `f` lacks a value for `b` and `k` | the parameters are `f(a, b, *r, k, l=...)`",
        ),
        (
            "g(1)\nfn g() { 1 }",
            "E0207@2..3 `g` takes 0 arguments by position, 1 is given | the parameters are `g()`",
        ),
        (
            "import nn\nnn.Linear(1, 2)",
            "E0207@23..24 `nn.Linear` takes 1 argument by position, 2 are given | the parameters \
             are `nn.Linear(x)`",
        ),
        ("import nn\nnn.Linaer(1)", "E0205@13..19 `nn` has no `Linaer` | did you mean `Linear`?"),
        ("import nm", "E0213@7..9 there is no library `nm` | did you mean `nn`?"),
        (
            "import torch",
            "E0213@7..12 there is no library `torch` | leave this line out: tensor functions are in scope without an \
             import",
        ),
    ]);
}

#[test]
fn methods_are_checked_where_nothing_else_can_bring_them() {
    right(&[
        "let x = zeros(2); x.sum(); x.sum(0, keepdim=true); x.shape; x.shape(); 1 |> x.sum",
        "let x = zeros(2); x.get(); x.get(1, 2); x.append(1); x.clear()",
        "let m = (sum = |a, b, c, d, e| a); m.sum(1, 2, 3, 4, 5)",
        "let m = (forward = |x| x); m.forward(1)",
        "let m = dict(); m.forward = relu; m.forward(1)",
        "import nn\nlet m = nn.Linear(2); m.anything(1)",
        "let m = scaler(); m.anything(1)",
        "let make = scaler; make().anything(1)",
    ]);
    wrong(&[
        (
            "zeros(2).sum(dimm=1)",
            "E0206@13..17 `sum` has no parameter `dimm` | did you mean `dim`? the parameters are \
             `sum(dim=none, keepdim=false, *, dtype=none)`",
        ),
        (
            "xs.append()",
            "E0208@0..11 `append` lacks a value for `value` | the parameters are `append(value)`",
        ),
        (
            "xs.clear(1)",
            "E0207@9..10 `clear` takes 0 arguments by position, 1 is given | the parameters are `clear()`",
        ),
        ("zeros(2).summ()", "E0214@9..13 no value has a method `summ` | did you mean `sum`?"),
        (
            "let m = (forward = 1); m.forwrad(1)",
            "E0214@25..32 no value has a method `forwrad` | did you mean `forward`?",
        ),
    ]);
    assert!(findings("x.anything()", &["x"]).errors.is_empty());
}

#[test]
fn duplicate_names_and_stray_jumps_are_reported() {
    right(&[
        "for i in xs { if i == 1 { break } else { with i { continue } } }",
        "while true { match 1 { 1 => break, _ => continue } }",
        "fn f() { for i in xs { return i }; return }",
        "|x| { return x }",
        "let (_, _) = xs",
    ]);
    wrong(&[
        (
            "let (a, [b, a]) = xs",
            "E0210@12..13 `a` appears twice in the pattern | give one of them another name",
        ),
        (
            "fn f(a, (b, a)) { 1 }",
            "E0210@12..13 `a` appears twice in the parameters | give one of them another name",
        ),
        (
            "(w = 1, b = 2, w = 3)",
            "E0210@15..16 `w` appears twice in the record | give one of them another name",
        ),
        (
            "match xs { (a, ..a) => a }",
            "E0210@17..18 `a` appears twice in the pattern | give one of them another name",
        ),
        ("break", "E0211@0..5 `break` outside of a loop | write it inside a `for` or `while` loop"),
        (
            "for i in xs { let f = || { continue }; f }",
            "E0211@27..35 `continue` outside of a loop | `return` ends a function",
        ),
        (
            "return 1",
            "E0212@0..8 `return` outside of a function | `return` ends a function; the value of a block is its last \
             expression",
        ),
        (
            "match 1 { [a] | [a, b] => 1, _ => 2 }",
            "E0215@10..13 this alternative does not bind `b` | bind the same names in each alternative, or write an \
             arm for each",
        ),
        (
            "match 1 { (1, [a, b] | [a]) => 1, _ => 2 }",
            "E0215@23..26 this alternative does not bind `b` | bind the same names in each alternative, or write an \
             arm for each",
        ),
        ("match 1 { (a, [b] | (_, b)) | (a, b) => (a, b), _ => 2 }", ""),
    ]);
}

#[test]
fn all_errors_are_reported_at_once_and_in_order() {
    let found = findings("a\nprint(b, c)\nx = relu()\nbreak", &[]).errors;
    let codes: Vec<_> = found.iter().map(|e| e.code().id).collect();
    assert_eq!(codes, ["E0201", "E0201", "E0201", "E0202", "E0208", "E0211"]);
    let many: String = (0..1000).map(|i| format!("unknown{i}\n")).collect();
    assert_eq!(findings(&many, &[]).errors.len(), 100);
}

#[test]
fn warnings_point_at_likely_mistakes() {
    let table = [
        (
            "fn f() { let a = 1; let _b = 2; 3 }",
            "W0201@13..14 `a` is never used | remove it, or rename it to `_a`",
        ),
        ("let a = 1", ""),
        ("fn f() { let a = 1; a += 1 }", ""),
        (
            "fn f() { return 1; print(2) }",
            "W0202@19..27 this statement is never reached | remove what follows, or move it before",
        ),
        (
            "let x = 1; x == 2; print(x)",
            "W0203@11..17 the result of this comparison is not used | write `=` to assign",
        ),
        ("let x = 1; x == 2", ""),
    ];
    for (text, wanted) in table {
        let findings = findings(text, &[]);
        assert_eq!(
            (lines(&findings.errors), lines(&findings.warnings)),
            (String::new(), wanted.into()),
            "{text}"
        );
    }
}

#[test]
fn every_code_has_a_page_and_an_example_that_ends_in_it() {
    for code in error::CODES {
        assert!(code.page.ends_with('.') && code.page.len() > 60, "{code:?}");
        let found: Vec<_> = findings(code.example, &[]).errors.iter().map(|e| e.code().id).collect();
        assert_eq!(found, [code.id], "{}", code.example);
    }
    for code in error::WARNINGS {
        assert!(code.page.ends_with('.') && code.id.starts_with('W'), "{code:?}");
    }
}

/// The deepest trees that the parser accepts fit into the stack of a test thread.
#[test]
fn the_deepest_trees_pass() {
    let deep = MAX_DEPTH as usize - 5;
    for (link, last) in
        [("relu(1) + ", "1"), ("- ", "1"), ("1 |> relu |> ", "relu"), ("|x| ", "x"), ("2 ** ", "2")]
    {
        let parsed = parse(1, &format!("{}{last}", link.repeat(deep / 2)));
        assert!(parsed.errors.is_empty(), "{:?}", parsed.errors);
        assert!(check(&parsed.block, &Small, &[]).errors.is_empty());
    }
    let nested = format!("{}1{}", "if true { ".repeat(160), " }".repeat(160));
    let parsed = parse(1, &nested);
    assert!(parsed.errors.is_empty(), "{:?}", parsed.errors);
    assert!(check(&parsed.block, &Small, &[]).errors.is_empty());
}
