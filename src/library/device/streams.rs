//! Streams and events.

use super::{DEVICE, SELF, cuda_device, cuda_id, int};
use crate::array::Dtype;
use crate::base::Result;
use crate::driver::DeviceId;
use crate::ops::Arg;
use crate::ops::signature::{Default, Kind, Param, Signature};
use crate::stream::{Event, EventFlags, Stream};
use crate::vm::{AttributeDef, Exit, NativeDef, Object, Value, Vm};
use std::any::Any;
use std::sync::Arc;

/// A `stream`. Two are equal if device and handle are equal.
pub struct StreamObject(pub Arc<Stream>);

/// An `event`.
pub struct EventObject(pub Arc<Event>);

const STREAM: Param = Param::new("self", Kind::Stream);
const EVENT: Param = Param::new("self", Kind::Event);
const OF_STREAM: Signature = Signature { params: &[STREAM] };
const OF_EVENT: Signature = Signature { params: &[EVENT] };

impl Object for StreamObject {
    fn type_name(&self) -> &'static str {
        "stream"
    }

    fn text(&self) -> String {
        match self.0.is_default() {
            true => format!("<default stream of {}>", self.0.device()),
            false => {
                format!("<stream {} of {}, priority {}>", self.0.id(), self.0.device(), self.0.priority())
            }
        }
    }

    fn equals(&self, other: &dyn Object) -> Option<bool> {
        other.as_any().downcast_ref::<StreamObject>().map(|other| self.0 == other.0)
    }

    fn enter(&self, vm: &mut Vm) -> Result<Exit> {
        super::contexts::enter_stream(vm, &self.0)
    }

    fn as_arg(&self, kind: Kind) -> Option<Arg> {
        (kind == Kind::Stream).then(|| Arg::Stream(self.0.clone()))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Object for EventObject {
    fn type_name(&self) -> &'static str {
        "event"
    }

    fn text(&self) -> String {
        match self.0.device() {
            Some(device) => format!("<event of {device}>"),
            None => "<event, not recorded>".to_string(),
        }
    }

    fn equals(&self, other: &dyn Object) -> Option<bool> {
        other.as_any().downcast_ref::<EventObject>().map(|other| Arc::ptr_eq(&self.0, &other.0))
    }

    fn as_arg(&self, kind: Kind) -> Option<Arg> {
        (kind == Kind::Event).then(|| Arg::Event(self.0.clone()))
    }

    fn beside(&self) -> usize {
        /// The event of the driver and the clock, once it is recorded.
        const RECORDED: usize = 320;
        size_of::<Event>() + RECORDED
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// The stream of a value.
pub(super) fn stream_of(value: &Value, index: usize) -> Result<Arc<Stream>> {
    match value.as_object::<StreamObject>() {
        Some(stream) => Ok(stream.0.clone()),
        None => Err(crate::ops::error::wrong_argument(index, "a stream")),
    }
}

fn event_of(value: &Value, index: usize) -> Result<Arc<Event>> {
    match value.as_object::<EventObject>() {
        Some(event) => Ok(event.0.clone()),
        None => Err(crate::ops::error::wrong_argument(index, "an event")),
    }
}

/// The given stream, or the current stream of the current CUDA device.
fn stream_or_current(vm: &mut Vm, value: &Value, index: usize) -> Result<Arc<Stream>> {
    if !value.is_none() {
        return stream_of(value, index);
    }
    let id = vm.rt.current_cuda();
    vm.rt.current_stream(id)
}

fn stream_value(stream: &Arc<Stream>) -> Value {
    Value::object(StreamObject(stream.clone()))
}

/// The attributes of this file.
pub(super) static ATTRIBUTES: &[AttributeDef] = &[
    AttributeDef {
        name: "device",
        receiver: "stream",
        doc: "The device of the stream. Source: `torch.cuda.Stream`.",
        example: "assert(Stream(device=cuda:1).device == cuda:1)",
        read: |_, x| stream_of(x, 0).map(|s| Value::Device(s.device())),
    },
    AttributeDef {
        name: "priority",
        receiver: "stream",
        doc: "0 is the lowest, -1 is high, down to the minimum of the driver. Source: `torch.cuda.Stream.priority`.",
        example: "assert(Stream(priority=-1).priority == -1)",
        read: |_, x| stream_of(x, 0).map(|s| Value::Int(i64::from(s.priority()))),
    },
    AttributeDef {
        name: "cuda_stream",
        receiver: "stream",
        doc: "The driver's handle as an int, for other libraries; 0 for a default stream. Source: `torch.cuda.Stream.cuda_stream`.",
        example: "assert(cuda.default_stream().cuda_stream == 0 and Stream().cuda_stream != 0)",
        read: |_, x| stream_of(x, 0).map(|s| int(s.handle())),
    },
    AttributeDef {
        name: "device",
        receiver: "event",
        doc: "The device of the stream that recorded it; `none` before. Source: `torch.cuda.Event`.",
        example: "let e = Event()\nassert(e.device == none)\ne.record()\nassert(e.device == cuda:0)",
        read: |_, x| event_of(x, 0).map(|e| e.device().map_or(Value::None, Value::Device)),
    },
    AttributeDef {
        name: "cuda_event",
        receiver: "event",
        doc: "The driver's handle as an int, for other libraries; 0 before the first record. Source: `torch.cuda.Event`.",
        example: "assert(Event().cuda_event == 0)",
        read: |_, x| event_of(x, 0).map(|e| int(e.handle())),
    },
];

/// The natives of this file.
pub(super) static NATIVES: &[NativeDef] = &[
    NativeDef {
        name: "Stream",
        receiver: "",
        signature: Signature {
            params: &[
                Param::or("device", Kind::Any, Default::None),
                Param::or("priority", Kind::Int, Default::Int(0)),
            ],
        },
        doc: "Makes a side stream of a device (the current CUDA device when left out), from a pool of 32 per priority \
              that is handed out round robin. Priority 0 is the lowest, negative ones are more urgent, down to -5 on \
              today's GPUs and -3 on emulated devices; numbers below the device's minimum are clamped, and a number \
              above 0 is an error.\n\nOnly events and waits order the work of two streams; the race checker refuses \
              accesses that are not ordered.\n\nSource: `torch.cuda.Stream`.",
        example: "let s = Stream()\nassert(s != cuda.default_stream())\nassert(s.query())",
        run: |vm, args| {
            let current = Value::Device(vm.rt.current_cuda());
            let device = cuda_device(vm, &current, &args[0])?;
            let priority = args[1].as_int().unwrap_or(0);
            Ok(stream_value(&device.stream(priority)?))
        },
    },
    NativeDef {
        name: "current_stream",
        receiver: "device",
        signature: Signature { params: &[SELF, DEVICE] },
        doc: "Returns the current stream of a device.\n\nSource: `torch.cuda.current_stream`.",
        example: "assert(cuda.current_stream() == cuda.default_stream())",
        run: |vm, args| {
            let id = cuda_id(vm, &args[0], &args[1])?;
            Ok(stream_value(&vm.rt.current_stream(id)?))
        },
    },
    NativeDef {
        name: "default_stream",
        receiver: "device",
        signature: Signature { params: &[SELF, DEVICE] },
        doc: "Returns the default stream of a device.\n\nSource: `torch.cuda.default_stream`.",
        example: "assert(cuda.default_stream().cuda_stream == 0)",
        run: |vm, args| Ok(stream_value(cuda_device(vm, &args[0], &args[1])?.default_stream())),
    },
    NativeDef {
        name: "set_stream",
        receiver: "device",
        signature: Signature { params: &[SELF, Param::or("stream", Kind::Any, Default::None)] },
        doc: "Makes a stream the current one, and its device the current device, until another one is selected; `none` \
              changes nothing. `with stream(s) { }` is better: it restores the previous stream.\n\nSource: \
              `torch.cuda.set_stream`.",
        example: "let s = Stream()\ncuda.set_stream(s)\nassert(cuda.current_stream() == s)\ncuda.set_stream(cuda.default_stream())",
        run: |vm, args| {
            if args[1].is_none() {
                return Ok(Value::None);
            }
            let stream = stream_of(&args[1], 1)?;
            vm.rt.set_device(stream.device())?;
            vm.rt.set_stream(&stream).map(|()| Value::None)
        },
    },
    NativeDef {
        name: "query",
        receiver: "stream",
        signature: OF_STREAM,
        doc: "Returns whether everything submitted to the stream has finished. A true result orders the work before \
              later work of the host.\n\nSource: `torch.cuda.Stream.query`.",
        example: "let s = Stream()\nassert(s.query())",
        run: |vm, args| {
            let stream = stream_of(&args[0], 0)?;
            vm.rt.query_stream(&stream).map(Value::Bool)
        },
    },
    NativeDef {
        name: "synchronize",
        receiver: "stream",
        signature: OF_STREAM,
        doc: "Waits until everything submitted to the stream has finished.\n\nSource: `torch.cuda.Stream.synchronize`.",
        example: "let s = Stream()\ns.synchronize()\nassert(s.query())",
        run: |vm, args| {
            let stream = stream_of(&args[0], 0)?;
            vm.rt.synchronize_stream(&stream).map(|()| Value::None)
        },
    },
    NativeDef {
        name: "wait_stream",
        receiver: "stream",
        signature: Signature { params: &[STREAM, Param::new("stream", Kind::Stream)] },
        doc: "Makes later work on this stream wait for all work submitted to the other so far. The host does not wait.\n\nSource: `torch.cuda.Stream.wait_stream`.",
        example: "let x = ones(4)\nlet s = Stream()\ns.wait_stream(cuda.current_stream())\nlet total = with stream(s) { x.sum() }\ncuda.current_stream().wait_stream(s)\nassert(total.item() == 4.0)",
        run: |vm, args| {
            let (stream, other) = (stream_of(&args[0], 0)?, stream_of(&args[1], 1)?);
            vm.rt.wait_stream(&stream, &other).map(|()| Value::None)
        },
    },
    NativeDef {
        name: "wait_event",
        receiver: "stream",
        signature: Signature { params: &[STREAM, Param::new("event", Kind::Event)] },
        doc: "Makes later work on this stream wait for an event.\n\nSource: `torch.cuda.Stream.wait_event`.",
        example: "let e = cuda.current_stream().record_event()\nlet s = Stream()\ns.wait_event(e)",
        run: |vm, args| {
            let (stream, event) = (stream_of(&args[0], 0)?, event_of(&args[1], 1)?);
            vm.rt.wait_event(&stream, &event).map(|()| Value::None)
        },
    },
    NativeDef {
        name: "record_event",
        receiver: "stream",
        signature: Signature { params: &[STREAM, Param::or("event", Kind::Event, Default::None)] },
        doc: "Records an event (a new one when left out) after everything submitted to the stream, and returns it.\n\nSource: `torch.cuda.Stream.record_event`.",
        example: "let e = Stream().record_event()\ne.synchronize()\nassert(e.query())",
        run: |vm, args| {
            let stream = stream_of(&args[0], 0)?;
            let event = match &args[1] {
                Value::None => vm.rt.event(EventFlags::default())?,
                value => event_of(value, 1)?,
            };
            vm.rt.record_event(&event, &stream)?;
            Ok(Value::object(EventObject(event)))
        },
    },
    NativeDef {
        name: "Event",
        receiver: "",
        signature: Signature {
            params: &[
                Param::or("enable_timing", Kind::Bool, Default::Bool(false)),
                Param::or("blocking", Kind::Bool, Default::Bool(false)),
                Param::or("interprocess", Kind::Bool, Default::Bool(false)),
                Param::named("timing", Kind::Bool, Default::Bool(false)),
            ],
        },
        doc: "Makes an event: a point in a stream's work. It belongs to no device before its first record; only streams of that device may record it again, any may wait for it. With `enable_timing` (or `timing`), `elapsed_time` works.\n\nSource: `torch.cuda.Event`.",
        example: "let e = Event(enable_timing=true)\nassert(e.query())\nassert(e.device == none)",
        run: |vm, args| {
            let flag = |i: usize| matches!(args[i], Value::Bool(true));
            let flags =
                EventFlags { enable_timing: flag(0) || flag(3), blocking: flag(1), interprocess: flag(2) };
            Ok(Value::object(EventObject(vm.rt.event(flags)?)))
        },
    },
    NativeDef {
        name: "record",
        receiver: "event",
        signature: Signature { params: &[EVENT, Param::or("stream", Kind::Stream, Default::None)] },
        doc: "Records the event on a stream (the current one when left out); a second record replaces the first.\n\nSource: `torch.cuda.Event.record`.",
        example: "let e = Event()\ne.record()\nassert(e.device == cuda)",
        run: |vm, args| {
            let event = event_of(&args[0], 0)?;
            let stream = stream_or_current(vm, &args[1], 1)?;
            vm.rt.record_event(&event, &stream).map(|()| Value::None)
        },
    },
    NativeDef {
        name: "wait",
        receiver: "event",
        signature: Signature { params: &[EVENT, Param::or("stream", Kind::Stream, Default::None)] },
        doc: "Makes later work on a stream (default: the current one) wait for the event.\n\nSource: `torch.cuda.Event.wait`.",
        example: "let e = Stream().record_event()\ne.wait()",
        run: |vm, args| {
            let event = event_of(&args[0], 0)?;
            let stream = stream_or_current(vm, &args[1], 1)?;
            vm.rt.wait_event(&stream, &event).map(|()| Value::None)
        },
    },
    NativeDef {
        name: "query",
        receiver: "event",
        signature: OF_EVENT,
        doc: "Returns whether everything the last record covers has finished; true before the first record.\n\nSource: `torch.cuda.Event.query`.",
        example: "assert(Event().query())",
        run: |vm, args| {
            let event = event_of(&args[0], 0)?;
            vm.rt.query_event(&event).map(Value::Bool)
        },
    },
    NativeDef {
        name: "synchronize",
        receiver: "event",
        signature: OF_EVENT,
        doc: "Waits until everything the last record covers has finished.\n\nSource: `torch.cuda.Event.synchronize`.",
        example: "let e = Event()\ne.record()\ne.synchronize()\nassert(e.query())",
        run: |vm, args| {
            let event = event_of(&args[0], 0)?;
            vm.rt.synchronize_event(&event).map(|()| Value::None)
        },
    },
    NativeDef {
        name: "elapsed_time",
        receiver: "event",
        signature: Signature { params: &[EVENT, Param::new("end", Kind::Event)] },
        doc: "Returns the milliseconds from this event to `end`. Both need `enable_timing`, a record, and to have finished.\n\nSource: `torch.cuda.Event.elapsed_time`.",
        example: "let a = Event(enable_timing=true)\nlet b = Event(enable_timing=true)\na.record()\ncuda.sleep(1000000)\nb.record()\nb.synchronize()\nassert(a.elapsed_time(b) > 0)",
        run: |_, args| {
            let (start, end) = (event_of(&args[0], 0)?, event_of(&args[1], 1)?);
            start.elapsed_time(&end).map(Value::Float)
        },
    },
    NativeDef {
        name: "ipc_handle",
        receiver: "event",
        signature: OF_EVENT,
        doc: "Returns the handle under which another process opens the event, as 64 bytes on the host. The event needs `interprocess`; emulated devices cannot share events.\n\nSource: `torch.cuda.Event.ipc_handle`.",
        example: "try { Event(interprocess=true).ipc_handle() } catch e { assert(e.kind == \"Device\") }",
        run: |vm, args| {
            let event = event_of(&args[0], 0)?;
            let near = vm.rt.current_cuda();
            let handle = event.ipc_handle(vm.rt.device(near)?.default_stream())?;
            vm.rt.from_host(&handle, &[handle.len()], Dtype::U8, DeviceId::Cpu).map(Value::Tensor)
        },
    },
    NativeDef {
        name: "Event.from_ipc_handle",
        receiver: "",
        signature: Signature {
            params: &[Param::new("device", Kind::Any), Param::new("handle", Kind::Tensor)],
        },
        doc: "Opens an event of another process by the 64 bytes of its `ipc_handle`.\n\nSource: `torch.cuda.Event.from_ipc_handle`.",
        example: "try { Event.from_ipc_handle(cuda, zeros(64, dtype=u8, device=cpu)) } catch e { assert(e.kind in [\"Device\", \"Cuda\"]) }",
        run: |vm, args| {
            let wrong = || crate::ops::error::wrong_argument(1, "64 bytes: a u8 tensor");
            let current = Value::Device(vm.rt.current_cuda());
            let device = cuda_device(vm, &current, &args[0])?;
            let Value::Tensor(tensor) = &args[1] else { return Err(wrong()) };
            if tensor.dtype() != Dtype::U8 {
                return Err(wrong());
            }
            let handle: [u8; 64] = vm.rt.read(tensor)?.try_into().map_err(|_| wrong())?;
            let event = Event::from_ipc_handle(device.default_stream(), &handle)?;
            Ok(Value::object(EventObject(Arc::new(event))))
        },
    },
];
