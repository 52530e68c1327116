//! More calls of the embedding API: settings, conversions, host functions that fail or use another session, sessions on
//! several threads, DLPack tensors that outlive their session or are damaged.

use super::embed::{Choices, World, code, engine, judge};
use super::settings;
use runnel::engine::report::{Look, Severity, render};
use runnel::engine::{Builder, DlpackDevice, DlpackDtype, DlpackManaged, DlpackVersion, DlpackView};
use runnel::{
    Array, Backend, Colors, Complex, DeviceId, Dlpack, Dtype, Engine, FileAccess, FromValue, Result, Stream,
    Tensor,
};
use std::collections::{BTreeMap, HashMap};
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Calls of host functions, valid and invalid.
const CALLS: &[&str] = &[
    "host_a(1)",
    "host_a(-1)",
    "host_a(\"x\")",
    "host_a(x)",
    "try { host_a(7) } catch e { e.message }",
    "map(host_a, [1, 2, 3])",
    "host_b(a=1, b=[1.5])",
    "host_b([1.5], 1)",
    "sorted([3, 1, 2], key=host_a)",
    "host_c(ones(2), none)",
    "let x = host_c(ones(3) * 2, [ones(1)])\nx",
    "with device(1) { host_a(0) }",
    "with stream(Stream()) { host_a(0) }",
    "let g = Graph()\nwith graph(g) { host_a(1); ones(2) }\ng.replay()",
    "with graph(Graph()) { host_a(7) }",
    "grad(|t| host_c(t, none).sum())(ones(2))",
    "defer host_a(7)\nhost_a(7)",
    "host_d(\"1 + 1\")",
    "host_d(\"while true { }\")",
    "host_d(\"ones(3)\")",
    "host_d(\"throw 1\")",
];

/// An export's tensor until its consumer releases it.
struct Export {
    managed: DlpackManaged,
    shape: Vec<i64>,
    strides: Vec<i64>,
    memory: Vec<f32>,
    released: Arc<AtomicUsize>,
}

unsafe extern "C-unwind" fn release(managed: *mut DlpackManaged) {
    // SAFETY: `damaged` made it from a box, whose address is the context.
    let export = unsafe { Box::from_raw((*managed).manager_ctx.cast::<Export>()) };
    export.released.fetch_add(1, Ordering::Relaxed);
    assert_eq!(export.memory.len() + export.shape.len() + export.strides.len(), 18, "released twice");
}

pub(super) fn step(world: &mut World, at: usize, choices: &mut Choices<'_>) {
    match choices.below(8) {
        0 => build(choices),
        1 => outlive(world, at, choices),
        2 => damaged(world, at, choices),
        3 => host(world, at, choices),
        4 => threads(choices),
        5 => convert(world, at, choices),
        6 => describe(world, at, choices),
        _ => lend_across(world, at, choices),
    }
}

/// Any settings: the session works, or the error has a code.
fn build(choices: &mut Choices<'_>) {
    let mut builder = if choices.below(4) == 0 {
        let Ok(builder) = Builder::from_env() else { return };
        builder.backend(Backend::Emu).devices(2)
    } else {
        settings()
    };
    builder = builder
        .fuel(20_000)
        .time(Duration::from_secs(1))
        .files(FileAccess::None)
        .environment(false)
        .groups(false);
    for _ in 0..choices.below(8) {
        let number = choices.of(&[0u64, 1, 512, 1 << 20, 64 << 20, u64::MAX]);
        let count = usize::try_from(number).unwrap_or(usize::MAX);
        builder = match choices.below(20) {
            0 => builder.args(["--a", "b", ""]),
            1 => builder.call_depth(count),
            2 => builder.colors(choices.of(&[Colors::None, Colors::Indexed, Colors::Full])),
            3 => builder.device_limit(number),
            4 => builder.device_memory(number),
            5 => builder.host_memory(count.min(64 << 20)),
            6 => builder.line_width(count),
            7 => builder.output(|_| panic!("the output")),
            8 => builder.input(|| panic!("the input")),
            9 => builder.warnings(|_, _| panic!("the warnings")),
            10 => builder.progress(|_| panic!("the progress")),
            11 => builder.pinned_limit(number),
            12 => builder.poison(choices.byte()),
            13 => builder.priorities(number),
            14 => builder.schedule(number),
            15 => builder.tensors(count).events(count),
            16 => builder.output_limit(number).launch_blocking(true),
            17 => builder.module("memory", choices.text()),
            18 => builder.input(|| Some("line".into())),
            _ => builder.devices(choices.below(70)),
        };
    }
    match builder.build() {
        Ok(mut engine) => {
            for _ in 0..3 {
                let ran = engine.eval::<()>(choices.script());
                judge(&mut engine, ran);
            }
            for script in [
                "print(args(), input())",
                "for x in progress([1, 2], \"p\") { ones(x) + 1 }",
                "import memory",
            ] {
                let ran = engine.eval::<()>(script);
                judge(&mut engine, ran);
            }
        }
        Err(error) => assert!(error.code().id.starts_with('E')),
    }
}

