//! Random generators: seeds and states.

use super::{DEVICE, SELF, cuda_id, device_of, int};
use crate::array::Dtype;
use crate::base::Result;
use crate::driver::DeviceId;
use crate::ops::Arg;
use crate::ops::error::bad_value;
use crate::ops::random::STEP;
use crate::ops::signature::{Default, Kind, Param, Signature};
use crate::tensor::{Generator, GeneratorState};
use crate::vm::{AttributeDef, Context, NativeDef, Object, Value, Vm};
use std::any::Any;

/// A `generator`.
pub struct GeneratorObject(pub Generator);

const ALONE: Signature = Signature { params: &[SELF] };
const GENERATOR: Param = Param::new("self", Kind::Generator);

impl Object for GeneratorObject {
    fn type_name(&self) -> &'static str {
        "generator"
    }

    fn text(&self) -> String {
        format!("<generator of {}>", self.0.device())
    }

    fn equals(&self, other: &dyn Object) -> Option<bool> {
        other.as_any().downcast_ref::<GeneratorObject>().map(|other| self.0.same(&other.0))
    }

    fn as_arg(&self, kind: Kind) -> Option<Arg> {
        (kind == Kind::Generator).then(|| Arg::Generator(self.0.clone()))
    }

    fn beside(&self) -> usize {
        // The shared state.
        size_of::<GeneratorState>() + 40
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Every CUDA device's default generator.
fn all(vm: &Vm) -> Result<Vec<Generator>> {
    let count = vm.rt.machine().device_count() as u32;
    (0..count).map(|i| vm.rt.generator(DeviceId::Cuda(i))).collect()
}

/// Seeds every CUDA device's default generator, and the host's.
fn seed_everything(vm: &mut Vm, seed: u64) -> Result<()> {
    let mut generators = all(vm)?;
    generators.push(vm.rt.generator(DeviceId::Cpu)?);
    vm.rt.seed_generators(&generators, seed)
}

/// Seeds every CUDA device's default generator.
fn seed_all(vm: &mut Vm, seed: u64) -> Result<Value> {
    let generators = all(vm)?;
    vm.rt.seed_generators(&generators, seed).map(|()| Value::None)
}

fn own(vm: &Vm, args: &[Value], at: usize) -> Result<Generator> {
    let id = cuda_id(vm, &args[0], &args[at])?;
    vm.rt.generator(id)
}

pub(super) fn generator_of(value: &Value) -> Result<Generator> {
    match value.as_object::<GeneratorObject>() {
        Some(generator) => Ok(generator.0.clone()),
        None => Err(crate::ops::error::wrong_argument(0, "a generator")),
    }
}

/// A state as a `u8` tensor of 16 elements on the host: seed, then offset, little-endian.
fn state_value(vm: &mut Vm, generator: &Generator) -> Result<Value> {
    let bytes = generator.state().to_bytes();
    vm.rt.from_host(&bytes, &[bytes.len()], Dtype::U8, DeviceId::Cpu).map(Value::Tensor)
}

fn state_of(vm: &mut Vm, value: &Value, at: usize) -> Result<GeneratorState> {
    let help = "pass a result of `get_rng_state`";
    let bytes = match value {
        Value::Tensor(t) if t.dtype() == Dtype::U8 && t.device() == DeviceId::Cpu => vm.rt.read(t)?,
        _ => return Err(bad_value(at, "RNG state must be a torch.ByteTensor: `u8` on the host", help)),
    };
    GeneratorState::from_bytes(&bytes).ok_or_else(|| {
        bad_value(
            at,
            format!("RNG state is wrong size: {} bytes, and not 16 (or 8, a seed)", bytes.len()),
            help,
        )
    })
}

/// An offset at which a draw may start. Source: `CUDAGeneratorImpl::set_offset`.
fn offset_of(value: &Value, at: usize) -> Result<u64> {
    match value.as_int().and_then(|offset| u64::try_from(offset).ok()) {
        Some(offset) if offset % STEP == 0 => Ok(offset),
        _ => Err(bad_value(at, "offset must be a multiple of 4", "write 0, 4, 8, ...")),
    }
}

/// The generators that a fork restores: the host's, and those of the given or all devices.
fn forked(vm: &Vm, devices: &Value) -> Result<Vec<Generator>> {
    let mut generators = vec![vm.rt.generator(DeviceId::Cpu)?];
    let listed = match devices {
        Value::None => {
            generators.extend(all(vm)?);
            return Ok(generators);
        }
        Value::List(list) => list.to_vec(),
        Value::Tuple(tuple) => tuple.items().to_vec().into(),
        one => [one.clone()].into(),
    };
    for device in &listed {
        generators.push(vm.rt.generator(device_of(vm, device, vm.rt.current_cuda())?)?);
    }
    Ok(generators)
}

/// A seed from the system's random source.
fn fresh_seed() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    let hasher = std::collections::hash_map::RandomState::new().build_hasher();
    hasher.finish() >> 11
}

