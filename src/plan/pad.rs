//! Padded tensors that later work reads without a copy: `let p = u.pad([1, 1])`, then `p[..-2] + p[2..]`.
//!
//! Note [Padded values]. The result of [`Runtime::padded`] waits in its queue (Note [Deferred values] in `deferred`). A
//! group that reads a view of it loads elements of the original, and numbers or copies of elements beside them
//! ([`kernel::Padding`]), if each dimension of the view is a range of one of the result's. Padding a padded value with the
//! same number adds to its sizes.

use super::assemble::merge_dims;
use super::deferred::{Deferred, Needs, is_deferred};
use super::flush::{Noted, address, address_to_read};
use super::gather::{GATHERED, is_prepared};
use super::place::Place;
use super::queue::FusedGroup;
use super::trace::Traced;
use super::turn::{Bend, Turn};
use super::{Elementwise, MapArg, Runtime};
use crate::array::{Class, Dims, Dtype, Layout, Scalar, Strides, copied};
use crate::base::{Result, Span};
use crate::kernel::{self, Beside, CAST, Launch, Map, Source, Store, View};
use crate::stream::races::Access;
use crate::tensor::{StorageRef, Tensor};
use smallvec::{SmallVec, smallvec};

/// What lies beside the elements of a tensor.
#[derive(Clone, Copy, Debug)]
pub enum Beyond {
    /// A number.
    Number(Scalar),
    /// The first and the last element repeat.
    Nearest,
    /// The elements in reverse, without the first or the last.
    Mirrored,
    /// The elements repeat.
    Wrapped,
}

impl Beyond {
    /// The same for a view with elements of a dtype.
    fn beside(self, dtype: Dtype) -> Beside {
        match self {
            Beyond::Number(number) => {
                // As instructions round: to the precision of registers, then to the dtype.
                let number = match number {
                    Scalar::Float(_) if dtype.class() == Class::F32 => {
                        Scalar::Float(f64::from(number.as_f64() as f32))
                    }
                    number => number,
                };
                let mut bytes = Vec::new();
                number.encode(dtype, &mut bytes);
                bytes.resize(8, 0);
                Beside::Number(bytes.iter().rev().fold(0, |bits, &byte| bits << 8 | u64::from(byte)))
            }
            Beyond::Nearest => Beside::Nearest,
            Beyond::Mirrored => Beside::Mirrored,
            Beyond::Wrapped => Beside::Wrapped,
        }
    }
}

/// How a tensor is padded.
#[derive(Clone, Debug)]
pub struct Padding {
    /// For each dimension, the numbers of elements before and after. At most as many as the mode has elements to copy.
    pub sizes: SmallVec<[[usize; 2]; 6]>,
    /// The elements beside those of the tensor.
    pub beyond: Beyond,
}

/// A padded tensor that waits.
pub(super) struct Padded {
    pub(super) out: StorageRef,
    pub(super) source: StorageRef,
    layout: Layout,
    dtype: Dtype,
    /// Elements before those of the source, for each dimension.
    before: Dims,
    beside: Beside,
    name: &'static str,
    pub(super) span: Span,
}

/// How a view of a padded tensor reads the source.
struct Read {
    /// Its layout in the source, from the first element inside on.
    layout: Layout,
    bend: Option<Bend>,
}

impl Padded {
    /// True when both have the same number beside their elements.
    fn is_padded_as(&self, other: &Padded) -> bool {
        matches!(self.beside, Beside::Number(_)) && self.beside == other.beside && self.dtype == other.dtype
    }

    /// The layout of the source's elements in the result.
    fn middle(&self) -> Layout {
        let mut middle = self.out.first_layout().clone();
        let starts = self.before.iter().zip(&middle.strides).map(|(&first, &stride)| first as isize * stride);
        middle.offset = middle.offset.wrapping_add_signed(starts.sum());
        middle.shape = self.layout.shape.clone();
        middle
    }

