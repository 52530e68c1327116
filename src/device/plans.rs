//! A device's cache of Fourier transform plans, with least-recently-used eviction. Source:
//! `torch.backends.cuda.cufft_plan_cache`.
//!
//! Invariant: the cache never holds more plans than its capacity. An evicted plan stays alive in the programs
//! that still use it.

use crate::base::Result;
use crate::kernel::fft::{FftPlan, FftSpec};
use foldhash::HashMap;
use std::sync::Arc;

/// Default capacity, the same as PyTorch's.
pub const DEFAULT_CAPACITY: usize = 4096;

/// The cached plans of one device.
pub struct PlanCache {
    capacity: usize,
    /// Number of requests so far; a plan stores the number of its latest use.
    now: u64,
    plans: HashMap<FftSpec, (Arc<dyn FftPlan>, u64)>,
}

impl Default for PlanCache {
    fn default() -> PlanCache {
        PlanCache { capacity: DEFAULT_CAPACITY, now: 0, plans: HashMap::default() }
    }
}

impl PlanCache {
    /// The cached plan of a transform; a missing one is created by `make` and cached if the capacity is not
    /// 0.
    pub fn get(
        &mut self,
        spec: &FftSpec,
        make: impl FnOnce(&FftSpec) -> Result<Arc<dyn FftPlan>>,
    ) -> Result<Arc<dyn FftPlan>> {
        self.now += 1;
        if let Some((plan, used)) = self.plans.get_mut(spec) {
            *used = self.now;
            return Ok(plan.clone());
        }
        let plan = make(spec)?;
        if self.capacity > 0 {
            self.shrink(self.capacity - 1);
            self.plans.insert(spec.clone(), (plan.clone(), self.now));
        }
        Ok(plan)
    }

    /// Number of cached plans.
    pub fn size(&self) -> usize {
        self.plans.len()
    }

    /// Largest number of cached plans.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Sets the capacity and evicts the least recently used plans beyond it. With 0 nothing is cached.
    pub fn set_capacity(&mut self, capacity: usize) {
        self.capacity = capacity;
        self.shrink(capacity);
    }

    /// Removes all plans.
    pub fn clear(&mut self) {
        self.plans.clear();
    }

    fn shrink(&mut self, most: usize) {
        if self.plans.len() <= most {
            return;
        }
        let mut uses: Vec<u64> = self.plans.values().map(|(_, used)| *used).collect();
        uses.sort_unstable();
        let oldest = uses[self.plans.len() - most - 1];
        self.plans.retain(|_, (_, used)| *used > oldest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::Dtype;
    use crate::kernel::fft::Transform;
    use crate::kernel::host::fft;

    fn spec(n: usize) -> FftSpec {
        FftSpec {
            transform: Transform::Complex,
            part: Dtype::F32,
            extents: [n].into_iter().collect(),
            batch: 1,
        }
    }

    /// Requests the plan of a length; true when it had to be created.
    fn makes(cache: &mut PlanCache, n: usize) -> bool {
        let mut made = false;
        cache
            .get(&spec(n), |spec| {
                made = true;
                Ok(fft::plan(spec))
            })
            .unwrap();
        made
    }

    #[test]
    fn the_least_recently_used_plan_goes() {
        let mut cache = PlanCache::default();
        assert_eq!((cache.size(), cache.capacity()), (0, 4096));
        assert!(makes(&mut cache, 10) && !makes(&mut cache, 10));
        cache.set_capacity(2);
        makes(&mut cache, 20);
        makes(&mut cache, 10);
        makes(&mut cache, 30);
        assert_eq!(cache.size(), 2);
        assert!(!makes(&mut cache, 10) && makes(&mut cache, 20));
        cache.set_capacity(1);
        assert!(cache.size() == 1 && !makes(&mut cache, 20));
        cache.set_capacity(0);
        assert!(cache.size() == 0 && makes(&mut cache, 20) && makes(&mut cache, 20));
        cache.set_capacity(3);
        makes(&mut cache, 5);
        cache.clear();
        assert_eq!((cache.size(), cache.capacity()), (0, 3));
    }
}
