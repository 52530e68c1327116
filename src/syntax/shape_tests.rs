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
fn operators_bind_as_section_5_says() {
    shapes(&[
        ("a or b and not c", "(or a (and b (Not c)))"),
        ("not a == b", "(Not (Eq a b))"),
        ("a == b | c", "(Eq a (BitOr b c))"),
        ("a | b ^ c & d << e", "(BitOr a (BitXor b (BitAnd c (Shl d e))))"),
        ("1 << 2..3", "(Shl 1 (.. 2 3 _))"),
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