    /// The coordinate in the source of one in the result along dimension `d`; `None` for a number.
    fn source_of(&self, d: usize, at: usize) -> Option<isize> {
        let (at, count) = (at as isize - self.before[d] as isize, self.layout.shape[d] as isize);
        match self.beside {
            _ if (0..count).contains(&at) => Some(at),
            Beside::Number(_) => None,
            Beside::Nearest => Some(at.clamp(0, count - 1)),
            Beside::Mirrored if at < 0 => Some(-at),
            Beside::Mirrored => Some(2 * (count - 1) - at),
            Beside::Wrapped => Some(at.rem_euclid(count)),
        }
    }

    /// How a view with this layout reads the source; `None` if it must read the result from memory.
    fn read(&self, view: &Layout) -> Option<Read> {
        let whole = self.out.first_layout();
        let place = Place::of(&view.shape, &view.strides, view.offset, whole)?;
        if place.dims.iter().flatten().any(|(first, last, _)| first != last) {
            return None;
        }
        let mut inside: SmallVec<[[usize; 2]; 6]> = view.shape.iter().map(|&extent| [0, extent]).collect();
        let mut turns: SmallVec<[Turn; 6]> = SmallVec::from_elem(Turn::default(), view.shape.len());
        let mut strides: Strides = SmallVec::from_elem(0, view.shape.len());
        let mut offset = self.layout.offset as isize;
        let (mut is_padded, mut is_turned) = (false, false);
        for d in 0..whole.shape.len() {
            let is_own =
                |dim: &(usize, &Option<(usize, usize, isize)>)| dim.1.is_some_and(|(dim, ..)| dim == d);
            let mut own = place.dims.iter().enumerate().filter(is_own);
            let (first, stride) = (place.first[d] as isize - self.before[d] as isize, self.layout.strides[d]);
            let Some((at, &Some((.., step)))) = own.next() else {
                offset += self.source_of(d, place.first[d])? * stride;
                continue;
            };
            if own.next().is_some() {
                // Windows of a dimension.
                return None;
            }
            let (extent, count) = (view.shape[at] as isize, self.layout.shape[d] as isize);
            // The first coordinate from which the view is at a position of the source or after it.
            let from = |position: isize| (position - first + step - 1).div_euclid(step);
            let (start, end) = (from(0).max(0), from(count).min(extent));
            strides[at] = step * stride;
            if (start, end) == (0, extent) {
                offset += first * stride;
                continue;
            }
            if self.beside == Beside::Wrapped && step == 1 {
                let first = first.rem_euclid(count);
                if first + extent <= count {
                    offset += first * stride;
                    continue;
                }
                if extent == count {
                    turns[at] = Turn::roll(-first as i64, view.shape[at]);
                    is_turned = true;
                    continue;
                }
            }
            let is_number = matches!(self.beside, Beside::Number(_));
            inside[at] = [start.max(0) as usize, end.max(0) as usize];
            if !is_number && step != 1
                || !self.beside.allows(inside[at], self.layout.shape[d], view.shape[at])
            {
                return None;
            }
            is_padded = true;
            offset += (first + step * start) * stride;
        }
        let bend = match (is_padded, is_turned) {
            (true, true) => return None,
            (true, false) => Some(Bend::Padded(Box::new(kernel::Padding { inside, beside: self.beside }))),
            (false, true) => Some(Bend::Turned(turns.to_vec().into())),
            (false, false) => None,
        };
        let layout = Layout { shape: view.shape.clone(), strides, offset: usize::try_from(offset).ok()? };
        Some(Read { layout, bend })
    }

    /// [`Padded::read`] of a tensor that broadcasts to a shape.
    fn read_over(&self, tensor: &Tensor, shape: &[usize]) -> Option<Read> {
        if tensor.dtype() != self.dtype || tensor.count() == 0 {
            return None;
        }
        let Read { layout, bend } = self.read(tensor.layout())?;
        let bend = bend.map(|bend| bend.broadcast(&layout.shape, shape));
        Some(Read { layout, bend })
    }
}

impl Bend {
    /// The same for a view that is broadcast.
    pub(super) fn broadcast(self, from: &[usize], to: &[usize]) -> Bend {
        let more = to.len().saturating_sub(from.len());
        // The dimension of the view with the same extent.
        let own = |d: usize| d.checked_sub(more).filter(|&own| from[own] == to[d]);
        match self {
            Bend::Turned(turns) => Bend::Turned(
                (0..to.len()).map(|d| own(d).map_or(Turn::default(), |own| turns[own])).collect(),
            ),
            Bend::Padded(mut padding) => {
                let all = (0..to.len()).map(|d| own(d).map_or([0, to[d]], |own| padding.inside[own]));
                padding.inside = all.collect();
                Bend::Padded(padding)
            }
        }
    }
}

