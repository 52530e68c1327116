//! The errors and warnings about names and calls: E02xx and W02xx.

use super::foreign::{self, foreign_method, foreign_name};
use super::scope::{Binding, Origin};
use crate::base::{Code, Error, ErrorKind, Span, suggest};
use crate::syntax::ast::Binary;

const fn code(id: &'static str, title: &'static str, page: &'static str, example: &'static str) -> Code {
    Code { id, kind: ErrorKind::Name, title, page, example }
}

/// An undefined name.
pub static UNKNOWN_NAME: Code = code(
    "E0201",
    "unknown name",
    "The name is not in scope here: no `let`, `fn`, `import` or parameter binds it, and it is not a function of \
     Runnel. A name is in scope from its `let` to the end of the enclosing block `{ }`. PyTorch's functions are in \
     scope without `torch.`.",
    "print(lenght([1, 2]))",
);

/// `x = 1` without a `let x` before.
pub static UNKNOWN_TARGET: Code = code(
    "E0202",
    "assignment to a name that is not bound",
    "`x = e` gives a new value to a name that exists; `let x = e` introduces one. So a misspelt assignment is found \
     before anything runs.",
    "total = 1",
);

/// `print = 1`
pub static BUILTIN_TARGET: Code = code(
    "E0203",
    "assignment to a name of Runnel",
    "Built-in functions and values cannot be assigned to. `let sum = ...` makes a name of your own that hides the \
     built-in one in its block.",
    "print = 1",
);

/// A name before its `let`.
pub static USED_EARLY: Code = code(
    "E0204",
    "name used before its definition",
    "The name is defined further down in the same block. Move its definition up. Functions of the top level may be \
     used anywhere, and the body of a function may use any name of the top level.",
    "print(x)\nlet x = 1",
);

/// An unknown member of a module.
pub static UNKNOWN_MEMBER: Code = code(
    "E0205",
    "a module has no such member",
    "The module has no member of the name after the `.`. `runnel doc NAME` lists the members of a module.",
    "cuda.memory_alocated()",
);

/// An unknown argument name.
pub static UNKNOWN_ARGUMENT: Code = code(
    "E0206",
    "no parameter has this name",
    "An argument `name = value` goes to the parameter of that name, and the function has no such parameter. The \
     help shows its parameters.",
    "fn f(a, b = 1) { a + b }\nf(1, c = 2)",
);

/// More arguments than parameters.
pub static EXTRA_ARGUMENT: Code = code(
    "E0207",
    "too many arguments",
    "The call has more positional arguments than the function takes. Parameters after `*` or `*rest` can only be \
     given by name.",
    "fn f(a) { a }\nf(1, 2)",
);

/// A parameter without a value.
pub static MISSING_ARGUMENT: Code = code(
    "E0208",
    "an argument is missing",
    "The parameter has no default, so each call must give it a value, by position or by name.",
    "fn f(a, b) { a + b }\nf(1)",
);

/// A parameter with two values.
pub static ARGUMENT_TWICE: Code = code(
    "E0209",
    "an argument is given twice",
    "One parameter gets a value by position and by name, or twice by name. Leave one out.",
    "fn f(a, b = 1) { a + b }\nf(1, a = 2)",
);

/// One name twice in a pattern, a parameter list or a record.
pub static NAME_TWICE: Code = code(
    "E0210",
    "a name appears twice",
    "A pattern, a parameter list or a record binds each name once. Use `_` for a part that is not needed.",
    "let (a, a) = (1, 2)",
);

/// `break` outside of a loop.
pub static OUTSIDE_LOOP: Code = code(
    "E0211",
    "`break` or `continue` outside of a loop",
    "They end or continue the enclosing `for` or `while` loop of the same function. The body of a function inside a \
     loop is not part of the loop.",
    "break",
);

/// `return` outside of a function.
pub static OUTSIDE_FUNCTION: Code = code(
    "E0212",
    "`return` outside of a function",
    "`return` ends the enclosing function, and there is none here. The value of a block is its last expression; \
     `exit()` ends a script.",
    "return 1",
);

