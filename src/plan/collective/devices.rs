//! Transfers between several devices: broadcast, sum, scatter, gather. Source: `torch.cuda.comm`.
//!
//! Each is one operation. It is ordered after the work that the current streams of the devices involved hold
//! for its tensors, and before their next work. Nothing waits on the host. Broadcasts to several devices and
//! sums are kernels that access peer memory over the links ([`super::shares`]). All copies of one operation
//! are queued before any of them is waited for, so that they run concurrently.

use super::shares::{self, Shared};
use crate::array::{Dims, Dtype, Layout, Strides, contiguous_strides, joined_layout};
use crate::base::{Remark, Result, this_is};
use crate::driver::{CopyKind, DeviceId};
use crate::kernel::{MapFn, PART_ALIGN, Pack};
use crate::plan::flush::{address, address_to_read};
use crate::plan::transfer::Transfer;
use crate::plan::{Runtime, error};
use crate::plan::{Submission, SubmittedView};
use crate::stream::Stream;
use crate::stream::races::Access;
use crate::tensor::Tensor;
use smallvec::{SmallVec, smallvec};
use std::sync::Arc;

/// A copy between two CUDA devices: equal shapes and dtypes, both contiguous.
struct Move {
    target: Tensor,
    source: Tensor,
}

/// The device whose current stream carries a copy.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Carrier {
    Source,
    Target,
}

/// The stream that carries a copy, its queue, and the current stream of the other device.
struct Way {
    at: usize,
    stream: Arc<Stream>,
    other: Arc<Stream>,
}

impl Runtime {
    /// A copy on each device, in order; the tensor itself if it is already there.
    pub fn broadcast(&mut self, tensor: &Tensor, devices: &[DeviceId]) -> Result<Vec<Tensor>> {
        let mut copies = Vec::with_capacity(devices.len());
        for &device in devices {
            copies.push(match device == tensor.device() {
                true => tensor.clone(),
                false => self.empty_ordered(tensor.layout(), tensor.dtype(), device)?,
            });
        }
        let targets = copies.iter().filter(|c| !c.same(tensor));
        // All copies have one layout.
        let pairs: Vec<(Tensor, Tensor)> =
            targets.map(|copy| crate::plan::ordered::in_order(copy, tensor)).collect();
        let source = pairs.first().map_or_else(|| tensor.clone(), |(_, source)| source.clone());
        let targets: Vec<Tensor> = pairs.into_iter().map(|(rows, _)| rows).collect();
        self.spread("broadcast", &source, &targets)?;
        Ok(copies)
    }

    /// Writes a tensor to tensors of its shape on CUDA devices.
    ///
    /// # Errors
    /// E0512 for a target on the host, E0430 for a target of another shape.
    pub fn broadcast_into(&mut self, tensor: &Tensor, targets: &[Tensor]) -> Result<()> {
        if targets.is_empty() {
            return Err(error::collective_argument("expected at least one output tensor to broadcast to"));
        }
        for (i, target) in targets.iter().enumerate() {
            if target.device() == DeviceId::Cpu {
                return Err(error::collective_device(format!(
                    "expected all output tensors to be CUDA tensors, but output tensor at index {i} has device `cpu`"
                ))
                .element(2, i, this(target)));
            }
            if target.shape() != tensor.shape() {
                return Err(error::collective_shape(format!(
                    "expected all output tensors to have the shape {:?} of the source, but output tensor at index {i} has shape {:?}",
                    tensor.shape().as_slice(),
                    target.shape().as_slice()
                ))
                .operand(0, this(tensor))
                .element(2, i, this(target)));
            }
        }
        let plain = |t: &&Tensor| {
            t.layout().is_contiguous() && t.dtype() == tensor.dtype() && t.device() != tensor.device()
        };
        let (plain, other): (Vec<&Tensor>, Vec<&Tensor>) = targets.iter().partition(plain);
        for target in other.into_iter().filter(|t| !t.same(tensor)) {
            self.copy_into(target, tensor, true)?;
        }
        self.spread("broadcast", tensor, &plain.into_iter().cloned().collect::<Vec<_>>())
    }

