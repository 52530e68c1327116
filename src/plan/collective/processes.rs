//! Collective operations of several processes: the local work and the exchange between processes.
//!
//! If the device has links to those of the other processes ([`Communicator`]), an operation is ordinary work
//! of the current stream: ordered, checked for races, waited for when its result is read. Without links
//! (emulated devices, host tensors) the elements go through the hosts, and the call returns when it is done.
//! The elements are then combined in rank order (`Runtime::fold`).
//!
//! Invariant: all processes make the same requests to the group in the same order, even a process whose own
//! part of an operation is empty. A process alone in its group makes none.

use super::{parts_of, whole_of};
use crate::array::{Dims, Dtype, Layout, Scalar, element_count};
use crate::base::Result;
use crate::device::Device;
use crate::driver::links::{Communicator, Exchange, Fold, Pattern};
use crate::driver::{DeviceId, Work};
use crate::group::{Group, Wants, World, error};
use crate::kernel::MapFn;
use crate::plan::flush::{address, address_to_read};
use crate::plan::submit::Call;
use crate::plan::trace::ActionKind;
use crate::plan::{MapArg, Runtime};
use crate::stream::races::Access;
use crate::tensor::Tensor;
use smallvec::SmallVec;
use std::sync::Arc;
use std::time::Duration;

/// A combination of elements of several processes, and the host code for devices that cannot.
pub struct Folding {
    /// Its name in scripts: `sum`.
    pub name: &'static str,
    /// The kind of fold.
    pub fold: Fold,
    /// Combines two elements.
    pub f: &'static MapFn,
    /// Divides by the number of processes at the end.
    pub divide: Option<&'static MapFn>,
}

/// The route of elements to the other processes.
enum Route {
    /// There are no other processes.
    Alone,
    /// Directly between devices.
    Links(Arc<dyn Communicator>),
    /// Through the hosts.
    Hosts,
}

impl Runtime {
    /// Meets the other processes of a world, and makes the device of this process's local rank the current
    /// one.
    ///
    /// # Errors
    /// E0531 without that device, E0532 when there already is a group, and the errors of [`Group::meet`].
    pub fn join_group(&mut self, world: World, timeout: Duration) -> Result<()> {
        if self.group.is_some() {
            return Err(error::already_initialized());
        }
        let count = self.machine().device_count();
        let index = match world.local_rank {
            _ if count == 0 || world == World::ALONE => None,
            index if index < count => Some(index),
            // The launcher gave each process a single visible device, which has index 0 everywhere.
            _ if count == 1 && self.machine().is_narrowed() => Some(0),
            index => {
                let emulated = self.machine().backend() != "cuda";
                return Err(error::too_few_devices(index, count, emulated));
            }
        };
        let own = index.map(|index| DeviceId::Cuda(index as u32));
        let device = own.filter(|_| world.size > 1).map(|id| self.device(id)).transpose()?;
        self.group = Some(Box::new(Group::meet(world, timeout, device)?));
        own.map_or(Ok(()), |id| self.set_device(id))
    }

    /// This process's rank among the others; `None` without a group.
    pub fn world(&self) -> Option<&World> {
        self.group.as_ref().map(|group| group.world())
    }

    /// Leaves the group together with the others. Does nothing without a group.
    ///
    /// # Errors
    /// Those of [`Group::leave`]; the group is gone even then.
    pub fn leave_group(&mut self) -> Result<()> {
        let flushed = if self.group.is_some() { self.flush() } else { Ok(()) };
        self.group.take().map_or(Ok(()), |mut group| group.leave()).and(flushed)
    }

    /// Leaves the group because this process fails; tells the others the reason.
    pub fn fail_group(&mut self, reason: &str) {
        if let Some(mut group) = self.group.take() {
            group.fail(reason);
        }
    }

    /// Combines the elements of all processes; every process gets the result.
    ///
    /// # Errors
    /// E0537 when the others make a different call, E0535, E0536, E0538.
    pub fn all_reduce(&mut self, x: &Tensor, folding: &Folding) -> Result<Tensor> {
        self.named("all_reduce", |rt| {
            let (route, x, call) = rt.begin("all_reduce", x, Some(folding), "")?;
            let links = match route {
                Route::Alone => return rt.contiguous_copy(&x),
                Route::Links(links) if folds(&links, folding, &x) => links,
                route => {
                    let all = rt.gathered("all_reduce", route, &x, &call, Wants::All)?;
                    return rt.folded("all_reduce", &all, folding);
                }
            };
            rt.over_links("all_reduce", &links, &call, Pattern::AllReduce(folding.fold), (&x, x.shape()))
        })
    }

