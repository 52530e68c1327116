//! The part of the `parking_lot` API that Runnel's device modules use, implemented over the locks of shuttle
//! or loom, which control thread scheduling.
//!
//! A wait with a timeout may return at once: neither checker models time.

#[cfg(feature = "loom")]
use loom as checker;
#[cfg(not(feature = "loom"))]
use shuttle as checker;

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

/// A lock.
pub struct Mutex<T>(checker::sync::Mutex<T>);

/// A held lock.
pub struct MutexGuard<'a, T> {
    of: &'a Mutex<T>,
    held: Option<checker::sync::MutexGuard<'a, T>>,
}

/// A condition variable.
pub struct Condvar(checker::sync::Condvar);

const NOT_POISONED: &str = "no thread panics while it holds the lock";

impl<T> Mutex<T> {
    pub fn new(value: T) -> Mutex<T> {
        Mutex(checker::sync::Mutex::new(value))
    }

    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard { of: self, held: Some(self.0.lock().expect(NOT_POISONED)) }
    }

    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock().ok().map(|held| MutexGuard { of: self, held: Some(held) })
    }

    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().expect(NOT_POISONED)
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Mutex<T> {
        Mutex::new(T::default())
    }
}

impl<T> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mutex")
    }
}

impl<T> MutexGuard<'_, T> {
    pub fn unlocked<U>(guard: &mut Self, f: impl FnOnce() -> U) -> U {
        guard.held = None;
        let result = f();
        guard.held = Some(guard.of.0.lock().expect(NOT_POISONED));
        result
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.held.as_ref().expect("held, but within `unlocked`")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.held.as_mut().expect("held, but within `unlocked`")
    }
}

impl Condvar {
    pub fn new() -> Condvar {
        Condvar(checker::sync::Condvar::new())
    }

    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let held = guard.held.take().expect("held");
        guard.held = Some(self.0.wait(held).expect(NOT_POISONED));
    }

    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _time: Duration) {
        MutexGuard::unlocked(guard, checker::thread::yield_now);
    }

    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}
