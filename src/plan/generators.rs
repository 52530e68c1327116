//! The default generators of a session's devices.

use super::{Runtime, error, slot};
use crate::base::Result;
use crate::driver::DeviceId;
use crate::tensor::{Generator, GeneratorState};
use std::sync::OnceLock;

/// The generators that draws use when a script names none.
#[derive(Default)]
pub(super) struct Generators {
    /// One per device, by [`slot`]; created on first request.
    own: OnceLock<Vec<Generator>>,
    /// Replacements for a device's own generator, newest last.
    stand_ins: Vec<Generator>,
}

impl Runtime {
    /// The default generator of a device.
    pub fn generator(&self, device: DeviceId) -> Result<Generator> {
        if let Some(stand_in) = self.generators.stand_ins.iter().rev().find(|g| g.device() == device) {
            return Ok(stand_in.clone());
        }
        let all = self.generators.own.get_or_init(|| {
            let cuda = (0..self.machine.device_count() as u32).map(DeviceId::Cuda);
            std::iter::once(DeviceId::Cpu).chain(cuda).map(Generator::new).collect()
        });
        all.get(slot(device)).cloned().ok_or_else(|| error::no_such_device(device, all.len() - 1))
    }

    /// The states of the default generators, for draws that are repeated.
    pub fn generator_states(&self) -> Vec<(DeviceId, GeneratorState)> {
        let devices = (0..self.machine.device_count() as u32).map(DeviceId::Cuda);
        let all = std::iter::once(DeviceId::Cpu).chain(devices);
        all.filter_map(|device| Some((device, self.generator(device).ok()?.state()))).collect()
    }

    /// Puts the default generators into states of [`Runtime::generator_states`].
    pub fn set_generator_states(&mut self, states: &[(DeviceId, GeneratorState)]) {
        for (device, state) in states {
            if let Ok(generator) = self.generator(*device) {
                generator.set_state(*state);
            }
        }
    }

    /// Makes a generator the default of its device until [`Runtime::leave_generator`].
    pub fn enter_generator(&mut self, generator: &Generator) {
        self.generators.stand_ins.push(generator.clone());
    }

    /// Ends the newest [`Runtime::enter_generator`].
    pub fn leave_generator(&mut self) {
        self.generators.stand_ins.pop();
    }
}
