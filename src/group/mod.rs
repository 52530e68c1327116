//! Groups of processes: membership, rendezvous and messages.
//!
//! A [`World`] describes this process's place as set by the launcher's environment variables. The processes
//! meet at the hub of rank 0 (`hub`). Each keeps one connection (`link`) for the life of the group. It
//! carries the comparison of calls, failures, and the bytes of devices without links of their own. Where
//! devices have links, a [`Communicator`] of the driver carries the bytes from device to device. This module
//! does not depend on tensors.
//!
//! Invariant: a failed group stays failed, and its failure ends every wait of its processes ([`GroupState`]).

pub mod error;
mod hub;
mod link;
mod wire;
mod world;

pub use wire::Wants;
pub use world::{Meeting, World};

use crate::base::{Error, Result};
use crate::device::Device;
use crate::driver::DeviceId;
use crate::driver::links::{Communicator, GroupState, JoinParams};
use crate::stream::Ticket;
use foldhash::HashSet;
use hub::Hub;
use link::Link;
use std::sync::Arc;
use std::time::Duration;
use wire::Say;

/// The program's version; all processes of a group must have the same.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The call that a leaving process makes.
const LEAVING: &str = "`dist.destroy()`, or ended";

/// This process's place in a group.
pub struct Group {
    world: World,
    timeout: Duration,
    group_state: Arc<GroupState>,
    device: Option<Arc<Device>>,
    communicator: Option<Arc<dyn Communicator>>,
    link: Option<Link>,
    /// In the process of rank 0. Declared after the link, which must be dropped first.
    hub: Option<Hub>,
    /// Calls of the communicator that were compared across processes.
    compared: HashSet<String>,
    /// The latest work of the communicator on each stream.
    queued: Vec<Ticket>,
    open: bool,
    /// The failure has been reported to the script.
    noticed: bool,
}

impl Group {
    /// Meets the other processes. `device` is this process's opened device; `None` when it uses none.
    ///
    /// # Errors
    /// E0533 and E0534 when the rendezvous fails, E0530 and E0531 when the processes do not match, E0535 when
    /// one of them fails meanwhile, E0813 without the library that its devices need.
    pub fn meet(world: World, timeout: Duration, device: Option<Arc<Device>>) -> Result<Group> {
        let group_state = Arc::new(GroupState::default());
        let mut group = Group {
            world,
            timeout,
            group_state,
            device,
            communicator: None,
            link: None,
            hub: None,
            compared: HashSet::default(),
            queued: Vec::new(),
            open: true,
            noticed: false,
        };
        let Some(meeting) = group.world.meeting.clone() else { return Ok(group) };
        let linked = group.device.as_ref().is_some_and(|device| device.driver().links().is_some());
        let mut own = None;
        if group.world.rank == 0 {
            let listener = link::listen(&meeting)?;
            let failed = |reason| error::not_met(format!("rank 0 cannot reach the others: {reason}"));
            own = Some(link::reached(&listener).map_err(failed)?);
            group.hub = Some(Hub::start(listener, &group.world, &meeting.id, timeout).map_err(failed)?);
        }
        let uuid = group.device.as_ref().filter(|_| linked).map(|device| device.properties().uuid.clone());
        let link = Link::meet(&group.world, &meeting, own, uuid, timeout, group.group_state.clone());
        group.link = Some(link.inspect_err(|_| group.open = false)?);
        if linked && let Err(error) = group.join() {
            group.fail(error.message());
            return Err(error);
        }
        Ok(group)
    }

    /// Sets up links between the devices.
    fn join(&mut self) -> Result<()> {
        let Some(device) = self.device.clone() else { return Ok(()) };
        let Some(links) = device.driver().links() else { return Ok(()) };
        let own = if self.world.rank == 0 { links.id()? } else { Vec::new() };
        let id = self.round("the start of `dist.init()`", Wants::From(0), &own)?;
        let params = JoinParams {
            id: &id,
            rank: self.world.rank,
            size: self.world.size,
            timeout: self.timeout,
            group_state: self.group_state.clone(),
        };
        let communicator = links.join(params)?;
        self.group_state.bind(Some(communicator.clone()));
        self.communicator = Some(communicator);
        self.round("the end of `dist.init()`", Wants::Nothing, &[]).map(drop)
    }

    /// This process's place in the group.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// True if this is the only process.
    pub fn is_alone(&self) -> bool {
        self.link.is_none()
    }

    /// The device of this process.
    pub fn device(&self) -> Option<DeviceId> {
        self.device.as_ref().map(|device| device.id())
    }

    /// The communicator between devices; `None` when bytes go through the hosts.
    pub fn communicator(&self) -> Option<&Arc<dyn Communicator>> {
        self.communicator.as_ref()
    }

    /// The failure, if any.
    pub fn check(&mut self) -> Result<()> {
        self.group_state.check().inspect_err(|_| self.noticed = true)
    }

    /// As [`Group::check`], but reports the failure only once.
    pub fn tell_failure(&mut self) -> Result<()> {
        if self.noticed { Ok(()) } else { self.check() }
    }

    /// Notes queued work of the communicator.
    pub fn note_queued(&mut self, ticket: Ticket) {
        self.queued.retain(|older| older.stream() != ticket.stream());
        self.queued.push(ticket);
    }

    /// Called after a wait for the device and before the wait is noted. Returns, once, the failure that lost
    /// work of the group.
    pub fn lost_work(&mut self) -> Option<Error> {
        let device = self.device.as_ref()?;
        let is_lost =
            self.group_state.is_failed() && self.queued.iter().any(|&ticket| device.is_in_flight(ticket));
        if is_lost && self.group_state.is_news() { self.check().err() } else { None }
    }

    /// True until all processes have compared this call.
    pub fn is_new(&self, call: &str) -> bool {
        !self.compared.contains(call)
    }

    /// Notes a call that all processes have compared.
    pub fn note_compared(&mut self, call: &str) {
        self.compared.insert(call.to_string());
    }

    /// Takes part in a round: sends bytes and receives the wanted ones, once all processes have made the same
    /// call.
    ///
    /// # Errors
    /// E0537 when they made another call, E0535, E0536.
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
                answer.inspect_err(|_| self.noticed |= self.group_state.is_failed())
            }
            None => Ok(bytes.to_vec()),
        }
    }

    /// Leaves the group together with the others: waits for queued work and for the other processes.
    ///
    /// # Errors
    /// E0535, E0536, E0537 when another process fails or makes a different call, unless the failure has
    /// already been reported to the script.
    pub fn leave(&mut self) -> Result<()> {
        if !std::mem::take(&mut self.open) || self.noticed && self.group_state.is_failed() {
            return Ok(());
        }
        if let Some(communicator) = &self.communicator {
            communicator.finish();
        }
        let left = self.round(LEAVING, Wants::Nothing, &[]).map(drop);
        match (&left, self.communicator.take()) {
            (Ok(()), Some(communicator)) => communicator.close(),
            (Err(error), _) => self.group_state.fail_and_announce(error.clone()),
            _ => {}
        }
        self.group_state.bind(None);
        self.link = None;
        self.hub = None;
        left
    }

    /// Fails the group and sends the reason to the others.
    pub fn fail(&mut self, reason: &str) {
        if std::mem::take(&mut self.open) && !self.group_state.is_failed() {
            self.group_state.announce_failure(reason);
            self.group_state.fail(error::peer_failed(self.world.rank, reason));
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A caller that needs the error has called `leave` before.
        self.leave().ok();
        if let Some(communicator) = self.communicator.take() {
            self.group_state.bind(None);
            communicator.abort();
        }
    }
}
