//! The backends, one function each, and which one a configuration takes.

use super::machine::Config;
use super::{Driver, error};
use crate::base::Result;
use std::sync::Arc;

/// A backend that can run here.
pub(super) struct Found {
    /// `"cuda"`, `"emu"`.
    pub(super) name: &'static str,
    /// How many devices are visible.
    pub(super) count: usize,
    /// The host's own driver.
    pub(super) host: Arc<dyn Driver>,
    /// Opens the visible device with that index.
    pub(super) open: Open,
}

/// Makes a device's driver; called once per device.
pub(super) type Open = Box<dyn Fn(usize) -> Result<Arc<dyn Driver>> + Send + Sync>;

/// What the configuration takes, and what the user should be told about it.
pub(super) fn find(config: &Config) -> Result<(Found, Option<String>)> {
    let _ = config;
    Err(error::no_backend("emu", "not linked"))
}

/// Which of `count` devices a list such as `CUDA_VISIBLE_DEVICES` shows, in its order: numbers up to
/// the first that is not a device's; nothing when one is named twice. Source: the CUDA programming
/// guide, environment variables.
pub(super) fn visible(list: Option<&str>, count: usize) -> Vec<usize> {
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
    use super::super::machine::Backend;
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
    fn auto_is_the_default() {
        assert_eq!(Config::default().backend, Backend::Auto);
    }
}
