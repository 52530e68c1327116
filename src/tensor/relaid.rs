//! Layouts set in place by `t_` and similar operations.
//!
//! References to a tensor's layout live as long as the tensor, so old layouts must stay: layouts are only
//! added, and an equal one is reused. Toggling between two layouts takes no additional memory.

use crate::array::Layout;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Layouts per block.
const BLOCK: usize = 6;

/// All layouts of a tensor after its first one, and the index of the current one.
#[derive(Default)]
pub(super) struct Relaid {
    /// 0 is the tensor's first layout, 1 the first of `blocks`.
    current: AtomicUsize,
    blocks: Block,
}

#[derive(Default)]
struct Block {
    layouts: [OnceLock<Layout>; BLOCK],
    next: OnceLock<Box<Block>>,
}

fn same(a: &Layout, b: &Layout) -> bool {
    a.shape == b.shape && a.strides == b.strides && a.offset == b.offset
}

impl Relaid {
    /// The current layout; `first` is the one that the tensor was created with.
    pub(super) fn current<'a>(&'a self, first: &'a Layout) -> &'a Layout {
        let Some(mut at) = self.current.load(Ordering::Acquire).checked_sub(1) else { return first };
        let mut block = &self.blocks;
        while at >= BLOCK {
            let Some(next) = block.next.get() else { return first };
            (block, at) = (next, at - BLOCK);
        }
        block.layouts[at].get().unwrap_or(first)
    }

    /// Makes `layout` the current one.
    pub(super) fn set(&self, first: &Layout, layout: Layout) {
        let mut number = 0;
        if !same(first, &layout) {
            let mut block = &self.blocks;
            number = 1;
            'found: loop {
                for slot in &block.layouts {
                    if same(slot.get_or_init(|| layout.clone()), &layout) {
                        break 'found;
                    }
                    number += 1;
                }
                block = block.next.get_or_init(Box::default);
            }
        }
        self.current.store(number, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_are_kept_and_found_again() {
        let of = |n: usize| Layout::contiguous(&[n]);
        let (relaid, first) = (Relaid::default(), of(100));
        assert!(same(relaid.current(&first), &first));
        for round in 0..3 {
            for n in 0..20 {
                relaid.set(&first, of(n));
                assert!(same(relaid.current(&first), &of(n)), "{round} {n}");
                assert_eq!(relaid.current.load(Ordering::Relaxed), n + 1);
            }
            relaid.set(&first, of(100));
            assert!(same(relaid.current(&first), &first));
        }
    }
}