    /// Copies tensors from the first device to the others; small tensors are packed together. Returns one
    /// list per device, in their order. The first device's list holds the tensors themselves. `buffer` limits
    /// the bytes packed together.
    ///
    /// # Errors
    /// E0512 for a tensor that is not on the first device.
    pub fn broadcast_coalesced(
        &mut self,
        tensors: &[Tensor],
        devices: &[DeviceId],
        buffer: u64,
    ) -> Result<Vec<Vec<Tensor>>> {
        self.check_coalesced(tensors, devices)?;
        let mut copies = vec![Vec::with_capacity(tensors.len()); devices.len()];
        copies[0] = tensors.to_vec();
        for group in coalesced(tensors, buffer, |_, _| true) {
            if let [single] = &tensors[group.clone()] {
                let (own, rest) = (self.broadcast(single, &devices[1..])?, &mut copies[1..]);
                rest.iter_mut().zip(own).for_each(|(list, copy)| list.push(copy));
                continue;
            }
            let (flat, places) = self.pack(&tensors[group.clone()])?;
            let flats = self.broadcast(&flat, &devices[1..])?;
            for (list, flat) in copies[1..].iter_mut().zip(&flats) {
                list.extend(unpacked(flat, &tensors[group.clone()], &places));
            }
        }
        Ok(copies)
    }

    /// The conditions of [`Runtime::broadcast_coalesced`].
    ///
    /// # Errors
    /// E0512 for a tensor that is not on the first device.
    pub fn check_coalesced(&self, tensors: &[Tensor], devices: &[DeviceId]) -> Result<()> {
        let Some(&first) = devices.first() else {
            return Err(error::collective_argument("expected at least one device to broadcast to"));
        };
        let Some((i, tensor)) = tensors.iter().enumerate().find(|(_, t)| t.device() != first) else {
            return Ok(());
        };
        Err(error::collective_device(format!(
            "all tensors must be on `{first}`, the first device, but tensor {i} is on `{}`",
            tensor.device()
        ))
        .element(0, i, this(tensor)))
    }

    /// The sum of tensors of one shape and dtype on several devices; the result is on the device of one of
    /// them. `add` adds two elements.
    ///
    /// # Errors
    /// E0512, E0430, E0513.
    pub fn reduce_add(
        &mut self,
        add: &'static MapFn,
        inputs: &[Tensor],
        destination: DeviceId,
    ) -> Result<Tensor> {
        let Some(first) = inputs.first() else {
            return Err(error::collective_argument("expected at least one tensor to add"));
        };
        for (i, input) in inputs.iter().enumerate() {
            if input.device() == DeviceId::Cpu {
                return Err(error::collective_device(format!(
                    "reduce_add expects all inputs to be on GPUs, but input {i} is on the host"
                ))
                .element(0, i, this(input)));
            }
            if input.shape() != first.shape() {
                return Err(error::collective_shape(format!(
                    "input {i} has invalid size: got {}, but expected {}",
                    size(input.shape()),
                    size(first.shape())
                ))
                .element(0, 0, this(first))
                .element(0, i, this(input)));
            }
            if input.dtype() != first.dtype() {
                let (got, wanted) = (input.dtype(), first.dtype());
                return Err(error::collective_shape(format!(
                    "input {i} has invalid dtype: got {got}, but expected {wanted}"
                ))
                .element(0, 0, this(first))
                .element(0, i, this(input)));
            }
        }
        if !inputs.iter().any(|input| input.device() == destination) {
            let error = error::collective_device(
                "reduce_add expects destination to be on the same GPU with one of the tensors",
            );
            let error = inputs.iter().enumerate().fold(error, |e, (i, input)| e.element(0, i, this(input)));
            return Err(
                error.help(format!("no tensor is on `{destination}`: name a device that one of them is on"))
            );
        }
        if let [single] = inputs {
            return Ok(single.clone());
        }
        let inputs = inputs.iter().map(|t| self.contiguous(t)).collect::<Result<Vec<_>>>()?;
        let tensors: Vec<&Tensor> = inputs.iter().collect();
        if let Some(sharers) = self.sharers(&tensors, destination)? {
            let sum = self.empty(inputs[0].shape(), inputs[0].dtype(), destination)?;
            let map = shares::sum(add, &sum, inputs.len());
            let writes = std::slice::from_ref(&sum);
            let work = Shared { name: "reduce_add", map, reads: &inputs, writes, hub: destination };
            self.compute_in_shares(work, &sharers)?;
            return Ok(sum);
        }
        // Devices without peer access: copy all inputs to the destination.
        let mut near = Vec::with_capacity(inputs.len());
        let mut moves = Vec::new();
        for input in &inputs {
            if input.device() == destination {
                near.push(input.clone());
                continue;
            }
            let target = self.empty(input.shape(), input.dtype(), destination)?;
            moves.push(Move { target: target.clone(), source: input.clone() });
            near.push(target);
        }
        self.carry("reduce_add", &moves, Carrier::Source)?;
        self.fold("reduce_add", &near, add)
    }

