//! The device rooms of Runnel (sources of `src`, as they stand there) over locks of a model checker: shuttle runs the
//! threads of emulated queues in many orders; with the feature `loom`, loom runs the three small cores in all orders
//! that a bound on preemptions leaves. What is here beside those sources is as little as they need.

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
pub mod kernel;
