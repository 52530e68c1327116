//! PyTorch on the CPU as an oracle: replays calls of operations and compares the results with PyTorch's
//! (`tests/oracle/make.py` writes them). Elementary functions are compared with NumPy's correctly rounded
//! values.
//!
//! `RUNNEL_ORACLE=cuda` runs the same on a GPU.

#![allow(clippy::unwrap_used)] // A test that cannot go on fails.

use half::{bf16, f16};
use runnel::{Backend, Engine};
use std::collections::HashMap;
use std::fmt::Write;

fn on_cuda() -> bool {
    std::env::var("RUNNEL_ORACLE").is_ok_and(|backend| backend == "cuda")
}

fn engine() -> Engine {
    match on_cuda() {
        true => Engine::builder().backend(Backend::Cuda).build().unwrap(),
        false => Engine::builder().backend(Backend::Emu).devices(1).build().unwrap(),
    }
}

/// Elements of one dtype, as little-endian bytes.
struct Elements {
    dtype: String,
    shape: String,
    bytes: Vec<u8>,
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len() / 2).map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap()).collect()
}

impl Elements {
    /// `f32 (2,3) 0000803f...`
    fn parse(text: &str) -> Elements {
        let mut words = text.split(' ');
        let (dtype, shape) = (words.next().unwrap().to_string(), words.next().unwrap().to_string());
        Elements { dtype, shape, bytes: unhex(words.next().unwrap_or("")) }
    }

    fn is_float(&self) -> bool {
        matches!(&*self.dtype, "f16" | "bf16" | "f32" | "f64" | "c64" | "c128")
    }

    /// Each element, or part of a complex one, widened.
    fn floats(&self) -> Vec<f64> {
        let two = |b: &[u8]| [b[0], b[1]];
        match &*self.dtype {
            "f16" => self.bytes.chunks_exact(2).map(|b| f16::from_le_bytes(two(b)).to_f64()).collect(),
            "bf16" => self.bytes.chunks_exact(2).map(|b| bf16::from_le_bytes(two(b)).to_f64()).collect(),
            "f32" | "c64" => self
                .bytes
                .chunks_exact(4)
                .map(|b| f64::from(f32::from_le_bytes(b.try_into().unwrap())))
                .collect(),
            "f64" | "c128" => {
                self.bytes.chunks_exact(8).map(|b| f64::from_le_bytes(b.try_into().unwrap())).collect()
            }
            other => panic!("{other} are no floats"),
        }
    }

    /// The unit in the last place of a value in the dtype.
    fn ulp_of(&self, value: f64) -> f64 {
        let (digits, least) = match &*self.dtype {
            "f16" => (10, -24),
            "bf16" => (7, -133),
            "f32" | "c64" => (23, -149),
            _ => (52, -1074),
        };
        let exponent = if value == 0.0 { least } else { value.abs().log2().floor() as i32 - digits };
        2f64.powi(exponent.max(least))
    }
}

/// The difference between a result and the expected one.
fn difference(found: &Elements, wanted: &Elements, ulps: f64, scale: f64) -> Option<String> {
    if (&found.dtype, &found.shape) != (&wanted.dtype, &wanted.shape) {
        return Some(format!("{} {} for {} {}", found.dtype, found.shape, wanted.dtype, wanted.shape));
    }
    if !wanted.is_float() {
        return (found.bytes != wanted.bytes).then(|| format!("{:?} for {:?}", found.bytes, wanted.bytes));
    }
    let size = found.bytes.len() / found.floats().len().max(1);
    for (i, (f, w)) in found.floats().into_iter().zip(wanted.floats()).enumerate() {
        let same = found.bytes[i * size..(i + 1) * size] == wanted.bytes[i * size..(i + 1) * size];
        if same || f.is_nan() && w.is_nan() {
            continue;
        }
        let most = ulps * wanted.ulp_of(w.abs().max(scale));
        let near = (f - w).abs() <= most;
        if ulps == 0.0 || !near {
            let off = (f - w).abs() / wanted.ulp_of(w.abs().max(scale));
            return Some(format!("element {i} is {f:?} for {w:?}, {off:.1} units off"));
        }
    }
    None
}

