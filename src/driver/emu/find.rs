//! Makes the emulated devices that a session requests.

use super::{Config, Emulator};
use crate::base::Result;
use crate::driver::backend::{Open, Request};
use crate::driver::error;

/// The largest number of emulated devices; each has its own threads.
const MOST_DEVICES: usize = 64;
/// The largest memory of an emulated device; larger sizes could overflow in sums.
const MOST_MEMORY: u64 = 1 << 45;

/// The requested number of devices.
///
/// # Errors
/// Too many devices.
pub fn count(request: &Request) -> Result<usize> {
    match request.devices.unwrap_or_else(|| Config::default().devices) {
        count if count > MOST_DEVICES => Err(error::too_many_devices(count, MOST_DEVICES)),
        count => Ok(count),
    }
}

/// The requested devices, less the hidden ones.
///
/// # Errors
/// Those of [`count`].
pub fn find(request: &Request) -> Result<(usize, Open)> {
    // Emulated devices are identical, so hidden ones are not created.
    let count = visible(request.visible.as_deref(), count(request)?).len();
    let defaults = Config::default();
    let drivers = Emulator::devices(Config {
        devices: count,
        memory_per_device: request.device_memory.unwrap_or(defaults.memory_per_device).min(MOST_MEMORY),
        schedule: request.schedule.clone(),
        interrupt: request.interrupt.clone(),
        failure: request.failure.clone(),
        poison: request.poison.or(defaults.poison),
    });
    let open = move |index: usize| match drivers.get(index) {
        Some(driver) => Ok(driver.clone()),
        None => Err(error::bad_device(index as i64, count)),
    };
    Ok((count, Box::new(open)))
}

/// The indices of the `count` devices that a list such as `CUDA_VISIBLE_DEVICES` shows, in its order. The
/// list ends before the first entry that is not a device's index. A duplicate makes the result empty. Source:
/// the CUDA programming guide, environment variables.
fn visible(list: Option<&str>, count: usize) -> Vec<usize> {
    let Some(list) = list else { return (0..count).collect() };
    let mut shown = Vec::new();
    for entry in list.split(',') {
        let Some(index) = entry.trim().parse::<usize>().ok().filter(|&i| i < count) else { break };
        if shown.contains(&index) {
            return Vec::new();
        }
        shown.push(index);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_visible_devices_read_as_cuda_reads_them() {
        assert_eq!(visible(None, 3), [0, 1, 2]);
        assert_eq!(visible(Some("2,0"), 3), [2, 0]);
        assert_eq!(visible(Some(" 1 , 0"), 3), [1, 0]);
        assert_eq!(visible(Some("1,-1,0"), 3), [1]);
        assert_eq!(visible(Some("0,3,1"), 3), [0]);
        assert!(visible(Some(""), 3).is_empty());
        assert!(visible(Some("1,1"), 3).is_empty());
    }

    #[test]
    fn devices_are_counted_and_limited() {
        let request = |devices, visible: Option<&str>| Request {
            devices: Some(devices),
            visible: visible.map(str::to_string),
            ..Request::default()
        };
        let count = |request: &Request| find(request).map(|(count, _)| count);
        assert_eq!(count(&request(3, None)).unwrap(), 3);
        assert_eq!(count(&request(3, Some("2"))).unwrap(), 1);
        assert_eq!(count(&request(0, None)).unwrap(), 0);
        assert_eq!(count(&request(65, None)).unwrap_err().code().id, "E0511");
    }
}