    /// [`Runtime::all_reduce`] in place.
    pub fn all_reduce_into(&mut self, x: &Tensor, folding: &Folding) -> Result<()> {
        self.named("all_reduce_", |rt| {
            if crate::plan::submit::overlaps_itself(x.layout()) {
                return Err(crate::plan::error::writes_overlap("all_reduce_"));
            }
            let direct = rt.group.as_ref().and_then(|group| group.communicator().cloned());
            match direct.filter(|links| x.layout().is_contiguous() && folds(links, folding, x)) {
                Some(links) if x.device() != DeviceId::Cpu => {
                    let (_, _, call) = rt.begin("all_reduce", x, Some(folding), "")?;
                    rt.compare(&call)?;
                    rt.exchange("all_reduce_", &links, Pattern::AllReduce(folding.fold), Some(x), Some(x))
                }
                _ => {
                    let out = rt.all_reduce(x, folding)?;
                    rt.assign("all_reduce_", x, &out)
                }
            }
        })
    }

    /// Combines the elements of all processes on process `dst`; `None` on the others.
    pub fn reduce_to(&mut self, x: &Tensor, dst: usize, folding: &Folding) -> Result<Option<Tensor>> {
        self.named("reduce", |rt| {
            let (route, x, call) = rt.begin("reduce", x, Some(folding), &format!(", dst={dst}"))?;
            let mine = rt.world().is_some_and(|world| world.rank == dst);
            let links = match route {
                Route::Alone => return rt.contiguous_copy(&x).map(Some),
                Route::Links(links) if folds(&links, folding, &x) => links,
                // Links always send everything to all processes.
                route => {
                    let wants = if mine { Wants::All } else { Wants::Nothing };
                    let all = rt.gathered("reduce", route, &x, &call, wants)?;
                    return if mine { rt.folded("reduce", &all, folding).map(Some) } else { Ok(None) };
                }
            };
            let out = if mine { Some(rt.empty(x.shape(), x.dtype(), x.device())?) } else { None };
            rt.compare(&call)?;
            let pattern = Pattern::Reduce(folding.fold, dst);
            rt.exchange("reduce", &links, pattern, Some(&x), out.as_ref())?;
            Ok(out)
        })
    }

    /// Every process gets the elements of process `src`. All pass a tensor of its shape and dtype.
    pub fn broadcast_from(&mut self, x: &Tensor, src: usize) -> Result<Tensor> {
        self.named("broadcast", |rt| {
            let (route, x, call) = rt.begin("broadcast", x, None, &format!(", src={src}"))?;
            match route {
                Route::Alone => rt.contiguous_copy(&x),
                Route::Links(links) => {
                    rt.over_links("broadcast", &links, &call, Pattern::Broadcast(src), (&x, x.shape()))
                }
                Route::Hosts => {
                    let mine = rt.world().is_some_and(|world| world.rank == src);
                    let bytes = if mine { rt.read(&x)? } else { Vec::new() };
                    let bytes = rt.group()?.round(&call, Wants::From(src), &bytes)?;
                    rt.received(&bytes, x.shape(), &x)
                }
            }
        })
    }

    /// Every process gets the tensors of all, in rank order. They share one buffer.
    pub fn all_gather(&mut self, x: &Tensor) -> Result<Vec<Tensor>> {
        self.named("all_gather", |rt| {
            let (route, x, call) = rt.begin("all_gather", x, None, "")?;
            match route {
                Route::Alone => Ok(vec![rt.contiguous_copy(&x)?]),
                route => rt.gathered("all_gather", route, &x, &call, Wants::All),
            }
        })
    }

    /// This process's part of the combined elements of all processes. The first dimension is split into one
    /// equal part per process.
    pub fn reduce_scatter(&mut self, x: &Tensor, folding: &Folding) -> Result<Tensor> {
        self.named("reduce_scatter", |rt| {
            let (route, x, call) = rt.begin("reduce_scatter", x, Some(folding), "")?;
            let (rank, size) = rt.world().map_or((0, 1), |world| (world.rank, world.size));
            let shape = equal_part("reduce_scatter", &x, size)?;
            let links = match route {
                Route::Alone => return rt.contiguous_copy(&x),
                Route::Links(links) if folds(&links, folding, &x) => links,
                Route::Links(links) => {
                    let route = Route::Links(links);
                    let all = rt.gathered("reduce_scatter", route, &x, &call, Wants::All)?;
                    let parts: Vec<Tensor> = all.iter().map(|whole| part(whole, rank, &shape)).collect();
                    return rt.folded("reduce_scatter", &parts, folding);
                }
                Route::Hosts => {
                    let bytes = rt.read(&x)?;
                    let parts = rt.group()?.round(&call, Wants::Part, &bytes)?;
                    let parts = rt.parts(&parts, size, &shape, &x)?;
                    return rt.folded("reduce_scatter", &parts, folding);
                }
            };
            rt.over_links("reduce_scatter", &links, &call, Pattern::ReduceScatter(folding.fold), (&x, &shape))
        })
    }

