//! The allocator's statistics, under PyTorch's keys.

use super::{SMALL_REQUEST, SegmentInfo, snapshot::BlockState};

/// The pool that a statistic counts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Pool {
    /// Requests up to 1 MiB.
    Small,
    /// Larger requests.
    Large,
}

impl Pool {
    /// The pool for a rounded request.
    pub(super) fn of(size: u64) -> Pool {
        if size <= SMALL_REQUEST { Pool::Small } else { Pool::Large }
    }

    /// `small` or `large`, as in a memory snapshot.
    pub fn name(self) -> &'static str {
        match self {
            Pool::Small => "small",
            Pool::Large => "large",
        }
    }
}

/// One statistic: its current value, its peak since the last reset, and the totals added and removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stat {
    pub current: u64,
    pub peak: u64,
    pub allocated: u64,
    pub freed: u64,
}

impl Stat {
    pub(crate) fn increase(&mut self, amount: u64) {
        self.current += amount;
        self.peak = self.peak.max(self.current);
        self.allocated += amount;
    }

    pub(crate) fn decrease(&mut self, amount: u64) {
        self.current = self.current.saturating_sub(amount);
        self.freed += amount;
    }

    pub(crate) fn reset_peak(&mut self) {
        self.peak = self.current;
    }

    pub(crate) fn reset_accumulated(&mut self) {
        self.allocated = 0;
        self.freed = 0;
    }

    /// The four values, each with the last part of its key.
    pub(crate) fn parts(&self) -> [(&'static str, u64); 4] {
        let Stat { current, peak, allocated, freed } = *self;
        [("current", current), ("peak", peak), ("allocated", allocated), ("freed", freed)]
    }
}

/// A statistic for each pool and for both together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PoolStat([Stat; 3]);

impl PoolStat {
    /// Both pools together.
    pub fn all(&self) -> &Stat {
        &self.0[0]
    }

    /// One pool.
    pub fn pool(&self, pool: Pool) -> &Stat {
        &self.0[1 + pool as usize]
    }

    pub(super) fn increase(&mut self, pool: Pool, amount: u64) {
        self.0[0].increase(amount);
        self.0[1 + pool as usize].increase(amount);
    }

    pub(super) fn decrease(&mut self, pool: Pool, amount: u64) {
        self.0[0].decrease(amount);
        self.0[1 + pool as usize].decrease(amount);
    }

    /// Applies the net amount of several changes; a net amount of 0 is not counted.
    pub(super) fn change(&mut self, pool: Pool, amount: i64) {
        match amount {
            0.. => self.increase(pool, amount.unsigned_abs()),
            _ => self.decrease(pool, amount.unsigned_abs()),
        }
    }

