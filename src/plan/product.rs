//! Products that wait for the program that reads them.
//!
//! Note [Held products]. A product of large matrices of halves is not launched by its operation but by the next launch of
//! its session. If that is an elementwise program that reads it, both become one launch (Note [Mapped products] in
//! `kernel/kinds/matmul/mapped.rs`), and a product that nothing else reads is not written. Otherwise it is launched first.
//!
//! To everything else, the product has been launched: it has memory, a ticket, and its accesses are noted. So it must not
//! wait any longer than an open group: every flush ends with its launch, and whatever else is queued on a device begins
//! with it. It keeps its operands, so their memory is not given away before. At most one product waits.

use super::Runtime;
use super::flush::{Noted, Ready};
use super::submit::Submission;
use crate::base::{Result, Site, Span};
use crate::device::Device;
use crate::driver::DeviceId;
use crate::kernel::{Launch, MappedMatmul};
use crate::stream::{Stream, Ticket};
use crate::tensor::{Storage, StorageRef};
use smallvec::SmallVec;
use std::sync::Arc;

/// A product that waits.
pub(super) struct HeldProduct {
    device: Arc<Device>,
    stream: Arc<Stream>,
    launch: Launch,
    noted: Noted,
    span: Span,
    /// The storages of its views: the operands, then the product.
    storages: SmallVec<[StorageRef; 4]>,
}

impl HeldProduct {
    fn result(&self) -> Option<&StorageRef> {
        self.storages.last()
    }

    /// True if more than these groups will read the product.
    fn is_needed(&self, groups: &[&Ready<'_>]) -> bool {
        self.result().is_some_and(|result| {
            let own = groups.iter().flat_map(|group| &group.storages).filter(|storage| storage.is(result));
            result.holders() > 1 + own.count()
        })
    }
}

impl Runtime {
    /// Lets a product wait instead of launching it. Returns the launch and its record if it must not wait.
    pub(super) fn hold_product(
        &mut self,
        work: &Submission<'_>,
        (device, stream): (&Arc<Device>, &Arc<Stream>),
        launch: Launch,
        noted: Noted,
    ) -> Option<(Launch, Noted)> {
        let settings = &self.settings;
        let waits = settings.fuse
            && !settings.launch_blocking
            && device.id() != DeviceId::Cpu
            && MappedMatmul::takes(&launch, settings.mapped_from)
            && device.driver().maps_products();
        if !waits {
            return Some((launch, noted));
        }
        let storages = work.views.iter().map(|view| view.tensor.storage_ref().clone()).collect();
        let (device, stream) = (device.clone(), stream.clone());
        self.product =
            Some(Box::new(HeldProduct { device, stream, launch, noted, span: self.span, storages }));
        None
    }

    /// True if the product in a storage waits.
    pub fn holds(&self, storage: &Storage) -> bool {
        let result = self.product.as_ref().and_then(|held| held.result());
        result.is_some_and(|result| result.is(storage))
    }

    /// Launches the product that waits.
    #[inline]
    pub(super) fn launch_product(&mut self) -> Result<()> {
        match self.product.take() {
            Some(held) => self.launch_held(*held),
            None => Ok(()),
        }
    }

    #[cold]
    fn launch_held(&mut self, held: HeldProduct) -> Result<()> {
        let done = self.launch(&held.device, &held.stream, &held.launch, held.noted);
        done.map_err(|e| e.locate(&Site::of(held.span)))
    }

    /// The launch of the product that waits and of the program of these groups, if they become one, and the product's ticket.
    pub(super) fn with_product(
        &mut self,
        groups: &[&Ready<'_>],
        launch: &Launch,
        device: &Arc<Device>,
        stream: &Arc<Stream>,
    ) -> Option<(Launch, Ticket)> {
        let held = self.product.as_ref().filter(|held| Arc::ptr_eq(&held.stream, stream))?;
        let (kind, views) = MappedMatmul::join(&held.launch, launch, held.is_needed(groups))?;
        let program = self.programs.get(&kind);
        let joined = Launch {
            numbers: launch.numbers.clone(),
            ..Launch::new(program, held.launch.shape.clone(), views)
        };
        // While the kernel is compiled, they are launched one after the other.
        if self.capture_of(stream).is_none() && !device.driver().prepared(&joined) {
            return None;
        }
        let held = self.product.take()?;
        Some((joined, held.noted.ticket))
    }
}
