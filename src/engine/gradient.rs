//! Gradients for the embedder: tensors that require them, backward passes.

use super::Engine;
use super::convert::check_own;
use crate::base::Result;
use crate::library::gradient::run_pass;
use crate::ops::gradient::{self, Create, Options, Target};
use crate::tensor::Tensor;

impl Engine {
    /// Returns whether operations on a tensor are recorded for gradients: it was made to require them, or
    /// computed from tensors that do. Source: `torch.Tensor.requires_grad`.
    ///
    /// # Errors
    ///
    /// E0965 for a tensor of another engine.
    pub fn requires_grad(&mut self, tensor: &Tensor) -> Result<bool> {
        check_own(&mut self.vm, tensor)?;
        Ok(gradient::requires_gradient(&mut self.vm.rt, tensor))
    }

    /// Makes a tensor collect gradients, or stop. [`Engine::backward`] adds the gradient of its argument to it,
    /// whether scripts or host functions computed with it. Source: `torch.Tensor.requires_grad_`.
    ///
    /// # Errors
    ///
    /// E0380 for ints and bools, which have no gradients, and for disabling gradients of a tensor that was computed
    /// from others; E0965 for a tensor of another engine.
    ///
    /// ```
    /// # fn main() -> runnel::Result<()> {
    /// use runnel::{DeviceId, Tensor};
    /// let mut engine = runnel::Engine::builder().backend(runnel::Backend::Emu).build()?;
    /// engine.eval::<()>("fn loss(w, x) { ((x * w) ** 2).sum() }")?;
    /// let w = engine.tensor(&[1.0f32, 2.0], &[2], DeviceId::Cuda(0))?;
    /// engine.set_requires_grad(&w, true)?;
    /// for x in [3.0, 4.0] {
    ///     let loss: Tensor = engine.call("loss", (&w, x))?;
    ///     engine.backward(&loss, None)?;
    /// }
    /// let gradient = engine.grad(&w)?.unwrap();
    /// assert_eq!(engine.read::<f32>(&gradient)?, [50.0, 100.0]); // the sum of two passes
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_requires_grad(&mut self, tensor: &Tensor, on: bool) -> Result<()> {
        self.vm.within(|vm| {
            check_own(vm, tensor)?;
            gradient::require(&mut vm.rt, tensor, on)
        })
    }

    /// The gradient that backward passes have collected in a tensor since it was last set; `None` before the
    /// first pass. Source: `torch.Tensor.grad`.
    ///
    /// # Errors
    ///
    /// E0965 for a tensor of another engine.
    pub fn grad(&mut self, tensor: &Tensor) -> Result<Option<Tensor>> {
        check_own(&mut self.vm, tensor)?;
        Ok(gradient::gradient_of(&mut self.vm.rt, tensor))
    }

    /// Sets the gradient of a tensor; `None` before the passes of the next step.
    ///
    /// # Errors
    ///
    /// E0380 if the tensor requires no gradients; E0381 for a gradient of another shape, dtype or device; E0965
    /// for a tensor of another engine.
    pub fn set_grad(&mut self, tensor: &Tensor, gradient: Option<&Tensor>) -> Result<()> {
        self.vm.within(|vm| {
            check_own(vm, tensor)?;
            gradient.map_or(Ok(()), |gradient| check_own(vm, gradient))?;
            gradient::set_gradient(&mut vm.rt, tensor, gradient.cloned())
        })
    }

    /// Computes the gradient of a tensor with respect to every tensor that it was computed from and that
    /// collects gradients, and adds it there. Frees the record of how the tensor was computed. A tensor with
    /// several elements needs `gradient`, which has its shape. Hooks and rules of scripts run. For more, call
    /// `autograd.backward` and `autograd.grad` of the scripts. Source: `torch.Tensor.backward`.
    ///
    /// # Errors
    ///
    /// E0380 if the tensor requires no gradients; E0381 if `gradient` is missing or has another shape or dtype; E0383
    /// for a second pass; E0384 if a script has since written in place what the pass needs; E0385 for an operation
    /// without a gradient; E0965 for a tensor of another engine; errors of the work and of hooks.
    ///
    /// ```
    /// # fn main() -> runnel::Result<()> {
    /// use runnel::{DeviceId, Tensor};
    /// let mut engine = runnel::Engine::builder().backend(runnel::Backend::Emu).build()?;
    /// let x = engine.tensor(&[0.0f32, 1.0], &[2], DeviceId::Cuda(0))?;
    /// engine.set_requires_grad(&x, true)?;
    /// let y: Tensor = engine.call("exp", (&x,))?;
    /// assert_eq!(engine.backward(&y, None).unwrap_err().code().id, "E0381");
    /// let weights = engine.tensor(&[2.0f32, 0.0], &[2], DeviceId::Cuda(0))?;
    /// engine.backward(&y, Some(&weights))?;
    /// let gradient = engine.grad(&x)?.unwrap();
    /// assert_eq!(engine.read::<f32>(&gradient)?, [2.0, 0.0]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn backward(&mut self, tensor: &Tensor, gradient: Option<&Tensor>) -> Result<()> {
        self.vm.within(|vm| {
            check_own(vm, tensor)?;
            gradient.map_or(Ok(()), |gradient| check_own(vm, gradient))?;
            let targets = vec![Target { tensor: tensor.clone(), gradient: gradient.cloned() }];
            let options = Options { retain: false, create: Create::No, accumulate: true, inputs: None };
            run_pass(vm, targets, options).map(drop)
        })
    }

    /// A tensor with the same memory and no gradient record: gradients of what is computed from it do not reach this
    /// tensor. Source: `torch.Tensor.detach`.
    ///
    /// # Errors
    ///
    /// E0965 for a tensor of another engine.
    pub fn detach(&mut self, tensor: &Tensor) -> Result<Tensor> {
        check_own(&mut self.vm, tensor)?;
        Ok(gradient::detach(tensor))
    }

    /// Runs code during which scripts record nothing for gradients: updates of parameters, evaluation. Source:
    /// `torch.no_grad`.
    ///
    /// ```
    /// # fn main() -> runnel::Result<()> {
    /// # let mut engine = runnel::Engine::builder().backend(runnel::Backend::Emu).build()?;
    /// engine.eval::<()>("let w = ones(2, requires_grad=true)")?;
    /// engine.no_grad(|engine| engine.eval::<()>("w.sub_(0.5)"))?;
    /// assert!(engine.eval::<()>("w.sub_(0.5)").is_err());
    /// # Ok(())
    /// # }
    /// ```
    pub fn no_grad<T>(&mut self, code: impl FnOnce(&mut Engine) -> T) -> T {
        /// Restores the setting, also when the code panics.
        struct Restore<'e>(&'e mut Engine, bool);
        impl Drop for Restore<'_> {
            fn drop(&mut self) {
                self.0.vm.rt.recording.enabled = self.1;
            }
        }
        let before = std::mem::replace(&mut self.vm.rt.recording.enabled, false);
        code(Restore(self, before).0)
    }
}
