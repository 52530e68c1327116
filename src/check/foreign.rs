//! Names of other languages and libraries, and what to write in Runnel.

use crate::ops::table;

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
        &["F", "functional"],
        "functions such as `relu`, `softmax` and `pad` need no prefix; losses are in `nn`: `import nn`, `nn.cross_entropy(x, y)`",
    ),
    (
        &["nn", "optim", "Adam", "AdamW", "SGD"],
        "write `import nn`: `nn.linear(3, 4)`, `nn.cross_entropy(x, y)`, `nn.adam(net)`",
    ),
    (
        &["Linear", "Sequential", "Module", "ReLU", "LayerNorm", "Embedding", "BatchNorm2d"],
        "layers are functions of `nn`, in lower case: `nn.linear(3, 4)`, `nn.sequential(...)`; they give records with `forward = |self, x| ...`",
    ),
    (&["Parameter"], "write `import nn`: `nn.parameter(x)`, or make the tensor with `requires_grad=true`"),
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
        &[
            "conv1d",
            "conv2d",
            "conv3d",
            "Conv2d",
            "convolution",
            "max_pool1d",
            "max_pool2d",
            "max_pool3d",
            "avg_pool1d",
            "avg_pool2d",
            "avg_pool3d",
            "adaptive_avg_pool2d",
            "adaptive_max_pool2d",
            "lp_pool3d",
        ],
        "windows are views: `x.unfold(2, 3, 1).unfold(3, 3, 1)` returns them, for `einsum` or `amax`",
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
    (&["jacrev", "jacfwd"], "write `jacobian(f)(x)`"),
    (
        &["hvp", "vhp"],
        "write `jvp(grad(f), (x,), (v,))`: the product of the second derivatives of `f` and `v`",
    ),
    (
        &["functional_call"],
        "parameters are fields of a record: call `(..net, weight = w)(x)`, or `grad(|net| ...)(net)`",
    ),
    (&["gradcheck"], "compare with central differences: `(f(x + h) - f(x - h)) / (2 * h)` in `f64`"),
    (&["pi"], "write `math.pi`"),
    (&["tau"], "write `math.tau`"),
    (&["unfold"], "windows are views of a tensor: `x.unfold(dim, size, step)`"),
    (&["expit"], "write `sigmoid(x)`"),
    (&["gammaln"], "write `lgamma(x)`"),
    (&["psi"], "write `digamma(x)`"),
    (&["adjoint"], "write `x.mH`"),
    (&["diagflat"], "write `diag(x.flatten())`"),
    (&["vector_norm", "matrix_norm", "nuclear_norm", "frobenius_norm"], "write `norm(x, p, dim)`"),
    (&["split_with_sizes", "unsafe_split", "unsafe_chunk"], "write `split(x, sizes)` or `chunk(x, n)`"),
    (&["compile"], "leave it out: elementwise work is fused into one kernel automatically"),
    (&["use_deterministic_algorithms"], "leave it out: the same script gives the same bits every time"),
    (
        &["pack_padded_sequence", "pad_packed_sequence", "pack_sequence"],
        "write `net(x, lengths=lengths)`: `nn.lstm` and its like take rows of different lengths",
    ),
    (&["jit", "dynamo"], "leave it out: elementwise work is fused into one kernel automatically"),
    (&["set_default_dtype", "get_default_dtype"], "write `dtype=f64` where a tensor is made"),
    (&["set_default_device"], "write `with device(1) { }`, or `cuda.set_device(1)`"),
    (&["is_tensor", "isinstance"], "write `type(x) == \"tensor\"`"),
    (&["tree", "pytree", "jax"], "write `tree_map(f, tree)` and `tree_leaves(tree)`"),
    (
        &["set", "frozenset", "Set", "HashSet"],
        "the keys of a dict are distinct: `let seen = dict()`, `seen[x] = true`, `x in seen`; `unique(x)` is for tensors",
    ),
    (
        &["getattr", "setattr"],
        "write `r[name]` for a field of a record, `(..r, name = value)` for a changed copy",
    ),
    (&["hasattr"], "write `name in r` for a record"),
    (&["hex", "oct", "bin"], "write `\"{n:#x}\"`, `\"{n:#o}\"` or `\"{n:#b}\"`"),
    (&["callable"], "write `type(f) == \"fn\"`"),
    (&["iter", "next"], "write `for x in xs { }`, or `xs[0]` for the first"),
    (&["dir", "vars", "locals", "globals"], "write `r.keys()` for the fields of a record"),
    (&["slice"], "write `x[1..3]`; a range is a value: `let part = 1..3`, `x[part]`"),
    (&["exec"], "a script cannot run text; a program that embeds Runnel can, with `Engine::eval`"),
    (&["random"], "write `rand(n)`, `randint(0, 10, [n])`, `randperm(n)` or `manual_seed(0)`"),
    (&["console"], "write `print(...)`"),
    (
        &["collections", "itertools", "functools"],
        "write `map`, `filter`, `reduce`, `zip`, `enumerate`; a `dict` keeps its order",
    ),
    (&["re"], "strings have `find`, `replace`, `split`, `startswith` and `endswith`"),
    (&["open", "fopen"], "write `read(path)` for text, `load(path)` for tensors"),
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
    (&["adjoint"], "write `x.mH`"),
    (&["ndimension"], "write `x.ndim`"),
    (&["where"], "write `where(condition, x, other)`"),
    (
        &["perf_counter", "monotonic", "process_time", "perf_counter_ns", "monotonic_ns"],
        "write `clock()`: the seconds of a clock for measurements",
    ),
    (&["time_ns"], "write `time()`: the seconds since 1970"),
];

