//! Functions over sequences and numbers: `len`, `range`, `map`, `sorted`, `sum`, ...

use std::cmp::Ordering;

use super::{any, optional, takes};
use crate::base::Result;
use crate::ops::signature::{Default, Kind, Param, Signature};
use crate::syntax::ast::Binary;
use crate::vm::{Each, Held, NativeDef, Quick, Value, Values, Vm, arith, charge_values, compare, error};

/// The fast paths of this file's natives.
pub static QUICK: &[(&str, &str, Quick)] = &[
    ("", "len", |value, args, out| {
        let length = match (value, args) {
            (Value::List(list), []) => list.len(),
            (Value::Dict(dict), []) => dict.borrow().len(),
            (Value::Str(text), []) => text.chars(),
            (Value::Tuple(tuple), []) => tuple.items().len(),
            _ => return false,
        };
        *out = Value::Int(length as i64);
        true
    }),
    ("", "min", |a, args, out| {
        *out = match (a, args) {
            (&Value::Int(a), &[&Value::Int(b)]) => Value::Int(a.min(b)),
            (&Value::Float(a), &[&Value::Float(b)]) if a <= b || b < a => {
                Value::Float(if b < a { b } else { a })
            }
            _ => return false,
        };
        true
    }),
    ("", "max", |a, args, out| {
        *out = match (a, args) {
            (&Value::Int(a), &[&Value::Int(b)]) => Value::Int(a.max(b)),
            (&Value::Float(a), &[&Value::Float(b)]) if b <= a || a < b => {
                Value::Float(if a < b { b } else { a })
            }
            _ => return false,
        };
        true
    }),
];

