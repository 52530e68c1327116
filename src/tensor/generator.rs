//! Random generators: Philox 4x32-10 states, one per device.
//!
//! A draw of element `i` is a pure function of (seed, offset, i), so `cuda`, `emu` and the host give
//! the same numbers. Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC11);
//! `torch.Generator` for the names.

use crate::device::DeviceId;
use parking_lot::Mutex;
use std::sync::Arc;

/// A generator's state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GeneratorState {
    /// The Philox key.
    pub seed: u64,
    /// The Philox counter's high half: each draw takes one.
    pub offset: u64,
}

impl GeneratorState {
    /// The state as PyTorch writes it: seed, then offset, little-endian.
    pub fn to_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.seed.to_le_bytes());
        bytes[8..].copy_from_slice(&self.offset.to_le_bytes());
        bytes
    }

    /// The state that 16 bytes hold, or 8: a seed at offset 0. `None` for any other length.
    pub fn from_bytes(bytes: &[u8]) -> Option<GeneratorState> {
        let word = |at: usize| bytes.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes);
        match bytes.len() {
            8 => Some(GeneratorState { seed: word(0)?, offset: 0 }),
            16 => Some(GeneratorState { seed: word(0)?, offset: word(8)? }),
            _ => None,
        }
    }
}

/// A shared generator of one device.
#[derive(Clone)]
pub struct Generator {
    device: DeviceId,
    state: Arc<Mutex<GeneratorState>>,
}

/// The seed of a generator that nobody has seeded, as PyTorch has it.
pub const DEFAULT_SEED: u64 = 67_280_421_310_721;

impl Generator {
    /// A generator of a device, seeded with [`DEFAULT_SEED`].
    pub fn new(device: DeviceId) -> Generator {
        let state = GeneratorState { seed: DEFAULT_SEED, offset: 0 };
        Generator { device, state: Arc::new(Mutex::new(state)) }
    }

    /// Whose it is.
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

    /// Seeds it and starts at offset 0. Source: `torch.Generator.manual_seed`.
    pub fn manual_seed(&self, seed: u64) {
        self.set_state(GeneratorState { seed, offset: 0 });
    }

    /// The state to draw with, and moves on by `steps` counters (4 for the alignment of offsets).
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