/// `import` of a library that does not exist.
pub static UNKNOWN_LIBRARY: Code = code(
    "E0213",
    "unknown library",
    "`import name` brings in a library of Runnel, such as `data` or `parallel`; `import \"file.rnl\"` brings in a file. The \
     functions of PyTorch and NumPy need no import.",
    "import neural_networks",
);

/// An unknown method.
pub static UNKNOWN_METHOD: Code = code(
    "E0214",
    "no value has this method",
    "No type has a method of this name, and no field of this name in the script holds a function. `runnel doc NAME` \
     finds methods by words.",
    "zeros(2).summ()",
);

/// `a | (a, b)`
pub static ALTERNATIVES_DIFFER: Code = code(
    "E0215",
    "alternatives bind different names",
    "The arm of `[a] | [a, _]` may use `a`, whichever alternative fits; so every alternative binds the same names.",
    "match [1, 2] { [a] | [a, b] => a, _ => 0 }",
);

/// An unused name.
pub static UNUSED: Code = code(
    "W0201",
    "unused name",
    "The name is bound and never read. Remove it, or let its name begin with `_`. Names of the top level are \
     reported only in files that run statements; a file of definitions is meant to be imported.",
    "fn scaled(x, factor) {\n    let twice = 2 * x\n    x * factor\n}\nprint(scaled(2, 3))",
);

/// Statements after `return`.
pub static UNREACHABLE: Code = code(
    "W0202",
    "unreachable statement",
    "This statement can never run: the statement before it always leaves the block, or never ends. Remove what follows it.",
    "fn sign(x) {\n    if x < 0 { return -1 } else { return 1 }\n    0\n}\nprint(sign(2))",
);

/// `x == 1` as a statement.
pub static NO_EFFECT: Code = code(
    "W0203",
    "comparison without effect",
    "The result of the comparison is not used. To give a name a new value, write `=`.",
    "let x = 1\nx == 2\nprint(x)",
);

/// An operation on constant shapes that fails.
pub static SHAPES_CLASH: Code = Code {
    id: "W0204",
    kind: ErrorKind::Shape,
    title: "incompatible shapes",
    page: "The shapes of the operands are known before the script runs, and they are incompatible: whenever this \
           line runs, it fails. Code inside `try`, or in a function without parameters, is not reported.",
    example: "let w = randn(4, 8)\nlet x = randn(5, 3)\nprint(x @ w)",
};

/// Results of a side stream that are not waited for.
pub static NOT_WAITED_FOR: Code = Code {
    id: "W0205",
    kind: ErrorKind::Race,
    title: "side stream that is not waited for",
    page: "Work on a side stream runs concurrently with everything else. Its result may be used only after a \
           wait: by a stream (`cuda.current_stream().wait_stream(s)`), or by the host (`s.synchronize()`). \
           Without a wait the use is a race, which stops the script (E0601) unless races are ordered \
           automatically.",
    example: "let x = randn(64)\nlet s = Stream()\nlet total = with stream(s) {\n    s.wait_stream(cuda.default_stream())\n    \
              x.sum()\n}\nprint(total)",
};

/// A loop variable or parameter that is assigned and not read again.
pub static LOST: Code = code(
    "W0206",
    "assigned value that is never read",
    "The variable of a loop, or a parameter, gets a new value that nothing reads. The list that the loop runs over, and \
     the caller's value, do not change: `x += y` is `x = x + y`. To change a tensor in place, write `x.add_(y)` or \
     `x[..] += y`; to change a list, `items[i] = y`.",
    "let ps = [zeros(2), zeros(2)]\nfor p in ps { p += 1 }\nprint(ps)",
);

/// `[0] * 3`, `found += [x]`
pub static LIST_ARITHMETIC: Code = code(
    "W0207",
    "arithmetic with a list",
    "To an arithmetic operator, a list of numbers is a tensor: `[0] * 3` has one element, and `found += [x]` adds `x` to \
     each element. `++` joins lists, `found.append(x)` adds one, and `full(n, 0)` is a tensor of equal elements.",
    "let found = [1]\nfound += [2]\nprint(found)",
);