impl Padded {
    /// What a group needs to read a view of it; `None` if that must be read from memory.
    pub(super) fn needs(&self, view: &Tensor) -> Option<Needs> {
        let Read { bend, .. } = self.read_over(view, view.shape())?;
        Some(Needs { bends: bend.into_iter().collect(), loads: 0, instrs: 0 })
    }
}

impl FusedGroup {
    /// The register of an element of a padded tensor that waits.
    pub(super) fn read_padded(&mut self, padded: &Padded, tensor: &Tensor) -> Option<u16> {
        let Read { layout, bend } = padded.read_over(tensor, &self.shape)?;
        Some(self.load(&padded.source, &layout, padded.dtype, bend))
    }
}

impl Runtime {
    /// Submits a padded tensor, which may wait; see Note [Padded values]. The tensor is real and has elements.
    pub fn padded(&mut self, name: &'static str, x: &Tensor, padding: &Padding) -> Result<Tensor> {
        let added = |(&extent, [before, after]): (&usize, &[usize; 2])| {
            extent.saturating_add(*before).saturating_add(*after)
        };
        let shape: Dims = x.shape().iter().zip(&padding.sizes).map(added).collect();
        let out = self.fresh(&shape, x.dtype(), x.device())?;
        let at = self.place(x.device())?.queue;
        self.note(name, at, [(x, Access::Read), (&out, Access::Write)])?;
        let mut padded = Padded {
            out: out.storage_ref(),
            source: x.storage_ref(),
            layout: x.layout().clone(),
            dtype: x.dtype(),
            before: padding.sizes.iter().map(|[before, _]| *before).collect(),
            beside: padding.beyond.beside(x.dtype()),
            name,
            span: self.span,
        };
        let pending = x.storage().pending();
        if pending.is_some_and(|pending| usize::from(pending.queue) != at || pending.node == GATHERED) {
            self.settle_value(x, at)?;
        } else if is_deferred(x.storage()) {
            match self.queues[at].deferred_with(x.storage()) {
                Some(Deferred::Padded(inner))
                    if x.layout() == inner.out.first_layout() && inner.is_padded_as(&padded) =>
                {
                    padded.source = inner.source.clone();
                    padded.layout = inner.layout.clone();
                    padded.before.iter_mut().zip(&inner.before).for_each(|(own, inner)| *own += inner);
                }
                _ => self.settle_value(x, at)?,
            }
        }
        let value = Deferred::Padded(padded);
        match self.may_defer(std::iter::once(x)) {
            true => self.defer(at, value)?,
            false => self.run_deferred(at, &value)?,
        }
        Ok(out)
    }

    /// Stores a padded tensor.
    pub(super) fn run_pad(&mut self, at: usize, padded: &Padded) -> Result<()> {
        match self.joins_source(at, padded) {
            true => self.store_with_source(at, padded),
            false => self.launch_pad(at, padded),
        }
    }

    /// True when the open group computes what is padded with a number, and can store it to the padded tensor as well.
    fn joins_source(&self, at: usize, padded: &Padded) -> bool {
        let queue = &self.queues[at];
        let pending = padded.source.pending().filter(|pending| usize::from(pending.queue) == at);
        let node = pending.and_then(|pending| queue.open_node(pending));
        let (Some(node), Some(group)) = (node, &queue.group) else { return false };
        let is_value = |node: &super::queue::Node| {
            node.dtype == padded.dtype && *node.layout(&padded.source) == padded.layout
        };
        matches!(padded.beside, Beside::Number(_))
            && group.nodes.get(node).is_some_and(is_value)
            && queue.has_room(1)
    }