/// A consumer of an exported tensor keeps it longer than the session: its elements stay, and releasing it later is safe.
fn outlive(world: &mut World, at: usize, choices: &mut Choices<'_>) {
    let mut owner = engine(choices.byte());
    let device = choices.of(&[DeviceId::Cpu, DeviceId::Cuda(0), DeviceId::Cuda(1)]);
    let Ok(tensor) = owner.tensor(&[1.5f32, 2.5, 3.5], &[3], device) else { return };
    let lent = match choices.below(3) {
        0 => owner.export_dlpack(&tensor, None),
        1 => {
            let stream = owner.eval::<Arc<Stream>>("Stream()");
            let Some(stream) = judge(&mut owner, stream) else { return };
            owner.export_dlpack(&tensor, Some(&stream))
        }
        _ => {
            let twice = owner.set("t", &tensor).and_then(|()| owner.eval::<Tensor>("t + 0"));
            twice.and_then(|twice| owner.export_dlpack(&twice, None))
        }
    };
    let Some(lent) = judge(&mut owner, lent) else { return };
    if device != DeviceId::Cpu {
        let waited = owner.eval::<()>("cuda.synchronize(0)\ncuda.synchronize(1)");
        judge(&mut owner, waited);
    }
    let raw = lent.into_raw();
    if choices.below(2) == 0 {
        drop(tensor);
        drop(owner);
    } else {
        drop(owner);
        drop(tensor);
    }
    // SAFETY: it is owned here.
    let lent = unsafe { Dlpack::from_raw(raw) };
    let view = &lent.managed().view;
    assert_eq!((view.ndim, view.dtype.bits), (1, 32));
    // SAFETY: memory of the host or of an emulated device, which nothing else uses.
    let first =
        unsafe { view.data.cast::<u8>().add(view.byte_offset as usize).cast::<[f32; 3]>().read_unaligned() };
    assert_eq!(first, [1.5, 2.5, 3.5]);
    if choices.below(2) == 0 {
        let session = &mut world.engines[at];
        // SAFETY: nothing else uses the memory.
        let taken = unsafe { session.import_dlpack(lent) };
        if let Some(tensor) = judge(session, taken) {
            let read = session.read::<f32>(&tensor);
            if let Some(read) = judge(session, read) {
                assert_eq!(read, [1.5, 2.5, 3.5]);
            }
            world.keep(at, tensor, None);
        }
    }
}

