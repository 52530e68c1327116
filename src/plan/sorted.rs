//! Indices that are sorted once.
//!
//! Note [Sorted indices]. Sums into rows sort their index by target, and sums of single elements into many targets move the
//! elements by target. Scripts often use one index many times without writing it: the edges of a graph in every round, or
//! the same rows in every step of a training loop. So the second such use of an index sorts it and keeps the result, 12
//! bytes per element, and later uses neither sort nor move. All kernels of a sum give the same bits (the notes in
//! `kernel/kinds/scatter`), so the bits do not depend on whether an index was used before.
//!
//! An index is the same if it is the same part of the same storage, and the storage has not been written since: every
//! operation that writes forgets what was sorted (`settle_write`), and a replay of a graph, which writes later, leaves another
//! ticket ([`Storage::ticket`](crate::tensor::Storage::ticket)). The result belongs to the storage, is used by one stream, and
//! is released with the storage, when memory is short, and by `empty_cache`. Captured work always sorts, because the index may
//! have other values at a replay; so does memory that another library can write.

use super::Runtime;
use crate::array::{Dtype, Layout, Strides};
use crate::kernel::sorted_strides;
use crate::stream::Ticket;
use crate::tensor::{IndexPart, SortedIndex, Storage, Tensor};

/// The largest number of indices that a storage remembers.
const MOST: usize = 4;

/// The sorted index of a scatter.
pub(super) struct Sorted {
    /// The sorted indices and their positions.
    pub order: [Tensor; 2],
    /// Their strides over the shape of the index.
    pub strides: Strides,
    /// False if the scatter must write them.
    pub is_ready: bool,
}

impl Sorted {
    /// The number of a launch: whether the index is in memory.
    pub fn number(&self) -> u64 {
        u64::from(self.is_ready)
    }
}

impl Runtime {
    /// The sorted index that a scatter of queue `at` along `axis` uses, if this is not its first use. The scatter gains from
    /// one, and the index varies along the axis only.
    pub(super) fn sorted_index(
        &mut self,
        index: &Tensor,
        (axis, limit): (usize, usize),
        at: usize,
    ) -> Option<Sorted> {
        let count = *index.shape().get(axis)?;
        if self.capture_at(at).is_some() {
            return None;
        }
        let storage = index.storage();
        let written = storage.ticket();
        if written == Ticket::NONE || storage.is_lost() || storage.pending().is_some() {
            return None;
        }
        let part = IndexPart {
            offset: index.layout().offset,
            stride: index.layout().strides[axis],
            count,
            limit,
            stream: self.queues[at].stream.id(),
        };
        let strides = sorted_strides(index.shape().len(), axis);
        if let Some(order) = known(storage, part, written)?.order {
            let ready = |one: &Tensor| one.storage().written_on().is_some() && !one.storage().is_lost();
            if order.iter().all(ready) {
                return Some(Sorted { order, strides, is_ready: true });
            }
        }
        let order = self.room_for_sorted(storage, count, at)?;
        let mut indices = storage.sorted()?.lock();
        let found = indices.iter_mut().find(|one| one.part == part && one.written == written)?;
        found.order = Some(order.clone());
        drop(indices);
        self.sorted.retain(|known| known.upgrade().is_some_and(|known| !known.is(storage)));
        self.sorted.push(index.storage_ref().downgrade());
        Some(Sorted { order, strides, is_ready: false })
    }

    /// Memory for the order of an index, unless the device is nearly full.
    fn room_for_sorted(&mut self, storage: &Storage, count: usize, at: usize) -> Option<[Tensor; 2]> {
        let device = storage.owner().clone();
        if device.is_nearly_full(self.pending_bytes().saturating_add(12 * count as u64)) {
            return None;
        }
        let mut room = |dtype: Dtype| {
            let own = Storage::unbound(device.clone(), (count * dtype.size()) as u64);
            let tensor = Tensor::new(own, Layout::contiguous(&[count]), dtype);
            self.bind_empty(&tensor, at).ok().map(|()| tensor)
        };
        Some([room(Dtype::I32)?, room(Dtype::I64)?])
    }

    /// Releases all sorted indices.
    pub fn release_sorted(&mut self) {
        for storage in self.sorted.drain(..).filter_map(|storage| storage.upgrade()) {
            storage.forget_sorted();
        }
    }
}