    fn named(&self) -> [(&'static str, &Stat); 3] {
        [("all", &self.0[0]), ("small_pool", &self.0[1]), ("large_pool", &self.0[2])]
    }
}

/// All statistics of one device. Source: `torch.cuda.memory_stats`, whose documentation explains each.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Blocks handed out and not freed.
    pub allocation: PoolStat,
    /// Segments taken from the driver.
    pub segment: PoolStat,
    /// Blocks handed out, or freed and pending.
    pub active: PoolStat,
    /// Free blocks whose segment is partly in use.
    pub inactive_split: PoolStat,
    pub allocated_bytes: PoolStat,
    pub reserved_bytes: PoolStat,
    pub active_bytes: PoolStat,
    pub inactive_split_bytes: PoolStat,
    /// Requested bytes, before rounding.
    pub requested_bytes: PoolStat,
    pub oversize_allocations: Stat,
    pub oversize_segments: Stat,
    /// Bytes; `None` without a limit.
    pub max_split_size: Option<u64>,
    /// Requests that succeeded or failed after all unused segments had been returned.
    pub num_alloc_retries: u64,
    /// Requests that failed.
    pub num_ooms: u64,
    /// Waits for the pending blocks of all streams.
    pub num_sync_all_streams: u64,
    /// Total segments taken from the driver.
    pub num_device_alloc: u64,
    /// Total segments returned to the driver.
    pub num_device_free: u64,
}

impl Stats {
    /// The statistics per pool, each with the first part of its keys.
    pub(super) fn pools(&self) -> [(&'static str, &PoolStat); 9] {
        [
            ("allocation", &self.allocation),
            ("segment", &self.segment),
            ("active", &self.active),
            ("inactive_split", &self.inactive_split),
            ("allocated_bytes", &self.allocated_bytes),
            ("reserved_bytes", &self.reserved_bytes),
            ("active_bytes", &self.active_bytes),
            ("inactive_split_bytes", &self.inactive_split_bytes),
            ("requested_bytes", &self.requested_bytes),
        ]
    }

    fn pools_mut(&mut self) -> [&mut PoolStat; 9] {
        [
            &mut self.allocation,
            &mut self.segment,
            &mut self.active,
            &mut self.inactive_split,
            &mut self.allocated_bytes,
            &mut self.reserved_bytes,
            &mut self.active_bytes,
            &mut self.inactive_split_bytes,
            &mut self.requested_bytes,
        ]
    }

    /// Every key of `torch.cuda.memory_stats` with its value, sorted by key: 122 in total. No limit on
    /// splitting is shown as the largest integer.
    pub fn entries(&self) -> Vec<(String, i64)> {
        let int = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        let mut entries = Vec::with_capacity(122);
        for (name, stat) in self.pools() {
            for (pool, stat) in stat.named() {
                entries.extend(stat.parts().map(|(part, v)| (format!("{name}.{pool}.{part}"), int(v))));
            }
        }
        let oversize = [
            ("oversize_allocations", &self.oversize_allocations),
            ("oversize_segments", &self.oversize_segments),
        ];
        for (name, stat) in oversize {
            entries.extend(stat.parts().map(|(part, v)| (format!("{name}.{part}"), int(v))));
        }
        let counters = [
            ("max_split_size", self.max_split_size.unwrap_or(u64::MAX)),
            ("num_alloc_retries", self.num_alloc_retries),
            ("num_ooms", self.num_ooms),
            ("num_sync_all_streams", self.num_sync_all_streams),
            ("num_device_alloc", self.num_device_alloc),
            ("num_device_free", self.num_device_free),
        ];
        entries.extend(counters.map(|(name, v)| (name.to_string(), int(v))));
        entries.sort();
        entries
    }

    pub(super) fn reset_peak(&mut self) {
        self.pools_mut().into_iter().flat_map(|p| &mut p.0).for_each(Stat::reset_peak);
        self.oversize_allocations.reset_peak();
        self.oversize_segments.reset_peak();
    }

    pub(super) fn reset_accumulated(&mut self) {
        self.pools_mut().into_iter().flat_map(|p| &mut p.0).for_each(Stat::reset_accumulated);
        self.oversize_allocations.reset_accumulated();
        self.oversize_segments.reset_accumulated();
        self.num_alloc_retries = 0;
        self.num_ooms = 0;
        self.num_sync_all_streams = 0;
        self.num_device_alloc = 0;
        self.num_device_free = 0;
    }

    /// The current values recomputed from a snapshot; all others are 0. Case MEM-03 compares them.
    pub fn of_segments(segments: &[SegmentInfo]) -> Stats {
        let mut stats = Stats::default();
        for segment in segments {
            let pool = segment.pool;
            stats.segment.increase(pool, 1);
            stats.reserved_bytes.increase(pool, segment.total_size);
            for block in &segment.blocks {
                if block.state == BlockState::Allocated {
                    stats.allocation.increase(pool, 1);
                    stats.allocated_bytes.increase(pool, block.size);
                }
                if block.state != BlockState::Inactive {
                    stats.active.increase(pool, 1);
                    stats.active_bytes.increase(pool, block.size);
                    stats.requested_bytes.increase(pool, block.requested_size);
                } else if segment.blocks.len() > 1 && !segment.is_expandable {
                    stats.inactive_split.increase(pool, 1);
                    stats.inactive_split_bytes.increase(pool, block.size);
                }
            }
        }
        stats
    }
}
