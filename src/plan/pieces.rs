//! Large transfers between several devices, in pieces that travel from device to device.
//!
//! A device that sends to all others sends the same bytes again and again through one port. Here each
//! device sends every piece once, to the next one, while it receives the piece behind it; so a
//! broadcast or a sum over any number of devices takes little longer than one copy. The pieces go over
//! two streams per device that scripts never see ([`Device::lane`](crate::device::Device::lane)): while
//! one waits for its predecessor, the other copies. Whole operations are ordered at both ends: all
//! lanes start after the current streams of all devices involved, and those go on after all lanes.
//!
//! Invariant: what the race checker is told is less than what is ordered.

use super::Runtime;
use super::flush::{Noted, address};
use crate::array::contiguous_strides;
use crate::base::Result;
use crate::device::races::Access;
use crate::device::{Block, CopyKind, Device, DeviceId, Stream};
use crate::kernel::{Body, Instr, Launch, Map, MapFn, Ptr, Source, Store, View};
use crate::tensor::Tensor;
use smallvec::{SmallVec, smallvec};
use std::sync::Arc;

/// Streams of the runtime's own that a device takes part with.
const LANES: usize = 2;

/// The least and the most bytes of a piece. It should take longer than its start does (5 us for the least
/// at 400 GB/s), and the whole must have many: each further device adds the time of one.
const LEAST: u64 = 2 << 20;
const MOST: u64 = 16 << 20;

/// Transfers of fewer pieces go whole.
const FEWEST: u64 = 8;

/// The name of a sum, for reports.
const SUM: &str = "reduce_add";

/// What part of a transfer one stream carries: from a device to the next.
struct Hop {
    device: Arc<Device>,
    index: u32,
    lanes: [Arc<Stream>; LANES],
}

/// Where a run of elements lies: its device's index and its address.
type Place = (u32, Ptr);

impl Runtime {
    /// True when a transfer of so many bytes travels in pieces.
    pub(super) fn in_pieces(&self, bytes: u64) -> bool {
        bytes / FEWEST >= self.piece(bytes)
    }

    /// Bytes of a piece of a transfer.
    fn piece(&self, bytes: u64) -> u64 {
        let given = self.settings.piece.map(|piece| piece.next_multiple_of(16).max(16));
        given.unwrap_or((bytes / 16).clamp(LEAST, MOST).next_multiple_of(512))
    }

    /// Copies a tensor to others of its shape and dtype on distinct devices, each from the one before;
    /// one half the one way round, the other half the other way.
    pub(super) fn relay(&mut self, name: &'static str, source: &Tensor, targets: &[Tensor]) -> Result<()> {
        let tensors: Vec<&Tensor> = std::iter::once(source).chain(targets).collect();
        let hops = self.open_lanes(name, source.device(), &tensors, &[source], targets)?;
        let ends: Vec<Ptr> = self.addresses(&tensors)?;
        let bytes = source.layout().bytes(source.dtype());
        let sent = self.send_pieces(name, &tensors, &hops, &ends, bytes);
        self.close_lanes(source.device(), &hops, sent)
    }

    fn send_pieces(
        &mut self,
        name: &'static str,
        tensors: &[&Tensor],
        hops: &[Hop],
        ends: &[Ptr],
        bytes: u64,
    ) -> Result<()> {
        let forward: Vec<usize> = (0..hops.len()).collect();
        let backward: Vec<usize> = std::iter::once(0).chain((1..hops.len()).rev()).collect();
        let half = (bytes / 2).next_multiple_of(512).min(bytes);
        let parts = [(0..half, forward), (half..bytes, backward)];
        let piece = self.piece(bytes);
        let rounds = half.div_ceil(piece);
        for round in 0..rounds {
            for (lane, (part, order)) in parts.iter().enumerate() {
                let low = part.start + round * piece;
                let high = (low + piece).min(part.end);
                if low >= high {
                    continue;
                }
                for pair in order.windows(2) {
                    let (from, to) = (&hops[pair[0]], &hops[pair[1]]);
                    if pair[0] != 0 {
                        to.lanes[lane].wait_stream(&from.lanes[lane])?;
                    }
                    let (src, dst) = (ends[pair[0]] + low, ends[pair[1]] + low);
                    let kind = CopyKind::FromPeer(from.index);
                    let target = Some(tensors[pair[1]].storage());
                    self.queue_copy(name, &to.lanes[lane], (dst, src), high - low, kind, target)?;
                }
            }
        }
        Ok(())
    }

