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
