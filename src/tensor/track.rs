//! The state of gradient recording per tensor and per storage. `ops::gradient` uses it.
//!
//! Tensors that are never recorded have no such state.

use super::{Content, StorageRef, Tensor};
use crate::array::Layout;
use crate::base::Span;
use parking_lot::{Mutex, MutexGuard};
use std::any::Any;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// A result of a recorded operation: its node, and which of the node's results it is.
#[derive(Clone)]
pub struct Edge {
    /// The node: an `ops::gradient::Node`.
    pub node: Arc<dyn Any + Send + Sync>,
    /// The number of the result.
    pub output: u32,
}

/// The recording of a tensor's elements.
#[derive(Clone, Default)]
pub struct Mark {
    /// The node that computed the tensor; valid while no view of the same memory has been written since.
    pub edge: Option<Edge>,
    /// [`Family::writes`] when `edge` was set; [`Mark::APART`] or [`Mark::JOINED`] for some views of leaves;
    /// [`Mark::UNRECORDED`] for some kept operands.
    pub at: u64,
    /// The family of a detached tensor and its views. `None`: the storage's.
    pub family: Option<Arc<Mutex<Family>>>,
    /// A detached tensor, with which its family began.
    pub begins: bool,
    /// A view. Its record is apart from that of its memory, even if it has the layout of the memory.
    pub view: bool,
    /// A view by `as_strided`, or a view of one. It may have elements that its source lacks.
    pub strided: bool,
}

impl Mark {
    /// A view of a leaf that was made without a record: it requires no gradients.
    pub const APART: u64 = u64::MAX;
    /// `edge` is that of a view that is older than the gradients of its base; valid while the base is the same leaf.
    pub const JOINED: u64 = u64::MAX - 1;
    /// A reference that a node keeps to a tensor without a record: it never has one, and neither have its views.
    pub const UNRECORDED: u64 = u64::MAX - 2;
}

/// The node that computed memory.
#[derive(Clone)]
pub struct Origin {
    /// The node, and which of its results it is.
    pub node: Weak<dyn Any + Send + Sync>,
    /// The number of the result.
    pub output: u32,
    /// The layout of the result.
    pub layout: Layout,
    /// The result is a leaf with which the family began, so that all tensors of the family are views of it.
    pub is_base: bool,
}

/// The tensors that share a storage and are recorded together: a tensor and its views, except detached ones.
///
/// A storage holds a node only after a recorded write in place. Otherwise a node that keeps its own result
/// would keep itself alive.
#[derive(Default)]
pub struct Family {
    /// The number of recorded writes.
    pub writes: u64,
    /// The node that computed the memory before the first recorded write.
    pub origin: Option<Origin>,
    /// The node of the last recorded write, and the layout of its result.
    pub current: Option<(Edge, Layout)>,
}

impl Family {
    /// The node that computed the memory, and the layout of its result.
    pub fn base(&self) -> Option<(Edge, Layout)> {
        if self.current.is_some() || self.writes > 0 {
            return self.current.clone();
        }
        let origin = self.origin.as_ref()?;
        Some((Edge { node: origin.node.upgrade()?, output: origin.output }, origin.layout.clone()))
    }

    /// The leaf with which the family began, and its layout, unless the memory has been written since with a record.
    pub fn leaf(&self) -> Option<(Edge, Layout)> {
        let is_leaf = self.writes == 0 && self.origin.as_ref().is_some_and(|origin| origin.is_base);
        if is_leaf { self.base() } else { None }
    }
}

/// The state of one tensor, and of its storage if it is the storage's first tensor.
#[derive(Default)]
pub struct Track {
    mark: Mutex<Mark>,
    family: Mutex<Family>,
    version: AtomicU64,
    written: Mutex<Span>,
    /// The record of a leaf whose gradients are switched off.
    resting: Mutex<Option<Edge>>,
}

impl Tensor {
    fn track(&self) -> Option<&Track> {
        self.0.track()
    }

    fn storage_track(&self) -> Option<&Track> {
        self.0.first().track()
    }

