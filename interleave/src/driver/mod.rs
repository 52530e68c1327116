//! The interface of drivers, and the queues of emulated devices.

#![allow(dead_code, unused_imports)] // Only the parts that concern threads are called here.

pub mod emu;
#[path = "../../../src/driver/error.rs"]
pub mod error;
#[path = "../../../src/driver/failure.rs"]
pub mod failure;
#[path = "../../../src/driver/graph.rs"]
pub mod graph;
#[path = "../../../src/driver/id.rs"]
mod id;
#[path = "../../../src/driver/interface.rs"]
mod interface;

pub use id::DeviceId;
pub use interface::{Compiled, CopyKind, Driver, EventHandle, Properties, StreamHandle, Work};
