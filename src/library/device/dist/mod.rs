//! Groups of processes, one per device, on one or many machines: `dist.init`, `dist.all_reduce`, ... with the
//! names of `torch.distributed`. Functions return new tensors; only names that end in `_` change their
//! tensor.

#[cfg(feature = "dist")]
mod calls;

use crate::ops::signature::{Default, Kind, Param, Signature};
use crate::vm::NativeDef;

const X: Param = Param::new("x", Kind::Tensor);
const OP: Param = Param::or("op", Kind::Str, Default::Str("sum"));
const SRC: Param = Param::or("src", Kind::Int, Default::Int(0));
const DST: Param = Param::or("dst", Kind::Int, Default::Int(0));

/// The natives of this file.
pub(super) static NATIVES: &[NativeDef] = &[
    NativeDef {
        name: "dist.init",
        receiver: "",
        signature: Signature { params: &[Param::or("timeout", Kind::Float, Default::Float(600.0))] },
        doc: "Connects to the other processes of this launch, and makes the device of this process's local rank the \
              current one.\n\nThe number of processes, and the rank of this one, come from the launcher: `torchrun` \
              (`RANK`, `WORLD_SIZE`, `LOCAL_RANK`, `MASTER_ADDR`, `MASTER_PORT`, which may also be set by hand), \
              `mpirun` of Open MPI or MPICH, or `srun`. Without a launcher the group is only this process, so that a \
              script also runs unchanged as a single process.\n\n`timeout` is the maximum number of seconds for this \
              call and for every operation of the group. On CUDA devices tensors go over NCCL, on emulated ones and on \
              the host through the process of rank 0. A script that ends leaves the group, and waits for the others to \
              leave it too.\n\nSource: `torch.distributed.init_process_group`.",
        example: "dist.init(timeout=60)\nassert(dist.world_size() >= 1 and dist.rank() < dist.world_size())",
        run: part!("dist", calls::init),
    },
    NativeDef {
        name: "dist.is_initialized",
        receiver: "",
        signature: Signature { params: &[] },
        doc: "Whether there is a group: `dist.init()` was called, and `dist.destroy()` was not.\n\nSource: `torch.distributed.is_initialized`.",
        example: "assert(not dist.is_initialized())\ndist.init()\nassert(dist.is_initialized())",
        run: part!("dist", calls::is_initialized),
    },
    NativeDef {
        name: "dist.rank",
        receiver: "",
        signature: Signature { params: &[] },
        doc: "The rank of this process in the group, from 0.\n\nSource: `torch.distributed.get_rank`.",
        example: "dist.init()\nif dist.rank() == 0 { print(\"said once\") }",
        run: part!("dist", calls::rank),
    },
    NativeDef {
        name: "dist.world_size",
        receiver: "",
        signature: Signature { params: &[] },
        doc: "The number of processes in the group.\n\nSource: `torch.distributed.get_world_size`.",
        example: "dist.init()\nlet share = 64 // dist.world_size()\nassert(share <= 64)",
        run: part!("dist", calls::world_size),
    },
    NativeDef {
        name: "dist.local_rank",
        receiver: "",
        signature: Signature { params: &[] },
        doc: "The rank of this process on its machine, from 0: the index of its device.\n\nSource: the variable `LOCAL_RANK` of `torchrun`.",
        example: "dist.init()\nassert(dist.local_rank() <= dist.rank())",
        run: part!("dist", calls::local_rank),
    },
    NativeDef {
        name: "dist.all_reduce",
        receiver: "",
        signature: Signature { params: &[X, OP] },
        doc: "The tensors of all processes combined elementwise, on every process: a new tensor. All must have the \
              same shape and dtype. `op` is `\"sum\"`, `\"product\"`, `\"min\"`, `\"max\"` or `\"avg\"`.\n\nOn \
              emulated devices and on the host a sum is `((x0 + x1) + x2) + ...` in the order of the ranks, rounded to \
              the dtype after each step, with the same bits everywhere. On CUDA devices the order is NCCL's: it \
              depends on the size, the links and the version.\n\nSource: `torch.distributed.all_reduce`, which works \
              in place as `dist.all_reduce_` does.",
        example: "dist.init()\nlet loss = dist.all_reduce([0.5, 1.5], op=\"avg\")\nassert(equal(dist.all_reduce([1, 2]) // dist.world_size(), [1, 2]))",
        run: part!("dist", calls::all_reduce),
    },
    NativeDef {
        name: "dist.all_reduce_",
        receiver: "",
        signature: Signature { params: &[X, OP] },
        doc: "As `dist.all_reduce`, in place: writes the result into the tensor and returns it. It needs no extra memory.\n\nSource: `torch.distributed.all_reduce`.",
        example: "dist.init()\nlet grad = ones(3)\ndist.all_reduce_(grad, op=\"avg\")\nassert(equal(grad, ones(3)))",
        run: part!("dist", calls::all_reduce_),
    },
    NativeDef {
        name: "dist.reduce",
        receiver: "",
        signature: Signature { params: &[X, DST, OP] },
        doc: "The tensors of all processes combined elementwise, as a new tensor on the process `dst`; `none` on the \
              others.\n\nSource: `torch.distributed.reduce`.",
        example: "dist.init()\nlet total = dist.reduce(ones(2), dst=0)\nif dist.rank() == 0 { assert(equal(total, ones(2) * dist.world_size())) }",
        run: part!("dist", calls::reduce),
    },
    NativeDef {
        name: "dist.broadcast",
        receiver: "",
        signature: Signature { params: &[X, SRC] },
        doc: "The tensor of the process `src`, on every process: a new tensor. All pass a tensor of its shape and dtype.\n\nSource: `torch.distributed.broadcast`, which works in place as `dist.broadcast_` does.",
        example: "dist.init()\nlet weights = dist.broadcast(randn(4, 2), src=0)\nassert(weights.shape == (4, 2))",
        run: part!("dist", calls::broadcast),
    },
    NativeDef {
        name: "dist.broadcast_",
        receiver: "",
        signature: Signature { params: &[X, SRC] },
        doc: "As `dist.broadcast`, in place: writes the tensor of the process `src` into the tensor and returns it.\n\nSource: `torch.distributed.broadcast`.",
        example: "dist.init()\nlet w = randn(3)\nlet before = w.clone()\ndist.broadcast_(w)\nif dist.rank() == 0 { assert(equal(w, before)) }",
        run: part!("dist", calls::broadcast_),
    },
    NativeDef {
        name: "dist.all_gather",
        receiver: "",
        signature: Signature { params: &[X] },
        doc: "A tuple of the tensors of all processes, in the order of their ranks, on every process. All must have the same shape and dtype. `stack` and `cat` join them.\n\nSource: `torch.distributed.all_gather`.",
        example: "dist.init()\nlet parts = dist.all_gather([1.0, 2.0])\nassert(len(parts) == dist.world_size() and equal(parts[dist.rank()], [1.0, 2.0]))",
        run: part!("dist", calls::all_gather),
    },
    NativeDef {
        name: "dist.reduce_scatter",
        receiver: "",
        signature: Signature { params: &[X, OP] },
        doc: "Combines the tensors of all processes elementwise, and returns this process's part of the result: the \
              first dimension is split into equal parts, one per rank.\n\nSource: \
              `torch.distributed.reduce_scatter_tensor`.",
        example: "dist.init()\nlet n = dist.world_size()\nassert(equal(dist.reduce_scatter(ones(n * 2)), ones(2) * n))",
        run: part!("dist", calls::reduce_scatter),
    },
    NativeDef {
        name: "dist.all_to_all_single",
        receiver: "",
        signature: Signature { params: &[X] },
        doc: "Returns this process's part of every process's tensor, in rank order: the first dimension is split into \
              equal parts, one per rank. All tensors must have the same shape and dtype, which the result has \
              too.\n\nSource: `torch.distributed.all_to_all_single`, which writes into its argument.",
        example: "dist.init()\nlet (r, n) = (dist.rank(), dist.world_size())\nlet x = dist.all_to_all_single(full((n,), r))\nassert(equal(x, arange(n)))",
        run: part!("dist", calls::all_to_all_single),
    },
    NativeDef {
        name: "dist.send",
        receiver: "",
        signature: Signature { params: &[X, Param::new("dst", Kind::Int)] },
        doc: "Sends a tensor to the process `dst`, which receives it with `dist.recv`. Over host connections it \
              returns when the tensor was received; over NCCL the stream waits, and the host does not. Two processes \
              that both send before they receive wait for each other: let one of them receive first.\n\nSource: \
              `torch.distributed.send`.",
        example: "dist.init()\nif dist.world_size() > 1 {\n    if dist.rank() == 0 { dist.send(ones(2), 1) }\n    if dist.rank() == 1 { assert(equal(dist.recv(zeros(2), 0), ones(2))) }\n}",
        run: part!("dist", calls::send),
    },
    NativeDef {
        name: "dist.recv",
        receiver: "",
        signature: Signature {
            params: &[
                Param::new("like", Kind::Any),
                Param::new("src", Kind::Int),
                Param::named("dtype", Kind::Dtype, Default::None),
                Param::named("device", Kind::Any, Default::None),
            ],
        },
        doc: "The tensor that the process `src` sends with `dist.send`, as a new tensor. `like` is a tensor of its shape and dtype, on the device where the result should be; or its shape, with `dtype` (f32) and `device` (the current one).\n\nSource: `torch.distributed.recv`, which receives into its tensor.",
        example: "dist.init()\nif dist.world_size() > 1 {\n    if dist.rank() == 0 { dist.send(f16[1, 2], 1) }\n    if dist.rank() == 1 { assert(equal(dist.recv((2,), 0, dtype=f16), f16[1, 2])) }\n}",
        run: part!("dist", calls::recv),
    },
    NativeDef {
        name: "dist.barrier",
        receiver: "",
        signature: Signature { params: &[] },
        doc: "Waits until every process has called this, and until the work that this process has queued on the \
              current stream of its device has completed.\n\nSource: `torch.distributed.barrier`.",
        example: "dist.init()\ndist.barrier()",
        run: part!("dist", calls::barrier),
    },
    NativeDef {
        name: "dist.destroy",
        receiver: "",
        signature: Signature { params: &[] },
        doc: "Leaves the group, together with the other processes. The end of the script does this too. Does nothing without a group.\n\nSource: `torch.distributed.destroy_process_group`.",
        example: "dist.init()\ndist.destroy()\nassert(not dist.is_initialized())",
        run: part!("dist", calls::destroy),
    },
];
