//! The parts of an engine that only the command `runnel` uses, in addition to its public interface.

use super::{Builder, Engine, InterruptHandle, checked, held};
use crate::base::Result;
use crate::device::Config;
use crate::syntax::ast::Block;
use crate::vm::{Input, Vm};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

impl Engine {
    /// Empties the engine of a process that is about to exit: see [`Vm::leave_heap`].
    pub(crate) fn leave_heap(&mut self) {
        std::mem::forget(std::mem::replace(&mut self.held, held::Holdings::new()));
        self.vm.leave_heap();
    }

    /// Parses and checks a source.
    pub(crate) fn checked(&mut self, name: &str, text: &str) -> Result<Block> {
        self.vm.within(|vm| checked(vm, name, text, false))
    }

    /// The VM.
    pub(crate) fn vm(&mut self) -> &mut Vm {
        &mut self.vm
    }
}

impl InterruptHandle {
    /// The flag, for signal handlers.
    pub(crate) fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }
}

impl Builder {
    /// Lets scripts read the process's standard input, with interruptible waits.
    pub(crate) fn process_input(mut self) -> Builder {
        self.input = Some(Input::Process);
        self
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    pub(crate) fn config_mut(&mut self) -> &mut Config {
        &mut self.config
    }
}