    /// The tensor's mark; empty if it was never recorded.
    pub(crate) fn mark(&self) -> Mark {
        self.track().map_or_else(Mark::default, |track| track.mark.lock().clone())
    }

    /// The tensor's record, unless a view of the same memory has been written since.
    pub(crate) fn recorded(&self) -> Option<Edge> {
        let mark = self.track()?.mark.lock();
        let edge = mark.edge.as_ref()?;
        (self.family(&mark, |family| family.writes) == mark.at).then(|| edge.clone())
    }

    /// Replaces the tensor's mark.
    pub(crate) fn set_mark(&self, mark: Mark) {
        *self.0.tracked().mark.lock() = mark;
    }

    /// The record of a leaf whose gradients are switched off: it still holds the gradient and the hooks.
    pub(crate) fn resting(&self) -> Option<Edge> {
        self.track()?.resting.lock().clone()
    }

    /// Sets the value of [`Tensor::resting`].
    pub(crate) fn set_resting(&self, edge: Option<Edge>) {
        *self.0.tracked().resting.lock() = edge;
    }

    /// True when the tensor or its storage may have been recorded.
    #[inline]
    pub(crate) fn may_be_recorded(&self) -> bool {
        self.track().is_some() || self.storage_track().is_some()
    }

    /// Runs code on the tensor's family.
    pub(crate) fn family<T>(&self, mark: &Mark, code: impl FnOnce(&mut Family) -> T) -> T {
        let mut family: MutexGuard<'_, Family> = match &mark.family {
            Some(own) => own.lock(),
            None => self.0.first().tracked().family.lock(),
        };
        code(&mut family)
    }

    /// The number of times that the storage was written in place since recording began.
    pub(crate) fn version(&self) -> u64 {
        self.storage_track().map_or(0, |track| track.version.load(Ordering::Relaxed))
    }

    /// Records a write in place, at a source position.
    pub(crate) fn note_write(&self, span: Span) {
        let track = self.0.first().tracked();
        *track.written.lock() = span;
        track.version.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns a counted reference for a node to keep for its gradient rule. A view is kept as a new object, so that
    /// each kept reference is one holder of the storage.
    pub(crate) fn kept(&self) -> Tensor {
        if self.0.first().kept.fetch_add(1, Ordering::Relaxed) == 0 {
            let storage = self.storage();
            storage.owner().keep_recorded(storage.bytes());
        }
        if self.is_first() { self.clone() } else { self.with_layout(self.layout().clone()) }
    }

    /// Releases the reference from [`Tensor::kept`].
    pub(crate) fn release_kept(&self) {
        if self.0.first().kept.fetch_sub(1, Ordering::Relaxed) == 1 {
            let storage = self.storage();
            storage.owner().release_recorded(storage.bytes());
        }
    }

    /// The source position of the last write in place.
    pub(crate) fn last_write(&self) -> Span {
        self.storage_track().map_or(Span::NONE, |track| *track.written.lock())
    }
}

impl StorageRef {
    /// If only nodes refer to the storage, takes the records that it holds, which are then unreachable: those of the
    /// last write and of its first tensor.
    pub(crate) fn unreachable_records(&self) -> Option<[Option<Edge>; 3]> {
        // Excludes this reference itself.
        if Arc::strong_count(&self.0) - 1 != self.0.kept.load(Ordering::Relaxed) as usize {
            return None;
        }
        Some(self.take_records())
    }

    /// Takes the records that the storage and its first tensor hold.
    pub(crate) fn take_records(&self) -> [Option<Edge>; 3] {
        let Some(track) = self.0.track() else { return [None, None, None] };
        let written = track.family.lock().current.take().map(|(edge, _)| edge);
        [written, track.mark.lock().edge.take(), track.resting.lock().take()]
    }
}

impl Content {
    fn first(&self) -> &Content {
        match &self.base {
            super::Base::Own(_) => self,
            super::Base::Of(storage) => &storage.0,
        }
    }
}