/// Defines a name of the session as a tensor of these elements.
fn define(engine: &mut Engine, name: &str, elements: &Elements) {
    let shape = elements.shape.replace(['(', ')'], "");
    let shape = format!("[{}]", shape.trim_matches(','));
    let script = match elements.bytes.len() {
        0 => format!("let {name} = zeros({shape}, dtype={})", elements.dtype),
        count => {
            let device = engine.eval::<runnel::Tensor>("zeros(1)").unwrap().device();
            let bytes = engine.tensor(&elements.bytes, &[count], device).unwrap();
            engine.set("bytes", &bytes).unwrap();
            match &*elements.dtype {
                "bool" => format!("let {name} = (bytes != 0).reshape({shape})"),
                "c64" => {
                    format!("let {name} = view_as_complex(bytes.view(f32).reshape([-1, 2])).reshape({shape})")
                }
                "c128" => {
                    format!("let {name} = view_as_complex(bytes.view(f64).reshape([-1, 2])).reshape({shape})")
                }
                dtype => format!("let {name} = bytes.view({dtype}).reshape({shape})"),
            }
        }
    };
    engine.eval::<()>(&script).unwrap_or_else(|e| panic!("{script}: {e}"));
}

/// The tensor of a name.
fn elements(engine: &mut Engine, name: &str) -> Result<Elements, runnel::base::Error> {
    let dtype: String = engine.eval(&format!("str({name}.dtype)"))?;
    let shape: Vec<i64> = engine.eval(&format!("list({name}.shape)"))?;
    let shape = format!("({})", shape.iter().map(i64::to_string).collect::<Vec<_>>().join(","));
    let count: i64 = engine.eval(&format!("{name}.numel()"))?;
    let plain = match &*dtype {
        "bool" => format!("{name}.to(u8)"),
        "c64" | "c128" => format!("view_as_real({name})"),
        _ => name.to_string(),
    };
    let mut bytes = Vec::new();
    if count > 0 {
        let flat = engine.eval::<runnel::Tensor>(&format!("{plain}.contiguous().reshape([-1]).view(u8)"))?;
        bytes = engine.read::<u8>(&flat)?;
    }
    Ok(Elements { dtype, shape, bytes })
}

/// Deliberate differences, with the reason.
const ON_PURPOSE: &[Purpose] = &[
    // The result is a bool; PyTorch returns u8 for u8, as it did before it had bools.
    Purpose { calls: &["all(", "any("], dtype: "u8" },
    // The root of -inf is nan, as in PyTorch on CUDA and for other dtypes.
    Purpose { calls: &["x ** 0.5", "x ** -0.5"], dtype: "f16" },
];

struct Purpose {
    calls: &'static [&'static str],
    /// The prefix of the dtype of `x`.
    dtype: &'static str,
}

