//! Large transfers between several devices, in pieces that travel from device to device.
//!
//! A device that sends to all others sends the same bytes again and again through one port. Here each
//! device sends every piece once, to the next one, while it receives the piece behind it; so a
//! broadcast or a sum over any number of devices takes little longer than one copy. The pieces go over
//! streams that scripts never see ([`Device::lane`](crate::device::Device::lane)): while one waits for its
//! predecessor, another copies. Whole operations are ordered at both ends: all lanes start after the
//! current streams of all devices involved, and those go on after all lanes.
//!
//! A device's copies share one queue of its copy engine, whatever stream they are on, and one that waits
//! holds up those behind it. So the pieces are queued step by step, as a systolic array moves them: in step
//! `t` the n-th hop takes piece `t - n`, whose predecessor was queued a step before. (Queued piece by piece,
//! four H200s took 7.4 ms for a broadcast of 1 GiB that takes 2.8 ms so.)
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

/// Streams that a device takes part in a broadcast with: one for each way round.
const WAYS: usize = 2;

/// Streams that a device takes part in a sum with; as many partial sums stand on it. A piece is copied,
/// added and taken on, and each of these waits for a device: with four at once the copies do not stop.
const SLOTS: usize = 4;

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
    lanes: SmallVec<[Arc<Stream>; SLOTS]>,
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
        let hops = self.open_lanes(name, WAYS, source.device(), &tensors, &[source], targets)?;
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
        let last_hop = hops.len() as u64 - 2;
        for step in 0..rounds + last_hop {
            for (lane, (part, order)) in parts.iter().enumerate() {
                // The last hop first: what it waits for is not yet followed by this step's piece.
                for (hop, pair) in order.windows(2).enumerate().rev() {
                    let Some(round) = step.checked_sub(hop as u64) else { continue };
                    let low = part.start + round * piece;
                    let high = (low + piece).min(part.end);
                    if low >= high {
                        continue;
                    }
                    let (from, to) = (&hops[pair[0]], &hops[pair[1]]);
                    if hop > 0 {
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
        let hops = self.open_lanes(SUM, SLOTS, destination, &tensors, &reads, std::slice::from_ref(&sum))?;
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
        let bytes = sum.layout().bytes(sum.dtype());
        let piece = self.piece(bytes);
        let last = inputs.len() - 1;
        for (i, hop) in hops[..inputs.len()].iter().enumerate() {
            let in_place = i == last && hop.index == hops[inputs.len()].index;
            kept.push(if i == 0 || in_place {
                None
            } else {
                let stream = self.place(hop.device.id())?.stream.clone();
                Some(hop.device.alloc(piece * SLOTS as u64, &stream, self.span)?)
            });
        }
        let rounds = bytes.div_ceil(piece);
        for step in 0..rounds + last as u64 {
            // The last hop first, as in a broadcast; the first input only gives.
            for i in (1..hops.len()).rev() {
                let Some(round) = step.checked_sub(i as u64 - 1).filter(|round| *round < rounds) else {
                    continue;
                };
                let (low, lane) = (round * piece, (round % SLOTS as u64) as usize);
                // Where a hop's partial sum of this round stands: the last hop's is the sum itself.
                let partial = |i: usize| -> Place {
                    let ptr = match kept.get(i) {
                        Some(Some(block)) => block.ptr() + lane as u64 * piece,
                        Some(None) if i == 0 => ends[0] + low,
                        _ => ends[inputs.len()] + low,
                    };
                    (hops[i].index, ptr)
                };
                let (hop, mut left, own) = (&hops[i], partial(i - 1), partial(i));
                let stream = &hop.lanes[lane];
                let length = piece.min(bytes - low);
                // The hop behind has taken the partial sum that stood here some rounds ago.
                if i < inputs.len() && round >= SLOTS as u64 {
                    stream.wait_stream(&hops[i + 1].lanes[lane])?;
                }
                let ends_here = i == inputs.len();
                if left.0 != own.0 {
                    if i > 1 {
                        stream.wait_stream(&hops[i - 1].lanes[lane])?;
                    }
                    let target = ends_here.then(|| sum.storage());
                    let kind = CopyKind::FromPeer(left.0);
                    self.queue_copy(SUM, stream, (own.1, left.1), length, kind, target)?;
                    left = own;
                }
                if !ends_here {
                    self.add_run(add, [left.1, ends[i] + low, own.1], length, sum, hop, stream)?;
                }
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
        count: usize,
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
            let lanes = (0..count).map(|n| device.lane(n)).collect::<Result<_>>()?;
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
