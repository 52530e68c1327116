//! `progress(x)`: a sequence that reports the progress of a loop over it.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::core::owned;
use super::{any, optional, takes};
use crate::base::{Result, guard};
use crate::ops::signature::{Default, Kind, Param};
use crate::vm::{NativeDef, Object, Reported, Tuple, Value, Vm, error};

/// The natives of this file.
pub static TABLE: &[NativeDef] = &[NativeDef {
    name: "progress",
    receiver: "",
    signature: takes(&[
        any("x"),
        Param::or("label", Kind::Str, Default::Str("")),
        optional("total", Kind::Int),
    ]),
    doc: "The elements of `x`, for a `for` that shows its progress: `runnel` draws a bar on the standard error, if \
          that is a terminal, and nothing otherwise. The number of elements is the length of `x` if that is known, or \
          `total`. Loops may be nested. A program that embeds Runnel receives the progress with `Builder::progress`.",
    example: "let sum = 0\nfor x in progress([1, 2, 3], \"adding\") { sum += x }\nassert(sum == 6)\n\
              assert(len(progress(0..8)) == 8)",
    run: |vm, args| {
        // Reject values that are not sequences here, where the error can show the argument. Objects are
        // checked when a loop begins.
        if !matches!(args[0], Value::Object(_)) {
            vm.begin_sequence(&args[0])?;
        }
        match args[2] {
            Value::Int(n) if n < 0 => Err(error::bad_value(2, "a number of elements is 0 or more")),
            _ => Ok(Value::object(Shown {
                of: Rc::new(Tuple::new(vec![args[0].clone()])),
                label: owned(&args[1]).into(),
                total: args[2].as_int().and_then(|n| u64::try_from(n).ok()),
            })),
        }
    },
}];

/// The sequence. It is in a tuple, so that nested values of any depth are dropped with bounded stack.
struct Shown {
    of: Rc<Tuple>,
    label: Rc<str>,
    total: Option<u64>,
}

/// A running loop.
struct Going {
    of: Rc<Tuple>,
    position: Cell<i64>,
    reported: RefCell<Reported>,
}

/// The number of elements of a sequence, if it is known before iterating.
fn length(vm: &mut Vm, sequence: &Value) -> Result<Option<usize>> {
    match sequence {
        Value::Range(range) => Ok(range.count()),
        Value::Object(handle) => handle.get().length(vm),
        Value::Tensor(tensor) => Ok(tensor.shape().first().copied()),
        other => vm.length(other).map(Some),
    }
}

impl Object for Shown {
    fn type_name(&self) -> &'static str {
        "iterable"
    }

    fn text(&self) -> String {
        "<iterable>".into()
    }

    fn iterate(&self, vm: &mut Vm) -> Result<Option<Value>> {
        let sequence = &self.of.items()[0];
        let total = match self.total {
            Some(total) => Some(total),
            None => length(vm, sequence)?.map(|n| n as u64),
        };
        let of = Rc::new(Tuple::new(vec![vm.begin_sequence(sequence)?]));
        let reported = RefCell::new(vm.report_progress(&self.label, total));
        Ok(Some(Value::object(Going { of, position: Cell::new(0), reported })))
    }

    fn length(&self, vm: &mut Vm) -> Result<Option<usize>> {
        length(vm, &self.of.items()[0])
    }

    fn holds(&self) -> Option<&Rc<Tuple>> {
        Some(&self.of)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Object for Going {
    fn type_name(&self) -> &'static str {
        "elements"
    }

    fn text(&self) -> String {
        "<elements>".into()
    }

    fn next(&self, vm: &mut Vm) -> Result<Option<Value>> {
        let found = vm.element(&self.of.items()[0], self.position.get())?;
        if let Ok(mut reported) = self.reported.try_borrow_mut() {
            reported.next(found.is_some());
        }
        if let Some(panic) = guard::take() {
            return Err(panic);
        }
        Ok(found.map(|(value, next)| {
            self.position.set(next);
            value
        }))
    }

    fn holds(&self) -> Option<&Rc<Tuple>> {
        Some(&self.of)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[cfg(test)]
mod tests {
    use crate::device::{Backend, Config, Machine};
    use crate::plan::{Runtime, Settings};
    use crate::vm::{Mode, Progress};
    use std::sync::{Arc, Mutex};

    fn told(script: &str) -> Vec<Progress> {
        let config = Config { backend: Backend::Emu, ..Config::default() };
        let mut vm =
            super::super::machine(Runtime::new(Machine::open(&config).unwrap(), Settings::default()));
        let told = Arc::new(Mutex::new(Vec::new()));
        let sink = told.clone();
        vm.set_progress(move |now| sink.lock().unwrap().push(now.clone()));
        let ended = vm.eval("<test>", script, Mode::Script);
        drop(vm);
        assert!(ended.is_ok() || script.contains("throw"), "{:?}", ended.err());
        Arc::into_inner(told).unwrap().into_inner().unwrap()
    }

    fn brief(told: &[Progress]) -> Vec<(u64, u64, Option<u64>, bool)> {
        told.iter().map(|p| (p.id, p.done, p.total, p.ended)).collect()
    }

    #[test]
    fn progress_reports_each_element_and_the_end() {
        let told = told("for x in progress([5, 6], \"two\") { x }");
        assert!(told.iter().all(|p| p.label == "two"));
        let two = Some(2);
        assert_eq!(brief(&told), [(1, 0, two, false), (1, 1, two, false), (1, 2, two, true)]);
    }

    #[test]
    fn a_loop_left_early_ends_its_progress() {
        let left = "fn f() { for x in progress(0..) { if x == 2 { return x } } }\nf()";
        assert_eq!(brief(&told(left)).last(), Some(&(1, 2, None, true)));
        let thrown = told("for x in progress(zeros(3, 2)) { throw \"no\" }");
        assert_eq!(brief(&thrown), [(1, 0, Some(3), false), (1, 0, Some(3), true)]);
    }

    #[test]
    fn progress_loops_nest_and_take_any_iterable() {
        let nested =
            told("for x in progress(\"ab\") { for y in progress(iterable(|| || none), total=4) { } }");
        let ids: Vec<(u64, bool)> = nested.iter().map(|p| (p.id, p.ended)).collect();
        assert_eq!(ids, [(1, false), (2, true), (1, false), (3, true), (1, true)]);
        assert_eq!(nested[1].total, Some(4));
        let twice =
            told("let p = progress(progress((1, 2)))\nassert(list(p) == [1, 2])\nassert(list(p) == [1, 2])");
        assert_eq!(twice.iter().filter(|p| p.ended).count(), 4);
        let numbered = told("for (i, x) in enumerate(progress([\"a\"])) { assert(i == 0 and x == \"a\") }");
        assert_eq!(brief(&numbered), [(1, 0, Some(1), false), (1, 1, Some(1), true)]);
    }
}