    /// Stores the number everywhere, and lets the open group store what it computes.
    fn store_with_source(&mut self, at: usize, padded: &Padded) -> Result<()> {
        self.fill_padded(at, padded)?;
        let Padded { source, dtype, name, .. } = padded;
        let target = padded.out.view(padded.middle(), *dtype);
        let source = source.view(padded.layout.clone(), *dtype);
        let args = [MapArg::Tensor(&source)];
        let done = self.write_near(&Elementwise::new(name, &CAST, &args, *dtype, *dtype), &target, at);
        drop((source, target));
        done.and(self.flush_work(at))
    }

    /// Launches the copy of a source between numbers or copies.
    fn launch_pad(&mut self, at: usize, padded: &Padded) -> Result<()> {
        self.settle_storage(&padded.source, at)?;
        let Padded { ref source, ref layout, ref before, ref out, beside, dtype, .. } = *padded;
        let stream = self.queues[at].stream.clone();
        let from = address_to_read(source, layout, dtype.size(), &stream)?;
        let inside = before.iter().zip(&layout.shape).map(|(&first, &n)| [first, first + n]).collect();
        let padding = Some(Box::new(kernel::Padding { inside, beside }));
        let plain = View::new(from, dtype, copied(&layout.strides));
        let whole =
            self.launch_to(at, padded, Some(View { padding, ..plain.clone() }), out.first_layout())?;
        let device = self.device(out.device())?;
        let is_number = matches!(beside, Beside::Number(_));
        if !is_number || self.capture_of(&stream).is_some() || is_prepared(&device, &whole) {
            return self.launch_part(at, padded, &whole);
        }
        // The ready-made kernel would take a launch for each side and corner.
        self.fill_padded(at, padded)?;
        let middle = self.launch_to(at, padded, Some(plain), &padded.middle())?;
        self.launch_part(at, padded, &middle)
    }

    /// Stores the number beside a source everywhere.
    fn fill_padded(&mut self, at: usize, padded: &Padded) -> Result<()> {
        let launch = self.launch_to(at, padded, None, padded.out.first_layout())?;
        self.launch_part(at, padded, &launch)
    }

    /// The launch that stores a view, or the number beside the source, to a part of a padded tensor.
    fn launch_to(&mut self, at: usize, padded: &Padded, from: Option<View>, to: &Layout) -> Result<Launch> {
        let &Padded { ref out, dtype, beside, span, .. } = padded;
        let (device, stream) = (self.device(out.device())?, self.queues[at].stream.clone());
        self.bind(out, &device, &stream, span)?;
        let target = View::new(address(out, to, dtype.size(), &stream)?, dtype, copied(&to.strides));
        let (source, store) = match from {
            Some(_) => (Source::Load { view: 0, dtype }, Store { reg: 0, view: 1 }),
            None => (Source::Number { slot: 0, dtype }, Store { reg: 0, view: 0 }),
        };
        let map = Map { sources: vec![source], instrs: Vec::new(), stores: vec![store] };
        let numbers = match beside {
            Beside::Number(bits) if from.is_none() => {
                smallvec![Scalar::decode(&bits.to_le_bytes()[..dtype.size()], dtype).bits_as(dtype)]
            }
            _ => SmallVec::new(),
        };
        let views = from.into_iter().chain([target]).collect();
        let mut launch = Launch { numbers, ..Launch::new(self.programs.get(&map), copied(&to.shape), views) };
        merge_dims(&mut launch, 0);
        Ok(launch)
    }

    /// Launches a part of the work that stores a padded tensor.
    fn launch_part(&mut self, at: usize, padded: &Padded, launch: &Launch) -> Result<()> {
        let &Padded { ref out, name, span, .. } = padded;
        let (device, stream) = (self.device(out.device())?, self.queues[at].stream.clone());
        let ticket = self.note_launch(&device, &stream, name, span);
        out.set_ticket(ticket);
        let traced = self.is_traced().then(|| Traced::of(std::iter::once(span), &out.first_layout().shape));
        self.launch(&device, &stream, launch, Noted { name, ticket, traced })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Backend, Config, Machine};
    use crate::driver::DeviceId;
    use crate::ops::testing::bytes_of;
    use crate::plan::Settings;
    use crate::plan::gather::tests::IS_LATE;

