//! Runnel's device modules (the sources in `src`, unchanged) over the locks of a model checker. Shuttle runs
//! the threads of emulated queues in many orders. With the feature `loom`, loom runs the three concurrent
//! cores in all orders within a preemption bound. This crate adds only the stubs they need.

#[cfg(feature = "loom")]
pub use loom as checker;
#[cfg(not(feature = "loom"))]
pub use shuttle as checker;

#[allow(dead_code, unused_imports)]
#[path = "../../src/array/mod.rs"]
pub mod array;
#[allow(dead_code, unused_imports)]
#[path = "../../src/base/mod.rs"]
pub mod base;
pub mod device;
pub mod driver;
pub mod files;
pub mod kernel;
#[allow(dead_code, unused_imports)]
#[path = "../../src/memory/mod.rs"]
pub mod memory;
pub mod stream;
