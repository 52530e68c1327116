//! Private memory pools.

use super::graphs::GraphPoolObject;
use super::memory::segment_records;
use crate::base::Result;
use crate::device::MemoryPool;
use crate::ops::signature::{Kind, Param, Signature};
use crate::plan::GraphPool;
use crate::vm::{AttributeDef, Exit, NativeDef, Object, Value, Vm};
use std::any::Any;

/// A `mem_pool`, and its part for captures. Two are equal if they are the same pool.
pub struct PoolObject(pub MemoryPool, pub GraphPool);

impl Object for PoolObject {
    fn type_name(&self) -> &'static str {
        "mem_pool"
    }

    fn text(&self) -> String {
        format!("<mem_pool {} of {}>", self.0.id().number(), self.0.device().id())
    }

    fn equals(&self, other: &dyn Object) -> Option<bool> {
        let same = |other: &GraphPoolObject| self.1.same(&other.0);
        let of_graph = other.as_any().downcast_ref::<GraphPoolObject>().map(same);
        of_graph.or_else(|| other.as_any().downcast_ref::<PoolObject>().map(|other| self.0 == other.0))
    }

    fn enter(&self, vm: &mut Vm) -> Result<Exit> {
        // Pending work uses the pools that were current when it was queued.
        vm.rt.refuse_pool(self.0.device().id())?;
        vm.rt.flush()?;
        let scope = self.0.enter();
        Ok(Box::new(move |vm| {
            let flushed = vm.rt.flush();
            drop(scope);
            flushed
        }))
    }

    fn beside(&self) -> usize {
        /// The two pools that it shares, and the session's reference to one.
        const POOLS: usize = 200;
        POOLS
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// A pool's number as PyTorch writes it; `(0, 0)` is the general pool.
pub(super) fn pool_id(number: u64) -> Value {
    Value::tuple(vec![Value::Int(0), super::int(number)])
}

fn pool_of(value: &Value) -> Result<&PoolObject> {
    value.as_object::<PoolObject>().ok_or_else(|| crate::ops::error::wrong_argument(0, "a memory pool"))
}

/// The attributes of this file.
pub(super) static ATTRIBUTES: &[AttributeDef] = &[
    AttributeDef {
        name: "id",
        receiver: "mem_pool",
        doc: "Its number, a pair as in PyTorch. Source: `torch.cuda.MemPool.id`.",
        example: "assert(MemPool().id != MemPool().id)",
        read: |_, x| pool_of(x).map(|p| pool_id(p.0.id().number())),
    },
    AttributeDef {
        name: "id",
        receiver: "graph_pool",
        doc: "Its number, a pair as in PyTorch; for a part of a `MemPool`, the number of the `MemPool`.",
        example: "let p = MemPool()\nlet g = Graph()\nlet y = with graph(g, pool=p) { ones(2) }\nassert(g.pool().id == p.id)",
        read: |_, x| match x.as_object::<GraphPoolObject>() {
            Some(pool) => Ok(pool_id(pool.0.id().number())),
            None => Err(crate::ops::error::wrong_argument(0, "a pool of graphs")),
        },
    },
    AttributeDef {
        name: "device",
        receiver: "mem_pool",
        doc: "The device of its memory.",
        example: "assert(MemPool().device == cuda:0)",
        read: |_, x| pool_of(x).map(|p| Value::Device(p.0.device().id())),
    },
];

/// The natives of this file.
pub(super) static NATIVES: &[NativeDef] = &[
    NativeDef {
        name: "MemPool",
        receiver: "",
        signature: Signature { params: &[] },
        doc: "Makes a private memory pool of the current device: `with mem_pool(p) { }` serves requests from it, and \
              `with graph(g, pool=p) { }` those of a capture. Its memory is kept separately, and is returned when \
              nothing refers to the pool any more. Captures use a separate part of it, because every replay writes \
              there. `p.id` is its number, and so is `g.pool().id`; `p.device` is its device, and `p.snapshot()` \
              returns its segments.\n\nSource: `torch.cuda.MemPool`.",
        example: "let p = MemPool()\nlet x = none\nwith mem_pool(p) { x = zeros(1000) }\nassert(p.snapshot()[0].allocated_size == 4096)",
        run: |vm, _| {
            let id = vm.rt.current_cuda();
            let device = vm.rt.device(id)?;
            let memory = MemoryPool::new(&device);
            let captured = GraphPool::of(&memory);
            vm.rt.know_pool(&captured);
            Ok(Value::object(PoolObject(memory, captured)))
        },
    },
    NativeDef {
        name: "mem_pool",
        receiver: "",
        signature: Signature { params: &[Param::new("pool", Kind::Any)] },
        doc: "Serves requests for memory of the pool's device from a `MemPool` inside `with`; of several pools, the innermost serves them. While a graph of the device is captured that is an error, and the capture is invalid: its memory comes from the pool that `with graph(g, pool=p)` names, which may be a `MemPool`.\n\nSource: `torch.cuda.use_mem_pool`.",
        example: "let p = MemPool()\nlet x = none\nwith mem_pool(p) { x = zeros(10) + 1 }\nassert(len(p.snapshot()) == 1)\nlet g = Graph()\nlet y = with graph(g, pool=p) { x * 2 }\ng.replay()\nassert(y.sum().item() == 20 and g.pool().id == p.id)",
        // A pool is itself a context, which is returned.
        run: |_, args| pool_of(&args[0]).map(|_| args[0].clone()),
    },
    NativeDef {
        name: "snapshot",
        receiver: "mem_pool",
        signature: Signature { params: &[Param::new("self", Kind::Any)] },
        doc: "Returns the pool's segments as a list of records, as `cuda.memory_snapshot` does.\n\nSource: `torch.cuda.MemPool.snapshot`.",
        example: "let p = MemPool()\nassert(len(p.snapshot()) == 0)",
        run: |vm, args| {
            vm.rt.flush()?;
            let segments = pool_of(&args[0])?.0.snapshot();
            Ok(segment_records(vm, segments))
        },
    },
];