    /// The elements of `0..n` at the coordinates of a view, by a load: its positions in the source, or `None`.
    fn positions(read: &Read) -> Vec<Option<isize>> {
        let Layout { shape, strides, offset } = &read.layout;
        let count: usize = shape.iter().product();
        let at = |mut number: usize| {
            let mut position = *offset as isize;
            for d in (0..shape.len()).rev() {
                let c = number % shape[d];
                number /= shape[d];
                let (c, first) = match &read.bend {
                    None => (c as isize, 0),
                    Some(Bend::Padded(padding)) => (padding.within(d, c)?.0, padding.inside[d][0] as isize),
                    Some(Bend::Turned(turns)) => {
                        let rolled =
                            (0..shape[d]).find(|&shift| turns[d] == Turn::roll(-(shift as i64), shape[d]));
                        (((c + rolled.unwrap_or(0)) % shape[d]) as isize, 0)
                    }
                };
                position += strides[d] * (c - first);
            }
            Some(position)
        };
        (0..count).map(at).collect()
    }

    #[test]
    fn padded_tensors_are_stored_before_their_kernel_is_compiled() {
        let config = Config { backend: Backend::Emu, devices: Some(1), ..Config::default() };
        let machine = Machine::open(&config).unwrap();
        let run = |is_late: bool, beyond: Beyond, dtype: Dtype| {
            IS_LATE.set(is_late);
            let mut rt = Runtime::new(machine.clone(), Settings::default());
            let numbers: Vec<f64> = (0..60).map(|i| f64::from(i * 37 % 11)).collect();
            let x = rt.from_host(&bytes_of(&numbers, dtype), &[6, 10], dtype, DeviceId::Cuda(0)).unwrap();
            let padding = Padding { sizes: smallvec![[1, 2], [3, 0]], beyond };
            rt.start_listing(false).unwrap();
            let padded = rt.padded("pad", &x, &padding).unwrap();
            rt.flush().unwrap();
            let launches = rt.stop_listing().launches.len();
            IS_LATE.set(false);
            (rt.read(&padded).unwrap(), launches)
        };
        for dtype in [Dtype::U8, Dtype::BF16, Dtype::F32, Dtype::I64] {
            for (beyond, late) in [(Beyond::Number(Scalar::Float(7.0)), 2), (Beyond::Mirrored, 1)] {
                let (expected, count) = run(false, beyond, dtype);
                assert_eq!(count, 1);
                assert_eq!(run(true, beyond, dtype), (expected, late), "{dtype} {beyond:?}");
            }
        }
    }

    #[test]
    fn views_of_padded_tensors_read_the_source_at_the_same_elements() {
        let config = Config { backend: Backend::Emu, devices: Some(1), ..Config::default() };
        let mut rt = Runtime::new(Machine::open(&config).unwrap(), Settings::default());
        let mut fresh = |shape: &[usize]| rt.fresh(shape, Dtype::F32, DeviceId::Cuda(0)).unwrap();
        let mut read = 0;
        for beside in [Beside::Number(7), Beside::Nearest, Beside::Mirrored, Beside::Wrapped] {
            for [before, after] in [[0, 1], [1, 0], [1, 1], [2, 3]] {
                let n = 5;
                let (source, out) = (fresh(&[3, n]), fresh(&[3, n + before + after]));
                let padded = Padded {
                    out: out.storage_ref(),
                    source: source.storage_ref(),
                    layout: source.layout().clone(),
                    dtype: Dtype::F32,
                    before: smallvec![0, before],
                    beside,
                    name: "pad",
                    span: Span::NONE,
                };
                let whole = n + before + after;
                for first in 0..whole {
                    for end in first + 1..=whole {
                        for step in 1..4 {
                            let extent = (end - first).div_ceil(step);
                            let view = Layout {
                                shape: smallvec![3, extent],
                                strides: smallvec![whole as isize, step as isize],
                                offset: first,
                            };
                            let Some(own) = padded.read(&view) else { continue };
                            read += 1;
                            let column = |c: usize| padded.source_of(1, first + step * c);
                            let row = |r: isize| (0..extent).map(move |c| Some(column(c)? + r * n as isize));
                            let expected: Vec<Option<isize>> = (0..3).flat_map(row).collect();
                            assert_eq!(positions(&own), expected, "{beside:?} {before} {after} {view:?}");
                        }
                    }
                }
            }
        }
        assert!(read > 400, "{read}");
    }
}