/// `self.steps += 1` in a function that takes `self`.
pub static LOST_FIELD: Code = code(
    "W0208",
    "changed field that is lost",
    "A function gets the record `self` as a value: a write to a field changes the function's own copy, and nothing reads \
     the field afterwards. Keep what changes in a tensor and write into it (`self.steps.add_(1)`), in a list or a dict, or \
     return the changed record: `(..self, steps = self.steps + 1)`. In the same way, `p.x = 1` in `for p in items` changes \
     the copy in `p`: write `items[i].x = 1`.",
    "let net = (steps = 0, forward = |self, x| {\n    self.steps += 1\n    x\n})\nprint(net(1), net.steps)",
);

/// Every error of this phase.
pub static CODES: &[&Code] = &[
    &UNKNOWN_NAME,
    &UNKNOWN_TARGET,
    &BUILTIN_TARGET,
    &USED_EARLY,
    &UNKNOWN_MEMBER,
    &UNKNOWN_ARGUMENT,
    &EXTRA_ARGUMENT,
    &MISSING_ARGUMENT,
    &ARGUMENT_TWICE,
    &NAME_TWICE,
    &OUTSIDE_LOOP,
    &OUTSIDE_FUNCTION,
    &UNKNOWN_LIBRARY,
    &UNKNOWN_METHOD,
    &ALTERNATIVES_DIFFER,
];

/// Every warning of this phase.
pub static WARNINGS: &[&Code] = &[
    &UNUSED,
    &UNREACHABLE,
    &NO_EFFECT,
    &SHAPES_CLASH,
    &NOT_WAITED_FOR,
    &LOST,
    &LIST_ARITHMETIC,
    &LOST_FIELD,
];

/// The warnings about results that are wrong without an error. They are shown when the script runs, too.
pub static SHOWN_AT_RUN: &[&Code] = &[&LIST_ARITHMETIC, &LOST_FIELD];

fn did_you_mean(error: Error, suggestion: Option<&str>) -> Error {
    match suggestion {
        Some(name) => error.help(format!("did you mean `{name}`?")),
        None => error,
    }
}

/// An undefined name; `library` is a library that defines it or has this name.
pub(super) fn unknown_name(span: Span, name: &str, suggestion: Option<&str>, library: Option<&str>) -> Error {
    let error = Error::new(&UNKNOWN_NAME, format!("unknown name `{name}`")).at(span, "");
    match library {
        Some(library) if library == name => return error.help(format!("write `import {name}` first")),
        Some(library) => {
            return error.help(format!("write `import {library}`, and `{library}.{name}`"));
        }
        None => {}
    }
    if let Some(help) = foreign_name(name) {
        return error.help(help);
    }
    let misspelt = || suggest(name, foreign::names().filter(|known| known.len() > 4)).and_then(foreign_name);
    // `f33`
    let width = name.trim_start_matches("bf").trim_start_matches(['f', 'i', 'u', 'c']);
    let is_dtype =
        width.len() + 2 >= name.len() && width.len() == 2 && width.bytes().all(|b| b.is_ascii_digit());
    match suggestion {
        _ if is_dtype && width.len() < name.len() => error.help(format!(
            "dtypes are `{}`",
            crate::array::Dtype::ALL.map(|dtype| dtype.name()).join("`, `")
        )),
        Some(_) => did_you_mean(error, suggestion),
        None => match misspelt() {
            Some(help) => error.help(help),
            None => error.help(format!("define it first: `let {name} = ...` or `fn {name}(...) {{ ... }}`")),
        },
    }
}

pub(super) fn unknown_target(span: Span, name: &str, suggestion: Option<&str>) -> Error {
    let help = match suggestion {
        Some(other) => format!("did you mean `{other}`? to introduce a name, write `let {name} = ...`"),
        None => format!("write `let {name} = ...` to introduce it"),
    };
    Error::new(&UNKNOWN_TARGET, format!("`{name}` is assigned to, but never introduced"))
        .at(span, "")
        .help(help)
}

