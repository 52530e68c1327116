//! The errors and warnings about names and calls: E02xx and W02xx.

use crate::base::{Code, Error, ErrorKind, Span, suggest};
use crate::ops::table;

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
pub static WARNINGS: &[&Code] = &[&UNUSED, &UNREACHABLE, &NO_EFFECT, &SHAPES_CLASH, &NOT_WAITED_FOR];

fn did_you_mean(error: Error, suggestion: Option<&str>) -> Error {
    match suggestion {
        Some(name) => error.help(format!("did you mean `{name}`?")),
        None => error,
    }
}

/// Names from other languages and libraries, and what to write in Runnel.
const FOREIGN: &[(&[&str], &str)] = &[
    (&["True", "TRUE"], "write `true`"),
    (&["False", "FALSE"], "write `false`"),
    (&["None", "null", "nil", "NULL", "undefined"], "write `none`"),
    (
        &["torch"],
        "PyTorch's functions are in scope: write `zeros(2)` and `cuda.synchronize()`, without `torch.`",
    ),
    (
        &["np", "numpy", "jnp", "cupy", "cp"],
        "tensor functions are in scope: write `zeros(2)`, without a module",
    ),
    (
        &["self", "this"],
        "there are no classes: a record's function whose first parameter is `self` gets the record",
    ),
    (&["pass"], "an empty block is `{ }`"),
    (&["float32"], "write `f32`"),
    (&["float64", "double"], "write `f64`"),
    (&["complex64", "cfloat"], "write `c64`"),
    (&["complex128", "cdouble"], "write `c128`"),
    (&["float16", "half"], "write `f16`"),
    (&["bfloat16"], "write `bf16`"),
    (&["int64", "long"], "write `i64`"),
    (&["int32"], "write `i32`"),
    (&["int16", "short"], "write `i16`"),
    (&["int8"], "write `i8`"),
    (&["uint8"], "write `u8`"),
    (&["gpu"], "write `cuda`"),
    (&["infinity", "Inf", "Infinity"], "write `inf`"),
    (&["NaN", "NAN"], "write `nan`"),
    (&["println", "printf", "echo"], "write `print(...)`"),
    (&["xrange"], "write `0..n`, or `0..n by 2`"),
    (&["length", "size"], "write `len(x)`"),
    (
        &["nn", "F", "optim", "functional", "Adam", "AdamW", "SGD"],
        "write `import nn`: `nn.linear(3, 4)`, `nn.cross_entropy(x, y)`, `nn.adam(net)`",
    ),
    (
        &["Linear", "Sequential", "Module", "ReLU", "LayerNorm", "Embedding", "Parameter", "BatchNorm2d"],
        "layers are functions of `nn`, in lower case: `nn.linear(3, 4)`, `nn.sequential(...)`; they give records with `forward = |self, x| ...`",
    ),
    (
        &[
            "CrossEntropyLoss",
            "MSELoss",
            "L1Loss",
            "NLLLoss",
            "BCELoss",
            "BCEWithLogitsLoss",
            "KLDivLoss",
            "SmoothL1Loss",
            "HuberLoss",
            "CTCLoss",
        ],
        "losses are functions of `nn`: `nn.cross_entropy(x, y, weight=w)`, `nn.mse_loss(x, y)`",
    ),
    (
        &["ModuleList", "ModuleDict", "ParameterList"],
        "a list, a dict or a record holds layers and parameters: `(layers = [..], forward = |self, x| ...)`",
    ),
    (
        &["utils", "init"],
        "its functions are in `nn`: `nn.clip_grad_norm_(net, 1.0)`, `nn.xavier_uniform_(w)`",
    ),
    (&["copy"], "write `import nn`: `nn.deepcopy(net)`; `x.clone()` copies a tensor, `list(x)` a list"),
    (
        &["conv1d", "conv2d", "conv3d", "Conv2d", "max_pool2d", "avg_pool2d"],
        "windows are views: `x.unfold(2, 3, 1).unfold(3, 3, 1)` has them, for `einsum` or `amax`",
    ),
    (
        &["state_dict", "load_state_dict"],
        "write `import nn`: `nn.state_dict(net)`, `nn.load_state_dict(net, load(\"model.safetensors\"))`",
    ),
    (
        &["MultiheadAttention", "TransformerEncoderLayer"],
        "write `import nn`: `nn.multi_head_attention(64, 4)`, `nn.transformer_encoder_layer(64, 4)`",
    ),
    (&["linalg"], "there are `norm`, `@`, `einsum`, `cross` and `outer`, and no decompositions yet"),
    (&["inference_mode"], "write `with no_grad() { }`"),
    (
        &["vmap"],
        "there is no `vmap` yet: elementwise work, `@` and reductions with `dim` take whole batches; `jacobian` differentiates vectors",
    ),
    (&["pi"], "write `math.pi`"),
    (&["tau"], "write `math.tau`"),
    (&["unfold"], "windows are views of a tensor: `x.unfold(dim, size, step)`"),
    (&["vdot"], "write `(x.conj() * y).sum()`"),
    (&["jit", "dynamo"], "leave it out: elementwise work is fused into one kernel automatically"),
    (&["set_default_dtype", "get_default_dtype"], "write `dtype=f64` where a tensor is made"),
    (&["set_default_device"], "write `with device(1) { }`, or `cuda.set_device(1)`"),
    (&["is_tensor", "isinstance"], "write `type(x) == \"tensor\"`"),
    (&["tree", "pytree", "jax"], "write `tree_map(f, tree)` and `tree_leaves(tree)`"),
    (&["open", "fopen"], "write `read(path)` for a text, `load(path)` for tensors"),
    (&["plt", "pyplot", "matplotlib"], "write `plot.line(y)`, `plot.scatter(x, y)`, `plot.hist(x)`"),
    (&["os", "sys"], "write `args()` for the arguments, `env(name)` for a variable of the environment"),
    (&["CUDAGraph"], "write `Graph()`"),
    (&["make_graphed_callables"], "write `cuda.graphed(function, args)`"),
    (&["use_mem_pool"], "write `with mem_pool(pool) { }`"),
    (&["DataParallel"], "write `import parallel` and `parallel.data_parallel(f, params, batch)`"),
    (&["DataLoader"], "write `import data` and `data.loader(dataset)`"),
    (
        &["ExternalStream"],
        "streams of other libraries come from the program that embeds Runnel: `Engine::external_stream`",
    ),
];

