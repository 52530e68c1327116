//! The memory behind tensors.

use crate::base::Span;
use crate::device::{Block, Device};
use crate::driver::DeviceId;
use crate::kernel::Ptr;
use crate::memory::PinnedBlock;
use crate::stream::races::Watched;
use crate::stream::{Foreign, Stream, Ticket};
use crate::tensor::SortedIndices;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// A piece of one device's memory, shared by tensors and bound to an address late.
///
/// It is *bound* (has [`Memory`]), *pending* (the planner holds the operation that computes it) or *lost*
/// (that operation failed, or the storage was never written). Factories bind at once. Results of elementwise
/// work are bound at launch, or never if nothing reads them. Invariant: bound memory stays until the storage
/// is dropped.
pub struct Storage {
    device: Arc<Device>,
    bytes: u64,
    memory: OnceLock<Memory>,
    pending: AtomicU64,
    ticket: AtomicU64,
    in_parts: AtomicBool,
    is_lent: AtomicBool,
    sorted: OnceLock<Box<SortedIndices>>,
    _counted: Option<Arc<()>>,
    /// The race checker's record of accesses.
    pub history: Watched,
}

/// The memory that a storage is bound to.
pub enum Memory {
    /// A block of the device's allocator.
    Block(Block),
    /// Page-locked host memory.
    Pinned(PinnedBlock),
    /// Memory of another library.
    Foreign(Foreign),
}

impl Memory {
    /// The address of the first byte.
    pub fn ptr(&self) -> Ptr {
        match self {
            Memory::Block(block) => block.ptr(),
            Memory::Pinned(block) => block.ptr(),
            Memory::Foreign(foreign) => foreign.ptr(),
        }
    }

    /// The streams whose work may use the memory.
    pub fn streams(&self) -> Vec<Arc<Stream>> {
        match self {
            Memory::Block(block) => block.streams(),
            Memory::Pinned(block) => block.streams(),
            Memory::Foreign(foreign) => foreign.streams(),
        }
    }

    /// Records that work on a stream uses the memory. It is not reused before that work has completed.
    pub fn used_on(&self, stream: &Arc<Stream>) {
        match self {
            Memory::Block(block) => block.used_on(stream),
            Memory::Pinned(block) if stream.device() != DeviceId::Cpu => block.used_on(stream),
            Memory::Pinned(_) => {}
            Memory::Foreign(foreign) => foreign.used_on(stream),
        }
    }

    /// Records that other code will queue work on a stream that uses the memory. After the drop, the memory is not
    /// reused before the stream has completed everything queued by then.
    pub fn lent_to(&self, stream: &Arc<Stream>) {
        match self {
            Memory::Block(block) => block.lent_to(stream),
            _ => self.used_on(stream),
        }
    }
}

/// The pending operation that computes a storage: the planner's queue, the queue's generation (incremented by
/// every flush) and the node in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pending {
    /// Index of the queue.
    pub queue: u16,
    /// The queue's generation, from 1, modulo 2^32.
    pub generation: u32,
    /// Index of the node.
    pub node: u16,
}

impl Storage {
    /// A storage that is bound later.
    pub fn unbound(device: Arc<Device>, bytes: u64) -> Storage {
        Storage::made(device, bytes, None, Watched::default())
    }

    /// An unbound storage with a given history. It holds a ticket while it lives, by which its owner counts
    /// storages.
    #[inline]
    pub fn made(device: Arc<Device>, bytes: u64, ticket: Option<Arc<()>>, history: Watched) -> Storage {
        Storage {
            device,
            bytes,
            memory: OnceLock::new(),
            pending: AtomicU64::new(0),
            ticket: AtomicU64::new(0),
            in_parts: AtomicBool::new(false),
            is_lent: AtomicBool::new(false),
            sorted: OnceLock::new(),
            _counted: ticket,
            history,
        }
    }