/// The natives of this file.
pub static TABLE: &[NativeDef] = &[
    NativeDef {
        name: "len",
        receiver: "",
        signature: takes(&[any("x")]),
        doc: "The number of elements of a container, of characters of a string, of rows of a tensor, of layers of `nn.sequential(...)`.",
        example: "assert(len([1, 2]) == 2)",
        run: |vm, args| {
            let layers = match &args[0] {
                Value::Record(record) => record.layers().map(|layers| layers.len()),
                _ => None,
            };
            layers.map_or_else(|| vm.length(&args[0]), Ok).map(|n| Value::Int(n as i64))
        },
    },
    NativeDef {
        name: "range",
        receiver: "",
        signature: takes(&[
            Param::new("start", Kind::Int),
            optional("end", Kind::Int),
            Param::or("step", Kind::Int, Default::Int(1)),
        ]),
        doc: "A range, as in Python: `range(n)` is `0..n`, `range(a, b, s)` is `a..b by s`.",
        example: "assert(list(range(0, 10, 4)) == [0, 4, 8])",
        run: |_, args| {
            let (first, step) = (args[0].as_int().unwrap_or(0), args[2].as_int().unwrap_or(1));
            if step == 0 {
                return Err(error::bad_value(2, "the step of a range must not be 0")
                    .help("write 1 or more, or -1 or less to count down"));
            }
            Ok(match args[1].as_int() {
                Some(end) => Value::range(Some(first), Some(end), step),
                None => Value::range(Some(0), Some(first), step),
            })
        },
    },
    NativeDef {
        name: "list",
        receiver: "",
        signature: takes(&[optional("items", Kind::Any)]),
        doc: "A new list of the elements of a sequence.",
        example: "assert(list(\"ab\") == [\"a\", \"b\"])",
        run: |vm, args| match args[0] {
            Value::None => Ok(Value::list(Values::new())),
            _ => vm.collect(&args[0]).map(Value::list),
        },
    },
    NativeDef {
        name: "tuple",
        receiver: "",
        signature: takes(&[optional("items", Kind::Any)]),
        doc: "A tuple of the elements of a sequence.",
        example: "assert(tuple([1, 2]) == (1, 2))",
        run: |vm, args| match args[0] {
            Value::None => Ok(Value::tuple(Values::new())),
            _ => vm.collect(&args[0]).map(Value::tuple),
        },
    },
    NativeDef {
        name: "enumerate",
        receiver: "",
        signature: takes(&[any("items"), Param::or("start", Kind::Int, Default::Int(0))]),
        doc: "A list of (number, element) pairs. For an iterable, such as a loader, the pairs are made one by one.",
        example: "assert(enumerate([\"a\"], 1) == [(1, \"a\")])",
        run: |vm, args| {
            let start = args[1].as_int().unwrap_or(0);
            if let Value::Object(_) = args[0] {
                return Ok(super::iterable::numbered(&args[0], start));
            }
            let mut items = vm.each(&args[0])?;
            let mut pairs = vm.room_for(std::slice::from_ref(&items), 1 + PAIR)?;
            while let Some(item) = items.next(vm)? {
                let number = super::iterable::number(i128::from(start) + pairs.len() as i128)?;
                Vm::add(&mut pairs, Value::pair(number, item))?;
            }
            Ok(Value::list(pairs))
        },
    },
    NativeDef {
        name: "zip",
        receiver: "",
        signature: takes(&[Param::rest("sequences", Kind::Any)]),
        doc: "A list of tuples of the elements at the same position; as long as the shortest sequence.",
        example: "assert(zip([1, 2], \"ab\") == [(1, \"a\"), (2, \"b\")])",
        run: |vm, args| {
            let mut all = each_of(vm, &args[0])?;
            let mut rows = vm.room_for(&all, all.len() + 1 + PAIR)?;
            while let Some(row) = next_row(vm, &mut all)? {
                Vm::add(&mut rows, Value::tuple(row))?;
            }
            Ok(Value::list(rows))
        },
    },
    NativeDef {
        name: "map",
        receiver: "",
        signature: takes(&[any("f"), any("items"), Param::rest("more", Kind::Any)]),
        doc: "A list of the results of `f` for each element; with several sequences, for the elements at the same \
              position.\n\nThe sequence may come first, for pipelines: `items |> map(f)`.",
        example: "assert(map(|x| x + 1, [1, 2]) == [2, 3])\nassert(([1, 2] |> map(|x| x + 1)) == [2, 3])",
        run: |vm, args| {
            function_first("map", args)?;
            let mut sequences = vec![vm.each(&args[1])?];
            sequences.extend(each_of(vm, &args[2])?);
            let mut results = vm.room_for(&sequences, 1)?;
            if let [only] = &mut sequences[..] {
                while let Some(item) = only.next(vm)? {
                    let result = vm.callback(&args[0], std::slice::from_ref(&item))?;
                    Vm::add(&mut results, result)?;
                }
                return Ok(Value::list(results));
            }
            while let Some(row) = next_row(vm, &mut sequences)? {
                let result = vm.callback(&args[0], &row)?;
                Vm::add(&mut results, result)?;
            }
            Ok(Value::list(results))
        },
    },
    NativeDef {
        name: "filter",
        receiver: "",
        signature: takes(&[any("f"), any("items")]),
        doc: "A list of the elements for which `f` returns a true value.\n\nThe sequence may come first, for \
              pipelines: `items |> filter(f)`.",
        example: "assert(filter(|x| x > 1, [1, 2, 3]) == [2, 3])\nassert((0..9 |> filter(|x| x % 4 == 0)) == [0, 4, 8])",
        run: |vm, args| {
            function_first("filter", args)?;
            let mut kept = Values::new();
            let mut items = vm.each(&args[1])?;
            while let Some(item) = items.next(vm)? {
                let verdict = vm.callback(&args[0], std::slice::from_ref(&item))?;
                if vm.truth(&verdict)? {
                    Vm::add(&mut kept, item)?;
                }
            }
            Ok(Value::list(kept))
        },
    },
    NativeDef {
        name: "reduce",
        receiver: "",
        signature: takes(&[any("f"), any("items"), Param::or("initial", Kind::Any, Default::Absent)]),
        doc: "Combines the elements from the left: `f(f(f(initial, a), b), c)`.\n\nThe sequence may come first, for pipelines: `items |> reduce(f)`.",
        example: "assert(reduce(|a, b| a * b, [2, 3, 4]) == 24)\nassert((1..5 |> reduce(|a, b| a * b)) == 24)",
        run: |vm, args| {
            function_first("reduce", args)?;
            let mut items = vm.each(&args[1])?;
            let mut value = match args[2] {
                Value::Unset => {
                    items.next(vm)?.ok_or_else(|| error::bad_value(1, "an empty sequence needs `initial`"))?
                }
                _ => args[2].clone(),
            };
            while let Some(item) = items.next(vm)? {
                value = vm.callback(&args[0], &[value, item])?;
            }
            Ok(value)
        },
    },
    NativeDef {
        name: "sorted",
        receiver: "",
        signature: takes(&[
            any("items"),
            Param::or("key", Kind::Fn, Default::None),
            Param::or("reverse", Kind::Bool, Default::Bool(false)),
        ]),
        doc: "A new list of the sorted elements; equal ones keep their order. `key` computes the value to compare.",
        example: "assert(sorted([3, 1, 2], reverse = true) == [3, 2, 1])",
        run: |vm, args| {
            let items = vm.collect(&args[0])?;
            let reverse = matches!(args[2], Value::Bool(true));
            sort(vm, items, &args[1].clone(), reverse).map(Value::list)
        },
    },
    NativeDef {
        name: "reversed",
        receiver: "",
        signature: takes(&[any("items")]),
        doc: "A new list of the elements in reverse order.",
        example: "assert(reversed([1, 2]) == [2, 1])",
        run: |vm, args| {
            let items = vm.collect(&args[0])?;
            charge_values(items.len())?;
            let mut turned = Values::with_capacity(items.len());
            for item in items.into_iter().rev() {
                vm.charge(1)?;
                turned.push(item);
            }
            Ok(Value::list(turned))
        },
    },
    NativeDef {
        name: "any",
        receiver: "",
        signature: takes(&[any("items")]),
        doc: "Whether any element counts as true.",
        example: "assert(any([0, 1]))",
        run: |vm, args| {
            let mut items = vm.each(&args[0])?;
            while let Some(item) = items.next(vm)? {
                if vm.truth(&item)? {
                    return Ok(Value::Bool(true));
                }
            }
            Ok(Value::Bool(false))
        },
    },
    NativeDef {
        name: "all",
        receiver: "",
        signature: takes(&[any("items")]),
        doc: "Whether every element counts as true.",
        example: "assert(not all([0, 1]))",
        run: |vm, args| {
            let mut items = vm.each(&args[0])?;
            while let Some(item) = items.next(vm)? {
                if !vm.truth(&item)? {
                    return Ok(Value::Bool(false));
                }
            }
            Ok(Value::Bool(true))
        },
    },
    NativeDef {
        name: "sum",
        receiver: "",
        signature: takes(&[any("items"), Param::or("start", Kind::Any, Default::Int(0))]),
        doc: "The sum of the elements of a sequence, added with `+` to `start`.",
        example: "assert(sum([1, 2, 3]) == 6)",
        run: |vm, args| {
            let mut total = args[1].clone();
            let mut items = vm.each(&args[0])?;
            while let Some(item) = items.next(vm)? {
                total = arith::binary(vm, Binary::Add, total, item)?;
            }
            Ok(total)
        },
    },
    NativeDef {
        name: "prod",
        receiver: "",
        signature: PRODUCT,
        doc: "The product of the elements of a sequence, multiplied with `*` by `start`.",
        example: "assert(prod((2, 3)) == 6 and prod([]) == 1)\nassert(prod(zeros(4, 5).shape) == 20)",
        run: product,
    },
    NativeDef {
        name: "math.prod",
        receiver: "",
        signature: PRODUCT,
        doc: "The product of the elements of a sequence: `prod`.",
        example: "assert(math.prod([2, 3], start=10) == 60)",
        run: product,
    },
    NativeDef {
        name: "min",
        receiver: "",
        signature: EXTREME,
        doc: "The smallest of several values, or of one sequence; the first one among equals. If one is nan, so is the \
              result. `default` is the result for an empty sequence.",
        example: "assert(min(3, 1, 2) == 1)\nassert(min([3, 1]) == 1)\nassert(min([], default = 0) == 0)",
        run: |vm, args| extreme(vm, args, Ordering::Less, "min"),
    },
    NativeDef {
        name: "max",
        receiver: "",
        signature: EXTREME,
        doc: "The largest of several values, or of one sequence; the first one among equals. If one is nan, so is the \
              result. `default` is the result for an empty sequence.",
        example: "assert(max([3, 1]) == 3)",
        run: |vm, args| extreme(vm, args, Ordering::Greater, "max"),
    },
];

