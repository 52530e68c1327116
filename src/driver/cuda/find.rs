//! Detects the machine's CUDA devices.

use super::{open, probe, set_interrupt};
use crate::base::Result;
use crate::driver::backend::{Open, Request};
use crate::driver::error;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The devices of this machine's CUDA driver, restricted by `CUDA_VISIBLE_DEVICES`.
///
/// # Errors
/// The driver is missing or reports no device.
pub fn find(request: &Request) -> Result<(usize, Open)> {
    let probe = probe();
    if let Some(problem) = probe.problem {
        return Err(problem);
    }
    if let Some(flag) = request.interrupt.clone() {
        let ask = move || match flag.load(Ordering::Relaxed) {
            true => Err(error::wait_interrupted()),
            false => Ok(()),
        };
        set_interrupt(Some(Arc::new(ask)));
    }
    let device = move |index: usize| match u32::try_from(index) {
        Ok(index) => open(index),
        Err(_) => Err(error::bad_device(index as i64, probe.devices as usize)),
    };
    Ok((probe.devices as usize, Box::new(device)))
}