    /// This process's parts of the tensors of all, in rank order. The first dimension is split into one equal
    /// part per process.
    pub fn all_to_all(&mut self, x: &Tensor) -> Result<Tensor> {
        const NAME: &str = "all_to_all_single";
        self.named(NAME, |rt| {
            let (route, x, call) = rt.begin(NAME, x, None, "")?;
            equal_part(NAME, &x, rt.world().map_or(1, |world| world.size))?;
            match route {
                Route::Alone => rt.contiguous_copy(&x),
                Route::Links(links) => rt.over_links(NAME, &links, &call, Pattern::AllToAll, (&x, x.shape())),
                Route::Hosts => {
                    let bytes = rt.read(&x)?;
                    let parts = rt.group()?.round(&call, Wants::Part, &bytes)?;
                    rt.received(&parts, x.shape(), &x)
                }
            }
        })
    }

    /// Sends a tensor to another process, which must receive it.
    pub fn send_to(&mut self, x: &Tensor, to: usize) -> Result<()> {
        self.named("send", |rt| {
            let (route, x, _) = rt.begin("send", x, None, "")?;
            match route {
                Route::Alone => Ok(()),
                Route::Links(links) => rt.exchange("send", &links, Pattern::Send(to), Some(&x), None),
                Route::Hosts => {
                    let bytes = rt.read(&x)?;
                    rt.group()?.send(to, &described(&x), &bytes)
                }
            }
        })
    }

    /// Receives a tensor of this shape, dtype and device from another process.
    pub fn receive_from(
        &mut self,
        shape: &[usize],
        dtype: Dtype,
        device: DeviceId,
        from: usize,
    ) -> Result<Tensor> {
        self.named("recv", |rt| {
            rt.group()?.check()?;
            let out = rt.empty(shape, dtype, device)?;
            match rt.route(&out)? {
                Route::Alone => Ok(out),
                Route::Links(links) => {
                    rt.exchange("recv", &links, Pattern::Receive(from), None, Some(&out))?;
                    Ok(out)
                }
                Route::Hosts => {
                    let bytes = rt.group()?.receive(from, &described(&out))?;
                    rt.received(&bytes, shape, &out)
                }
            }
        })
    }

    /// Waits until every process has reached the barrier, and until this process's current stream is idle.
    pub fn barrier(&mut self) -> Result<()> {
        let device = self.group()?.device();
        self.group()?.check()?;
        if let Some(device) = device {
            let stream = self.current_stream(device)?;
            self.synchronize_stream(&stream)?;
        }
        self.group()?.round("`dist.barrier()`", Wants::Nothing, &[]).map(drop)
    }

    /// Called after a wait for a device. Raises a failure of the group if it was not reported to the script
    /// yet, or if operations on that device lost their results through it.
    pub(in crate::plan) fn raise_group_failure(&mut self, device: &Device) -> Result<()> {
        let Some(group) = self.group.as_mut() else { return Ok(()) };
        if group.device() == Some(device.id())
            && let Some(error) = group.lost_work()
        {
            device.lose_in_flight();
            return Err(error);
        }
        group.tell_failure()
    }

    fn group(&mut self) -> Result<&mut Group> {
        self.group.as_deref_mut().ok_or_else(error::not_initialized)
    }

    /// The common start of every operation: chooses the route, makes the tensor row-major, and describes the
    /// call for comparison.
    fn begin(
        &mut self,
        name: &str,
        x: &Tensor,
        folding: Option<&Folding>,
        more: &str,
    ) -> Result<(Route, Tensor, String)> {
        let route = self.route(x)?;
        let stream = self.current_stream(x.device())?;
        self.refuse_captured(&stream, "an operation of several processes")?;
        let mut call = format!("`dist.{name}({}", described(x));
        if let Some(folding) = folding {
            check_folding(folding, x.dtype())?;
            call.push_str(&format!(", op=\"{}\"", folding.name));
        }
        call.push_str(&format!("{more})`"));
        Ok((route, self.contiguous(x)?, call))
    }