/// As in Python, `start` goes by name.
const PRODUCT: Signature = takes(&[any("items"), Param::named("start", Kind::Any, Default::Int(1))]);

fn product(vm: &mut Vm, args: &mut [Value]) -> Result<Value> {
    let mut total = args[1].clone();
    let mut items = vm.each(&args[0])?;
    while let Some(item) = items.next(vm)? {
        total = arith::binary(vm, Binary::Mul, total, item)?;
    }
    Ok(total)
}

const EXTREME: Signature = takes(&[
    Param::rest("values", Kind::Any),
    Param::named("key", Kind::Fn, Default::None),
    Param::named("default", Kind::Any, Default::Absent),
]);

/// Size of a tuple without its elements, in list slots.
const PAIR: usize = 6;

/// The elements of each of several sequences.
fn each_of(vm: &mut Vm, sequences: &Value) -> Result<Vec<Each>> {
    let sequences = vm.collect(sequences)?;
    charge_values(sequences.len().saturating_mul(2))?;
    sequences.iter().map(|sequence| vm.each(sequence)).collect()
}

/// The next element of each sequence; `None` when one has ended, or when there is no sequence.
fn next_row(vm: &mut Vm, sequences: &mut [Each]) -> Result<Option<Values>> {
    let mut row = Values::with_capacity(sequences.len());
    for each in sequences {
        let Some(value) = each.next(vm)? else { return Ok(None) };
        row.push(value);
    }
    Ok(Some(row).filter(|row| !row.is_empty()))
}

