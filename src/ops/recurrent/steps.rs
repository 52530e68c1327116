//! Builds the program of a step of a [`Recurrent`] layer, and submits the layer.

use crate::array::{Class, Dtype, Scalar, Strides};
use crate::base::Result;
use crate::kernel::{CAST, Instr, Map, MapFn, Place, Recurrent, Regs, Source, Store};
use crate::ops::arith::{ADD, MUL, SUB};
use crate::ops::elementary::{SIGMOID, TANH};
use crate::ops::select::WHERE;
use crate::plan::{Runtime, Submission, SubmittedView};
use crate::tensor::Tensor;

/// The launch of a layer that is being built. Values compute in `wide`.
pub(super) struct Steps {
    dtype: Dtype,
    wide: Dtype,
    views: Vec<(Tensor, Strides, bool)>,
    places: Vec<Place>,
    sources: Vec<Source>,
    numbers: Vec<u64>,
    instrs: Vec<Instr>,
    stores: Vec<(u16, Place)>,
    /// The stores that make up the left factor of the next step.
    left: Vec<usize>,
}

/// A value of the program: a source, or from here on an instruction.
const INSTRS: u16 = 1 << 15;

impl Steps {
    /// A layer over tensors of this dtype. The first three views are those of the product.
    pub fn new(dtype: Dtype) -> Steps {
        Steps {
            dtype,
            wide: dtype.accumulator(),
            views: Vec::new(),
            places: Vec::new(),
            sources: Vec::new(),
            numbers: Vec::new(),
            instrs: Vec::new(),
            stores: Vec::new(),
            left: Vec::new(),
        }
    }

    fn class(&self) -> Class {
        self.wide.class()
    }

    /// Adds a view of the launch; returns its number.
    pub fn view(&mut self, x: &Tensor, strides: &[isize], write: bool) -> u16 {
        self.views.push((x.clone(), Strides::from_slice(strides), write));
        (self.views.len() - 1) as u16
    }

    /// [`Steps::view`] of a tensor that is read.
    pub fn read(&mut self, x: &Tensor) -> u16 {
        self.view(x, &x.layout().strides, false)
    }

    /// [`Steps::view`] of a tensor that is written.
    pub fn write(&mut self, x: &Tensor) -> u16 {
        self.view(x, &x.layout().strides, true)
    }

    /// The value at a place.
    pub fn load(&mut self, place: Place, dtype: Dtype) -> u16 {
        let view = self.places.iter().position(|&known| known == place).unwrap_or(self.places.len());
        if view == self.places.len() {
            self.places.push(place);
        }
        self.source(Source::Load { view: view as u16, dtype })
    }

    /// The value of a tensor at the step.
    pub fn now(&mut self, x: &Tensor) -> u16 {
        let view = self.read(x);
        self.load(Place::Now(view), x.dtype())
    }

    /// A tensor without steps, which each step replaces: its value, and the place to store the next one.
    pub fn state(&mut self, x: &Tensor) -> (u16, Place) {
        let strides = [&[0], &x.layout().strides[..]].concat();
        let place = Place::Now(self.view(x, &strides, true));
        (self.load(place, x.dtype()), place)
    }

    /// A part of the product.
    pub fn product(&mut self, part: usize) -> u16 {
        self.load(Place::Product(part as u16), self.wide)
    }

    /// A number.
    pub fn number(&mut self, number: f64) -> u16 {
        let bits = Scalar::Float(number).bits(self.class());
        let slot = self.numbers.iter().position(|&known| known == bits).unwrap_or(self.numbers.len());
        self.numbers.resize(self.numbers.len().max(slot + 1), bits);
        self.source(Source::Number { slot: slot as u16, dtype: self.wide })
    }

    fn source(&mut self, source: Source) -> u16 {
        let at = self.sources.iter().position(|&known| known == source).unwrap_or(self.sources.len());
        if at == self.sources.len() {
            self.sources.push(source);
        }
        at as u16
    }

    /// The result of a function.
    pub fn apply(&mut self, f: &'static MapFn, args: &[u16]) -> u16 {
        self.push(f, args, self.wide)
    }

    /// The result of a comparison.
    pub fn test(&mut self, f: &'static MapFn, args: &[u16]) -> u16 {
        self.push(f, args, Dtype::Bool)
    }