#[test]
fn operations_match_pytorch() {
    let text = include_str!("oracle/torch.txt");
    let mut engine = engine();
    engine.eval::<()>("import nn").unwrap();
    let (mut cases, mut purposes, mut wrong, mut inputs) =
        (0, 0, String::new(), HashMap::<_, Elements>::new());
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        if let Some(input) = line.strip_prefix("in ") {
            let (name, rest) = input.split_once(' ').unwrap();
            inputs.insert(name.to_string(), Elements::parse(rest));
            define(&mut engine, name, &inputs[name]);
            continue;
        }
        let mut parts = line.strip_prefix("case ").unwrap().split('\t');
        let (call, arguments) = (parts.next().unwrap(), parts.next().unwrap());
        let wanted = Elements::parse(parts.next().unwrap());
        let (ulps, scale) = parts.next().unwrap().split_once(' ').unwrap();
        cases += 1;
        let x = arguments.split(' ').find_map(|one| one.strip_prefix("x=")).map(|name| &inputs[name]);
        let dtype = x.map_or("", |x: &Elements| &*x.dtype);
        let of = |p: &&Purpose| dtype.starts_with(p.dtype) && p.calls.iter().any(|c| call.starts_with(c));
        if ON_PURPOSE.iter().any(|p| of(&p)) {
            purposes += 1;
            continue;
        }
        let mut greatest = 0.0;
        for (name, input) in arguments.split(' ').filter_map(|one| one.split_once('=')) {
            engine.eval::<()>(&format!("let {name} = {input}")).unwrap();
            if scale == "max" && inputs[input].is_float() {
                greatest = inputs[input]
                    .floats()
                    .into_iter()
                    .filter(|v| v.is_finite())
                    .map(f64::abs)
                    .fold(greatest, f64::max);
            }
        }
        if scale == "max" && wanted.is_float() {
            greatest =
                wanted.floats().into_iter().filter(|v| v.is_finite()).map(f64::abs).fold(greatest, f64::max);
        }
        let found =
            engine.eval::<()>(&format!("let result = {call}")).and_then(|()| elements(&mut engine, "result"));
        let what = match found {
            Err(error) => Some(format!("{}: {}", error.code().id, error.message())),
            Ok(found) => difference(&found, &wanted, ulps.parse().unwrap(), greatest),
        };
        if let Some(what) = what {
            let of: Vec<String> = arguments
                .split(' ')
                .filter_map(|one| one.split_once('='))
                .map(|(name, input)| format!("{name}: {} {}", inputs[input].dtype, inputs[input].shape))
                .collect();
            writeln!(wrong, "{call} ({}): {what}", of.join(", ")).unwrap();
        }
    }
    assert!(cases > 2000 && purposes < 60, "{cases}, {purposes} not looked at");
    assert!(wrong.is_empty(), "{} of {cases} differ:\n{wrong}", wrong.lines().count());
}

/// Allowed errors in units in the last place of the result, in f32 and f64: on emulated devices and the host, and on a
/// GPU (CUDA C Programming Guide, maximum errors of mathematical functions).
const MOST_ULPS: &[(&str, [u64; 2], [u64; 2])] = &[
    ("acos", [1, 1], [2, 2]),
    ("acosh", [1, 1], [4, 3]),
    ("asin", [1, 1], [2, 2]),
    ("asinh", [1, 1], [3, 3]),
    ("atan", [1, 1], [2, 2]),
    ("atanh", [1, 1], [3, 2]),
    ("cos", [1, 1], [2, 2]),
    ("cosh", [1, 1], [2, 1]),
    ("exp", [1, 1], [2, 1]),
    ("exp2", [1, 1], [2, 1]),
    ("expm1", [1, 1], [1, 1]),
    ("log", [1, 1], [1, 1]),
    ("log10", [1, 1], [2, 1]),
    ("log1p", [1, 1], [1, 1]),
    ("log2", [1, 1], [1, 1]),
    ("sin", [1, 1], [2, 2]),
    ("sinh", [1, 1], [3, 2]),
    ("tan", [1, 1], [4, 2]),
    ("tanh", [1, 1], [2, 1]),
];

/// The bits of elements, each with this many hexadecimal digits.
fn bits(text: &str, digits: usize) -> Vec<u64> {
    (0..text.len() / digits)
        .map(|i| u64::from_str_radix(&text[digits * i..][..digits], 16).unwrap())
        .collect()
}

/// The number of representable values between two values of the same sign, or zeros.
fn between(a: u64, b: u64, digits: usize) -> u64 {
    let sign = 1 << (4 * digits - 1);
    let order = |bits: u64| if bits & sign != 0 { -((bits & !sign) as i64) } else { bits as i64 };
    order(a).abs_diff(order(b))
}