    fn route(&mut self, x: &Tensor) -> Result<Route> {
        let group = self.group()?;
        group.check()?;
        if group.is_alone() {
            return Ok(Route::Alone);
        }
        match (x.device(), group.device()) {
            (DeviceId::Cpu, _) => Ok(Route::Hosts),
            (given, Some(own)) if given != own => Err(error::argument(format!(
                "the device of this process in the group is `{own}`, and the tensor is on `{given}`"
            ))
            .help(format!("move it: `x.to({own})`"))),
            _ => Ok(group.communicator().cloned().map_or(Route::Hosts, Route::Links)),
        }
    }

    /// Links do not compare calls. So all processes compare a call the first time it uses links, or every
    /// time if each launch is waited for.
    fn compare(&mut self, call: &str) -> Result<()> {
        let always = self.settings.launch_blocking;
        let group = self.group()?;
        if group.is_new(call) || always {
            group.round(call, Wants::Nothing, &[])?;
            group.note_compared(call);
        }
        Ok(())
    }

    /// The elements of all processes, one tensor each; empty on a process that needs none from the hosts.
    fn gathered(
        &mut self,
        name: &'static str,
        route: Route,
        x: &Tensor,
        call: &str,
        wants: Wants,
    ) -> Result<Vec<Tensor>> {
        let size = self.world().map_or(1, |world| world.size);
        let whole = match route {
            Route::Links(links) => {
                self.over_links(name, &links, call, Pattern::AllGather, (x, &whole_shape(size, x.shape())?))?
            }
            Route::Alone | Route::Hosts => {
                let bytes = self.read(x)?;
                let bytes = self.group()?.round(call, wants, &bytes)?;
                if wants == Wants::Nothing {
                    return Ok(Vec::new());
                }
                return self.parts(&bytes, size, x.shape(), x);
            }
        };
        Ok((0..size).map(|rank| part(&whole, rank, x.shape())).collect())
    }

    /// The tensors in concatenated bytes, like `x` except for their shape.
    fn parts(&mut self, bytes: &[u8], size: usize, shape: &[usize], x: &Tensor) -> Result<Vec<Tensor>> {
        let whole = self.received(bytes, &whole_shape(size, shape)?, x)?;
        Ok((0..size).map(|rank| part(&whole, rank, shape)).collect())
    }

    /// A tensor from the bytes of another process, like `x` except for its shape.
    fn received(&mut self, bytes: &[u8], shape: &[usize], x: &Tensor) -> Result<Tensor> {
        let wanted = Layout::contiguous(shape).bytes(x.dtype());
        if bytes.len() as u64 != wanted {
            return Err(error::links_failed("bytes are missing"));
        }
        self.from_host(bytes, shape, x.dtype(), x.device())
    }

    /// Combines the elements of all processes in rank order.
    fn folded(&mut self, name: &'static str, all: &[Tensor], folding: &Folding) -> Result<Tensor> {
        let sum = self.fold(name, all, folding.f)?;
        let Some(divide) = folding.divide else { return Ok(sum) };
        let (parts, count) = (parts_of(&sum), MapArg::Number(Scalar::Int(all.len() as i64)));
        let dtype = parts.dtype();
        let quotient = self.map(name, divide, &[MapArg::Tensor(&parts), count], dtype, dtype)?;
        Ok(whole_of(&quotient, &sum))
    }

    /// The result of an operation over the links: a new tensor of that shape.
    fn over_links(
        &mut self,
        name: &'static str,
        links: &Arc<dyn Communicator>,
        call: &str,
        pattern: Pattern,
        (x, shape): (&Tensor, &[usize]),
    ) -> Result<Tensor> {
        let out = self.empty(shape, x.dtype(), x.device())?;
        self.compare(call)?;
        self.exchange(name, links, pattern, Some(x), Some(&out))?;
        Ok(out)
    }

