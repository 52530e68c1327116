//! The shapes of trees, one table per rule of the grammar.

use super::sexpr::block_lines;
use super::*;

/// The tree of a text without errors.
fn shape(text: &str) -> String {
    let parsed = parse(1, text);
    assert!(parsed.errors.is_empty(), "{text}\n{:?}", parsed.errors);
    block_lines(&parsed.block)
}

#[track_caller]
fn shapes(table: &[(&str, &str)]) {
    for (text, wanted) in table {
        assert_eq!(shape(text), *wanted, "\n{text}");
    }
}

#[test]
fn operators_bind_by_their_precedence() {
    shapes(&[
        ("a or b and not c", "(or a (and b (Not c)))"),
        ("not a == b", "(Not (Eq a b))"),
        ("a == b | c", "(Eq a (BitOr b c))"),
        ("a | b ^ c & d << e", "(BitOr a (BitXor b (BitAnd c (Shl d e))))"),
        ("1 << 2..3", "(.. (Shl 1 2) 3 _)"),
        ("a | b..c & d", "(.. (BitOr a b) (BitAnd c d) _)"),
        ("a == b..c", "(Eq a (.. b c _))"),
        ("0..n + 1 by 2", "(.. 0 (Add n 1) 2)"),
        ("a..b ++ c", "(.. a (Join b c) _)"),
        ("a ++ b + c * d", "(Join a (Add b (Mul c d)))"),
        ("a - b - c", "(Sub (Sub a b) c)"),
        ("a // b % c @ d / e", "(Div (MatMul (Mod (FloorDiv a b) c) d) e)"),
        ("-2 ** 2", "(Neg (Pow 2 2))"),
        ("2 ** -1", "(Pow 2 (Neg 1))"),
        ("2 ** 3 ** 2", "(Pow 2 (Pow 3 2))"),
        ("~x + -y", "(Add (BitNot x) (Neg y))"),
        ("-x on cpu", "(Neg (on x cpu))"),
        ("a + b on cuda:1", "(Add a (on b cuda:1))"),
        ("x on cpu on cuda", "(on (on x cpu) cuda)"),
        ("x on t.device", "(on x (. t device))"),
        ("x not in y", "(NotIn x y)"),
        ("x in y", "(In x y)"),
        ("f(1).g[2](3)", "(call (index (. (call f 1) g) 2) 3)"),
        ("x |> f(2) |> g", "(|> (|> x (call f 2)) g)"),
        ("x |> |v| v + 1", "(|> x (lambda [v] (do (Add v 1))))"),
        ("a or b |> f", "(|> (or a b) f)"),
        ("(1 + 2) * 3", "(Mul (paren (Add 1 2)) 3)"),
    ]);
}

#[test]
fn literals_have_their_values() {
    shapes(&[
        ("1_000", "1000"),
        ("0xff", "255"),
        ("64KiB", "65536"),
        ("1.0", "1.0"),
        (".5", "0.5"),
        ("1.", "1.0"),
        ("1e-3", "0.001"),
        ("1.5e3", "1500.0"),
        ("inf", "inf"),
        ("-nan", "(Neg NaN)"),
        ("-9223372036854775808", "-9223372036854775808"),
        ("[true, false, none]", "(list true false none)"),
        ("cpu; cuda; cuda:1", "cpu\ncuda\ncuda:1"),
        ("bf16", "dtype:bf16"),
        ("f16[0.5, ..xs]", "(f16 0.5 ..xs)"),
        ("f32[]", "(f32)"),
        ("bool(x)", "(call dtype:bool x)"),
        ("größe", "größe"),
        ("letter + cudax", "(Add letter cudax)"),
        ("letä", "letä"),
    ]);
}

#[test]
fn dots_after_numbers_are_distinguished() {
    shapes(&[
        ("1..3", "(.. 1 3 _)"),
        ("1.5..2.5", "(.. 1.5 2.5 _)"),
        ("1.max(2)", "(call (. 1 max) 2)"),
        ("1.5.floor()", "(call (. 1.5 floor))"),
        ("cuda:1.memory_allocated()", "(call (. cuda:1 memory_allocated))"),
        ("cuda.current_stream()", "(call (. cuda current_stream))"),
        ("x.cuda()", "(call (. x cuda))"),
        ("x.bool().f32.match", "(. (. (call (. x bool)) f32) match)"),
        ("x[..5]", "(index x (.. _ 5 _))"),
    ]);
}

