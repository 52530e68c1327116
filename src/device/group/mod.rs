//! Groups of processes: who is in one, how they meet, and what they tell each other.
//!
//! A [`World`] is what a launcher says in the environment. The processes meet at the hub of rank 0
//! ([`hub`]), each with one connection ([`link`]), which stays for the life of the group: through it calls are
//! compared, failures are told, and bytes go where devices have no links of their own. Where they have,
//! a [`Communicator`] of the driver carries the bytes from device to device. Knows nothing of tensors.
//!
//! Invariant: a group that has failed stays so, and every wait of its processes ends then ([`Fate`]).

pub mod error;
mod fate;
mod hub;
mod link;
mod wire;
mod world;

pub use fate::Fate;
pub use wire::Wants;
pub use world::{Meeting, World};

use super::{Device, DeviceId, StreamHandle, Ticket};
use crate::array::Dtype;
use crate::base::{Error, Result, Span};
use crate::kernel::Ptr;
use hub::Hub;
use link::Link;
use rustc_hash::FxHashSet;
use std::sync::Arc;
use std::time::Duration;
use wire::Say;

/// The program's version: all processes of a group have the same.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The call with which a process leaves.
const LEAVING: &str = "`dist.destroy()`, or came to its end";

/// How elements of several processes become one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub enum Fold {
    Sum,
    Product,
    Min,
    Max,
    /// The sum, divided by the number of processes.
    Avg,
}

/// What an [`Exchange`] does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pattern {
    /// Every process gets all elements folded.
    AllReduce(Fold),
    /// One process does.
    Reduce(Fold, usize),
    /// Every process gets those of one.
    Broadcast(usize),
    /// Every process gets those of all, one after the other.
    AllGather,
    /// Every process gets its part of all elements folded.
    ReduceScatter(Fold),
    /// Every process gets its part of those of each, one after the other.
    AllToAll,
    /// They go to one process, which receives them.
    Send(usize),
    /// They come from one process, which sends them.
    Receive(usize),
}

/// Work of several processes on elements in device memory.
pub struct Exchange {
    /// What it does.
    pub pattern: Pattern,
    /// Where this process's elements are; 0 where it gives none.
    pub source: Ptr,
    /// Where the result goes; 0 where it gets none.
    pub target: Ptr,
    /// How many elements one process gives; for a scatter, how many it gets.
    pub count: usize,
    /// Of the elements.
    pub dtype: Dtype,
    /// The function that the script called, for errors.
    pub name: &'static str,
    /// Where it called it.
    pub span: Span,
}

/// Links between the devices of several processes.
///
/// Work is queued on streams, in the same order in all processes. What takes longer than the group's
/// timeout, or fails later, fails the group ([`Fate::fail_and_tell`]).
pub trait Communicator: Send + Sync {
    /// True when it folds elements of a dtype by itself.
    fn folds(&self, fold: Fold, dtype: Dtype) -> bool;
    /// Queues work. It may wait for the other processes the first time that it needs links to them.
    fn queue(&self, work: &Exchange, stream: StreamHandle) -> Result<()>;
    /// Waits until everything that was queued is over, or the group has failed.
    fn finish(&self);
    /// Ends at once what is queued, whose results are then anything, and gives everything back.
    fn abort(&self);
    /// Gives everything back, when all processes do.
    fn close(&self);
}

/// How a device joins the others.
pub struct Seat<'a> {
    /// What the device of rank 0 has made for all.
    pub id: &'a [u8],
    /// Which process this is.
    pub rank: usize,
    /// Of how many.
    pub size: usize,
    /// How long anything may take.
    pub timeout: Duration,
    /// What fails with it.
    pub fate: Arc<Fate>,
}

/// This process's place in a group.
pub struct Group {
    world: World,
    timeout: Duration,
    fate: Arc<Fate>,
    device: Option<Arc<Device>>,
    communicator: Option<Arc<dyn Communicator>>,
    link: Option<Link>,
    /// In the process of rank 0. After the link, which ends first.
    hub: Option<Hub>,
    /// Calls of the communicator that were compared with the others'.
    compared: FxHashSet<String>,
    /// The newest work of the communicator on each stream.
    queued: Vec<Ticket>,
    open: bool,
    /// The script was told that the group has failed.
    noticed: bool,
}

impl Group {
    /// Meets the other processes. `device` is this process's own, opened; nothing when it uses none.
    ///
    /// # Errors
    /// E0533 and E0534 when they do not meet, E0530 and E0531 when they do not fit, E0535 when one of them
    /// fails meanwhile, E0813 without the library that its devices need.
    pub fn meet(world: World, timeout: Duration, device: Option<Arc<Device>>) -> Result<Group> {
        let fate = Arc::new(Fate::default());
        let mut group = Group {
            world,
            timeout,
            fate,
            device,
            communicator: None,
            link: None,
            hub: None,
            compared: FxHashSet::default(),
            queued: Vec::new(),
            open: true,
            noticed: false,
        };
        let Some(meeting) = group.world.meeting.clone() else { return Ok(group) };
        let linked = group.device.as_ref().is_some_and(|device| device.driver().has_links());
        let mut own = None;
        if group.world.rank == 0 {
            let listener = link::listen(&meeting)?;
            let failed = |reason| error::not_met(format!("rank 0 cannot meet the others: {reason}"));
            own = Some(link::reached(&listener).map_err(failed)?);
            group.hub = Some(Hub::start(listener, &group.world, &meeting.id, timeout).map_err(failed)?);
        }
        let uuid = group.device.as_ref().filter(|_| linked).map(|device| device.properties().uuid.clone());
        let link = Link::meet(&group.world, &meeting, own, uuid, timeout, group.fate.clone());
        group.link = Some(link.inspect_err(|_| group.open = false)?);
        if linked && let Err(error) = group.join() {
            group.fail(error.message());
            return Err(error);
        }
        Ok(group)
    }