    /// Queues work of the links on the current stream. Tensors are contiguous and on the group's device.
    fn exchange(
        &mut self,
        name: &'static str,
        links: &Arc<dyn Communicator>,
        pattern: Pattern,
        source: Option<&Tensor>,
        target: Option<&Tensor>,
    ) -> Result<()> {
        let Some(some) = source.or(target) else { return Ok(()) };
        let device = self.device(some.device())?;
        let at = self.place(some.device())?.queue;
        let stream = self.queues[at].stream.clone();
        self.refuse_captured(&stream, "an operation of several processes")?;
        let read = source.filter(|source| target.is_none_or(|target| !target.same(source)));
        let touched: SmallVec<[(&Tensor, Access); 2]> =
            (read.map(|x| (x, Access::Read)).into_iter()).chain(target.map(|x| (x, Access::Write))).collect();
        self.note(name, at, touched)?;
        if let Some(source) = source {
            self.settle(source, at)?;
        }
        if let Some(target) = target {
            self.settle_write(at, target)?;
            self.settle(target, at)?;
        }
        self.flush_queue(at)?;
        let size = some.dtype().size();
        let place = |x: &Tensor| address(x.storage(), x.layout(), size, &stream);
        let from = |x: &Tensor| address_to_read(x.storage(), x.layout(), size, &stream);
        let (from, to) = (source.map(from).transpose()?, target.map(place).transpose()?);
        let counted = match pattern {
            Pattern::ReduceScatter(_) => target,
            _ => source.or(target),
        };
        // Complex numbers are pairs of parts.
        let parts = parts_of(counted.unwrap_or(some));
        if parts.count() == 0 {
            return Ok(());
        }
        let work = Exchange {
            pattern,
            source: from.unwrap_or(0),
            target: to.unwrap_or(0),
            count: parts.count(),
            dtype: parts.dtype(),
            name,
            span: self.span,
        };
        let bytes = (parts.count() * parts.dtype().size()) as u64;
        let call = Call { name, shown: (ActionKind::Copy, name.into()), bytes, work: Work::Copy(bytes) };
        let written = target.map(|target| target.storage());
        let ticket =
            self.queue_call(&device, &stream, call, written, || links.queue(&work, stream.handle()))?;
        self.group()?.note_queued(ticket);
        if self.settings.launch_blocking {
            self.wait_queue(at)?;
        }
        Ok(())
    }
}

/// Rejects folds that are undefined for a dtype.
fn check_folding(folding: &Folding, dtype: Dtype) -> Result<()> {
    let wrong = |why: &str, help: &str| {
        Err(error::argument(format!("op=\"{}\" is not defined for {dtype}: {why}", folding.name)).help(help))
    };
    match folding.fold {
        Fold::Sum | Fold::Product | Fold::Avg if dtype == Dtype::Bool => {
            wrong("it has no arithmetic", "convert it, or take `\"max\"` for any and `\"min\"` for all")
        }
        Fold::Product | Fold::Min | Fold::Max if dtype.is_complex() => {
            wrong("complex numbers can only be added", "`\"sum\"` and `\"avg\"` are defined")
        }
        Fold::Avg if !dtype.is_float() && !dtype.is_complex() => {
            wrong("averages are not integers", "convert it to a float, or take `\"sum\"`")
        }
        _ => Ok(()),
    }
}

/// True when the links can combine the elements of this tensor.
fn folds(links: &Arc<dyn Communicator>, folding: &Folding, x: &Tensor) -> bool {
    links.folds(folding.fold, x.dtype().real())
}

/// `f32[3, 4] on cuda`: the properties that must agree in all processes.
fn described(x: &Tensor) -> String {
    let place = if x.device() == DeviceId::Cpu { "cpu" } else { "cuda" };
    format!("{}{:?} on {place}", x.dtype(), x.shape().as_slice())
}

/// The shape of one process's part of a tensor split along its first dimension.
fn equal_part(name: &str, x: &Tensor, size: usize) -> Result<Dims> {
    let mut shape = x.shape().clone();
    match shape.first_mut().filter(|extent| extent.is_multiple_of(size)) {
        Some(extent) => *extent /= size,
        None => {
            return Err(error::argument(format!(
                "`dist.{name}` cannot give {size} processes an equal part of {}",
                described(x)
            ))
            .help("the first dimension must be a multiple of `dist.world_size()`"));
        }
    }
    Ok(shape)
}

/// The shape of `size` concatenated tensors.
fn whole_shape(size: usize, shape: &[usize]) -> Result<Vec<usize>> {
    let whole: Vec<usize> = std::iter::once(size).chain(shape.iter().copied()).collect();
    match element_count(&whole) {
        Some(_) => Ok(whole),
        None => Err(crate::plan::error::too_many_elements(&whole)),
    }
}

/// Part number `at` of concatenated tensors of that shape.
fn part(whole: &Tensor, at: usize, shape: &[usize]) -> Tensor {
    let layout = Layout::contiguous(shape);
    let offset = whole.layout().offset + at * layout.count();
    whole.with_layout(Layout { offset, ..layout })
}