/// What is kept of an index that was used before. `None` at the first use, which is noted.
fn known(storage: &Storage, part: IndexPart, written: Ticket) -> Option<SortedIndex> {
    let mut indices = storage.sorted()?.lock();
    indices.retain(|one| one.written == written);
    if let Some(one) = indices.iter().find(|one| one.part == part) {
        return Some(one.clone());
    }
    if indices.len() == MOST {
        let oldest = indices.iter().position(|one| one.order.is_none()).unwrap_or(0);
        indices.remove(oldest);
    }
    indices.push(SortedIndex { part, written, order: None });
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Backend, Config, Machine};
    use crate::driver::DeviceId;
    use crate::ops::arith::ADD;
    use crate::ops::folds::SUM;
    use crate::ops::testing::bytes_of;
    use crate::plan::{Elementwise, MapArg, Scattering, Settings};
    use crate::stream::Meaning;

    const COUNT: usize = crate::kernel::LEAST_SORTED;
    const ROWS: usize = 64;

    struct Lab {
        rt: Runtime,
        index: Tensor,
    }

    impl Lab {
        fn new() -> Lab {
            let config = Config { backend: Backend::Emu, devices: Some(1), ..Config::default() };
            let mut rt = Runtime::new(Machine::open(&config).unwrap(), Settings::default());
            let values: Vec<f64> = (0..COUNT).map(|i| (i * 37 % ROWS) as f64).collect();
            let bytes = bytes_of(&values, Dtype::I64);
            let index = rt.from_host(&bytes, &[COUNT], Dtype::I64, DeviceId::Cuda(0)).unwrap();
            Lab { rt, index }
        }

        /// Sums rows by an index. Returns whether the launch had no sorted index, wrote one, or read one.
        fn sum(&mut self, index: &Tensor) -> Option<bool> {
            let shape = [index.count(), 16];
            let [value, target] = [&shape, &[ROWS, 16]].map(|shape: &[usize; 2]| {
                let bytes = vec![0; shape[0] * shape[1] * 4];
                self.rt.from_host(&bytes, shape, Dtype::F32, DeviceId::Cuda(0)).unwrap()
            });
            let rows = index.layout().broadcast_to(&[16, shape[0]]).unwrap().permute(&[1, 0]);
            self.rt.start_listing(false).unwrap();
            self.rt
                .scatter_at(Scattering {
                    name: "index_add",
                    f: Some(&SUM),
                    value: (&value, value.layout().strides.clone()),
                    index: &index.with_layout(rows),
                    target: (&target, target.layout().strides.clone()),
                    axis: 0,
                    limit: ROWS,
                    meaning: Meaning::Index,
                })
                .unwrap();
            let launches = self.rt.stop_listing().launches;
            launches.last().and_then(|last| last.launch.numbers.last().map(|&ready| ready == 1))
        }

        fn write(&mut self, index: &Tensor) {
            let args = [MapArg::Tensor(index), MapArg::Raw(0, Dtype::I64)];
            self.rt.map_into(index, Elementwise::new("add_", &ADD, &args, Dtype::I64, Dtype::I64)).unwrap();
        }

        fn in_use(&self) -> u64 {
            self.index.storage().owner().stats().allocated_bytes.all().current
        }
    }

    #[test]
    fn the_second_use_of_an_index_sorts_it() {
        let mut lab = Lab::new();
        let index = lab.index.clone();
        let half = |from: usize| {
            let layout = Layout { offset: from, ..Layout::contiguous(&[COUNT / 2]) };
            index.with_layout(layout)
        };
        assert_eq!([0; 4].map(|_| lab.sum(&index)), [None, Some(false), Some(true), Some(true)]);
        // A write to any part.
        lab.write(&half(COUNT / 2));
        assert_eq!([0; 3].map(|_| lab.sum(&index)), [None, Some(false), Some(true)]);
        // Small indices are always sorted, and other parts are other indices.
        assert_eq!([0; 3].map(|_| lab.sum(&half(0))), [None; 3]);
        assert_eq!(lab.sum(&index), Some(true));
    }

    #[test]
    fn sorted_indices_are_released() {
        let mut lab = Lab::new();
        let index = lab.index.clone();
        let before = lab.in_use();
        assert_eq!([0; 2].map(|_| lab.sum(&index)), [None, Some(false)]);
        assert_eq!(lab.in_use(), before + 12 * COUNT as u64);
        lab.rt.release_sorted();
        assert_eq!(lab.in_use(), before);
        assert_eq!([0; 3].map(|_| lab.sum(&index)), [None, Some(false), Some(true)]);
        // A write releases it at the next use.
        lab.write(&index);
        assert_eq!(lab.sum(&index), None);
        assert_eq!(lab.in_use(), before);
        // A storage is listed once, however often its index is sorted again.
        for _ in 0..3 {
            lab.write(&index);
            assert_eq!([0; 2].map(|_| lab.sum(&index)), [None, Some(false)]);
        }
        assert_eq!(lab.rt.sorted.len(), 1);
        // Another library may write memory that it has borrowed.
        assert_eq!(lab.sum(&index), Some(true));
        lab.rt.lend(&index, None).unwrap();
        assert_eq!(lab.in_use(), before);
        assert_eq!([0; 3].map(|_| lab.sum(&index)), [None; 3]);
    }
}
