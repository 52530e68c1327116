//! Gradients at kinks and special points, as PyTorch gives them.