pub(super) fn builtin_target(span: Span, name: &str) -> Error {
    Error::new(&BUILTIN_TARGET, format!("`{name}` belongs to Runnel and cannot be assigned to"))
        .at(span, "")
        .help(format!("write `let {name} = ...` for a name of your own"))
}

pub(super) fn used_early(span: Span, name: &str, defined: Span) -> Error {
    let help = match span.lo > defined.lo {
        true => format!(
            "the name has its value after the `let`; a function that calls itself is `fn {name}(...) {{ ... }}`"
        ),
        false => "move the definition up".into(),
    };
    Error::new(&USED_EARLY, format!("`{name}` is used before its definition"))
        .at(span, "used here")
        .at(defined, "defined here")
        .help(help)
}

/// The intended name, if it has another name in Runnel or is defined in another place (`elsewhere`).
fn meant(name: &str, elsewhere: Option<&str>) -> Option<String> {
    let renamed = foreign_name(name).map(str::to_string);
    renamed.or_else(|| elsewhere.map(|place| format!("write `{place}(...)`")))
}

/// The owner of a member.
pub(super) enum Owner<'a> {
    Module(&'a str),
    /// A value of that type.
    Value(&'a str),
}

pub(super) fn unknown_member(
    span: Span,
    owner: Owner<'_>,
    name: &str,
    suggestion: Option<&str>,
    elsewhere: Option<&str>,
) -> Error {
    let (shown, page) = match owner {
        Owner::Module(module) => (format!("`{module}`"), module),
        Owner::Value(of) => (format!("a {of}"), of),
    };
    let error = Error::new(&UNKNOWN_MEMBER, format!("{shown} has no `{name}`")).at(span, "");
    if matches!(name, "inf" | "nan") {
        return error.help(format!("it is a word of the language: write `{name}`"));
    }
    if let Some(help) = meant(name, elsewhere) {
        return error.help(help);
    }
    match suggestion {
        Some(_) => did_you_mean(error, suggestion),
        None => error.help(format!("`runnel doc {page}` lists its members")),
    }
}

/// A member that has another name here.
pub(super) fn renamed_member(span: Span, module: &str, name: &str, own: &str) -> Error {
    let error = Error::new(&UNKNOWN_MEMBER, format!("`{module}` has no `{name}`")).at(span, "");
    error.help(match name.ends_with("Loss") {
        true => format!("a loss is a function: write `{module}.{own}(x, y)`, with its options after them"),
        false => format!("write `{module}.{own}(...)`"),
    })
}

/// The error of a method call; `of_numbers`: a function of this name takes the arguments with a number before them.
pub(super) fn method_of_tensors(error: Error, name: &str, of_numbers: bool) -> Error {
    match error.help_text() {
        Some(help) if of_numbers => {
            let help = format!("for a number, write `{name}(x, ...)`; for a tensor, {help}");
            error.help(help)
        }
        _ => error,
    }
}

pub(super) fn unknown_argument(
    span: Span,
    function: &str,
    name: &str,
    suggestion: Option<&str>,
    signature: &str,
) -> Error {
    let has =
        |param: &str| signature.split(|c: char| !(c.is_alphanumeric() || c == '_')).any(|word| word == param);
    let help = match foreign::argument(name).filter(|own| has(own)).or(suggestion) {
        _ if function == "dict" => {
            format!("names are fields of a record: `dict(({name} = ...))` makes a dict of one")
        }
        Some(other) => format!("did you mean `{other}`? the parameters are `{function}{signature}`"),
        None => format!("the parameters are `{function}{signature}`"),
    };
    Error::new(&UNKNOWN_ARGUMENT, format!("`{function}` has no parameter `{name}`")).at(span, "").help(help)
}

pub(super) fn extra_argument(
    span: Span,
    function: &str,
    takes: usize,
    given: usize,
    signature: &str,
) -> Error {
    let count = |n: usize| if n == 1 { "1 argument".to_string() } else { format!("{n} arguments") };
    let verb = if given == 1 { "is" } else { "are" };
    Error::new(
        &EXTRA_ARGUMENT,
        format!("`{function}` takes {} by position, {given} {verb} given", count(takes)),
    )
    .at(span, "this is one too many")
    .help(match foreign::by_name(signature) {
        Some(name) => {
            format!("the parameters are `{function}{signature}`; those after `*` go by name: `{name}=...`")
        }
        None => format!("the parameters are `{function}{signature}`"),
    })
}

pub(super) fn missing_argument(span: Span, function: &str, names: &[&str], signature: &str) -> Error {
    let names: Vec<String> = names.iter().map(|n| format!("`{n}`")).collect();
    Error::new(&MISSING_ARGUMENT, format!("`{function}` lacks a value for {}", names.join(" and ")))
        .at(span, "")
        .help(format!("the parameters are `{function}{signature}`"))
}

pub(super) fn argument_twice(span: Span, function: &str, name: &str, first: Option<Span>) -> Error {
    let error = Error::new(&ARGUMENT_TWICE, format!("`{function}` gets two values for `{name}`"))
        .at(span, "")
        .help("leave one of the two out");
    match first {
        Some(first) => error.at(first, "the first one is here"),
        None => error,
    }
}

pub(super) fn name_twice(span: Span, name: &str, first: Span, place: &str) -> Error {
    Error::new(&NAME_TWICE, format!("`{name}` appears twice in {place}"))
        .at(span, "")
        .at(first, "the first one is here")
        .help("give one of them another name")
}

pub(super) fn alternatives_differ(span: Span, name: &str, bound: Span) -> Error {
    Error::new(&ALTERNATIVES_DIFFER, format!("this alternative does not bind `{name}`"))
        .at(span, "")
        .at(bound, format!("another one binds `{name}`"))
        .help("bind the same names in each alternative, or write an arm for each")
}

pub(super) fn outside_loop(span: Span, word: &str, in_function: bool) -> Error {
    let error = Error::new(&OUTSIDE_LOOP, format!("`{word}` outside of a loop")).at(span, "");
    error.help(match (in_function, word) {
        (true, _) => "`return` ends a function",
        (false, _) => "write it inside a `for` or `while` loop",
    })
}

pub(super) fn outside_function(span: Span) -> Error {
    Error::new(&OUTSIDE_FUNCTION, "`return` outside of a function")
        .at(span, "")
        .help("`return` ends a function; the value of a block is its last expression")
}

pub(super) fn unknown_library(span: Span, name: &str, suggestion: Option<&str>) -> Error {
    let error = Error::new(&UNKNOWN_LIBRARY, format!("there is no library `{name}`")).at(span, "");
    match (name, suggestion) {
        ("torch" | "numpy" | "np" | "cupy" | "jax" | "math", _) => {
            error.help("leave this line out: tensor functions are in scope without an import")
        }
        (_, None) => error.help(format!("for a file of your own write `import \"{name}.rnl\"`")),
        (_, suggestion) => did_you_mean(error, suggestion),
    }
}

pub(super) fn unknown_method(
    span: Span,
    name: &str,
    suggestion: Option<&str>,
    elsewhere: Option<&str>,
) -> Error {
    let error = Error::new(&UNKNOWN_METHOD, format!("no value has a method `{name}`")).at(span, "");
    if let Some(help) = foreign_method(name) {
        return error.help(help);
    }
    if let Some(help) = meant(name, elsewhere) {
        return error.help(help);
    }
    match suggestion {
        Some(_) => did_you_mean(error, suggestion),
        None => {
            error.help(format!("a function `fn {name}(x) {{ ... }}` of your own is called `x |> {name}()`"))
        }
    }
}

/// `what` is empty or `the parameter `.
pub(super) fn unused(span: Span, what: &str, name: &str) -> Error {
    Error::new(&UNUSED, format!("{what}`{name}` is never used"))
        .at(span, "")
        .help(format!("remove it, or rename it to `_{name}`"))
}

/// `update`: by an operator such as `+=`.
pub(super) fn lost(span: Span, binding: &Binding, update: bool) -> Error {
    let name = &binding.name;
    let what = if matches!(binding.origin, Origin::Param) { "the parameter " } else { "the variable " };
    let help = match update {
        true => format!(
            "to change a tensor in place, write `{name}.add_(...)`, `{name}.sub_(...)`, or `{name}[..] += ...`"
        ),
        false => "an element is changed by its position: `items[i] = ...`".to_string(),
    };
    Error::new(&LOST, format!("the value that {what}`{name}` gets here is never read"))
        .at(span, "only this name changes")
        .help(help)
}

/// `update`: the operator of `self.field += ...`.
pub(super) fn lost_field(span: Span, field: &str, update: Option<Binary>) -> Error {
    let in_place = in_place(update);
    Error::new(&LOST_FIELD, format!("the new value of `self.{field}` is lost when the function ends"))
        .at(span, "this changes the function's own copy of the record")
        .help(format!(
            "write into a tensor, `self.{field}.{in_place}`, or return the changed record, `(..self, {field} = ...)`"
        ))
}

/// The same in a loop.
pub(super) fn lost_in_loop(span: Span, name: &str, field: &str, update: Option<Binary>) -> Error {
    let in_place = in_place(update);
    Error::new(&LOST_FIELD, format!("the new value of `{name}.{field}` is lost when the loop goes on"))
        .at(span, format!("this changes the copy of the record in `{name}`, not the list"))
        .help(format!(
            "write to the list, `items[i].{field} = ...`, or into a tensor, `{name}.{field}.{in_place}`"
        ))
}

/// The method that updates a tensor in place.
fn in_place(update: Option<Binary>) -> &'static str {
    match update {
        Some(Binary::Add) => "add_(...)",
        Some(Binary::Sub) => "sub_(...)",
        Some(Binary::Mul) => "mul_(...)",
        Some(Binary::Div) => "div_(...)",
        _ => "copy_(...)",
    }
}