    /// [`Runtime::reduce_add`] for lists of tensors; small tensors are packed together. `inputs[d][i]` is
    /// tensor i of device d.
    pub fn reduce_add_coalesced(
        &mut self,
        add: &'static MapFn,
        inputs: &[Vec<Tensor>],
        destination: DeviceId,
        buffer: u64,
    ) -> Result<Vec<Tensor>> {
        let Some(first) = inputs.first() else {
            return Err(error::collective_argument("expected at least one list of tensors to add"));
        };
        if let Some((d, list)) = inputs.iter().enumerate().find(|(_, list)| list.len() != first.len()) {
            return Err(error::collective_argument(format!(
                "list {d} has {} tensors, but the first has {}",
                list.len(),
                first.len()
            ))
            .help("give every device as many tensors")
            .element(0, 0, format!("{} here", first.len()))
            .element(0, d, format!("{} here", list.len())));
        }
        let column = |i: usize| -> Vec<Tensor> { inputs.iter().map(|list| list[i].clone()).collect() };
        let mut sums = Vec::with_capacity(first.len());
        for group in coalesced(first, buffer, |a, b| a.dtype() == b.dtype()) {
            let fits = |i: usize| {
                let same = |t: &Tensor| {
                    t.shape() == first[i].shape()
                        && t.dtype() == first[i].dtype()
                        && t.device() != DeviceId::Cpu
                };
                inputs.iter().all(|list| same(&list[i]) && list[i].device() == list[group.start].device())
            };
            if group.len() == 1 || !group.clone().all(fits) {
                for i in group {
                    let sum = self.reduce_add(add, &column(i), destination);
                    sums.push(sum.map_err(|error| error.about(&format!("tensor {i} of it")))?);
                }
                continue;
            }
            let mut flats = Vec::with_capacity(inputs.len());
            let mut places = Vec::new();
            for list in inputs {
                let (flat, at) = self.pack(&list[group.clone()])?;
                let dtype = first[group.start].dtype();
                let count = flat.count() / dtype.size();
                let typed = Layout::contiguous(&[count]);
                flats.push(flat.view(typed, dtype));
                places = at;
            }
            let flat = self.reduce_add(add, &flats, destination)?;
            sums.extend(unpacked(&flat, &first[group], &places));
        }
        Ok(sums)
    }

    /// Parts of a tensor along a dimension with the given extents, one per device. The part for the tensor's
    /// own device is a view. Copies from pinned host memory are not waited for.
    pub fn scatter(
        &mut self,
        tensor: &Tensor,
        devices: &[DeviceId],
        extents: &[usize],
        dim: usize,
    ) -> Result<Vec<Tensor>> {
        let mut parts = split(tensor, extents, dim);
        let mut moves = Vec::new();
        for (part, &device) in parts.iter_mut().zip(devices) {
            if device == part.device() {
                continue;
            }
            if part.device() == DeviceId::Cpu || device == DeviceId::Cpu {
                *part = self.copy_to(part, device, true)?;
                continue;
            }
            let copy = self.empty_ordered(part.layout(), part.dtype(), device)?;
            let (target, source) = crate::plan::ordered::in_order(&copy, part);
            moves.push(Move { target, source: self.contiguous(&source)? });
            *part = copy;
        }
        self.carry("scatter", &moves, Carrier::Target)?;
        Ok(parts)
    }