/// Managed tensors with valid and invalid fields: a tensor or an error, and one call of the deleter.
fn damaged(world: &mut World, at: usize, choices: &mut Choices<'_>) {
    let released = Arc::new(AtomicUsize::new(0));
    let mut export = Box::new(Export {
        managed: DlpackManaged {
            version: DlpackVersion { major: 1, minor: 0 },
            manager_ctx: std::ptr::null_mut(),
            deleter: Some(release),
            flags: 0,
            view: DlpackView {
                data: std::ptr::null_mut(),
                device: DlpackDevice { device_type: 1, device_id: 0 },
                ndim: 1,
                dtype: DlpackDtype { code: 2, bits: 32, lanes: 1 },
                shape: std::ptr::null_mut(),
                strides: std::ptr::null_mut(),
                byte_offset: 0,
            },
        },
        shape: vec![3, 1],
        strides: vec![1, 1],
        memory: vec![0.5; 14],
        released: released.clone(),
    });
    export.managed.view.data = export.memory.as_mut_ptr().cast();
    export.managed.view.shape = export.shape.as_mut_ptr();
    export.managed.view.strides = export.strides.as_mut_ptr();
    for _ in 0..choices.below(3) {
        let view = &mut export.managed.view;
        match choices.below(14) {
            0 => export.managed.version.major = choices.of(&[0, 2, u32::MAX]),
            1 => view.data = std::ptr::null_mut(),
            2 => view.ndim = choices.of(&[-1, 0, i32::MIN]),
            3 => {
                view.dtype =
                    DlpackDtype { code: choices.byte(), bits: choices.byte(), lanes: choices.byte().into() }
            }
            4 => view.dtype.lanes = choices.of(&[0, 2, u16::MAX]),
            5 => {
                view.device =
                    DlpackDevice { device_type: choices.byte().into(), device_id: choices.of(&[0, -1, 1, 9]) }
            }
            6 => view.strides = std::ptr::null_mut(),
            7 => view.shape = std::ptr::null_mut(),
            8 => view.byte_offset = choices.of(&[1, 4, u64::MAX, 1 << 63]),
            9 => export.shape[0] = choices.of(&[0, -1, i64::MIN, i64::MAX]),
            10 => export.strides[0] = choices.of(&[0, -1, i64::MIN, i64::MAX, 2]),
            11 => view.ndim = 2,
            12 => export.managed.flags = choices.of(&[1, 2, 4, u64::MAX]),
            _ => view.data = view.data.wrapping_byte_add(1),
        }
    }
    // An offset within the memory, and no more elements than it has.
    let is_whole = export.managed.view.byte_offset <= 8 || export.managed.view.byte_offset > 1 << 40;
    let raw = Box::into_raw(export);
    // SAFETY: valid, or refused by its fields; the box is its context.
    let managed = unsafe {
        (*raw).managed.manager_ctx = raw.cast::<c_void>();
        NonNull::new_unchecked(&raw mut (*raw).managed)
    };
    assert!(is_whole);
    let session = &mut world.engines[at];
    // SAFETY: as above.
    let taken = unsafe { session.import_dlpack(Dlpack::from_raw(managed)) };
    match judge(session, taken) {
        Some(tensor) => {
            assert_eq!(released.load(Ordering::Relaxed), 0, "in use");
            if tensor.dtype() == Dtype::F32 {
                let read = session.read::<f32>(&tensor);
                judge(session, read);
            }
            drop(tensor);
        }
        None => {
            // A refused tensor is released at once, whatever its fields are.
            assert_eq!(released.load(Ordering::Relaxed), 1, "released at once");
            return;
        }
    }
    let waited = session.eval::<()>("1");
    judge(session, waited);
    let start = std::time::Instant::now();
    while released.load(Ordering::Relaxed) == 0 {
        assert!(start.elapsed() < Duration::from_secs(20), "the tensor is not released");
        std::thread::yield_now();
    }
}

/// Host functions that return values of all kinds, fail, panic, and run another session.
fn host(world: &mut World, at: usize, choices: &mut Choices<'_>) {
    let inner = Arc::new(Mutex::new(engine(choices.byte())));
    let session = &mut world.engines[at];
    session
        .register_fn("host_a", |n: i64| -> std::result::Result<Option<f64>, String> {
            match n {
                7 => panic!("seven"),
                n if n < 0 => Err(format!("{n} is below 0")),
                0 => Ok(None),
                n => Ok(Some(n as f64)),
            }
        })
        .params(["n"]);
    session
        .register_fn("host_b", |a: u8, b: Vec<f32>| (a, b, BTreeMap::from([("k".to_string(), a)])))
        .params(["a", "b"]);
    session.register_fn("host_c", |t: Tensor, more: Option<Vec<Tensor>>| match more {
        Some(mut more) if !more.is_empty() => more.remove(0),
        _ => t,
    });
    session.register_fn("host_d", move |text: String| -> std::result::Result<Option<Tensor>, String> {
        let mut inner = inner.lock().map_err(|e| e.to_string())?;
        // A tensor of the inner session is refused by the outer one.
        inner.eval::<Option<Tensor>>(&text).map_err(|error| inner.report(&error))
    });
    for _ in 0..1 + choices.below(4) {
        let ran = session.eval::<()>(choices.of(CALLS));
        judge(session, ran);
    }
    let called: Result<f64> = session.call("host_a", (choices.byte() as i64 - 3,));
    judge(session, called);
}