pub(super) fn repeated(span: Span) -> Error {
    Error::new(&LIST_ARITHMETIC, "this is a product, not a repetition")
        .at(span, "it gives a tensor of one element")
        .help("`full(n, 0)` is a tensor of equal elements, `map(|_| 0, 0..n)` a list")
}

pub(super) fn added(span: Span, name: &str) -> Error {
    Error::new(&LIST_ARITHMETIC, "this is a sum, not a joined list")
        .at(span, "this is added to each element")
        .help(format!("write `{name}.append(...)`, or `{name} = {name} ++ [...]`"))
}

/// An operation that fails, with the message of the failure.
pub(super) fn shapes_clash(here: Span, message: String, labels: Vec<(Span, String)>, help: String) -> Error {
    let error = Error::new(&SHAPES_CLASH, message).help(help);
    match labels.is_empty() {
        true => error.at(here, "this fails whenever it runs"),
        false => labels.into_iter().fold(error, |error, (span, text)| error.at(span, text)),
    }
}

pub(super) fn used_before_wait(span: Span, name: &str, work: Span, stream: &str) -> Error {
    let message = format!("`{name}` is used before anything waits for the stream `{stream}`");
    Error::new(&NOT_WAITED_FOR, message)
        .at(span, "this may read it too early")
        .at(work, format!("`{name}` is computed on this stream"))
        .help(format!("insert `cuda.current_stream().wait_stream({stream})` before this line"))
}

pub(super) fn never_waited_for(work: Span, stream: &str) -> Error {
    Error::new(&NOT_WAITED_FOR, format!("nothing waits for this work on the stream `{stream}`"))
        .at(work, "its results may be used too early")
        .help(format!(
            "write `cuda.current_stream().wait_stream({stream})` before the results are used, or `{stream}.synchronize()`"
        ))
}

pub(super) fn unreachable(span: Span, before: Span) -> Error {
    Error::new(&UNREACHABLE, "this statement is never reached")
        .at(span, "")
        .at(before, "this always leaves the block")
        .help("remove what follows, or move it before")
}

pub(super) fn no_effect(span: Span) -> Error {
    Error::new(&NO_EFFECT, "the result of this comparison is not used")
        .at(span, "")
        .help("write `=` to assign")
}