    /// Writes the parts of a tensor along a dimension to tensors on CUDA devices, whose extents give the
    /// parts.
    ///
    /// # Errors
    /// E0512, E0430, E0513.
    pub fn scatter_into(&mut self, tensor: &Tensor, targets: &[Tensor], dim: usize) -> Result<()> {
        if targets.is_empty() {
            return Err(error::collective_argument("expected at least one output tensor to scatter to"));
        }
        let mut extents = Vec::with_capacity(targets.len());
        for (i, target) in targets.iter().enumerate() {
            if target.device() == DeviceId::Cpu {
                return Err(error::collective_device(format!(
                    "expected all output tensors to be CUDA tensors, but output tensor at index {i} has device `cpu`"
                ))
                .element(5, i, this(target)));
            }
            if !equal_but_for(dim, target.shape(), tensor.shape()) {
                return Err(error::collective_shape(format!(
                    "output tensor at index {i} has incorrect shape {:?}: expected {:?}, but for dimension {dim}",
                    target.shape().as_slice(),
                    tensor.shape().as_slice()
                ))
                .operand(0, this(tensor))
                .element(5, i, this(target)));
            }
            extents.push(target.shape()[dim]);
        }
        let total = extents.iter().fold(0usize, |a, &b| a.saturating_add(b));
        if total != tensor.shape()[dim] {
            return Err(error::collective_shape(format!(
                "total size of the output tensors along dimension {dim} does not match the source: expected {}, but got {total}",
                tensor.shape()[dim]
            )));
        }
        let parts = split(tensor, &extents, dim);
        self.write_all("scatter", parts.iter().zip(targets), Carrier::Target)
    }

    /// Concatenates tensors of CUDA devices along a dimension, on a device or the host.
    ///
    /// # Errors
    /// E0512, E0430, E0513.
    pub fn gather(&mut self, tensors: &[Tensor], dim: usize, destination: DeviceId) -> Result<Tensor> {
        let shape = gathered(tensors, dim)?;
        let layout = joined_layout(&shape, tensors.iter().map(Tensor::layout));
        let whole = self.empty_ordered(&layout, tensors[0].dtype(), destination)?;
        self.gather_parts(tensors, &whole, dim)?;
        Ok(whole)
    }

    /// [`Runtime::gather`] to an existing tensor of the right shape.
    pub fn gather_into(&mut self, tensors: &[Tensor], whole: &Tensor, dim: usize) -> Result<()> {
        let shape = gathered(tensors, dim)?;
        if *whole.shape() != shape {
            return Err(error::collective_shape(format!(
                "expected the out tensor to have shape {:?}, but got {:?}",
                shape.as_slice(),
                whole.shape().as_slice()
            )));
        }
        self.gather_parts(tensors, whole, dim)
    }

    fn gather_parts(&mut self, tensors: &[Tensor], whole: &Tensor, dim: usize) -> Result<()> {
        let extents: Vec<usize> = tensors.iter().map(|t| t.shape()[dim]).collect();
        let places = split(whole, &extents, dim);
        self.write_all("gather", tensors.iter().zip(&places), Carrier::Source)
    }