    fn push(&mut self, f: &'static MapFn, args: &[u16], dtype: Dtype) -> u16 {
        self.instrs.push(Instr { f, args: args.iter().copied().collect(), class: self.class(), dtype });
        INSTRS + (self.instrs.len() - 1) as u16
    }

    /// `a + b`
    pub fn add(&mut self, a: u16, b: u16) -> u16 {
        self.apply(&ADD, &[a, b])
    }

    /// `a - b`
    pub fn sub(&mut self, a: u16, b: u16) -> u16 {
        self.apply(&SUB, &[a, b])
    }

    /// `a * b`
    pub fn mul(&mut self, a: u16, b: u16) -> u16 {
        self.apply(&MUL, &[a, b])
    }

    /// `sigmoid(a)`
    pub fn sigmoid(&mut self, a: u16) -> u16 {
        self.apply(&SIGMOID, &[a])
    }

    /// `tanh(a)`
    pub fn tanh(&mut self, a: u16) -> u16 {
        self.apply(&TANH, &[a])
    }

    /// `1 - a`
    pub fn rest(&mut self, a: u16) -> u16 {
        let one = self.number(1.0);
        self.sub(one, a)
    }

    /// `a` where the condition is true, or if there is none; else `b`.
    pub fn choice(&mut self, condition: Option<u16>, a: u16, b: u16) -> u16 {
        condition.map_or(a, |condition| self.apply(&WHERE, &[condition, a, b]))
    }

    /// The gradient of a sigmoid with the result `y`.
    pub fn of_sigmoid(&mut self, g: u16, y: u16) -> u16 {
        let rest = self.rest(y);
        let slope = self.mul(rest, y);
        self.mul(g, slope)
    }

    /// The gradient of a tanh with the result `y`.
    pub fn of_tanh(&mut self, g: u16, y: u16) -> u16 {
        let square = self.mul(y, y);
        let slope = self.rest(square);
        self.mul(g, slope)
    }

    /// A value in the dtype of the layer.
    pub fn rounded(&mut self, a: u16) -> u16 {
        if self.dtype == self.wide { a } else { self.push(&CAST, &[a], self.dtype) }
    }

    /// Stores a value.
    pub fn store(&mut self, value: u16, place: Place) {
        self.stores.push((value, place));
    }

    /// Stores a value in a tensor, in its dtype.
    pub fn store_in(&mut self, value: u16, x: &Tensor) {
        let (value, view) = (self.rounded(value), self.write(x));
        self.store(value, Place::Now(view));
    }

    /// The last value stored is the next part of the left factor of the next step.
    pub fn is_left(&mut self) {
        self.left.push(self.stores.len() - 1);
    }

    /// Submits the layer. `shape`: steps, rows, width, inner, columns.
    pub fn submit(
        self,
        rt: &mut Runtime,
        name: &'static str,
        shape: [usize; 5],
        reverse: bool,
    ) -> Result<()> {
        let Steps { dtype, views, mut places, sources, numbers, mut instrs, stores, left, .. } = self;
        let reg = |value: u16| match value.checked_sub(INSTRS) {
            Some(instr) => instr + sources.len() as u16,
            None => value,
        };
        for instr in &mut instrs {
            instr.args = instr.args.iter().map(|&arg| reg(arg)).collect::<Regs>();
        }
        let left = left.into_iter().map(|store| (places.len() + store) as u16).collect();
        let stores = stores.into_iter().map(|(value, place)| {
            places.push(place);
            Store { reg: reg(value), view: (places.len() - 1) as u16 }
        });
        let stores = stores.collect();
        let kind = Recurrent {
            name,
            dtype,
            tf32: rt.settings.allow_tf32,
            cell: Map { sources, instrs, stores },
            places,
            numbers,
            left,
            reverse,
        };
        let views = views.iter().map(|(tensor, strides, write)| SubmittedView {
            tensor,
            strides: strides.clone(),
            write: *write,
        });
        let views = views.collect();
        rt.submit(Submission {
            name,
            kind: &kind,
            shape: shape.into_iter().collect(),
            views,
            axis: 0,
            limit: 0,
        })
    }
}