fn seed_int(seed: u64) -> Value {
    Value::Int(seed as i64)
}

/// The attributes of this file.
pub(super) static ATTRIBUTES: &[AttributeDef] = &[AttributeDef {
    name: "device",
    receiver: "generator",
    doc: "The device of the generator. Source: `torch.Generator.device`.",
    example: "assert(Generator(cuda:1).device == cuda:1)",
    read: |_, x| generator_of(x).map(|g| Value::Device(g.device())),
}];

/// The natives of this file.
pub(super) static NATIVES: &[NativeDef] = &[
    NativeDef {
        name: "manual_seed",
        receiver: "",
        signature: Signature { params: &[Param::new("seed", Kind::Int)] },
        doc: "Seeds the generators of every device, and of the host.\n\nSource: `torch.manual_seed`.",
        example: "manual_seed(7)\nlet a = rand(3).tolist()\nmanual_seed(7)\nassert(rand(3).tolist() == a)",
        run: |vm, args| seed_everything(vm, args[0].as_int().unwrap_or(0) as u64).map(|()| Value::None),
    },
    NativeDef {
        name: "initial_seed",
        receiver: "",
        signature: Signature { params: &[] },
        doc: "Returns the seed of the host's generator.\n\nSource: `torch.initial_seed`.",
        example: "manual_seed(3)\nassert(initial_seed() == 3)",
        run: |vm, _| Ok(seed_int(vm.rt.generator(DeviceId::Cpu)?.state().seed)),
    },
    NativeDef {
        name: "seed",
        receiver: "",
        signature: Signature { params: &[] },
        doc: "Seeds the generators of every device, and of the host, with one number from the system, and returns it.\n\nSource: `torch.seed`.",
        example: "let s = seed()\nassert(initial_seed() == s)\nmanual_seed(0)",
        run: |vm, _| {
            let seed = fresh_seed();
            seed_everything(vm, seed)?;
            Ok(seed_int(seed))
        },
    },
    NativeDef {
        name: "get_rng_state",
        receiver: "",
        signature: Signature { params: &[] },
        doc: "Returns the state of the host's generator, as `cuda.get_rng_state` does for a device.\n\nSource: `torch.get_rng_state`.",
        example: "let s = get_rng_state()\nlet a = rand(2, device=cpu).tolist()\nset_rng_state(s)\nassert(rand(2, device=cpu).tolist() == a)",
        run: |vm, _| {
            let generator = vm.rt.generator(DeviceId::Cpu)?;
            state_value(vm, &generator)
        },
    },
    NativeDef {
        name: "set_rng_state",
        receiver: "",
        signature: Signature { params: &[Param::new("state", Kind::Any)] },
        doc: "Restores a state of `get_rng_state`.\n\nSource: `torch.set_rng_state`.",
        example: "set_rng_state(get_rng_state())",
        run: |vm, args| {
            let state = state_of(vm, &args[0].clone(), 0)?;
            let generator = vm.rt.generator(DeviceId::Cpu)?;
            vm.rt.set_generators(&[(generator, state)])?;
            Ok(Value::None)
        },
    },
    NativeDef {
        name: "fork_rng",
        receiver: "",
        signature: Signature {
            params: &[
                Param::or("devices", Kind::Any, Default::None),
                Param::or("enabled", Kind::Bool, Default::Bool(true)),
            ],
        },
        doc: "Forks the generators inside `with`: draws and seeds there have no effect outside. The states of the host's generator and of those of `devices` (a list; default: all) are restored when the block is left, also after an error.\n\nSource: `torch.random.fork_rng`.",
        example: "manual_seed(7)\nlet a = with fork_rng() { rand(3).tolist() }\nassert(rand(3).tolist() == a)",
        run: |vm, args| {
            if matches!(args[1], Value::Bool(false)) {
                return Ok(Context::value("fork_rng", super::contexts::nothing));
            }
            let generators = forked(vm, &args[0])?;
            Ok(Context::value("fork_rng", move |vm| {
                let states: Vec<_> = generators.iter().map(|g| (g.clone(), g.state())).collect();
                // A replay would advance the generators anyway.
                vm.rt.refuse_set_generators(&states)?;
                Ok(Box::new(move |vm| vm.rt.set_generators(&states)))
            }))
        },
    },
    NativeDef {
        name: "manual_seed",
        receiver: "device",
        signature: Signature { params: &[SELF, Param::new("seed", Kind::Int)] },
        doc: "Seeds the generator of one device.\n\nSource: `torch.cuda.manual_seed`.",
        example: "cuda.manual_seed(7)\nassert(cuda.initial_seed() == 7)",
        run: |vm, args| {
            // Without a device there is nothing to seed, which is not an error.
            if vm.rt.machine().device_count() > 0 {
                let generator = own(vm, &[args[0].clone(), Value::None], 1)?;
                vm.rt.seed_generators(&[generator], args[1].as_int().unwrap_or(0) as u64)?;
            }
            Ok(Value::None)
        },
    },
    NativeDef {
        name: "manual_seed_all",
        receiver: "device",
        signature: Signature { params: &[SELF, Param::new("seed", Kind::Int)] },
        doc: "Seeds the generators of all CUDA devices.\n\nSource: `torch.cuda.manual_seed_all`.",
        example: "cuda.manual_seed_all(7)\nassert(cuda:0.initial_seed() == 7)",
        run: |vm, args| {
            let seed = args[1].as_int().unwrap_or(0) as u64;
            seed_all(vm, seed)
        },
    },
    NativeDef {
        name: "seed",
        receiver: "device",
        signature: ALONE,
        doc: "Seeds the generator of one device with a number from the system, and returns it.\n\nSource: `torch.cuda.seed`.",
        example: "let s = cuda.seed()\nassert(cuda.initial_seed() == s)\ncuda.manual_seed(0)",
        run: |vm, args| {
            let seed = fresh_seed();
            let generator = own(vm, &[args[0].clone(), Value::None], 1)?;
            vm.rt.seed_generators(&[generator], seed)?;
            Ok(seed_int(seed))
        },
    },
    NativeDef {
        name: "seed_all",
        receiver: "device",
        signature: ALONE,
        doc: "Seeds the generators of all CUDA devices with one number from the system, and returns it.\n\nSource: `torch.cuda.seed_all`.",
        example: "let s = cuda.seed_all()\nassert(cuda:0.initial_seed() == s)\ncuda.manual_seed_all(0)",
        run: |vm, _| {
            let seed = fresh_seed();
            seed_all(vm, seed)?;
            Ok(seed_int(seed))
        },
    },
    NativeDef {
        name: "initial_seed",
        receiver: "device",
        signature: ALONE,
        doc: "Returns the seed of one device's generator.\n\nSource: `torch.cuda.initial_seed`.",
        example: "cuda.manual_seed(3)\nassert(cuda.initial_seed() == 3)",
        run: |vm, args| Ok(seed_int(own(vm, &[args[0].clone(), Value::None], 1)?.state().seed)),
    },
    NativeDef {
        name: "get_rng_state",
        receiver: "device",
        signature: Signature { params: &[SELF, DEVICE] },
        doc: "Returns the state of a device's generator: a u8 tensor of 16 elements on the host, 8 bytes of seed and 8 of offset, little-endian.\n\nSource: `torch.cuda.get_rng_state`.",
        example: "let s = cuda.get_rng_state()\nlet a = rand(2).tolist()\ncuda.set_rng_state(s)\nassert(rand(2).tolist() == a)",
        run: |vm, args| {
            let generator = own(vm, args, 1)?;
            state_value(vm, &generator)
        },
    },
    NativeDef {
        name: "get_rng_state_all",
        receiver: "device",
        signature: ALONE,
        doc: "Returns the states of all CUDA devices' generators as a list.\n\nSource: `torch.cuda.get_rng_state_all`.",
        example: "assert(len(cuda.get_rng_state_all()) == cuda.device_count())",
        run: |vm, _| {
            let states: Result<Vec<Value>> = all(vm)?.iter().map(|g| state_value(vm, g)).collect();
            states.map(Value::list)
        },
    },
    NativeDef {
        name: "set_rng_state",
        receiver: "device",
        signature: Signature { params: &[SELF, Param::new("state", Kind::Any), DEVICE] },
        doc: "Restores a state of `get_rng_state`. Eight bytes are read as a seed, with offset 0.\n\nSource: `torch.cuda.set_rng_state`.",
        example: "cuda.set_rng_state(cuda.get_rng_state())",
        run: |vm, args| {
            let generator = own(vm, args, 2)?;
            let state = state_of(vm, &args[1].clone(), 1)?;
            vm.rt.set_generators(&[(generator, state)])?;
            Ok(Value::None)
        },
    },
    NativeDef {
        name: "set_rng_state_all",
        receiver: "device",
        signature: Signature { params: &[SELF, Param::new("states", Kind::Any)] },
        doc: "Restores the states of all CUDA devices' generators from a list, in device order.\n\nSource: `torch.cuda.set_rng_state_all`.",
        example: "cuda.set_rng_state_all(cuda.get_rng_state_all())",
        run: |vm, args| {
            let states = match &args[1] {
                Value::List(_) | Value::Tuple(_) => vm.collect(&args[1])?,
                _ => return Err(crate::ops::error::wrong_argument(1, "a list of RNG states")),
            };
            let generators = all(vm)?;
            if states.len() != generators.len() {
                let message = format!("{} states for {} devices", states.len(), generators.len());
                return Err(bad_value(1, message, "pass a result of `get_rng_state_all`"));
            }
            let states: Result<Vec<GeneratorState>> = states.iter().map(|s| state_of(vm, s, 1)).collect();
            let states: Vec<(Generator, GeneratorState)> = generators.into_iter().zip(states?).collect();
            vm.rt.set_generators(&states)?;
            Ok(Value::None)
        },
    },
    NativeDef {
        name: "get_rng_state_offset",
        receiver: "device",
        signature: Signature { params: &[SELF, DEVICE] },
        doc: "Returns the offset of a device's generator: each draw advances it by 4.\n\nSource: `torch.cuda.random._get_rng_state_offset`.",
        example: "cuda.manual_seed(1)\nrand(10)\nassert(cuda.get_rng_state_offset() == 4)",
        run: |vm, args| Ok(int(own(vm, args, 1)?.state().offset)),
    },
    NativeDef {
        name: "set_rng_state_offset",
        receiver: "device",
        signature: Signature { params: &[SELF, Param::new("offset", Kind::Int), DEVICE] },
        doc: "Moves a device's generator to an offset, a multiple of 4.\n\nSource: `torch.cuda.random._set_rng_state_offset`.",
        example: "cuda.set_rng_state_offset(100)\nassert(cuda.get_rng_state_offset() == 100)",
        run: |vm, args| {
            let generator = own(vm, args, 2)?;
            let offset = offset_of(&args[1], 1)?;
            let state = GeneratorState { offset, ..generator.state() };
            vm.rt.set_generators(&[(generator, state)])?;
            Ok(Value::None)
        },
    },
    NativeDef {
        name: "Generator",
        receiver: "",
        signature: Signature { params: &[Param::or("device", Kind::Any, Default::None)] },
        doc: "Makes a generator of a device (the current one when left out), for `generator=` of the random factories.\n\nSource: `torch.Generator`.",
        example: "let g = Generator(cuda:0)\ng.manual_seed(7)\nlet a = rand(3, generator=g).tolist()\ng.manual_seed(7)\nassert(rand(3, generator=g).tolist() == a)",
        run: |vm, args| {
            let id = match &args[0] {
                Value::None => vm.rt.current_device(),
                value => device_of(vm, value, vm.rt.current_cuda())?,
            };
            vm.rt.generator(id)?;
            Ok(Value::object(GeneratorObject(Generator::new(id))))
        },
    },
    NativeDef {
        name: "manual_seed",
        receiver: "generator",
        signature: Signature { params: &[GENERATOR, Param::new("seed", Kind::Int)] },
        doc: "Seeds the generator and returns it.\n\nSource: `torch.Generator.manual_seed`.",
        example: "let g = Generator().manual_seed(7)\nassert(g.initial_seed() == 7)",
        run: |vm, args| {
            let generator = generator_of(&args[0])?;
            vm.rt.seed_generators(&[generator], args[1].as_int().unwrap_or(0) as u64)?;
            Ok(args[0].clone())
        },
    },
    NativeDef {
        name: "initial_seed",
        receiver: "generator",
        signature: Signature { params: &[GENERATOR] },
        doc: "Returns the generator's seed.\n\nSource: `torch.Generator.initial_seed`.",
        example: "assert(Generator().manual_seed(7).initial_seed() == 7)",
        run: |_, args| Ok(seed_int(generator_of(&args[0])?.state().seed)),
    },
    NativeDef {
        name: "get_state",
        receiver: "generator",
        signature: Signature { params: &[GENERATOR] },
        doc: "Returns the generator's state as a u8 tensor of 16 elements.\n\nSource: `torch.Generator.get_state`.",
        example: "assert(Generator().get_state().shape == (16,))",
        run: |vm, args| {
            let generator = generator_of(&args[0])?;
            state_value(vm, &generator)
        },
    },
    NativeDef {
        name: "set_state",
        receiver: "generator",
        signature: Signature { params: &[GENERATOR, Param::new("state", Kind::Any)] },
        doc: "Restores a state of `get_state`.\n\nSource: `torch.Generator.set_state`.",
        example: "let g = Generator()\ng.set_state(g.get_state())",
        run: |vm, args| {
            let generator = generator_of(&args[0])?;
            let state = state_of(vm, &args[1].clone(), 1)?;
            vm.rt.set_generators(&[(generator, state)])?;
            Ok(args[0].clone())
        },
    },
    NativeDef {
        name: "seed",
        receiver: "generator",
        signature: Signature { params: &[GENERATOR] },
        doc: "Seeds the generator with a number from the system, and returns it.\n\nSource: `torch.Generator.seed`.",
        example: "let g = Generator()\nassert(g.seed() == g.initial_seed())",
        run: |vm, args| {
            let (seed, generator) = (fresh_seed(), generator_of(&args[0])?);
            vm.rt.seed_generators(&[generator], seed)?;
            Ok(seed_int(seed))
        },
    },
    NativeDef {
        name: "get_offset",
        receiver: "generator",
        signature: Signature { params: &[GENERATOR] },
        doc: "Returns the generator's offset: each draw advances it by 4.\n\nSource: `torch.Generator.get_offset`.",
        example: "let g = Generator()\nrand(10, generator=g)\nassert(g.get_offset() == 4)",
        run: |_, args| Ok(int(generator_of(&args[0])?.state().offset)),
    },
    NativeDef {
        name: "set_offset",
        receiver: "generator",
        signature: Signature { params: &[GENERATOR, Param::new("offset", Kind::Int)] },
        doc: "Moves the generator to an offset, a multiple of 4, and returns it.\n\nSource: `torch.Generator.set_offset`.",
        example: "let g = Generator().set_offset(100)\nassert(g.get_offset() == 100)",
        run: |vm, args| {
            let generator = generator_of(&args[0])?;
            let offset = offset_of(&args[1], 1)?;
            let state = GeneratorState { offset, ..generator.state() };
            vm.rt.set_generators(&[(generator, state)])?;
            Ok(args[0].clone())
        },
    },
    NativeDef {
        name: "clone_state",
        receiver: "generator",
        signature: Signature { params: &[GENERATOR] },
        doc: "Makes a generator of the same device in the same state; the two are independent from then on.\n\nSource: `torch.Generator.clone_state`.",
        example: "let g = Generator().manual_seed(7)\nlet h = g.clone_state()\nassert(rand(3, generator=g).tolist() == rand(3, generator=h).tolist())",
        run: |_, args| {
            let generator = generator_of(&args[0])?;
            let other = Generator::new(generator.device());
            other.set_state(generator.state());
            Ok(Value::object(GeneratorObject(other)))
        },
    },
];