    /// The sum of tensors of one shape and dtype, in their order, on `destination`: each device adds its
    /// tensor to what comes from the one before.
    pub(super) fn sum_in_pieces(
        &mut self,
        add: &'static MapFn,
        inputs: &[Tensor],
        destination: DeviceId,
    ) -> Result<Tensor> {
        let inputs = inputs.iter().map(|t| self.contiguous(t)).collect::<Result<Vec<_>>>()?;
        let dtype = inputs[0].dtype();
        let sum = self.empty(inputs[0].shape(), dtype, destination)?;
        let tensors: Vec<&Tensor> = inputs.iter().chain(std::iter::once(&sum)).collect();
        let reads: Vec<&Tensor> = inputs.iter().collect();
        let hops = self.open_lanes(SUM, destination, &tensors, &reads, std::slice::from_ref(&sum))?;
        let ends = self.addresses(&tensors)?;
        // Where a device keeps a partial sum until the next one has taken it.
        let mut kept = Vec::with_capacity(inputs.len());
        let added = self.add_pieces(add, &inputs, &sum, &hops, &ends, &mut kept);
        self.close_lanes(destination, &hops, added)?;
        Ok(sum)
    }

    fn add_pieces(
        &mut self,
        add: &'static MapFn,
        inputs: &[Tensor],
        sum: &Tensor,
        hops: &[Hop],
        ends: &[Ptr],
        kept: &mut Vec<Option<Block>>,
    ) -> Result<()> {
        let dtype = inputs[0].dtype();
        let (last, result) = (inputs.len() - 1, inputs.len());
        let bytes = inputs[0].layout().bytes(dtype);
        let piece = self.piece(bytes);
        for (i, hop) in hops[..result].iter().enumerate() {
            let in_place = i == last && hop.index == hops[result].index;
            kept.push(if i == 0 || in_place {
                None
            } else {
                let stream = self.place(hop.device.id())?.stream.clone();
                Some(hop.device.alloc(piece * LANES as u64, &stream, self.span)?)
            });
        }
        for round in 0..bytes.div_ceil(piece) {
            let lane = (round % LANES as u64) as usize;
            let low = round * piece;
            let length = piece.min(bytes - low);
            let mut partial: Place = (hops[0].index, ends[0] + low);
            for i in 1..=last {
                let (hop, before) = (&hops[i], &hops[i - 1]);
                let stream = &hop.lanes[lane];
                let own = match &kept[i] {
                    Some(block) => block.ptr() + lane as u64 * piece,
                    None => ends[result] + low,
                };
                // The device behind has taken the partial sum that stood here two rounds ago.
                let next = if i < last { &hops[i + 1] } else { &hops[result] };
                if round >= LANES as u64 {
                    stream.wait_stream(&next.lanes[lane])?;
                }
                let mut left = partial.1;
                if partial.0 != hop.index {
                    if i > 1 {
                        stream.wait_stream(&before.lanes[lane])?;
                    }
                    let kind = CopyKind::FromPeer(partial.0);
                    self.queue_copy(SUM, stream, (own, left), length, kind, None)?;
                    left = own;
                }
                self.add_run(add, [left, ends[i] + low, own], length, sum, hop, stream)?;
                partial = (hop.index, own);
            }
            let target = &hops[result];
            if partial.1 != ends[result] + low {
                let stream = &target.lanes[lane];
                stream.wait_stream(&hops[last].lanes[lane])?;
                let kind = match partial.0 == target.index {
                    true => CopyKind::DeviceToDevice,
                    false => CopyKind::FromPeer(partial.0),
                };
                self.queue_copy(
                    SUM,
                    stream,
                    (ends[result] + low, partial.1),
                    length,
                    kind,
                    Some(sum.storage()),
                )?;
            }
        }
        Ok(())
    }