/// The name in a module that another library's class or function has there: `nn.BatchNorm2d` is `batch_norm2d`, and
/// `nn.cross_entropy_loss` is `cross_entropy`.
pub(super) fn member(name: &str, is_there: impl Fn(&str) -> bool) -> Option<String> {
    let letters: Vec<char> = name.chars().collect();
    let mut snake = String::new();
    for (i, c) in letters.iter().enumerate() {
        let before = i.checked_sub(1).and_then(|i| letters.get(i)).copied().unwrap_or('_');
        let ends = letters.get(i + 1).is_some_and(|next| next.is_lowercase());
        if c.is_uppercase() && (before.is_lowercase() || (before != '_' && ends)) {
            snake.push('_');
        }
        snake.extend(c.to_lowercase());
    }
    let snake = snake.replace("re_lu", "relu");
    let long = [("bce", "binary_cross_entropy"), ("multihead", "multi_head")];
    let long = long.iter().find_map(|(short, long)| Some(format!("{long}{}", snake.strip_prefix(short)?)));
    let names = [Some(snake), Some(name.to_lowercase()), long];
    let forms = names.iter().flatten().flat_map(|name| {
        let bare = name.strip_suffix("_loss").unwrap_or(name);
        [name.clone(), bare.to_string(), format!("{name}_loss")]
    });
    let mut forms = forms.filter(|form| form != name && is_there(form));
    forms.next()
}

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
            "pinv",
            "solve",
            "solve_triangular",
            "triangular_solve",
            "eigvals",
            "eigvalsh",
            "svdvals",
            "matrix_rank",
            "lu_factor",
            "lu_solve",
            "cholesky_inverse",
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
        "PyTorch has it, Runnel not yet: `x.unfold(0, size, step)` returns windows, for `fft`",
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
            "frexp",
            "lcm",
            "gcd",
            "i0",
            "poisson",
            "as_strided_",
            "set_",
            "special",
        ],
        "PyTorch has it, Runnel not yet",
    ),
];

/// Other functions of PyTorch that do not exist yet.
const NOT_YET: &str = "\
    adaptive_avg_pool1d adaptive_max_pool1d airy_ai bessel_j0 bessel_j1 bessel_y0 bessel_y1 binomial \
    channel_shuffle conv_tbc conv_transpose1d conv_transpose2d conv_transpose3d empty_strided erfcx \
    feature_alpha_dropout feature_dropout fractional_max_pool2d fractional_max_pool3d gammainc gammaincc \
    histogramdd i0e i1 i1e igammac local_response_norm log_ndtr lp_pool1d lp_pool2d max_unpool1d max_unpool2d \
    ndtr ndtri nonzero_static \
    resolve_conj segment_reduce to_dense to_sparse upsample xlog1py \
    zeta vecdot coalesce";

/// The help for a function of PyTorch that does not exist yet.
pub(super) fn missing(name: &str) -> Option<&'static str> {
    let own = MISSING.iter().find(|(names, _)| names.contains(&name)).map(|(_, help)| *help);
    let others = name.starts_with("sparse_") || NOT_YET.split(' ').any(|other| other == name);
    own.or(others.then_some("PyTorch has it, Runnel not yet"))
}

/// All names with a help text.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    let own = FOREIGN.iter().chain(MISSING).flat_map(|(names, _)| names.iter().copied());
    let operations = table::all().filter(|op| op.form.function);
    own.chain(operations.flat_map(|op| op.foreign.names.iter().copied()))
}

/// The parameter that other libraries call `name`.
pub(super) fn argument(name: &str) -> Option<&'static str> {
    FOREIGN_ARGUMENTS.iter().find(|(foreign, _)| *foreign == name).map(|(_, own)| *own)
}

/// The first keyword-only parameter of a signature.
pub fn by_name(signature: &str) -> Option<&str> {
    let (_, named) = signature.split_once("*, ")?;
    named.split(['=', ',', ')']).next().filter(|name| !name.is_empty())
}