#[test]
fn elementary_functions_are_within_their_ulps_of_the_right_value() {
    let mut engine = engine();
    let cuda = on_cuda();
    let (mut wrong, mut looked) = (String::new(), 0);
    for line in include_str!("oracle/umath.txt").lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<&str> = line.split(' ').collect();
        let [name, dtype, given, wanted] = words[..] else { panic!("{line}") };
        let (digits, column) = if dtype == "f32" { (8, 0) } else { (16, 1) };
        let (given, wanted) = (bits(given, digits), bits(wanted, digits));
        let bytes = given.iter().flat_map(|bits| bits.to_le_bytes()[..digits / 2].to_vec()).collect();
        let input = Elements { dtype: dtype.into(), shape: format!("({},)", given.len()), bytes };
        define(&mut engine, "x", &input);
        let limits = MOST_ULPS.iter().find(|(of, ..)| *of == name).unwrap();
        let most = if cuda { limits.2[column] } else { limits.1[column] };
        engine.eval::<()>(&format!("let result = {name}(x)")).unwrap();
        let found = elements(&mut engine, "result").unwrap();
        let mut worst = (0, String::new());
        for (i, value) in found.bytes.chunks_exact(digits / 2).enumerate() {
            let mut wide = [0; 8];
            wide[..digits / 2].copy_from_slice(value);
            let (value, wanted) = (u64::from_le_bytes(wide), wanted[i]);
            let is_nan = |bits: u64| match digits {
                8 => f32::from_bits(bits as u32).is_nan(),
                _ => f64::from_bits(bits).is_nan(),
            };
            let off = match (is_nan(value), is_nan(wanted)) {
                (true, true) => 0,
                (false, false) => between(value, wanted, digits),
                _ => u64::MAX,
            };
            if off > worst.0 {
                worst = (off, format!("{:#x} gives {value:#x}, not {wanted:#x}", given[i]));
            }
            looked += 1;
        }
        if worst.0 > most {
            writeln!(wrong, "{name} of {dtype} is {} units off: {}", worst.0, worst.1).unwrap();
        }
    }
    assert!(looked > 5000, "{looked}");
    assert!(wrong.is_empty(), "{wrong}");
}

/// A number is stored in a dtype that can hold it, with PyTorch's value, or it is an error.
#[test]
fn numbers_are_stored_as_in_pytorch() {
    let mut engine = engine();
    let mut lines = include_str!("oracle/scalars.txt").lines();
    let numbers: Vec<&str> = lines.next().unwrap().split(' ').collect();
    let (mut wrong, mut stored, mut refused) = (String::new(), 0, 0);
    for line in lines {
        let [form, dtype, wanted] = line.split('\t').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let calls = numbers.iter().map(|number| {
            let call = form.replace("{v}", &format!("({number})")).replace("{d}", dtype);
            format!("|x, y, mask, ids, one| {{ {call} }}")
        });
        let script = format!(
            "fn found(call) {{
                 let (x, y) = (tensor([1, 2, 3, 4]).to({dtype}), tensor([[1, 2], [3, 4]]).to({dtype}))
                 let (mask, ids, one) = (tensor([true, false, true, false]), tensor([1, 2]), tensor([1]))
                 try {{
                     let result = call(x, y, mask, ids, one)
                     let bytes = result.flatten().contiguous().view(u8).tolist()
                     let of = if result.dtype == {dtype} {{ \"\" }} else {{ \"{{result.dtype}}:\" }}
                     of + \"\".join(list(map(|byte| \"{{byte:02x}}\", bytes)))
                 }} catch e {{
                     \"!\" + e.code
                 }}
             }}
             list(map(found, [{}]))",
            calls.collect::<Vec<_>>().join(", ")
        );
        let found: Vec<String> = engine.eval(&script).unwrap_or_else(|e| panic!("{form} of {dtype}: {e}"));
        for ((found, wanted), number) in found.iter().zip(wanted.split(' ')).zip(&numbers) {
            let same = match wanted {
                "-" => continue,
                "!" => ["!E0353", "!E0351", "!E0354", "!E0352"].contains(&found.as_str()),
                wanted => {
                    let parsed = |text: &str| {
                        let (dtype, bytes) = text.split_once(':').unwrap_or((dtype, text));
                        Elements { dtype: dtype.into(), shape: String::new(), bytes: unhex(bytes) }
                    };
                    !found.starts_with('!') && difference(&parsed(found), &parsed(wanted), 0.0, 0.0).is_none()
                }
            };
            *(if wanted == "!" { &mut refused } else { &mut stored }) += 1;
            if !same {
                writeln!(wrong, "{form} of {number} in {dtype} is {found}, not {wanted}").unwrap();
            }
        }
    }
    assert!(stored > 8000 && refused > 3000, "{stored} {refused}");
    assert!(wrong.is_empty(), "{} of {} differ:\n{wrong}", wrong.lines().count(), stored + refused);
}
