//! Random generators: Philox 4x32-10 states, one per device.
//!
//! Element `i` of a draw is a pure function of (seed, offset, i), so `cuda`, `emu` and the host give the same
//! numbers. Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC11); names from
//! `torch.Generator`.

use crate::driver::DeviceId;
use parking_lot::Mutex;
use std::sync::Arc;

/// A generator's state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GeneratorState {
    /// The Philox key.
    pub seed: u64,
    /// The high half of the Philox counter. Each draw advances it.
    pub offset: u64,
}

impl GeneratorState {
    /// The state in PyTorch's format: seed, then offset, little-endian.
    pub fn to_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.seed.to_le_bytes());
        bytes[8..].copy_from_slice(&self.offset.to_le_bytes());
        bytes
    }

    /// Reads a state from 16 bytes, or a seed at offset 0 from 8 bytes. `None` for any other length.
    pub fn from_bytes(bytes: &[u8]) -> Option<GeneratorState> {
        let word = |at: usize| bytes.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes);
        match bytes.len() {
            8 => Some(GeneratorState { seed: word(0)?, offset: 0 }),
            16 => Some(GeneratorState { seed: word(0)?, offset: word(8)? }),
            _ => None,
        }
    }
}

/// The shared generator of one device.
#[derive(Clone)]
pub struct Generator {
    device: DeviceId,
    state: Arc<Mutex<GeneratorState>>,
}

/// The seed of an unseeded generator; PyTorch's value.
pub const DEFAULT_SEED: u64 = 67_280_421_310_721;

impl Generator {
    /// A generator of a device, seeded with [`DEFAULT_SEED`].
    pub fn new(device: DeviceId) -> Generator {
        let state = GeneratorState { seed: DEFAULT_SEED, offset: 0 };
        Generator { device, state: Arc::new(Mutex::new(state)) }
    }

    /// The device it belongs to.
    pub fn device(&self) -> DeviceId {
        self.device
    }

    /// The state.
    pub fn state(&self) -> GeneratorState {
        *self.state.lock()
    }

    /// Replaces the state.
    pub fn set_state(&self, state: GeneratorState) {
        *self.state.lock() = state;
    }

    /// Sets the seed and resets the offset to 0. Source: `torch.Generator.manual_seed`.
    pub fn manual_seed(&self, seed: u64) {
        self.set_state(GeneratorState { seed, offset: 0 });
    }

    /// Returns the state to draw with, and advances the offset by `steps` (4, since offsets are aligned to
    /// 4).
    pub fn advance(&self, steps: u64) -> GeneratorState {
        let mut state = self.state.lock();
        let drawn = *state;
        state.offset = state.offset.wrapping_add(steps);
        drawn
    }

    /// True when both are the same generator.
    pub fn same(&self, other: &Generator) -> bool {
        Arc::ptr_eq(&self.state, &other.state)
    }
}
