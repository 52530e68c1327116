//! Random numbers from a seed, so that a test is the same at every run. Source: SplitMix64.

#![allow(dead_code)] // Each test uses some of it.

pub struct Draw(pub u64);

impl Draw {
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.bits() >> 32) as usize % n.max(1)
    }

    /// True once in `n` times on average.
    pub fn once_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub fn of<'t, T>(&mut self, list: &'t [T]) -> &'t T {
        &list[self.below(list.len())]
    }
}
