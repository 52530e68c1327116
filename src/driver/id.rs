//! Names of devices.

/// A device: the host, or a visible CUDA device (real or emulated) by index.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum DeviceId {
    /// `cpu`
    Cpu,
    /// `cuda:N`
    Cuda(u32),
}

impl DeviceId {
    /// Parses a device as PyTorch writes it: `cpu`, `cuda` (which means `current`), `cuda:1`; `None` for any
    /// other text. The caller checks that the device exists.
    pub fn named(text: &str, current: DeviceId) -> Option<DeviceId> {
        match text {
            "cpu" => Some(DeviceId::Cpu),
            "cuda" => Some(current),
            _ => {
                let index = text.strip_prefix("cuda:")?;
                let plain = !index.is_empty() && index.bytes().all(|b| b.is_ascii_digit());
                index.parse().ok().filter(|_| plain).map(DeviceId::Cuda)
            }
        }
    }

    /// The CUDA index; `None` for the host.
    pub fn cuda_index(self) -> Option<usize> {
        match self {
            DeviceId::Cpu => None,
            DeviceId::Cuda(index) => Some(index as usize),
        }
    }
}

impl std::fmt::Display for DeviceId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            DeviceId::Cpu => f.write_str("cpu"),
            DeviceId::Cuda(index) => write!(f, "cuda:{index}"),
        }
    }
}