    /// Writes each pair's first tensor to its second.
    fn write_all<'t>(
        &mut self,
        name: &'static str,
        pairs: impl Iterator<Item = (&'t Tensor, &'t Tensor)>,
        carrier: Carrier,
    ) -> Result<()> {
        let (mut moves, mut strided) = (Vec::new(), Vec::new());
        for (source, target) in pairs {
            let crosses = source.device() != target.device();
            let on_host = source.device() == DeviceId::Cpu || target.device() == DeviceId::Cpu;
            if !crosses || on_host {
                // Waits for copies to the host; copies from pinned memory need no wait.
                self.copy_into(target, source, target.device() != DeviceId::Cpu)?;
                continue;
            }
            let source = match source.dtype() == target.dtype() {
                true => self.contiguous(source)?,
                false => self.convert(source, target.dtype())?,
            };
            if target.layout().is_contiguous() {
                moves.push(Move { target: target.clone(), source });
                continue;
            }
            let near = self.empty(source.shape(), source.dtype(), target.device())?;
            strided.push((target.clone(), near.clone()));
            moves.push(Move { target: near, source });
        }
        self.carry(name, &moves, carrier)?;
        strided.iter().try_for_each(|(target, near)| self.assign(name, target, near))
    }

    /// Copies one tensor to contiguous tensors of its shape and dtype on other devices.
    fn spread(&mut self, name: &'static str, tensor: &Tensor, targets: &[Tensor]) -> Result<()> {
        if tensor.device() == DeviceId::Cpu {
            return targets.iter().try_for_each(|target| self.copy_into(target, tensor, true));
        }
        let source = self.contiguous(tensor)?;
        let bytes = source.layout().bytes(source.dtype());
        if targets.len() > 1 || targets.len() == 1 && bytes <= self.settings.unshared {
            let tensors: Vec<&Tensor> = std::iter::once(&source).chain(targets).collect();
            if let Some(sharers) = self.sharers(&tensors, source.device())? {
                let (map, hub) = (shares::copies(&source, targets.len()), source.device());
                let reads = std::slice::from_ref(&source);
                return self.compute_in_shares(Shared { name, map, reads, writes: targets, hub }, &sharers);
            }
        }
        let to = |target: &Tensor| Move { target: target.clone(), source: source.clone() };
        let moves: Vec<Move> = targets.iter().map(to).collect();
        self.carry(name, &moves, Carrier::Target)
    }

    /// Queues copies so that they can run concurrently: first all waits before them, then the copies, then
    /// all waits after them.
    fn carry(&mut self, name: &'static str, moves: &[Move], carrier: Carrier) -> Result<()> {
        let mut ways: SmallVec<[Way; 4]> = SmallVec::new();
        for Move { target, source } in moves {
            let (from, to) = (self.place(source.device())?.queue, self.place(target.device())?.queue);
            let at = if carrier == Carrier::Source { from } else { to };
            let streams = [from, to].map(|queue| self.queues[queue].stream.clone());
            self.refuse_transfer(&streams[0], &streams[1])?;
            self.settle(source, from)?;
            self.settle_write(at, target)?;
            self.settle(target, to)?;
            let stream = self.queues[at].stream.clone();
            let other = self.queues[if at == from { to } else { from }].stream.clone();
            let touched = [(source, Access::Read), (target, Access::Write)];
            self.note_after(name, at, &touched, std::slice::from_ref(&other))?;
            ways.push(Way { at, stream, other });
        }
        for (Move { target, source }, Way { stream, .. }) in moves.iter().zip(&ways) {
            let size = source.dtype().size();
            let bytes = (source.count() * size) as u64;
            let kind = match (carrier, source.device(), target.device()) {
                (Carrier::Target, DeviceId::Cuda(from), _) => CopyKind::FromPeer(from),
                (Carrier::Source, _, DeviceId::Cuda(to)) => CopyKind::ToPeer(to),
                _ => continue,
            };
            if bytes > 0 {
                let src = address_to_read(source.storage(), source.layout(), size, stream)?;
                let dst = address(target.storage(), target.layout(), size, stream)?;
                // Lost results are found by the tickets of the device's own streams.
                let written = (carrier == Carrier::Target).then(|| target.storage());
                self.queue_copy(name, stream, Transfer { dst, src, bytes, kind }, written)?;
            }
        }
        for (i, Way { at, stream, other }) in ways.iter().enumerate() {
            let again = ways[i + 1..].iter().any(|way| way.stream == *stream && way.other == *other);
            if !again {
                self.wait_stream(other, stream)?;
            }
            if self.settings.launch_blocking {
                self.wait_queue(*at)?;
            }
        }
        Ok(())
    }

    /// Packs tensors of one device into one buffer: the bytes and the start of each tensor.
    fn pack(&mut self, tensors: &[Tensor]) -> Result<(Tensor, Vec<u64>)> {
        let mut sources = Vec::with_capacity(tensors.len());
        let (mut places, mut end) = (Vec::with_capacity(tensors.len()), 0u64);
        for tensor in tensors {
            sources.push(self.contiguous(tensor)?);
            places.push(end);
            end = (end + tensor.layout().bytes(tensor.dtype())).next_multiple_of(PART_ALIGN);
        }
        let flat = self.fresh(&[end as usize], Dtype::U8, tensors[0].device())?;
        let bytes = |t: &Tensor| -> Strides { smallvec![t.layout().bytes(t.dtype()) as isize] };
        let parts = sources.iter().filter(|t| t.count() > 0).map(|tensor| SubmittedView {
            tensor,
            strides: bytes(tensor),
            write: false,
        });
        let whole = SubmittedView { tensor: &flat, strides: bytes(&flat), write: true };
        self.submit(Submission {
            name: "pack",
            kind: &Pack,
            shape: smallvec![end as usize],
            views: parts.chain(std::iter::once(whole)).collect(),
            axis: 0,
            limit: 0,
        })?;
        Ok((flat, places))
    }
}