    /// Makes links between the devices.
    fn join(&mut self) -> Result<()> {
        let Some(device) = self.device.clone() else { return Ok(()) };
        let own = if self.world.rank == 0 { device.driver().links_id()? } else { Vec::new() };
        let id = self.round("the start of `dist.init()`", Wants::From(0), &own)?;
        let seat = Seat {
            id: &id,
            rank: self.world.rank,
            size: self.world.size,
            timeout: self.timeout,
            fate: self.fate.clone(),
        };
        let communicator = device.driver().join(seat)?;
        self.fate.bind(Some(communicator.clone()));
        self.communicator = Some(communicator);
        self.round("the end of `dist.init()`", Wants::Nothing, &[]).map(drop)
    }

    /// Which process this is.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// True when there is no other process.
    pub fn is_alone(&self) -> bool {
        self.link.is_none()
    }

    /// The device of this process.
    pub fn device(&self) -> Option<DeviceId> {
        self.device.as_ref().map(|device| device.id())
    }

    /// What carries bytes between the devices; `None` where they go through the hosts.
    pub fn communicator(&self) -> Option<&Arc<dyn Communicator>> {
        self.communicator.as_ref()
    }

    /// The failure, if there was one.
    pub fn check(&mut self) -> Result<()> {
        self.fate.check().inspect_err(|_| self.noticed = true)
    }

    /// The same, once.
    pub fn tell_failure(&mut self) -> Result<()> {
        if self.noticed { Ok(()) } else { self.check() }
    }

    /// Notes work of the communicator that was queued.
    pub fn note_queued(&mut self, ticket: Ticket) {
        self.queued.retain(|older| older.stream() != ticket.stream());
        self.queued.push(ticket);
    }

    /// After a wait for the device, and before it is noted: the failure that work of the group was lost by, once.
    pub fn lost_work(&mut self) -> Option<Error> {
        let device = self.device.as_ref()?;
        let is_lost = self.fate.is_failed() && self.queued.iter().any(|&ticket| device.is_in_flight(ticket));
        if is_lost && self.fate.is_news() { self.check().err() } else { None }
    }

    /// True until all processes have made a call together.
    pub fn is_new(&self, call: &str) -> bool {
        !self.compared.contains(call)
    }

    /// Notes a call that all processes have made together.
    pub fn note_compared(&mut self, call: &str) {
        self.compared.insert(call.to_string());
    }

    /// Takes part in a round: gives bytes, and gets those that it wants, once all processes called the same.
    ///
    /// # Errors
    /// E0537 when they called something else, E0535, E0536.
    pub fn round(&mut self, call: &str, wants: Wants, bytes: &[u8]) -> Result<Vec<u8>> {
        self.ask(&Say::Round { call: call.into(), wants }, bytes, call)
    }

    /// Sends bytes to another process, and waits until it has received them. `what` describes them.
    pub fn send(&mut self, to: usize, what: &str, bytes: &[u8]) -> Result<()> {
        self.ask(&Say::Send { to, what: what.into() }, bytes, "`dist.send`").map(drop)
    }

    /// Receives the bytes that another process sends.
    pub fn receive(&mut self, from: usize, what: &str) -> Result<Vec<u8>> {
        self.ask(&Say::Receive { from, what: what.into() }, &[], "`dist.recv`")
    }

    fn ask(&mut self, say: &Say, bytes: &[u8], name: &str) -> Result<Vec<u8>> {
        match &self.link {
            Some(link) => {
                let answer = link.ask(say, bytes, self.timeout, name);
                answer.inspect_err(|_| self.noticed |= self.fate.is_failed())
            }
            None => Ok(bytes.to_vec()),
        }
    }

    /// Leaves the group together with the others: waits for what is queued, and for them.
    ///
    /// # Errors
    /// E0535, E0536, E0537 when they fail, or are somewhere else; not again, when the script was told.
    pub fn leave(&mut self) -> Result<()> {
        if !std::mem::take(&mut self.open) || self.noticed && self.fate.is_failed() {
            return Ok(());
        }
        if let Some(communicator) = &self.communicator {
            communicator.finish();
        }
        let left = self.round(LEAVING, Wants::Nothing, &[]).map(drop);
        match (&left, self.communicator.take()) {
            (Ok(()), Some(communicator)) => communicator.close(),
            (Err(error), _) => self.fate.fail_and_tell(error.clone()),
            _ => {}
        }
        self.fate.bind(None);
        self.link = None;
        self.hub = None;
        left
    }

    /// Ends the group: the others are told why.
    pub fn fail(&mut self, reason: &str) {
        if std::mem::take(&mut self.open) && !self.fate.is_failed() {
            self.fate.tell(reason);
            self.fate.fail(error::peer_failed(self.world.rank, reason));
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Whoever wanted to know has called it before.
        self.leave().ok();
        if let Some(communicator) = self.communicator.take() {
            self.fate.bind(None);
            communicator.abort();
        }
    }
}
