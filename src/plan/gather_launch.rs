//! Launches of results at indices, and the tags by which their faults are found.

use super::{Elements, Gathered, GatheredLoad, Origin, is_prepared};
use crate::array::{Dims, Dtype, Layout, copied};
use crate::base::Result;
use crate::device::Device;
use crate::driver::error::is_shortage;
use crate::kernel::{self, Indexed, Launch, View};
use crate::plan::Runtime;
use crate::plan::flush::{Noted, address, address_to_read};
use crate::plan::positions::{Computed, Operand, Positions};
use crate::plan::queue::FusedGroup;
use crate::plan::trace::Traced;
use crate::stream::{Indices, Stream, Suspect};
use crate::tensor::{Storage, StorageRef, Tensor};
use smallvec::{SmallVec, smallvec};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Runtime {
    /// Launches the work that stores a result.
    pub(in crate::plan) fn launch_gather(&mut self, gathered: &Gathered) -> Result<()> {
        let Gathered { ref out, ref origin, name, span, .. } = *gathered;
        let of = match origin {
            Origin::Elements(of) => &**of,
            Origin::Program(program) => return self.launch_kept(gathered.at, program, out),
        };
        let source = &of.source;
        let device = self.device(out.device())?;
        let stream = self.queues[gathered.at].stream.clone();
        let layout = of.index.layout();
        let mut shape = copied(&layout.shape);
        // Without readers, its indices are checked, each once.
        let checked = (!gathered.is_wanted()).then(|| {
            let extents = shape.iter_mut().zip(&layout.strides);
            extents.filter(|(_, stride)| **stride == 0).for_each(|(extent, _)| *extent = 1.min(*extent));
            unbound(&device, &shape, source.dtype)
        });
        let out = checked.as_ref().unwrap_or(out);
        self.bind(out, &device, &stream, span)?;
        let whole = out.first_layout();
        let to = address(out, whole, source.dtype.size(), &stream)?;
        let to = View::new(to, source.dtype, copied(&whole.strides));
        let tag = self.tag(gathered.suspect(of, Indices::of(&shape, &layout.strides)), &device, &stream);
        let launch = match &of.index {
            Positions::Stored(index) => self.gathering(of, index, (shape, tag), to, &stream)?,
            Positions::Computed(computed) => {
                let from = address_to_read(&source.storage, &source.layout, source.dtype.size(), &stream)?;
                let indexed = Some(Box::new(Indexed { step: of.step, limit: of.limit, tag }));
                let from = View { indexed, ..View::new(from, source.dtype, copied(&source.layout.strides)) };
                let views = [from, to.clone()];
                let launch = computed.gathered(&mut self.programs, copied(&shape), views, &stream)?;
                match self.capture_of(&stream).is_some() || is_prepared(&device, &launch) {
                    true => launch,
                    false => match self.stored_index(gathered, computed, (&device, &stream)) {
                        Ok(index) => self.gathering(of, &index, (shape, tag), to, &stream)?,
                        // Without memory for the index, the compiler is waited for.
                        Err(e) if is_shortage(&e) => {
                            device.driver().make_ready(Some(&launch), stream.handle())?;
                            launch
                        }
                        Err(e) => return Err(e),
                    },
                }
            }
        };
        let ticket = self.note_launch(&device, &stream, name, span);
        out.set_ticket(ticket);
        gathered.is_checked.store(true, Ordering::Relaxed);
        let traced = self.is_traced().then(|| Traced::of(std::iter::once(span), &launch.shape));
        self.launch(&device, &stream, &launch, Noted { name, ticket, traced })
    }

    /// The launch that gathers at an index in memory.
    fn gathering(
        &mut self,
        of: &Elements,
        index: &Operand,
        (shape, tag): (Dims, u32),
        to: View,
        stream: &Arc<Stream>,
    ) -> Result<Launch> {
        let place = |of: &Operand| address_to_read(&of.storage, &of.layout, of.dtype.size(), stream);
        let mut strides = copied(&of.source.layout.strides);
        strides[of.axis] = of.step;
        let views: SmallVec<[View; 4]> = smallvec![
            View::new(place(&of.source)?, of.source.dtype, strides),
            View::new(place(index)?, index.dtype, copied(&index.layout.strides)),
            to,
        ];
        let program = self.programs.get(&kernel::Gather { dtype: of.source.dtype });
        Ok(Launch { axis: of.axis, limit: of.limit, tag, ..Launch::new(program, shape, views) })
    }

    /// A computed index, stored.
    fn stored_index(
        &mut self,
        gathered: &Gathered,
        computed: &Computed,
        (device, stream): (&Arc<Device>, &Arc<Stream>),
    ) -> Result<Operand> {
        let Gathered { name, span, .. } = *gathered;
        let storage = unbound(device, &computed.layout.shape, Dtype::I64);
        self.bind(&storage, device, stream, span)?;
        let layout = storage.first_layout().clone();
        let to = address(&storage, &layout, Dtype::I64.size(), stream)?;
        let launch = computed.stored(&mut self.programs, to, stream)?;
        let ticket = self.note_launch(device, stream, name, span);
        storage.set_ticket(ticket);
        let traced = self.is_traced().then(|| Traced::of(std::iter::once(span), &launch.shape));
        self.launch(device, stream, &launch, Noted { name, ticket, traced })?;
        Ok(Operand { storage, layout, dtype: Dtype::I64 })
    }

    /// A tag for work on a stream.
    pub(in crate::plan) fn tag(&self, suspect: Suspect, device: &Arc<Device>, stream: &Stream) -> u32 {
        match self.capture_of(stream) {
            Some(_) => device.kept_tag_for(suspect),
            None => device.tag_for(suspect),
        }
    }

    /// Gives the gathered views of a launch their tags, in the order of the operations. `loads` are the gathered loads: the
    /// group and the number of each, and the numbers of the views of its index and of its source.
    pub(in crate::plan) fn tag_gathers<'g>(
        &mut self,
        launch: &mut Launch,
        loads: impl IntoIterator<Item = (&'g FusedGroup, usize, [usize; 2])>,
        (device, stream): (&Arc<Device>, &Arc<Stream>),
    ) {
        let mut loads: SmallVec<[_; 4]> = loads.into_iter().collect();
        let order = |group: &FusedGroup, load: usize| Some(group.loads[load].gathered.as_ref()?.number);
        loads.sort_by_key(|&(group, load, _)| order(group, load));
        for (group, number, [view, source]) in loads {
            let load = &group.loads[number];
            let Some(GatheredLoad { result: gathered, of }) = load.gathered() else { continue };
            let (index, own) = (&launch.views[view], of.index.layout());
            let first = match &of.index {
                Positions::Stored(stored) => {
                    let start = stored.storage.memory().map_or(0, |memory| memory.ptr());
                    (index.ptr.wrapping_sub(start) / stored.dtype.size() as u64) as i64
                }
                Positions::Computed(_) => {
                    let place = load.place(&group.shape).and_then(|place| place.of_operand(own));
                    place.map_or(0, |(_, offset)| offset as i64)
                }
            };
            let own_dims = own.shape.iter().copied().zip(own.strides.iter().copied());
            let first = first - own.offset as i64;
            let indices = Indices::through(&launch.shape, &index.strides, first, own_dims);
            let tag = self.tag(gathered.suspect(of, indices), device, stream);
            if let Some(indexed) = &mut launch.views[source].indexed {
                indexed.tag = tag;
            }
            gathered.readers.fetch_add(1, Ordering::Relaxed);
            if load.checks(gathered, &group.shape) {
                gathered.is_checked.store(true, Ordering::Relaxed);
            }
        }
    }
}

/// A new storage without memory.
fn unbound(device: &Arc<Device>, shape: &[usize], dtype: Dtype) -> StorageRef {
    let layout = Layout::contiguous(shape);
    let storage = Storage::unbound(device.clone(), layout.bytes(dtype));
    Tensor::new(storage, layout, dtype).storage_ref()
}