/// Methods and attributes from other languages, and what to write in Runnel.
const FOREIGN_METHODS: &[(&[&str], &str)] = &[
    (&["length", "size", "len", "__len__"], "write `len(x)`"),
    (&["push", "push_back", "add", "append_"], "write `list.append(x)`"),
    (&["zero_grad"], "set the gradients to `none`: `w.grad = none`, or call `zero_grad()` of the optimiser"),
    (&["grad_fn"], "`x.is_leaf` and `x.requires_grad` say whether a tensor was computed from others"),
    (
        &["parameters", "named_parameters"],
        "write `import nn` and `nn.parameters(net)`; `nn.state_dict(net)` has the names",
    ),
    (&["has", "contains", "includes", "containsKey", "has_key"], "write `x in container`"),
    (&["toUpperCase", "uppercase"], "write `text.upper()`"),
    (&["toLowerCase", "lowercase"], "write `text.lower()`"),
    (&["toString", "to_string"], "write `str(x)`"),
    (&["forEach", "each"], "write `for x in xs { ... }`"),
    (&["data"], "write `x.detach()`"),
    (&["type"], "write `x.to(f32)` for another dtype, `x.dtype` for its own"),
    (&["resize_"], "a name takes the new view: `x = x.reshape(2, 3)`"),
    (&["where"], "write `where(condition, x, other)`"),
];

/// Functions and methods of PyTorch that do not exist yet.
const MISSING: &[(&[&str], &str)] = &[
    (
        &[
            "inverse",
            "inv",
            "pinverse",
            "det",
            "logdet",
            "slogdet",
            "svd",
            "qr",
            "eig",
            "eigh",
            "cholesky",
            "cholesky_solve",
            "lstsq",
            "lu",
            "matrix_exp",
        ],
        "there are no decompositions of matrices yet",
    ),
    (
        &[
            "stft",
            "istft",
            "hann_window",
            "hamming_window",
            "blackman_window",
            "bartlett_window",
            "kaiser_window",
        ],
        "PyTorch has it, Runnel not yet: `x.unfold(0, size, step)` has windows, for `fft`",
    ),
    (
        &[
            "fold",
            "interpolate",
            "grid_sample",
            "affine_grid",
            "matrix_power",
            "multi_dot",
            "chain_matmul",
            "polygamma",
            "igamma",
            "select_scatter",
            "slice_scatter",
            "diagonal_scatter",
            "renorm",
            "frexp",
            "nextafter",
            "lcm",
            "gcd",
            "i0",
            "poisson",
            "as_strided",
            "as_strided_",
            "set_",
            "special",
            "unravel_index",
        ],
        "PyTorch has it, Runnel not yet",
    ),
];