    /// A storage bound to existing memory.
    pub fn bound(device: Arc<Device>, bytes: u64, memory: Memory) -> Storage {
        let storage = Storage::unbound(device, bytes);
        storage.bind(memory);
        storage
    }

    /// Binds the memory. A second call has no effect.
    pub fn bind(&self, memory: Memory) {
        let _ = self.memory.set(memory);
    }

    /// The memory, if bound.
    pub fn memory(&self) -> Option<&Memory> {
        self.memory.get()
    }

    /// The id of the device.
    pub fn device(&self) -> DeviceId {
        self.device.id()
    }

    /// The device itself.
    pub fn owner(&self) -> &Arc<Device> {
        &self.device
    }

    /// Size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// True for page-locked host memory.
    pub fn is_pinned(&self) -> bool {
        matches!(self.memory.get(), Some(Memory::Pinned(_)))
    }

    /// Records the launch that last wrote the storage.
    pub fn set_ticket(&self, ticket: Ticket) {
        self.ticket.store(ticket.bits(), Ordering::Relaxed);
    }

    /// The number of the stream whose launch last wrote the storage.
    pub fn written_on(&self) -> Option<u32> {
        let ticket = Ticket::from_bits(self.ticket.load(Ordering::Relaxed));
        (ticket != Ticket::NONE && ticket != Ticket::LOST).then(|| ticket.stream())
    }

    /// True if the launch that last wrote it was in flight when its device failed, or could not be launched.
    #[inline]
    pub fn is_lost(&self) -> bool {
        match Ticket::from_bits(self.ticket.load(Ordering::Relaxed)) {
            Ticket::NONE => false,
            Ticket::LOST => true,
            ticket => self.device.is_lost(ticket),
        }
    }

    /// Records that the work that should have written it could not be launched.
    pub fn lose(&self) {
        self.set_ticket(Ticket::LOST);
    }

    /// The launch that should have written it last, if it was discarded: its name and source position.
    pub fn given_up(&self) -> Option<(&'static str, Span)> {
        self.device.given_up(Ticket::from_bits(self.ticket.load(Ordering::Relaxed)))
    }

    /// Records that a part was written in place.
    pub fn note_written_in_parts(&self) {
        self.in_parts.store(true, Ordering::Relaxed);
    }

    /// True if a part was written in place before.
    pub fn is_written_in_parts(&self) -> bool {
        self.in_parts.load(Ordering::Relaxed)
    }

    /// The launch that last wrote the storage.
    pub fn ticket(&self) -> Ticket {
        Ticket::from_bits(self.ticket.load(Ordering::Relaxed))
    }

    /// Records that another library may write the memory at any time.
    pub fn note_lent(&self) {
        self.is_lent.store(true, Ordering::Relaxed);
        self.forget_sorted();
    }

    /// Where its sorted indices are kept; `None` if the memory may be written without a ticket.
    pub fn sorted(&self) -> Option<&SortedIndices> {
        let is_own = matches!(self.memory(), Some(Memory::Block(_)));
        (is_own && !self.is_lent.load(Ordering::Relaxed))
            .then(|| &**self.sorted.get_or_init(Default::default))
    }

    /// Releases its sorted indices.
    pub fn forget_sorted(&self) {
        if let Some(sorted) = self.sorted.get() {
            sorted.lock().clear();
        }
    }

    /// The pending operation that will write it.
    pub fn pending(&self) -> Option<Pending> {
        let bits = self.pending.load(Ordering::Relaxed);
        (bits != 0).then_some(Pending {
            queue: (bits >> 48) as u16,
            generation: (bits >> 16) as u32,
            node: bits as u16,
        })
    }

    /// Sets the pending operation that will write it.
    pub fn set_pending(&self, pending: Option<Pending>) {
        let bits = pending
            .map_or(0, |p| u64::from(p.queue) << 48 | u64::from(p.generation) << 16 | u64::from(p.node));
        self.pending.store(bits, Ordering::Relaxed);
    }
}