/// The code of a function for the sequence of a `for`.
type Lazy = fn(&mut Vm, &mut [Value]) -> Result<Value>;

/// The functions that have such code.
pub static LAZY: &[(&str, Lazy)] = &[
    ("zip", |vm, args| {
        let mut all = each_of(vm, &args[0])?;
        Ok(super::iterable::generated(move |vm| Ok(next_row(vm, &mut all)?.map(Value::tuple))))
    }),
    ("enumerate", |vm, args| {
        let mut at = i128::from(args[1].as_int().unwrap_or(0));
        let mut items = vm.each(&args[0])?;
        Ok(super::iterable::generated(move |vm| {
            let Some(item) = items.next(vm)? else { return Ok(None) };
            let pair = Value::pair(super::iterable::number(at)?, item);
            at += 1;
            Ok(Some(pair))
        }))
    }),
];

/// Moves a function that comes second, as in `items |> map(f)`, before its sequence.
pub(super) fn function_first(name: &str, args: &mut [Value]) -> Result<()> {
    if args[0].is_callable() {
        return Ok(());
    }
    if !args[1].is_callable() {
        return Err(error::argument_type(name, 0, "f", "a function", args[0].type_name()));
    }
    args.swap(0, 1);
    Ok(())
}

/// Sorts by keys computed once per element. No comparison runs script code.
pub(super) fn sort(vm: &mut Vm, mut items: Values, key: &Value, reverse: bool) -> Result<Values> {
    // The keys, the positions with their merge buffer, and the result.
    let _keyed = Held::new(items.len().saturating_mul(4 * size_of::<Value>()))?;
    // The keys and their positions, as long as all are ints.
    let mut ints = Some(Vec::with_capacity(items.len()));
    let mut note = |by: &Value, at: usize| match (&mut ints, by) {
        (Some(ints), Value::Int(int)) => ints.push((*int, at)),
        (ints, _) => *ints = None,
    };
    let mut keys = Values::new();
    if key.is_none() {
        for (at, item) in items.iter().enumerate() {
            vm.charge(1)?;
            note(item, at);
        }
    } else {
        keys = Values::with_capacity(items.len());
        for (at, item) in items.iter().enumerate() {
            vm.charge(1)?;
            let by = vm.callback(key, std::slice::from_ref(item))?;
            note(&by, at);
            keys.push(by);
        }
    }
    let places: Vec<usize> = if let Some(mut ints) = ints {
        merge_sort(vm, &mut ints, |_, (a, _), (b, _)| Ok(if reverse { b.cmp(a) } else { a.cmp(b) }))?;
        ints.into_iter().map(|(_, place)| place).collect()
    } else {
        let by = if key.is_none() { &items } else { &keys };
        let mut places: Vec<usize> = (0..items.len()).collect();
        merge_sort(vm, &mut places, |vm, &a, &b| {
            if reverse {
                compare::sort_order(vm, &by[b], &by[a])
            } else {
                compare::sort_order(vm, &by[a], &by[b])
            }
        })?;
        places
    };
    let mut sorted = Values::with_capacity(items.len());
    for place in places {
        vm.charge(1)?;
        sorted.push(std::mem::take(&mut items[place]));
    }
    Ok(sorted)
}