/// Ranges of adjacent tensors to pack together: those that fit, up to `buffer` bytes.
pub fn coalesced(
    tensors: &[Tensor],
    buffer: u64,
    fits: impl Fn(&Tensor, &Tensor) -> bool,
) -> Vec<std::ops::Range<usize>> {
    let mut groups: Vec<std::ops::Range<usize>> = Vec::new();
    let mut held = 0u64;
    for (i, tensor) in tensors.iter().enumerate() {
        let bytes = tensor.layout().bytes(tensor.dtype()).next_multiple_of(PART_ALIGN);
        match groups.last_mut() {
            Some(group) if held.saturating_add(bytes) <= buffer && fits(&tensors[group.start], tensor) => {
                group.end = i + 1;
                held += bytes;
            }
            _ => {
                groups.push(i..i + 1);
                held = bytes;
            }
        }
    }
    groups
}

/// Views into packed tensors, on the device of the packed bytes; `flat` may have any dtype.
fn unpacked<'a>(
    flat: &'a Tensor,
    tensors: &'a [Tensor],
    places: &'a [u64],
) -> impl Iterator<Item = Tensor> + 'a {
    tensors.iter().zip(places).map(move |(tensor, &place)| {
        let (shape, dtype) = (tensor.shape(), tensor.dtype());
        let start = flat.layout().offset * flat.dtype().size();
        let offset = (start + place as usize) / dtype.size();
        let layout = Layout { shape: shape.clone(), strides: contiguous_strides(shape), offset };
        let layout = if layout.count() == 0 { Layout { offset: 0, ..layout } } else { layout };
        flat.view(layout, dtype)
    })
}

/// Views with the given extents along a dimension.
fn split(tensor: &Tensor, extents: &[usize], dim: usize) -> Vec<Tensor> {
    let mut at = 0usize;
    let part = |&extent: &usize| {
        let mut layout = tensor.layout().clone();
        layout.offset = layout.offset.wrapping_add_signed(layout.strides[dim] * at as isize);
        layout.shape[dim] = extent;
        at += extent;
        tensor.with_layout(layout)
    };
    extents.iter().map(part).collect()
}

/// The shape of tensors concatenated along a dimension.
fn gathered(tensors: &[Tensor], dim: usize) -> Result<Dims> {
    let Some(first) = tensors.first() else {
        return Err(error::collective_argument("expected at least one tensor to gather from"));
    };
    let mut total = 0usize;
    for (i, tensor) in tensors.iter().enumerate() {
        if tensor.device() == DeviceId::Cpu {
            return Err(error::collective_device(format!(
                "expected all input tensors to be CUDA tensors, but tensor at index {i} has device cpu"
            ))
            .element(0, i, this(tensor)));
        }
        if tensor.rank() != first.rank() {
            return Err(error::collective_shape(format!(
                "expected all input tensors to have the same number of dimensions, but tensor at index {i} has {} and the first {}",
                tensor.rank(),
                first.rank()
            ))
            .element(0, 0, this(first))
            .element(0, i, this(tensor)));
        }
        if !equal_but_for(dim, tensor.shape(), first.shape()) {
            return Err(error::collective_shape(format!(
                "input tensor at index {i} has invalid shape {:?}, but expected {:?}, but for dimension {dim}",
                tensor.shape().as_slice(),
                first.shape().as_slice()
            ))
            .element(0, 0, this(first))
            .element(0, i, this(tensor)));
        }
        total = total.saturating_add(tensor.shape()[dim]);
    }
    let mut shape = first.shape().clone();
    shape[dim] = total;
    match crate::array::element_count(&shape).is_some_and(|n| n <= isize::MAX as usize / 8) {
        true => Ok(shape),
        false => Err(error::collective_shape("the gathered tensor has too many elements")),
    }
}

fn equal_but_for(dim: usize, a: &[usize], b: &[usize]) -> bool {
    a.len() == b.len() && (0..a.len()).all(|d| d == dim || a[d] == b[d])
}

/// `this is f32[2, 3] on cuda:1`
fn this(tensor: &Tensor) -> Remark {
    this_is(tensor.describe())
}

/// `2x3`
fn size(shape: &[usize]) -> String {
    shape.iter().map(usize::to_string).collect::<Vec<_>>().join("x")
}