/// Two sessions run on two threads, while a third thread interrupts them; handles may outlive their sessions.
fn threads(choices: &mut Choices<'_>) {
    let flags = [choices.byte(), choices.byte()];
    let scripts: Vec<&str> = (0..4).map(|_| choices.script()).collect();
    let mut engines = flags.map(engine);
    let handles = [engines[0].interrupt_handle(), engines[1].interrupt_handle()];
    std::thread::scope(|scope| {
        for (number, session) in engines.iter_mut().enumerate() {
            let scripts = &scripts[2 * number..2 * number + 2];
            scope.spawn(move || {
                for script in scripts.iter().chain(&["while true { ones(3) + 1 }"]) {
                    let ran = session.eval::<()>(script);
                    judge(session, ran);
                }
            });
        }
        scope.spawn(|| {
            for handle in handles.iter().cycle().take(8) {
                handle.interrupt();
                std::thread::yield_now();
            }
        });
    });
    for (session, handle) in engines.iter_mut().zip(&handles) {
        handle.clear();
        // A schedule may have used up its fuel, but every input has its own.
        assert_eq!(session.eval::<i64>("1 + 1").ok(), Some(2));
    }
    drop(engines);
    for handle in handles {
        handle.interrupt();
        handle.clear();
    }
}

/// Every conversion from a value, of any script.
fn convert(world: &mut World, at: usize, choices: &mut Choices<'_>) {
    fn of<T: FromValue>(session: &mut Engine, script: &str) {
        let value = session.eval::<T>(script);
        judge(session, value);
    }
    const KINDS: &[fn(&mut Engine, &str)] = &[
        of::<()>,
        of::<bool>,
        of::<i8>,
        of::<u64>,
        of::<usize>,
        of::<f32>,
        of::<String>,
        of::<DeviceId>,
        of::<Dtype>,
        of::<Tensor>,
        of::<Arc<Stream>>,
        of::<Array<f64>>,
        of::<Array<bool>>,
        of::<Array<Complex<f32>>>,
        of::<Option<u16>>,
        of::<Vec<Vec<f32>>>,
        of::<HashMap<String, Option<Tensor>>>,
        of::<BTreeMap<String, f32>>,
        of::<Complex<f64>>,
        of::<(i64, f64, String)>,
    ];
    let (kind, script) = (choices.of(KINDS), choices.script());
    kind(&mut world.engines[at], script);
}

/// Reports and help of everything.
fn describe(world: &mut World, at: usize, choices: &mut Choices<'_>) {
    let codes = runnel::engine::codes();
    let found = codes[choices.below(codes.len())];
    assert!(found.id.starts_with(['E', 'W']) && !found.title.is_empty());
    let session = &mut world.engines[at];
    let help = session.help(choices.text());
    judge(session, help);
    if let Err(error) = session.eval::<()>(choices.script()) {
        let look = Look { width: choices.of(&[0, 1, 20, 100, usize::MAX]), color: choices.below(2) == 0 };
        let severity = choices.of(&[Severity::Error, Severity::Warning]);
        assert!(!render(&error, session.sources(), severity, look).is_empty());
        // Another session knows none of its sources.
        assert!(!world.engines[1 - at].report(&error).is_empty());
    }
    for warning in world.engines[at].take_warnings() {
        assert!(!world.engines[at].report(&warning).is_empty());
    }
    if let Some((own, program)) = world.programs.last() {
        assert!(!program.name().is_empty() && *own != 2);
    }
    for (_, function) in &world.functions {
        assert!(!function.name().is_empty());
    }
}

/// A tensor of one session, lent to the other, which writes to it; the first reads it.
fn lend_across(world: &mut World, at: usize, choices: &mut Choices<'_>) {
    let device = choices.of(&[DeviceId::Cpu, DeviceId::Cuda(0)]);
    let made = world.engines[at].tensor(&[1.0f32, 2.0], &[2], device);
    let Some(tensor) = judge(&mut world.engines[at], made) else { return };
    let lent = world.engines[at].export_dlpack(&tensor, None);
    let Some(lent) = judge(&mut world.engines[at], lent) else { return };
    let other = &mut world.engines[1 - at];
    // SAFETY: the exporting session does nothing with the tensor until the other one has waited.
    let taken = unsafe { other.import_dlpack(lent) };
    let Some(taken) = judge(other, taken) else { return };
    assert_eq!(code(world.engines[at].read::<f32>(&taken)), Some("E0965"));
    let other = &mut world.engines[1 - at];
    let set = other.set("lent_tensor", &taken);
    if judge(other, set).is_none() {
        return;
    }
    let wrote = other.eval::<f32>("lent_tensor.mul_(10)\nlent_tensor.sum().item()");
    if let Some(sum) = judge(other, wrote) {
        assert_eq!(sum, 30.0);
        let read = world.engines[at].read::<f32>(&tensor);
        if let Some(read) = judge(&mut world.engines[at], read) {
            assert_eq!(read, [10.0, 20.0]);
        }
    }
    let other = &mut world.engines[1 - at];
    let cleared = other.set("lent_tensor", ());
    judge(other, cleared);
}