    /// `out = left + right` over a run of elements at three addresses.
    fn add_run(
        &mut self,
        add: &'static MapFn,
        at: [Ptr; 3],
        bytes: u64,
        sum: &Tensor,
        hop: &Hop,
        stream: &Arc<Stream>,
    ) -> Result<()> {
        let dtype = sum.dtype();
        let count = bytes as usize / dtype.size();
        let load = |view| Source::Load { view, dtype };
        let instr = Instr { f: add, args: smallvec![0, 1], class: dtype.class(), dtype };
        let map = Map {
            sources: vec![load(0), load(1)],
            instrs: vec![instr],
            stores: vec![Store { reg: 2, view: 2 }],
        };
        let view = |ptr| View { ptr, dtype, strides: contiguous_strides(&[count]) };
        let launch = Launch {
            program: self.programs.get(Body::Map(map)),
            shape: smallvec![count],
            views: at.into_iter().map(view).collect(),
            numbers: SmallVec::new(),
            reduced: 0,
            axis: 0,
            limit: 0,
            tag: 0,
        };
        let ticket = hop.device.note_launch(stream, SUM, self.span);
        if sum.device() == hop.device.id() {
            sum.storage().set_ticket(ticket);
        }
        self.launch(&hop.device, stream, &launch, Noted { name: SUM, ticket, traced: None })
    }

    /// Orders everything on the current streams of the tensors' devices before the lanes, and tells the
    /// race checker what the hub's stream is about to do. One hop per tensor.
    fn open_lanes(
        &mut self,
        name: &'static str,
        hub: DeviceId,
        tensors: &[&Tensor],
        reads: &[&Tensor],
        writes: &[Tensor],
    ) -> Result<Vec<Hop>> {
        let (at, center) = {
            let place = self.place(hub)?;
            (place.queue, place.stream.clone())
        };
        if reads.iter().any(|tensor| tensor.storage().is_lost()) {
            return Err(super::error::lost("this tensor's value"));
        }
        for tensor in tensors {
            let own = self.place(tensor.device())?.queue;
            let stream = self.queues[own].stream.clone();
            self.refuse_transfer(&center, &stream)?;
            self.settle(tensor, own)?;
            self.settle_write(own, tensor)?;
        }
        let mut hops: Vec<Hop> = Vec::with_capacity(tensors.len());
        for tensor in tensors {
            let stream = self.current_stream(tensor.device())?;
            if stream != center {
                self.wait_stream(&center, &stream)?;
            }
            let device = tensor.storage().owner().clone();
            let lanes = [device.lane(0)?, device.lane(1)?];
            let index = device.id().cuda_index().unwrap_or(0) as u32;
            hops.push(Hop { device, index, lanes });
        }
        self.flush_queue(at)?;
        let touched: Vec<(&Tensor, Access)> = (reads.iter().map(|t| (*t, Access::Read)))
            .chain(writes.iter().map(|t| (t, Access::Write)))
            .collect();
        self.note(name, at, touched)?;
        for lane in lanes(&hops) {
            lane.wait_stream(&center)?;
        }
        Ok(hops)
    }

    /// Orders the lanes before what the current streams of all devices involved do next. After a failure
    /// it waits for the lanes, which may still use memory that is given back now.
    fn close_lanes(&mut self, hub: DeviceId, hops: &[Hop], queued: Result<()>) -> Result<()> {
        if queued.is_err() {
            for lane in lanes(hops) {
                let _ = lane.synchronize();
            }
            return queued;
        }
        let center = self.current_stream(hub)?;
        for lane in lanes(hops) {
            center.wait_stream(lane)?;
        }
        for hop in hops {
            let stream = self.current_stream(hop.device.id())?;
            if stream != center {
                self.wait_stream(&stream, &center)?;
            }
        }
        match self.settings.launch_blocking {
            true => self.synchronize_stream(&center),
            false => Ok(()),
        }
    }

    /// The addresses of tensors; notes that the current stream of each one's device uses them. (It waits
    /// for all that do.)
    fn addresses(&mut self, tensors: &[&Tensor]) -> Result<Vec<Ptr>> {
        let mut addresses = Vec::with_capacity(tensors.len());
        for tensor in tensors {
            let stream = self.current_stream(tensor.device())?;
            addresses.push(address(tensor.storage(), tensor.layout(), tensor.dtype().size(), &stream)?);
        }
        Ok(addresses)
    }
}

/// The lanes of all devices involved, each once.
fn lanes(hops: &[Hop]) -> impl Iterator<Item = &Arc<Stream>> {
    let is_first = |(i, hop): &(usize, &Hop)| !hops[..*i].iter().any(|h| h.index == hop.index);
    hops.iter().enumerate().filter(is_first).flat_map(|(_, hop)| hop.lanes.iter())
}