#[test]
fn strings_hold_expressions_and_formats() {
    shapes(&[
        (r#""""#, "(str)"),
        (r#""a\n\"b""#, r#"(str "a\n\"b")"#),
        (r#""{{x}}""#, r#"(str "{x}")"#),
        (r#""a{x + 1}b""#, r#"(str "a" {(Add x 1)} "b")"#),
        (r#""{x:.3f}""#, r#"(str {x:".3f"})"#),
        (r#""{x:{w}.{p}f}""#, r#"(str {x:{w} "." {p} "f"})"#),
        (r#""{f("a{y}", "}}")}""#, r#"(str {(call f (str "a" {y}) (str "}"))})"#),
        (r#""{ {1}.x }""#, r#"(str {(. (do 1) x)})"#),
        (r#""{cuda:1}""#, r#"(str {cuda:1})"#),
        (r#""{t[1..2, 0]:>8}""#, r#"(str {(index t (.. 1 2 _) 0):">8"})"#),
        (r#""{1..}""#, r#"(str {(.. 1 _ _)})"#),
        (r#"r"a\n{x}""#, r#"(str "a\\n{x}")"#),
        ("\"\"\"a\n\"b\" {x}\n\"\"\"", r#"(str "a\n\"b\" " {x} "\n")"#),
        ("\"\"\"a\\\nb\r\n\"\"\"", r#"(str "ab\n")"#),
        ("r\"\"\"\"{\"\"\"", r#"(str "\"{")"#),
        (r#""\u{1F600}\u00e9""#, r#"(str "😀é")"#),
    ]);
}

#[test]
fn parentheses_are_groups_tuples_or_records() {
    shapes(&[
        ("()", "(tuple)"),
        ("(a)", "(paren a)"),
        ("(a,)", "(tuple a)"),
        ("(a, b)", "(tuple a b)"),
        ("(..a, b)", "(tuple ..a b)"),
        ("(w = 1)", "(record w=1)"),
        ("(..p, w = 3,)", "(record ..p w=3)"),
        ("(..p)", "(record ..p)"),
        ("[a, ..b, c,]", "(list a ..b c)"),
        ("f(a, ..r, k = v, ..p)", "(call f a ..r k=v ..p)"),
        ("f(|a| a, || b)", "(call f (lambda [a] (do a)) (lambda [] (do b)))"),
    ]);
}

#[test]
fn indices_take_ranges_and_steps() {
    shapes(&[
        ("x[.., 0]", "(index x (.. _ _ _) 0)"),
        ("x[...]", "(index x ...)"),
        ("x[none, -1]", "(index x none (Neg 1))"),
        ("x[0..10 by 2]", "(index x (.. 0 10 2))"),
        ("x[.. by 2]", "(index x (.. _ _ 2))"),
        ("x[1.., ..n]", "(index x (.. 1 _ _) (.. _ n _))"),
        ("x[1..3] = 5", "(= (index x (.. 1 3 _)) 5)"),
        ("let by = 3; by + 1", "(let by 3)\n(Add by 1)"),
    ]);
}

#[test]
fn statements_parse_to_their_trees() {
    shapes(&[
        ("let (a, b) = e", "(let (tuple a b) e)"),
        ("let (w, b = bias, ..r) = rec", "(let (record w b=bias ..r@2) rec)"),
        ("let [a, .., (b), _] = e", "(let (list a b _ ..@1) e)"),
        ("(a, [b, c.d]) = e", "(= (tuple a (list b (. c d))) e)"),
        (
            "x += 1; x ++= [2]; x **= 2; x //= 2",
            "(Add= x 1)\n(Join= x (list 2))\n(Pow= x 2)\n(FloorDiv= x 2)",
        ),
        ("fn f(a, (b, c), d = 1, *r, key = none) { a }", "(fn f [a (tuple b c) d=1 *r key=none] (do a))"),
        ("fn f() {}", "(fn f [] (do))"),
        ("for (n, v) in p { n }", "(for (tuple n v) p (do n))"),
        ("for i in 0.. { break }", "(for i (.. 0 _ _) (do break))"),
        ("for i in 0..n { continue }", "(for i (.. 0 n _) (do continue))"),
        ("while x < 3 { x += 1 }", "(while (Lt x 3) (do (Add= x 1)))"),
        ("fn f() { return\n1 }", "(fn f [] (do (return) 1))"),
        ("fn f() { return 1 + 2; }", "(fn f [] (do (return (Add 1 2))))"),
        ("throw \"x\"", "(throw (str \"x\"))"),
        ("defer { f() }", "(defer (do (call f)))"),
        ("import nn", "(import \"nn\" nn)"),
        ("import nn as layers", "(import \"nn\" layers)"),
        ("import \"util.rnl\" as u", "(import file \"util.rnl\" u)"),
        ("import \"lib/util.rnl\"", "(import file \"lib/util.rnl\" util)"),
        ("test \"adds\" { 1 }", "(test \"adds\" (do 1))"),
        ("let test = 1; test", "(let test 1)\ntest"),
        ("a; b;", "a\n(; b)"),
        (";;a;;\n;b", "a\nb"),
        ("{ a; }", "(do (; a))"),
    ]);
}

#[test]
fn blocks_are_expressions() {
    shapes(&[
        ("let x = if a { 1 } else if b { 2 } else { 3 }", "(let x (if a (do 1) b (do 2) else (do 3)))"),
        ("if a { 1 }", "(if a (do 1))"),
        ("if a { 1 } else { 2 } + 3", "(Add (if a (do 1) else (do 2)) 3)"),
        ("if a { 1 }\nelse { 2 }", "(if a (do 1) else (do 2))"),
        ("with device(1), stream(s) { x }", "(with (call device 1) (call stream s) (do x))"),
        ("let y = with c { x }.sum()", "(let y (call (. (with c (do x)) sum)))"),
    ]);
    shapes(&[
        ("try { f() }\n\ncatch e { e.kind }", "(try (do (call f)) e (do (. e kind)))"),
        ("try { 1 } catch { 2 }", "(try (do 1) _ (do 2))"),
        ("if {a} {b}", "(if (do a) (do b))"),
        ("|x| { let y = x; y }", "(lambda [x] (do (let y x) y))"),
        ("|(a, b), c = 1| a", "(lambda [(tuple a b) c=1] (do a))"),
        ("|*xs| |y| xs", "(lambda [*xs] (do (lambda [y] (do xs))))"),
        ("f({\nlet a = 1\na\n}, 2)", "(call f (do (let a 1) a) 2)"),
    ]);
}

#[test]
fn matches_have_patterns_guards_and_alternatives() {
    shapes(&[
        ("match x { }", "(match x)"),
        ("match x { 1 => a, _ => b }", "(match x ('1 => a) (_ => b))"),
        (
            "match x {\n  1 | 2 => a\n  n if n > 3 => b,\n\n  _ => { c }\n}",
            "(match x ((| '1 '2) => a) (n if (Gt n 3) => b) (_ => (do c)))",
        ),
        (
            "match x { -1 => a; 0..10 => b; ..0 => c; 5.. => d }",
            "(match x ('(Neg 1) => a) ('(.. 0 10 _) => b) ('(.. _ 0 _) => c) ('(.. 5 _ _) => d))",
        ),
        (
            "match x { \"a\" => 1, none => 2, cuda:1 => 3, f32 => 4, a.b.c => 5 }",
            "(match x ('(str \"a\") => 1) ('none => 2) ('cuda:1 => 3) ('dtype:f32 => 4) ('(. (. a b) c) => 5))",
        ),
        (
            "match x { (a, ..r) => a, [1 | 2, _] => b, (v, kind = \"k\") => v }",
            "(match x ((tuple a ..r@1) => a) ((list (| '1 '2) _) => b) ((record v kind='(str \"k\")) => v))",
        ),
        (
            "for i in x { match i { 1 => break, _ => continue } }",
            "(for i x (do (match i ('1 => (do break)) (_ => (do continue)))))",
        ),
    ]);
}

#[test]
fn lines_end_statements_or_go_on() {
    shapes(&[
        ("a\nb", "a\nb"),
        ("a +\nb", "(Add a b)"),
        ("f(a,\n  b\n)", "(call f a b)"),
        ("[1,\n 2]", "(list 1 2)"),
        ("x\n  .f()\n  # a comment between\n  .g()", "(call (. (call (. x f)) g))"),
        ("x\n  |> f\n  |> g", "(|> (|> x f) g)"),
        ("let x =\n  1", "(let x 1)"),
        ("a # one\n# two\nb", "a\nb"),
        ("a\n-b", "a\n(Neg b)"),
        ("a and\nb or\n\nc", "(or (and a b) c)"),
        ("(a\n+ b)", "(paren (Add a b))"),
        ("f(x, if a {\n1\n} else {\n2\n}\n)", "(call f x (if a (do 1) else (do 2)))"),
        ("let r = 0..\nr", "(let r (.. 0 _ _))\nr"),
        ("#!/usr/bin/env runnel\na", "a"),
        ("\u{feff}a\r\nb\r\n", "a\nb"),
        ("", ""),
        ("# only a comment", ""),
    ]);
}

#[test]
fn functions_carry_the_comments_above_them() {
    shapes(&[
        ("# Adds.\n#   Two.\nfn f() {}", "(fn f \"Adds.\\n  Two.\" [] (do))"),
        ("# Far.\n\nfn f() {}", "(fn f [] (do))"),
        ("let a = 1 # beside\nfn f() {}", "(let a 1)\n(fn f [] (do))"),
        ("#!/bin/runnel\nfn f() {}", "(fn f [] (do))"),
        ("{\n  # In.\r\n  fn f() {}\n}", "(do (fn f \"In.\" [] (do)))"),
    ]);
    let parsed = parse(1, "a # one\n# two");
    let texts: Vec<_> =
        parsed.comments.iter().map(|c| &"a # one\n# two"[c.lo as usize..c.hi as usize]).collect();
    assert_eq!(texts, ["# one", "# two"]);
}

/// Every node's span covers its own text, and its parts lie inside.
#[test]
fn spans_cover_the_text() {
    use ast::*;
    let text = "let x = f(a, -b)[1.. , 0] on cpu\nwhile not (a) { x += \"{y:3}\" }";
    let parsed = parse(1, text);
    let at = |s: crate::base::Span| &text[s.lo as usize - 1..s.hi as usize - 1];
    assert_eq!(at(parsed.block.span), text);
    let [first, second] = parsed.block.body.as_slice() else { panic!("two statements") };
    assert_eq!(at(first.span), "let x = f(a, -b)[1.. , 0] on cpu");
    assert_eq!(at(second.span), "while not (a) { x += \"{y:3}\" }");
    let StmtKind::Let(p, on) = &first.kind else { panic!("let") };
    assert_eq!((at(p.span), at(on.span)), ("x", "f(a, -b)[1.. , 0] on cpu"));
    let ExprKind::On(index, cpu) = &on.kind else { panic!("on") };
    assert_eq!((at(index.span), at(cpu.span)), ("f(a, -b)[1.. , 0]", "cpu"));
    let ExprKind::Index(call, indices) = &index.kind else { panic!("index") };
    assert_eq!((at(call.span), at(indices[0].span)), ("f(a, -b)", "1.."));
    let StmtKind::While(not, block) = &second.kind else { panic!("while") };
    assert_eq!((at(not.span), at(block.span)), ("not (a)", "{ x += \"{y:3}\" }"));
    let StmtKind::Update(_, _, string) = &block.body[0].kind else { panic!("update") };
    assert_eq!(at(string.span), "\"{y:3}\"");
}

/// Every script of the repository parses, except scripts that state which E01xx they raise.
#[test]
fn the_scripts_of_the_repository_parse() {
    let mut folders = vec![std::path::PathBuf::from(env!("CARGO_MANIFEST_DIR"))];
    let (mut count, mut wrong) = (0, Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap().flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            let name = name.to_string_lossy();
            if entry.file_type().unwrap().is_dir() {
                // Seeds of fuzzers need not parse.
                if !name.starts_with('.') && name != "target" && name != "seeds" {
                    folders.push(path);
                }
            } else if name.ends_with(".rnl") {
                let text = std::fs::read_to_string(&path).unwrap();
                let errors = parse(1, &text).errors;
                if !errors.is_empty() && !text.contains("E01") {
                    wrong.push(format!("{}: {errors:?}", path.display()));
                }
                count += 1;
            }
        }
    }
    assert!(count > 0);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
