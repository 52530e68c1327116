//! Graphs: captured once, replayed as one unit.

use super::pools::PoolObject;
use super::streams::stream_of;
use super::{DEVICE, SELF, contexts, cuda_id};
use crate::base::Result;
use crate::driver::DeviceId;
use crate::library::tree;
use crate::ops::error::wrong_argument;
use crate::ops::signature::{Default, Kind, Param, Signature};
use crate::ops::{Arg, Args, Call, apply, gradient, table};
use crate::plan::{Graph, GraphPool};
use crate::stream::Stream;
use crate::vm::{Bound, Context, Counted, Exit, NativeDef, Object, Value, Values, Vm, compare};
use std::any::Any;
use std::sync::Arc;

/// A `graph`.
pub struct GraphObject(pub Graph);

/// A `graph pool`.
pub struct GraphPoolObject(pub GraphPool);

/// A function that replays a graph: its captured arguments and result.
struct Graphed {
    graph: Graph,
    arguments: Vec<Value>,
    result: Value,
}

const GRAPH: Param = Param::new("self", Kind::Any);
const OF_GRAPH: Signature = Signature { params: &[GRAPH] };
const POOL: Param = Param::or("pool", Kind::Any, Default::None);

impl Object for GraphObject {
    fn type_name(&self) -> &'static str {
        "graph"
    }

    fn text(&self) -> String {
        format!("<graph, {}>", self.0.describe())
    }

    fn beside(&self) -> usize {
        Graph::BYTES
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Object for GraphPoolObject {
    fn type_name(&self) -> &'static str {
        "graph_pool"
    }

    fn text(&self) -> String {
        match self.0.number() {
            0 => "<graph pool, unused>".to_string(),
            number => format!("<graph pool {number}>"),
        }
    }

    fn equals(&self, other: &dyn Object) -> Option<bool> {
        let of_memory = other.as_any().downcast_ref::<PoolObject>().map(|other| self.0.same(&other.1));
        let same = |other: &GraphPoolObject| self.0.same(&other.0);
        of_memory.or_else(|| other.as_any().downcast_ref::<GraphPoolObject>().map(same))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Object for Graphed {
    fn type_name(&self) -> &'static str {
        "graphed"
    }

    fn text(&self) -> String {
        "<graphed function>".to_string()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

fn graph_of(value: &Value, index: usize) -> Result<Graph> {
    match value.as_object::<GraphObject>() {
        Some(graph) => Ok(graph.0.clone()),
        None => Err(crate::ops::error::wrong_argument(index, "a graph")),
    }
}

/// The pool for captures: a graph's pool, a `MemPool`, or the number of either.
fn pool_of(vm: &Vm, value: &Value, index: usize) -> Result<Option<GraphPool>> {
    if value.is_none() {
        return Ok(None);
    }
    let of_graph = value.as_object::<GraphPoolObject>().map(|pool| pool.0.clone());
    let of_memory = || value.as_object::<PoolObject>().map(|pool| pool.1.clone());
    let numbered = || match value {
        Value::Tuple(pair) => match pair.items() {
            [Value::Int(0), Value::Int(number)] => vm.rt.pool_numbered(u64::try_from(*number).ok()?),
            _ => None,
        },
        _ => None,
    };
    let what = "a pool of `cuda.graph_pool_handle()`, `g.pool()` or `MemPool()`, or the `id` of one";
    match of_graph.or_else(of_memory).or_else(numbered) {
        Some(pool) => Ok(Some(pool)),
        None => Err(crate::ops::error::wrong_argument(index, what)),
    }
}

/// Leaves a capture: ends it if the body succeeded, else discards it.
type Leave = Box<dyn FnOnce(&mut Vm, bool) -> Result<()>>;

/// Captures the following work, on a new stream unless one is given.
fn enter_capture(
    vm: &mut Vm,
    graph: &Graph,
    pool: Option<&GraphPool>,
    stream: Option<&Arc<Stream>>,
) -> Result<Leave> {
    let stream = match stream {
        Some(stream) => stream.clone(),
        None => {
            let id = vm.rt.current_cuda();
            vm.rt.capture_stream(id)?
        }
    };
    vm.rt.synchronize_device(stream.device())?;
    let leave = contexts::enter_stream(vm, &stream)?;
    if let Err(error) = vm.rt.begin_capture(graph, pool) {
        leave(vm)?;
        return Err(error);
    }
    let graph = graph.clone();
    Ok(Box::new(move |vm, well| {
        // The body may have selected another stream permanently: the capture ends on its own stream.
        let ended = match well {
            true => vm.rt.set_stream(&stream).and_then(|()| vm.rt.end_capture(&graph)),
            false => {
                vm.rt.abort_capture(&graph);
                Ok(())
            }
        };
        let left = leave(vm);
        ended.and(left)
    }))
}

/// The arguments that a graph reads: copies, so that no call overwrites the caller's tensors.
fn own_arguments(vm: &mut Vm, value: &Value, id: DeviceId) -> Result<Value> {
    tree::rebuilt(
        vm,
        value,
        &mut |vm, leaf| match leaf {
            Value::Tensor(tensor) if tensor.device() == id => {
                gradient::refuse(&mut vm.rt, "cuda.graphed", 2, tensor)?;
                Ok(Value::Tensor(vm.rt.contiguous_copy(tensor)?))
            }
            Value::Tensor(_) => {
                let what = format!("tensors on {id}, which the graph runs on, and not others");
                Err(crate::ops::error::wrong_argument(2, &what))
            }
            other => Ok(other.clone()),
        },
        0,
    )
}

/// Warms a function up, captures one call, and returns the function that replays it.
fn graphed(vm: &mut Vm, args: &[Value]) -> Result<Value> {
    let id = cuda_id(vm, &args[0], &Value::None)?;
    let given = match &args[2] {
        Value::Tensor(_) => [args[2].clone()].into(),
        sequence => vm.collect(sequence)?,
    };
    let pool = pool_of(vm, &args[4], 4)?;
    let arguments: Result<Vec<Value>> = given.iter().map(|value| own_arguments(vm, value, id)).collect();
    let arguments = arguments?;
    let stream = vm.rt.capture_stream(id)?;
    vm.rt.synchronize_device(id)?;
    let leave = contexts::enter_stream(vm, &stream)?;
    let warm_ups = args[3].as_int().unwrap_or(0).max(0);
    let warmed = (0..warm_ups).try_for_each(|_| vm.callback(&args[1], &arguments).map(drop));
    let left = leave(vm);
    warmed.and(left)?;
    let graph = Graph::new();
    let leave = enter_capture(vm, &graph, pool.as_ref(), Some(&stream))?;
    let result = vm.callback(&args[1], &arguments);
    let left = leave(vm, result.is_ok());
    let result = result?;
    left?;
    let receiver = Value::object(Graphed { graph, arguments, result });
    match vm.natives().method(&receiver, "call") {
        Some(method) => Ok(Value::Bound(Counted::shared(Bound { receiver, method }))),
        None => Ok(receiver),
    }
}

/// Copies arguments in, replays, and returns the result.
fn call_graphed(vm: &mut Vm, args: &[Value]) -> Result<Value> {
    let Some(graphed) = args[0].as_object::<Graphed>() else {
        return Err(crate::ops::error::wrong_argument(0, "a function of `cuda.graphed`"));
    };
    let given = vm.collect(&args[1])?;
    if given.len() != graphed.arguments.len() {
        let count = graphed.arguments.len();
        let what = format!("{count} argument{}, as it was captured with,", if count == 1 { "" } else { "s" });
        return Err(crate::ops::error::wrong_argument(1, &what));
    }
    for (index, (fixed, given)) in graphed.arguments.iter().zip(&given).enumerate() {
        copy_in(vm, fixed, given, index)?;
    }
    vm.rt.replay(&graphed.graph)?;
    Ok(graphed.result.clone())
}

/// Copies tensors into the tensors that a graph reads, through lists, tuples, records and dicts; other values
/// must be unchanged.
fn copy_in(vm: &mut Vm, fixed: &Value, given: &Value, index: usize) -> Result<()> {
    let differs = |what: &str| {
        let error = crate::ops::error::wrong_argument(index, what);
        Err(error.help("pass arguments like the captured ones, or capture again with `cuda.graphed`"))
    };
    let (mut ours, mut theirs) = (Values::new(), Values::new());
    tree::leaves(vm, fixed, &mut ours, 0)?;
    tree::beside(vm, fixed, given, index, &mut theirs, 0)?;
    for (fixed, given) in ours.iter().zip(&theirs) {
        match (fixed, given) {
            (Value::Tensor(fixed), Value::Tensor(given)) => {
                gradient::refuse(&mut vm.rt, "a function of `cuda.graphed`", index, given)?;
                if fixed.shape() != given.shape() || fixed.dtype() != given.dtype() {
                    return differs(&format!("a tensor like the captured one, {}", fixed.describe()));
                }
            }
            (Value::Tensor(_), _) | (_, Value::Tensor(_)) => return differs("the value that was captured"),
            (fixed, given) if compare::equal(vm, fixed, given)? => {}
            _ => return differs("the value that was captured"),
        }
    }
    // Nothing is copied unless everything can be.
    for (fixed, given) in ours.iter().zip(&theirs) {
        if let (Value::Tensor(fixed), Value::Tensor(given)) = (fixed, given) {
            let args = [Arg::Tensor(fixed.clone()), Arg::Tensor(given.clone()), Arg::Bool(true)];
            let copy = table::find("copy_").ok_or_else(|| wrong_argument(0, "an operation"))?;
            apply(&mut vm.rt, copy, Call::Plain(Args(&args)))?;
        }
    }
    Ok(())
}

/// The natives of this file.
pub(super) static NATIVES: &[NativeDef] = &[
    NativeDef {
        name: "Graph",
        receiver: "",
        signature: Signature { params: &[] },
        doc: "Makes an empty graph. Work that is captured into it (`with graph(g) { }`) runs at every `replay()`, as one unit: with one launch instead of one per operation.\n\nA replay uses the same tensors again: write new values into the capture's inputs (`x.copy_(new)`), replay, and read its outputs. The graph keeps the inputs alive; tensors made inside the capture are in a private pool.\n\nSource: `torch.cuda.CUDAGraph`.",
        example: "let x = ones(3)\nlet g = Graph()\nlet y = with graph(g) { x * 2 + 1 }\nx.fill_(10)\ng.replay()\nassert(equal(y, [21.0, 21.0, 21.0]))",
        run: |_, _| Ok(Value::object(GraphObject(Graph::new()))),
    },
    NativeDef {
        name: "graph",
        receiver: "",
        signature: Signature {
            params: &[Param::new("graph", Kind::Any), POOL, Param::or("stream", Kind::Stream, Default::None)],
        },
        doc: "Captures the work submitted inside `with` into a graph, instead of running it: on `stream`, or on a new side stream, in memory of `pool` (of another graph, of `cuda.graph_pool_handle()`, or a `MemPool`), or of a new pool. Waits for the device first.\n\nCaptured work cannot be waited for or read inside the capture. A body that ends with an error leaves the graph empty.\n\nSource: `torch.cuda.graph`.",
        example: "let g = Graph()\nlet y = with graph(g) { ones(4).sum() }\ng.replay()\nassert(y.item() == 4)",
        run: |vm, args| {
            let graph = graph_of(&args[0], 0)?;
            let pool = pool_of(vm, &args[1], 1)?;
            let stream = match &args[2] {
                Value::None => None,
                value => Some(stream_of(value, 2)?),
            };
            Ok(Context::value("graph", move |vm| -> Result<Exit> {
                let leave = enter_capture(vm, &graph, pool.as_ref(), stream.as_ref())?;
                Ok(Box::new(move |vm| {
                    let well = !vm.is_failing();
                    leave(vm, well)
                }))
            }))
        },
    },
    NativeDef {
        name: "capture_begin",
        receiver: "graph",
        signature: Signature { params: &[GRAPH, POOL] },
        doc: "Starts to capture the work submitted on the current stream, which must be a side stream. `with graph(g) { }` is better: it ends automatically.\n\nSource: `torch.cuda.CUDAGraph.capture_begin`.",
        example: "let g = Graph()\nwith stream(Stream()) {\n    g.capture_begin()\n    let y = ones(3) + 1\n    g.capture_end()\n    g.replay()\n    assert(equal(y, [2.0, 2.0, 2.0]))\n}",
        run: |vm, args| {
            let (graph, pool) = (graph_of(&args[0], 0)?, pool_of(vm, &args[1], 1)?);
            vm.rt.begin_capture(&graph, pool.as_ref()).map(|()| Value::None)
        },
    },
    NativeDef {
        name: "capture_end",
        receiver: "graph",
        signature: OF_GRAPH,
        doc: "Ends the capture, on the stream that it began on: the graph can be replayed.\n\nSource: `torch.cuda.CUDAGraph.capture_end`.",
        example: "let g = Graph()\nlet s = Stream()\nwith stream(s) {\n    g.capture_begin()\n    let y = arange(3) * 2\n    g.capture_end()\n    g.replay()\n    assert(y.tolist() == [0, 2, 4])\n}",
        run: |vm, args| {
            let graph = graph_of(&args[0], 0)?;
            vm.rt.end_capture(&graph).map(|()| Value::None)
        },
    },
    NativeDef {
        name: "replay",
        receiver: "graph",
        signature: OF_GRAPH,
        doc: "Runs the captured work on the current stream. Random draws in it use the generator as it is now, and advance it.\n\nSource: `torch.cuda.CUDAGraph.replay`.",
        example: "let total = zeros(1)\nlet g = Graph()\nwith graph(g) { total.add_(5) }\nfor i in 0..3 { g.replay() }\nassert(total.item() == 15)",
        run: |vm, args| {
            let graph = graph_of(&args[0], 0)?;
            vm.rt.replay(&graph).map(|()| Value::None)
        },
    },
    NativeDef {
        name: "reset",
        receiver: "graph",
        signature: OF_GRAPH,
        doc: "Makes the graph empty after its replays have ended: its memory is freed, and it can capture again.\n\nSource: `torch.cuda.CUDAGraph.reset`.",
        example: "let g = Graph()\nlet a = with graph(g) { ones(2) }\ng.reset()\nlet b = with graph(g) { ones(2) + 1 }\ng.replay()\nassert(equal(b, [2.0, 2.0]))",
        run: |vm, args| {
            let graph = graph_of(&args[0], 0)?;
            vm.rt.reset_graph(&graph).map(|()| Value::None)
        },
    },
    NativeDef {
        name: "pool",
        receiver: "graph",
        signature: OF_GRAPH,
        doc: "Returns the pool of the graph's memory, for other captures. Graphs that share a pool save memory, and must not run at the same time: the race checker enforces this.\n\nSource: `torch.cuda.CUDAGraph.pool`.",
        example: "let (g, h) = (Graph(), Graph())\nlet a = with graph(g) { ones(4) * 2 }\nlet b = with graph(h, pool=g.pool()) { a + 1 }\ng.replay()\nh.replay()\nassert(b.sum().item() == 12)",
        run: |_, args| Ok(Value::object(GraphPoolObject(graph_of(&args[0], 0)?.pool()?))),
    },
    NativeDef {
        name: "debug_dump",
        receiver: "graph",
        signature: OF_GRAPH,
        doc: "Returns the captured work as a string with one line per step: its lane (0 is the stream that the capture began on, others are streams that joined) and its operation.\n\nSource: `torch.cuda.CUDAGraph.debug_dump`.",
        example: "let x = ones(4)\nlet g = Graph()\nlet y = with graph(g) { (x + 1) * 2 }\nassert(g.debug_dump() == \"lane 0: add+mul [4]\\n\")",
        run: |_, args| Ok(Value::str(graph_of(&args[0], 0)?.dump()?)),
    },
    NativeDef {
        name: "graph_pool_handle",
        receiver: "device",
        signature: Signature { params: &[SELF] },
        doc: "Makes a pool that several captures can share: `with graph(g, pool=p) { }`.\n\nSource: `torch.cuda.graph_pool_handle`.",
        example: "let p = cuda.graph_pool_handle()\nlet g = Graph()\nlet y = with graph(g, pool=p) { ones(2) }\nassert(g.pool() == p)",
        run: |vm, _| {
            let pool = GraphPool::default();
            vm.rt.know_pool(&pool);
            Ok(Value::object(GraphPoolObject(pool)))
        },
    },
    NativeDef {
        name: "is_current_stream_capturing",
        receiver: "device",
        signature: Signature { params: &[SELF, DEVICE] },
        doc: "Returns whether work on the current stream of a device is captured into a graph.\n\nSource: `torch.cuda.is_current_stream_capturing`.",
        example: "assert(not cuda.is_current_stream_capturing())\nwith graph(Graph()) {\n    let y = ones(2)\n    assert(cuda.is_current_stream_capturing())\n}",
        run: |vm, args| {
            let id = cuda_id(vm, &args[0], &args[1])?;
            let stream = vm.rt.current_stream(id)?;
            Ok(Value::Bool(vm.rt.is_capturing(&stream)))
        },
    },
    NativeDef {
        name: "graphed",
        receiver: "device",
        signature: Signature {
            params: &[
                SELF,
                Param::new("function", Kind::Any),
                Param::new("args", Kind::Any),
                Param::or("warmup", Kind::Int, Default::Int(3)),
                POOL,
            ],
        },
        doc: "Captures one call of a function with arguments like `args`, and returns a function that copies its \
              arguments in, replays, and returns the result.\n\nArguments are tensors on the device, and tuples, lists \
              and records of them; every call passes the same shapes and dtypes, and other values stay as they were \
              captured. The result is the same tensors at every call, with new values: `clone()` values that must \
              outlive the next call. `warmup` calls run before the capture.\n\nSource: \
              `torch.cuda.make_graphed_callables`.",
        example: "let w = randn(4, 2)\nlet f = cuda.graphed(|x| relu(x @ w), [randn(3, 4)])\nlet x = randn(3, 4)\nassert(equal(f(x), relu(x @ w)))",
        run: |vm, args| graphed(vm, args),
    },
    NativeDef {
        name: "call",
        receiver: "graphed",
        signature: Signature { params: &[GRAPH, Param::rest("args", Kind::Any)] },
        doc: "Calls a function of `cuda.graphed`.",
        example: "let f = cuda.graphed(|x| x * 2, [zeros(2)])\nassert(equal(f([1.0, 2.0] on cuda), [2.0, 4.0]))",
        run: |vm, args| call_graphed(vm, args),
    },
];