fn missing(name: &str) -> Option<&'static str> {
    MISSING.iter().find(|(names, _)| names.contains(&name)).map(|(_, help)| *help)
}

/// What to write for an attribute of another language, of a value of this type with the attributes `known`.
pub fn foreign_attribute(found: &str, name: &str, known: &[&str]) -> Option<String> {
    match found {
        "record" if known.contains(&"forward") => of_network(name),
        "record" | "module" => None,
        "tensor" => foreign_method(name).or_else(|| missing(name)).map(str::to_string),
        _ => foreign_method(name).map(str::to_string),
    }
}

/// What to write for a method of PyTorch's modules, which are records.
fn of_network(name: &str) -> Option<String> {
    Some(match name {
        "train" | "eval" => format!("records do not change: `net = nn.{name}(net)`"),
        "parameters" | "named_parameters" | "buffers" | "named_buffers" | "modules" | "named_modules"
        | "state_dict" | "load_state_dict" | "apply" | "zero_grad" | "requires_grad_" => {
            format!("write `nn.{name}(net)`")
        }
        "children" | "named_children" => "write `nn.modules(net)`, or name the fields".into(),
        "to" | "cuda" | "cpu" | "half" | "double" | "bfloat16" => {
            "write `net = nn.to(net, cuda:0)`, or with a dtype".into()
        }
        "register_buffer" | "register_parameter" | "add_module" => {
            "tensors and layers are fields of the record: `net = (..net, mask = x)`".into()
        }
        _ => return None,
    })
}

/// What to write for a method or attribute of another language.
fn foreign_method(name: &str) -> Option<&'static str> {
    let own = FOREIGN_METHODS.iter().find(|(names, _)| names.contains(&name)).map(|(_, help)| *help);
    own.or_else(|| table::foreign(name).filter(|op| op.form.method).map(|op| op.foreign.help))
}

/// Parameter names of other libraries.
const FOREIGN_ARGUMENTS: &[(&str, &str)] =
    &[("axis", "dim"), ("axes", "dims"), ("keepdims", "keepdim"), ("size", "shape"), ("mean", "loc")];

fn foreign_name(name: &str) -> Option<&'static str> {
    let own = FOREIGN.iter().find(|(names, _)| names.contains(&name)).map(|(_, help)| *help);
    let own = own.or_else(|| missing(name));
    own.or_else(|| table::foreign(name).filter(|op| op.form.function).map(|op| op.foreign.help))
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
    let misspelt = || {
        let own = FOREIGN.iter().flat_map(|(names, _)| names.iter().copied());
        let operations = table::all().filter(|op| op.form.function);
        let known = own.chain(operations.flat_map(|op| op.foreign.names.iter().copied()));
        suggest(name, known.filter(|known| known.len() > 4)).and_then(foreign_name)
    };
    // `f33`
    let width = name.trim_start_matches("bf").trim_start_matches(['f', 'i', 'u', 'c']);
    let is_dtype =
        width.len() + 2 >= name.len() && width.len() == 2 && width.bytes().all(|b| b.is_ascii_digit());
    match suggestion {
        _ if is_dtype && width.len() < name.len() => error.help(
            "dtypes are `bool`, `u8`, `i8`, `i16`, `i32`, `i64`, `f16`, `bf16`, `f32`, `f64`, `c64`, `c128`",
        ),
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

/// What a name is looked up in.
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
    if let Some(help) = meant(name, elsewhere) {
        return error.help(help);
    }
    match suggestion {
        Some(_) => did_you_mean(error, suggestion),
        None => error.help(format!("`runnel doc {page}` lists its members")),
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
    let own = FOREIGN_ARGUMENTS.iter().find(|(foreign, own)| *foreign == name && has(own));
    let help = match own.map(|(_, own)| *own).or(suggestion) {
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
    .help(format!("the parameters are `{function}{signature}`"))
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

#[cfg(test)]
mod tests {
    use super::{FOREIGN, MISSING};

    #[test]
    fn no_name_that_exists_is_called_foreign() {
        let natives = || crate::library::NATIVES.iter().flat_map(|(_, natives)| natives.iter());
        let there = |name: &str| {
            let op = crate::ops::table::find(name).is_some_and(|op| op.form.function);
            op || natives().any(|native| native.name == name && native.receiver.is_empty())
        };
        let is_method = |name: &str| crate::ops::table::find(name).is_some_and(|op| op.form.method);
        for name in MISSING.iter().flat_map(|(names, _)| *names) {
            assert!(!is_method(name), "{name}");
        }
        for name in FOREIGN.iter().chain(MISSING).flat_map(|(names, _)| *names) {
            assert!(!there(name), "{name}");
        }
    }
}
