//! Sharing memory with other libraries in both directions, without a copy: `cargo run --example
//! embed_dlpack`.

use runnel::{DeviceId, Dlpack, Dtype, Engine, RawTensor, Tensor};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub fn main() -> runnel::Result<()> {
    let mut engine = Engine::new()?;

    // Our buffer as a tensor: scripts read and write it in place. Here a picture of three channels, stored
    // channel by channel, viewed as [height, width, channel].
    let mut picture: Box<[f32]> = (0..2 * 4 * 3).map(|i| i as f32).collect();
    let ptr = picture.as_mut_ptr() as u64;
    let released = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&released);
    let release = move || {
        flag.store(true, Ordering::Release);
        drop(picture);
    };
    let (dtype, device) = (Dtype::F32, DeviceId::Cpu);
    let raw = RawTensor { ptr, shape: &[2, 4, 3], strides: Some(&[4, 1, 8]), dtype, device };
    // SAFETY: `release` owns the picture, and the engine keeps `release` until nothing uses the memory.
    let x = unsafe { engine.tensor_from_raw(raw, release)? };
    engine.eval::<()>("fn fade(x) { x.mul_(0.5); x.sum(dim=[0, 1]) }")?;
    let sums: Vec<f32> = engine.call("fade", (&x,))?;
    println!("channels: {sums:?}");
    assert_eq!(sums, [14.0, 46.0, 78.0]);
    drop(x);
    assert!(released.load(Ordering::Acquire));

    // Our tensor for another library (PyTorch, JAX, CuPy, ...) through DLPack 1.0: `into_raw` returns the pointer for
    // the capsule. The memory lives until that library calls the deleter.
    let mine: Tensor = engine.eval("let mine = arange(6.0).reshape(2, 3).t()\nmine")?;
    let lent = engine.export_dlpack(&mine, None)?;
    println!("{:?}", lent.managed().view);
    assert_eq!(lent.managed().view.ndim, 2);
    let raw = lent.into_raw();

    // The import, as the other library would do it. Here another engine sees the same memory.
    let mut other = Engine::new()?;
    // SAFETY: `raw` was made above and has no other owner, and `engine` does not use it in the meantime.
    let theirs = unsafe { other.import_dlpack(Dlpack::from_raw(raw))? };
    assert_eq!(theirs.shape().as_slice(), [3, 2]);
    other.set("theirs", &theirs)?;
    other.eval::<()>("theirs.add_(10)\ncuda.synchronize()")?;
    assert_eq!(engine.eval::<Vec<f32>>("mine.flatten()")?, [10.0, 13.0, 11.0, 14.0, 12.0, 15.0]);

    // Another library's stream, by its handle: work is ordered after that library's without waiting on the
    // host.
    // SAFETY: 0 is every device's default stream.
    let stream = unsafe { engine.external_stream(DeviceId::Cuda(0), 0)? };
    engine.set("theirs", stream)?;
    assert!(engine.eval::<bool>("with stream(theirs) { ones(2).sum().item() == 2 }")?);
    Ok(())
}