/// Functions of the module `math` that tensors have as attributes.
const MATH: &[&str] = &[
    "sqrt", "exp", "exp2", "log", "log2", "log10", "log1p", "expm1", "sin", "cos", "tan", "asin", "acos",
    "atan", "sinh", "cosh", "tanh", "floor", "ceil", "trunc", "isnan", "isinf", "isfinite",
];

/// The help for an attribute of a number that tensors have.
fn of_number(name: &str) -> Option<String> {
    const NUMBER: &str = "numbers of the script have no methods";
    match name {
        "item" | "tolist" => Some("it is a number already; leave this out".into()),
        "detach" | "cpu" | "clone" | "contiguous" => {
            Some("it is a number, not a tensor; leave this out".into())
        }
        "int" | "long" => Some("write `int(x)`".into()),
        "float" | "double" => Some("write `float(x)`".into()),
        "round" => Some(format!("{NUMBER}: write `round(x)`, or `round(x, digits)`")),
        "abs" | "pow" | "min" | "max" => Some(format!("{NUMBER}: write `{name}(x)`")),
        _ if MATH.contains(&name) => Some(format!("{NUMBER}: write `math.{name}(x)`")),
        "shape" | "dtype" | "device" | "ndim" | "T" | "grad" | "requires_grad" | "is_cuda" => Some(format!(
            "it is a number, not a tensor: `tensor(x).{name}`; `.item()` turns a tensor into a number"
        )),
        _ => {
            let op = table::find(name.strip_suffix('_').unwrap_or(name)).filter(|op| op.form.method)?;
            Some(match op.form.function && !name.ends_with('_') {
                true => format!("{NUMBER}: `{name}(x)` accepts a number too, and returns a tensor"),
                false => format!("{NUMBER}: make a tensor of it, `tensor(x).{name}(...)`"),
            })
        }
    }
}

/// The help for an attribute of another language on a value of this type with the attributes `known`.
pub fn foreign_attribute(found: &str, name: &str, known: &[&str]) -> Option<String> {
    match found {
        "record" if known.contains(&"forward") => of_network(name),
        "record" | "module" => None,
        "int" | "float" | "bool" => of_number(name).or_else(|| foreign_method(name).map(str::to_string)),
        "tuple" if name == "numel" => Some("write `x.numel()` of the tensor, or `prod(shape)`".into()),
        "tuple" | "range" if matches!(name, "prod" | "sum" | "max" | "min" | "sort" | "any" | "all") => {
            let function = if name == "sort" { "sorted" } else { name };
            Some(format!("write `{function}(x)`"))
        }
        "tuple" | "range" if table::find(name).is_some_and(|op| op.form.method) => {
            Some(format!("make a tensor of it: `tensor(list(x)).{name}(...)`"))
        }
        "tensor" => foreign_method(name).or_else(|| missing(name)).map(str::to_string),
        _ => foreign_method(name).map(str::to_string),
    }
}

/// The help for a method of PyTorch's modules, which are records.
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

/// The help for a method or attribute of another language.
pub(super) fn foreign_method(name: &str) -> Option<&'static str> {
    let own = FOREIGN_METHODS.iter().find(|(names, _)| names.contains(&name)).map(|(_, help)| *help);
    own.or_else(|| table::foreign(name).filter(|op| op.form.method).map(|op| op.foreign.help))
}

/// Parameter names of other libraries.
const FOREIGN_ARGUMENTS: &[(&str, &str)] =
    &[("axis", "dim"), ("axes", "dims"), ("size", "shape"), ("mean", "loc")];

pub(super) fn foreign_name(name: &str) -> Option<&'static str> {
    let own = FOREIGN.iter().find(|(names, _)| names.contains(&name)).map(|(_, help)| *help);
    let own = own.or_else(|| missing(name));
    own.or_else(|| table::foreign(name).filter(|op| op.form.function).map(|op| op.foreign.help))
}

#[cfg(test)]
mod tests {
    use super::{FOREIGN, MATH, MISSING, NOT_YET};

    #[test]
    fn no_existing_name_is_listed_as_foreign() {
        let natives = || crate::library::NATIVES.iter().flat_map(|(_, natives)| natives.iter());
        let there = |name: &str| {
            let op = crate::ops::table::find(name).is_some_and(|op| op.form.function);
            op || natives().any(|native| native.name == name && native.receiver.is_empty())
        };
        let is_method = |name: &str| crate::ops::table::find(name).is_some_and(|op| op.form.method);
        for name in NOT_YET.split(' ') {
            assert!(!is_method(name) && !there(name), "{name}");
        }
        for name in MATH {
            assert!(natives().any(|native| native.name.strip_prefix("math.") == Some(name)), "{name}");
        }
        for name in MISSING.iter().flat_map(|(names, _)| *names) {
            assert!(!is_method(name), "{name}");
        }
        for name in FOREIGN.iter().chain(MISSING).flat_map(|(names, _)| *names) {
            assert!(!there(name), "{name}");
        }
    }
}