/// Elements sorted between two checks of the limits.
const RUN: usize = 1024;

/// Stable merge sort. A failing comparison or a limit ends it between runs.
fn merge_sort<T: Clone>(
    vm: &mut Vm,
    items: &mut Vec<T>,
    order: impl Fn(&Vm, &T, &T) -> Result<Ordering>,
) -> Result<()> {
    let mut failure = None;
    for run in items.chunks_mut(RUN) {
        vm.charge(run.len())?;
        run.sort_by(|a, b| {
            if failure.is_some() {
                return Ordering::Equal;
            }
            order(vm, a, b).unwrap_or_else(|error| {
                failure = Some(error);
                Ordering::Equal
            })
        });
        if let Some(error) = failure.take() {
            return Err(error);
        }
    }
    let mut width = RUN;
    while width < items.len() {
        charge_values(2 * items.len())?;
        let mut merged = Vec::with_capacity(items.len());
        for pair in items.chunks(2 * width) {
            let (left, right) = pair.split_at(width.min(pair.len()));
            // Adjacent runs that are already in order need no merge.
            if let (Some(last), Some(first)) = (left.last(), right.first())
                && order(vm, last, first)?.is_le()
            {
                for some in pair.chunks(RUN) {
                    vm.charge(some.len())?;
                    merged.extend_from_slice(some);
                }
                continue;
            }
            let (mut left, mut right) = (left.iter().peekable(), right.iter().peekable());
            loop {
                vm.charge(1)?;
                let from_right = match (left.peek(), right.peek()) {
                    (Some(a), Some(b)) => order(vm, a, b)?.is_gt(),
                    (None, Some(_)) => true,
                    (Some(_), None) => false,
                    (None, None) => break,
                };
                let next = if from_right { right.next() } else { left.next() };
                merged.extend(next.cloned());
            }
        }
        *items = merged;
        width *= 2;
    }
    Ok(())
}

fn extreme(vm: &mut Vm, args: &mut [Value], wanted: Ordering, name: &str) -> Result<Value> {
    let given = vm.collect(&args[0])?;
    let mut values = match &given[..] {
        [only] => vm.each(only)?,
        _ => vm.each(&args[0])?,
    };
    let is_nan = |key: &Value| matches!(key, Value::Float(f) if f.is_nan());
    let mut best: Option<(Value, Value)> = None;
    while let Some(value) = values.next(vm)? {
        let key = match &args[1] {
            Value::None => value.clone(),
            key => vm.callback(&key.clone(), std::slice::from_ref(&value))?,
        };
        let better = match &best {
            None => true,
            Some((than, _)) => {
                let order = compare::sort_order(vm, &key, than)?;
                !is_nan(than) && (is_nan(&key) || order == wanted)
            }
        };
        if better {
            best = Some((key, value));
        }
    }
    match best {
        Some((_, value)) => Ok(value),
        None if !matches!(args[2], Value::Unset) => Ok(args[2].clone()),
        None => Err(error::bad_value(0, format!("`{name}` of no values does not exist"))
            .help(format!("`{name}(x, default = 0)` gives a value for an empty sequence"))),
    }
}
