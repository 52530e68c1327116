//! The slot for faults of kernels, which must not trap.

use crate::kernel::Fault;
use std::sync::atomic::{AtomicBool, Ordering};

/// The fault slot of a device. Keeps the first fault until it is taken.
///
/// Among the faults of one launch it keeps the one with the lowest position, so that the report does not
/// depend on the number of threads.
#[derive(Default)]
pub struct FaultSlot {
    full: AtomicBool,
    /// All faults are of one launch, whose views may have different tags: the lowest tag is kept.
    is_of_launch: bool,
    fault: parking_lot::Mutex<Option<Fault>>,
}

impl FaultSlot {
    /// A slot for the faults of a single launch.
    pub fn of_launch() -> FaultSlot {
        FaultSlot { is_of_launch: true, ..FaultSlot::default() }
    }

    /// Reports a fault.
    #[cold]
    pub fn report(&self, fault: Fault) {
        let mut held = self.fault.lock();
        match &*held {
            Some(have) if self.is_of_launch && (have.tag, have.position) <= (fault.tag, fault.position) => {}
            Some(have)
                if !self.is_of_launch && (have.tag != fault.tag || have.position <= fault.position) => {}
            _ => *held = Some(fault),
        }
        self.full.store(true, Ordering::Release);
    }

    /// Takes the fault, if any.
    #[inline]
    pub fn take(&self) -> Option<Fault> {
        if !self.full.load(Ordering::Acquire) {
            return None;
        }
        let mut held = self.fault.lock();
        self.full.store(false, Ordering::Release);
        held.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_launch_and_its_lowest_position_are_kept() {
        let slot = FaultSlot::default();
        assert_eq!(slot.take(), None);
        let fault = |tag, position| Fault { tag, position, value: 9 };
        for (tag, position) in [(3, 50), (3, 20), (4, 1), (3, 30)] {
            slot.report(fault(tag, position));
        }
        assert_eq!(slot.take(), Some(fault(3, 20)));
        assert_eq!(slot.take(), None);
        let slot = FaultSlot::of_launch();
        for (tag, position) in [(4, 1), (3, 50), (3, 20), (4, 0), (3, 30)] {
            slot.report(fault(tag, position));
        }
        assert_eq!(slot.take(), Some(fault(3, 20)));
    }
}
