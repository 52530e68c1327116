//! Sorts rows. Every element is mapped to an unsigned integer with the same order (nan largest, both zeros
//! equal, all bits flipped for descending order). Equal keys keep their order.
//!
//! Long rows are sorted by radix, by all threads. Short rows go through a sorting network, several rows at a time: all
//! rows use the same network, so a vector holds one element of each row.

use crate::array::{Dims, dispatch};
use crate::kernel::host::complex::{C64, C128};
use crate::kernel::host::element::Element;
use crate::kernel::host::isa::multiversion;
use crate::kernel::host::positions::{element, offset};
use crate::kernel::host::scratch::Buffer;
use crate::kernel::host::tasks::{self, ELEMENTS_PER_CHECK, PARALLEL, Until};
use crate::kernel::{Launch, Nth, Sort, Top};
use parking_lot::Mutex;
use smallvec::{SmallVec, smallvec};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

/// Number of elements from which one row is sorted by all threads.
const LONG: usize = 1 << 16;
/// Elements of lower ranks than this are found by a selection of the first elements.
const FEW: usize = 128;
/// Number of elements from which a row is sorted by radix.
const RADIX: usize = 1 << 10;
/// Of long keys, a radix sort first sorts by as many high bits as count the elements, and these. Then it sorts groups with
/// equal high bits by comparisons, if none has more elements than this.
const SPARE: u32 = 8;
const GROUP: usize = 64;
/// Maximum elements of a row that a network sorts, and number of rows sorted together.
const NETWORK: usize = 256;
const TOGETHER: usize = 8;
/// Minimum of the length of a row times the groups of rows that a task sorts.
const LEAST: usize = 1 << 9;

/// Runs a sort.
///
/// # Safety
/// The launch upholds its invariant, and nothing else writes the memory it reads during the call. The results do not
/// overlap the input.
pub(super) unsafe fn run(sort: &Sort, launch: &Launch) {
    if launch.shape.is_empty() {
        let mut launch = launch.clone();
        launch.shape.push(1);
        launch.views.iter_mut().for_each(|view| view.strides.push(1));
        // SAFETY: guaranteed by the caller.
        return unsafe { run(sort, &launch) };
    }
    // SAFETY: guaranteed by the caller.
    dispatch!(sort.dtype, M => unsafe { rows::<M>(sort, launch) });
}

unsafe fn rows<M: Element<Lane: Ordered>>(sort: &Sort, launch: &Launch) {
    let Some((&length, outer)) = launch.shape.split_last() else { return };
    let count: usize = outer.iter().product();
    if length == 0 || count == 0 {
        return;
    }
    let row = |number: usize| Row::<M>::of(sort, launch, &place_of_row(launch, number));
    let shared = count > 1 && count.saturating_mul(length) >= PARALLEL / 8;
    if count > 1 && length <= NETWORK && key_bits::<M>() == 32 {
        let groups = count.div_ceil(TOGETHER);
        let several = (LEAST / length).max(1);
        let space = || vec![[0; TOGETHER]; length];
        tasks::each_with(groups.div_ceil(several), shared, space, |lanes, task| {
            let mut at = place_of_row(launch, task * several * TOGETHER);
            for group in task * several..groups.min((task + 1) * several) {
                let first = group * TOGETHER;
                let mut rows: SmallVec<[Row<M>; TOGETHER]> = SmallVec::new();
                for _ in first..count.min(first + TOGETHER) {
                    rows.push(Row::of(sort, launch, &at));
                    next_row(&mut at, outer);
                }
                // SAFETY: guaranteed by the caller; rows differ.
                unsafe { sort_together(&rows, lanes) };
            }
        });
        return;
    }
    tasks::each(count, shared, |number| {
        let threads = if count == 1 && length >= LONG { tasks::workers() } else { 1 };
        // SAFETY: guaranteed by the caller; rows differ.
        unsafe { row(number).sort(length, threads) };
    });
}

/// Sorts up to [`TOGETHER`] rows of short keys by a network. The lanes have the length of a row.
///
/// # Safety
/// As for [`run`]; the rows differ.
unsafe fn sort_together<M: Element<Lane: Ordered>>(rows: &[Row<M>], lanes: &mut [[i64; TOGETHER]]) {
    // Neighbouring rows may share cache lines.
    for (i, lanes) in lanes.iter_mut().enumerate() {
        for (lane, row) in lanes.iter_mut().zip(rows) {
            // SAFETY: guaranteed by the caller.
            *lane = u64::new(unsafe { row.key(i) }, i) as i64 ^ i64::MIN;
        }
    }
    multiversion!(network(lanes: &mut [[i64; TOGETHER]] = lanes));
    for (i, lanes) in lanes.iter().enumerate() {
        for (lane, row) in lanes.iter().zip(rows) {
            let item = (lane ^ i64::MIN) as u64;
            // SAFETY: as above.
            unsafe { row.write(i, item.key(), item.at()) };
        }
    }
}

/// Advances the coordinates of a row to the next one.
fn next_row(at: &mut [usize], outer: &[usize]) {
    for (at, &extent) in at.iter_mut().zip(outer).rev() {
        *at += 1;
        if *at < extent {
            return;
        }
        *at = 0;
    }
}

/// Runs a [`Top`](super::Top) of a sort.
///
/// # Safety
/// As for [`run`].
pub(super) unsafe fn run_top(sort: &Sort, launch: &Launch) {
    // SAFETY: guaranteed by the caller.
    dispatch!(sort.dtype, M => unsafe { tops::<M>(sort, launch) });
}

unsafe fn tops<M: Element<Lane: Ordered>>(sort: &Sort, launch: &Launch) {
    let Some((&kept, outer)) = launch.shape.split_last() else { return };
    let (count, length) = (outer.iter().product::<usize>(), launch.limit);
    if kept == 0 || count == 0 {
        return;
    }
    let shared = count > 1 && count.saturating_mul(length) >= PARALLEL / 8;
    tasks::each(count, shared, |number| {
        let threads = if count == 1 && length >= LONG { tasks::workers() } else { 1 };
        // SAFETY: guaranteed by the caller; rows differ.
        unsafe { Row::<M>::of(sort, launch, &place_of_row(launch, number)).top(length, kept, threads) };
    });
}

/// Runs an [`Nth`](super::Nth).
///
/// # Safety
/// As for [`run`].
pub(super) unsafe fn run_nth(nth: &Nth, launch: &Launch) {
    // SAFETY: guaranteed by the caller.
    dispatch!(nth.sort.dtype, M => unsafe { nths::<M>(nth, launch) });
}

unsafe fn nths<M: Element<Lane: Ordered>>(nth: &Nth, launch: &Launch) {
    let Some((&length, outer)) = launch.shape.split_last() else { return };
    let count: usize = outer.iter().product();
    let shared = count > 1 && count.saturating_mul(length) >= PARALLEL / 8;
    tasks::each(count, shared, |number| {
        let threads = if count == 1 && length >= LONG { tasks::workers() } else { 1 };
        let row = Row::<M>::of(&nth.sort, launch, &place_of_row(launch, number));
        // SAFETY: guaranteed by the caller; rows differ.
        unsafe {
            if !nth.nan && launch.limit < FEW {
                let Some(best) = row.best(length, launch.limit + 1, threads) else { return };
                let Some(&(key, at)) = best.last() else { return };
                return row.write(0, key, at);
            }
            let Some(mut all) = row.pairs(length, threads) else { return };
            let nan = u64::MAX >> (64 - key_bits::<M>());
            let last = nth.nan && nth.sort.dtype.is_float() && all.iter().any(|&(key, _)| key == nan);
            let rank = if last { length - 1 } else { launch.limit };
            let (_, &mut (key, at), _) = all.select_nth_unstable(rank);
            row.write(0, key, at);
        }
    });
}

/// Keys that are compared with the bound at once.
const BLOCK: usize = 64;

/// Candidates for the first elements of a part of a row.
struct Best {
    kept: usize,
    /// Keys and positions.
    all: Vec<(u64, usize)>,
    /// The key of the last element to keep, once there are enough.
    bound: Option<u64>,
}

impl Best {
    fn new(kept: usize) -> Best {
        Best { kept, all: Vec::with_capacity(Best::room(kept)), bound: None }
    }

    /// The number of candidates after which those that are not kept are removed.
    #[inline(always)]
    fn room(kept: usize) -> usize {
        2 * kept.max(BLOCK)
    }

    /// Adds elements of a block of a row, from position `first` on, to the candidates. `below` has a bit for each key; keys
    /// without it are not below the bound.
    #[inline(always)]
    fn offer(&mut self, keys: &[u64; BLOCK], first: usize, mut below: u64) {
        while below != 0 {
            let i = below.trailing_zeros() as usize;
            below &= below - 1;
            if self.bound.is_some_and(|bound| keys[i] >= bound) {
                continue;
            }
            self.all.push((keys[i], first + i));
            if self.all.len() >= Best::room(self.kept) {
                self.cut();
            }
        }
        if self.bound.is_none() && self.all.len() >= self.kept {
            self.cut();
        }
    }

    /// Removes candidates that are not kept.
    fn cut(&mut self) {
        let (_, last, _) = self.all.select_nth_unstable(self.kept - 1);
        self.bound = Some(last.0);
        self.all.truncate(self.kept);
    }

    /// The elements to keep of several parts, in sort order.
    fn merged(parts: Vec<Best>, kept: usize) -> Vec<(u64, usize)> {
        let mut all: Vec<(u64, usize)> = parts.into_iter().flat_map(|best| best.all).collect();
        if kept < all.len() {
            all.select_nth_unstable(kept);
            all.truncate(kept);
        }
        all.sort_unstable();
        all
    }
}

/// The coordinates of a row's first element.
fn place_of_row(launch: &Launch, number: usize) -> Dims {
    let mut at: Dims = smallvec![0; launch.shape.len()];
    let mut rest = number;
    for d in (0..launch.shape.len().saturating_sub(1)).rev() {
        at[d] = rest % launch.shape[d];
        rest /= launch.shape[d];
    }
    at
}

/// A row of the input and of both results.
struct Row<M> {
    from: (*const M, isize),
    values: (*mut M, isize),
    positions: (*mut i64, isize),
    /// Flips the keys for descending order.
    turn: u64,
}

// SAFETY: threads write different elements of the results, and only read the input.
unsafe impl<M> Sync for Row<M> {}

impl<M: Element<Lane: Ordered>> Row<M> {
    fn of(sort: &Sort, launch: &Launch, at: &[usize]) -> Row<M> {
        fn place<T>(view: &crate::kernel::View, at: &[usize]) -> (*mut T, isize) {
            let step = view.strides.last().copied().unwrap_or(0);
            (element::<T>(view).wrapping_offset(offset(view, at, None)), step)
        }
        let (from, step) = place::<M>(&launch.views[0], at);
        Row {
            from: (from.cast_const(), step),
            values: place(&launch.views[1], at),
            positions: place(&launch.views[2], at),
            turn: if sort.descending { u64::MAX >> (64 - key_bits::<M>()) } else { 0 },
        }
    }

    #[inline(always)]
    unsafe fn read(&self, i: usize) -> M {
        // SAFETY: guaranteed by the caller: the row has this element.
        unsafe { self.from.0.wrapping_offset(i as isize * self.from.1).read_unaligned() }
    }

    #[inline(always)]
    unsafe fn key(&self, i: usize) -> u64 {
        // SAFETY: guaranteed by the caller.
        unsafe { self.read(i) }.widen().number(key_bits::<M>()) ^ self.turn
    }

    /// Writes the element with this key, which is at `at` in the input, as element `i`.
    #[inline(always)]
    unsafe fn write(&self, i: usize, key: u64, at: usize) {
        // SAFETY: guaranteed by the caller: the row has these elements.
        unsafe {
            let value = match M::Lane::of_number(key ^ self.turn, key_bits::<M>()) {
                Some(lane) => M::narrow(lane),
                None => self.read(at),
            };
            self.values.0.wrapping_offset(i as isize * self.values.1).write_unaligned(value);
            self.positions.0.wrapping_offset(i as isize * self.positions.1).write_unaligned(at as i64);
        }
    }

    /// Sorts the row; ends early, with nothing written, when asked to.
    unsafe fn sort(&self, length: usize, threads: usize) -> Option<()> {
        let parts = Parts { length, count: threads, until: Until::now() };
        // SAFETY: guaranteed by the caller.
        unsafe {
            if key_bits::<M>() == 32 && length <= 1 << 32 {
                return self.by_radix::<u64>(&parts, 0);
            }
            // Long keys within a small range are sorted as short keys.
            let (least, most) = parts.range(|i| self.key(i))?;
            match most - least {
                _ if length > 1 << 32 => self.by_radix::<(u64, u64)>(&parts, 0),
                range if range >> 32 == 0 => self.by_radix::<u64>(&parts, least),
                _ => self.by_radix::<(u64, u32)>(&parts, 0),
            }
        }
    }

    /// The keys and positions of all elements; `None` when asked to end early.
    unsafe fn pairs(&self, length: usize, threads: usize) -> Option<Vec<(u64, usize)>> {
        let parts = Parts { length, count: threads, until: Until::now() };
        let all = parts.each(
            |_| Vec::new(),
            // SAFETY: guaranteed by the caller.
            |all, piece| all.extend(piece.map(|i| (unsafe { self.key(i) }, i))),
        )?;
        match <[_; 1]>::try_from(all) {
            Ok([all]) => Some(all),
            Err(all) => Some(all.concat()),
        }
    }

    /// Writes the first elements in sort order; ends early, with nothing written, when asked to.
    unsafe fn top(&self, length: usize, kept: usize, threads: usize) -> Option<()> {
        if kept > Top::MOST {
            // SAFETY: guaranteed by the caller.
            let mut all = unsafe { self.pairs(length, threads) }?;
            all.select_nth_unstable(kept - 1);
            all.truncate(kept);
            all.sort_unstable();
            for (i, &(key, at)) in all.iter().enumerate() {
                // SAFETY: guaranteed by the caller.
                unsafe { self.write(i, key, at) };
            }
            return Some(());
        }
        // SAFETY: guaranteed by the caller.
        let best = unsafe { self.best(length, kept, threads) }?;
        for (i, &(key, at)) in best.iter().enumerate() {
            // SAFETY: guaranteed by the caller.
            unsafe { self.write(i, key, at) };
        }
        Some(())
    }

    /// The keys and positions of the first elements in sort order; `None` when asked to end early.
    unsafe fn best(&self, length: usize, kept: usize, threads: usize) -> Option<Vec<(u64, usize)>> {
        let parts = Parts { length, count: threads, until: Until::now() };
        let offer = |best: &mut Best, piece: Range<usize>| {
            let mut keys = [0; BLOCK];
            for first in piece.clone().step_by(BLOCK) {
                let count = BLOCK.min(piece.end - first);
                // SAFETY: guaranteed by the caller.
                let below = unsafe { self.keys(first, &mut keys[..count], best.bound) };
                best.offer(&keys, first, below);
            }
        };
        parts.each(|_| Best::new(kept), offer).map(|parts| Best::merged(parts, kept))
    }

    /// The keys of the elements from this position on. Returns a bit for each, set if the key is below the bound.
    ///
    /// # Safety
    /// The row has these elements.
    unsafe fn keys(&self, first: usize, keys: &mut [u64], bound: Option<u64>) -> u64 {
        #[inline(always)]
        fn each<M: Element<Lane: Ordered>>(
            (from, step): (*const M, isize),
            turn: u64,
            keys: &mut [u64],
            bound: Option<u64>,
        ) -> u64 {
            for (i, key) in keys.iter_mut().enumerate() {
                // SAFETY: guaranteed by the caller of `keys`.
                let element = unsafe { from.wrapping_offset(i as isize * step).read_unaligned() };
                *key = element.widen().number(key_bits::<M>()) ^ turn;
            }
            let Some(bound) = bound else { return u64::MAX >> (BLOCK - keys.len()) };
            if !keys.iter().fold(false, |any, &key| any | (key < bound)) {
                return 0;
            }
            keys.iter().enumerate().fold(0, |bits, (i, &key)| bits | u64::from(key < bound) << i)
        }
        #[inline(always)]
        fn of_step<M: Element<Lane: Ordered>>(
            from: (*const M, isize),
            turn: u64,
            keys: &mut [u64],
            bound: Option<u64>,
        ) -> u64 {
            // With a constant step, the loop is vectorised.
            match from.1 {
                1 => each((from.0, 1), turn, keys, bound),
                _ => each(from, turn, keys, bound),
            }
        }
        let (from, step) = self.from;
        multiversion!([M: Element<Lane: Ordered>] of_step(
            from: (*const M, isize) = (from.wrapping_offset(first as isize * step), step),
            turn: u64 = self.turn,
            keys: &mut [u64] = keys,
            bound: Option<u64> = bound,
        ) -> u64)
    }

    /// Sorts the row by its keys minus `base`.
    unsafe fn by_radix<T: Item>(&self, parts: &Parts, base: u64) -> Option<()> {
        let (mut all, mut other) = (Buffer::<T>::new(parts.length), Buffer::<T>::new(parts.length));
        let (least, most) = parts.range(|i| {
            // SAFETY: guaranteed by the caller; parts write different elements.
            unsafe {
                let key = self.key(i) - base;
                all.write(i, T::new(key, i));
                key
            }
        })?;
        if parts.length <= RADIX {
            // SAFETY: all elements were written.
            unsafe { all.slice_mut(0..parts.length) }.sort_unstable();
        } else {
            let digits = if parts.length < 1 << 13 { 8 } else { 11 };
            let bits = u64::BITS - (most - least).leading_zeros();
            // The lowest bits rarely matter: the highest ones leave few elements with equal bits.
            let wanted = (parts.length.ilog2() + SPARE).next_multiple_of(digits);
            let low = bits.saturating_sub(wanted);
            let some = Digits { least, low, bits, digits };
            let high = |item: T| (item.key() - least) >> low;
            // SAFETY: all elements were written.
            unsafe {
                some.deal(parts, &mut all, &mut other)?;
                if low > 0 && !sort_groups(parts, &mut all, high)? {
                    Digits { low: 0, ..some }.deal(parts, &mut all, &mut other)?;
                }
            }
        }
        let put = |(): &mut (), piece: Range<usize>| {
            let first = piece.start;
            // SAFETY: guaranteed by the caller; all elements were written.
            unsafe {
                let items = all.slice(piece).iter().enumerate();
                items.for_each(|(i, &item)| self.write(first + i, item.key() + base, item.at()));
            }
        };
        parts.each(|_| (), put).map(|_| ())
    }
}

/// The digits of keys minus `least`, from bit `low` to below `bits`.
struct Digits {
    least: u64,
    low: u32,
    bits: u32,
    /// Bits of a digit.
    digits: u32,
}

impl Digits {
    /// Sorts items by their digits, from the lowest to the highest; `None` when asked to end early.
    ///
    /// # Safety
    /// All items were written.
    unsafe fn deal<T: Item>(&self, parts: &Parts, all: &mut Buffer<T>, other: &mut Buffer<T>) -> Option<()> {
        let &Digits { least, low, bits, digits } = self;
        for shift in (low..bits).step_by(digits as usize) {
            let digit = |item: T| ((item.key() - least) >> shift) as usize & ((1 << digits) - 1);
            let count = |counts: &mut Vec<usize>, piece: Range<usize>| {
                // SAFETY: guaranteed by the caller.
                unsafe { all.slice(piece) }.iter().for_each(|&item| counts[digit(item)] += 1);
            };
            let mut places = parts.each(|_| vec![0; 1 << digits], count)?;
            let mut next = 0;
            for value in 0..1 << digits {
                for part in &mut places {
                    next += std::mem::replace(&mut part[value], next);
                }
            }
            let deal = |places: &mut Vec<usize>, piece: Range<usize>| {
                // SAFETY: guaranteed by the caller; each item has its own place.
                unsafe {
                    for &item in all.slice(piece) {
                        let place = &mut places[digit(item)];
                        other.write(*place, item);
                        *place += 1;
                    }
                }
            };
            parts.each(|part| places[part].clone(), deal)?;
            std::mem::swap(all, other);
        }
        Some(())
    }
}

/// Sorts neighbouring items with equal high bits, if there are few of each. Returns whether all items are sorted; `None` when
/// asked to end early.
///
/// # Safety
/// All items were written, and are sorted by these bits.
unsafe fn sort_groups<T: Item>(
    parts: &Parts,
    all: &mut Buffer<T>,
    high: impl Fn(T) -> u64 + Sync,
) -> Option<bool> {
    // SAFETY: guaranteed by the caller.
    let mut rest = unsafe { all.slice_mut(0..parts.length) };
    let mut pieces = Vec::new();
    while !rest.is_empty() {
        let mut end = rest.len().min(ELEMENTS_PER_CHECK);
        while end < rest.len() && high(rest[end - 1]) == high(rest[end]) {
            end += 1;
            if end > ELEMENTS_PER_CHECK + GROUP {
                return Some(false);
            }
        }
        let piece;
        (piece, rest) = rest.split_at_mut(end);
        pieces.push(Mutex::new(Some(piece)));
    }
    let is_sorted = AtomicBool::new(true);
    tasks::each(pieces.len(), parts.count > 1, |number| {
        let Some(piece) = pieces[number].lock().take() else { return };
        for group in piece.chunk_by_mut(|&a, &b| high(a) == high(b)) {
            match group.len() {
                1 => {}
                2..=GROUP => group.sort_unstable(),
                _ => return is_sorted.store(false, Ordering::Relaxed),
            }
        }
    });
    (!parts.until.ended()).then(|| is_sorted.into_inner())
}

/// The elements of a row in as many parts as threads work on it.
struct Parts {
    length: usize,
    count: usize,
    until: Until,
}

impl Parts {
    /// Passes the elements of each part, piece by piece, to `step` with the part's state. Returns the states; `None` when
    /// the work should end early.
    fn each<S: Send>(
        &self,
        init: impl Fn(usize) -> S + Sync,
        step: impl Fn(&mut S, Range<usize>) + Sync,
    ) -> Option<Vec<S>> {
        let first = |part: usize| (self.length as u128 * part as u128 / self.count as u128) as usize;
        let one = |part: usize| {
            let (mut state, end) = (init(part), first(part + 1));
            for at in (first(part)..end).step_by(ELEMENTS_PER_CHECK) {
                if self.until.ended() {
                    return None;
                }
                step(&mut state, at..end.min(at + ELEMENTS_PER_CHECK));
            }
            Some(state)
        };
        match self.count {
            1 => one(0).map(|state| vec![state]),
            count => {
                let states: Vec<Mutex<Option<S>>> = (0..count).map(|_| Mutex::new(None)).collect();
                tasks::each(count, true, |part| *states[part].lock() = one(part));
                states.into_iter().map(Mutex::into_inner).collect()
            }
        }
    }
}

impl Parts {
    /// The minimum and maximum of all keys.
    fn range(&self, key: impl Fn(usize) -> u64 + Sync) -> Option<(u64, u64)> {
        let ends = self.each(
            |_| (u64::MAX, 0),
            |(least, most), piece| {
                for i in piece {
                    let key = key(i);
                    (*least, *most) = (key.min(*least), key.max(*most));
                }
            },
        )?;
        Some(ends.into_iter().fold((u64::MAX, 0), |a, b| (a.0.min(b.0), a.1.max(b.1))))
    }
}

/// A key with its position; ordered by both.
trait Item: Copy + Ord + Send + Sync {
    fn new(key: u64, at: usize) -> Self;
    fn key(self) -> u64;
    fn at(self) -> usize;
}

/// Key and position in 32 bits each.
impl Item for u64 {
    #[inline(always)]
    fn new(key: u64, at: usize) -> u64 {
        key << 32 | at as u64
    }
    #[inline(always)]
    fn key(self) -> u64 {
        self >> 32
    }
    #[inline(always)]
    fn at(self) -> usize {
        self as u32 as usize
    }
}

macro_rules! items {
    ($($at:ty),*) => {$(
        impl Item for (u64, $at) {
            #[inline(always)]
            fn new(key: u64, at: usize) -> Self {
                (key, at as $at)
            }
            #[inline(always)]
            fn key(self) -> u64 {
                self.0
            }
            #[inline(always)]
            fn at(self) -> usize {
                self.1 as usize
            }
        }
    )*};
}

items!(u32, u64);

/// Batcher's merge exchange: sorts each lane.
#[inline(always)]
fn network(lanes: &mut [[i64; TOGETHER]]) {
    let n = lanes.len();
    let mut width = 1;
    while width < n {
        // Elements are exchanged within groups of twice the width.
        let group = !(2 * width - 1);
        let mut step = width;
        while step > 0 {
            for from in (step % width..n.saturating_sub(step)).step_by(2 * step) {
                for low in from..(from + step).min(n - step) {
                    let high = low + step;
                    if (low ^ high) & group == 0 {
                        let (a, b) = (lanes[low], lanes[high]);
                        let (mut least, mut most) = (a, b);
                        for lane in 0..TOGETHER {
                            least[lane] = a[lane].min(b[lane]);
                            most[lane] = a[lane].max(b[lane]);
                        }
                        (lanes[low], lanes[high]) = (least, most);
                    }
                }
            }
            step /= 2;
        }
        width *= 2;
    }
}

/// Bits of an element's key. Elements of up to four bytes have short keys.
const fn key_bits<M>() -> u32 {
    if size_of::<M>() <= 4 { 32 } else { 64 }
}

/// A lane with an order-preserving integer key, below `2^bits`.
trait Ordered: Sized {
    /// The key. Integers that fit 32 bits stay within 32 bits.
    fn number(self, bits: u32) -> u64;
    /// The only value with this key; `None` when there are several.
    fn of_number(number: u64, bits: u32) -> Option<Self>;
}

impl Ordered for i64 {
    #[inline(always)]
    fn number(self, bits: u32) -> u64 {
        match bits {
            32 => u64::from(self as i32 as u32 ^ 1 << 31),
            _ => self as u64 ^ 1 << 63,
        }
    }
    #[inline(always)]
    fn of_number(number: u64, bits: u32) -> Option<i64> {
        Some(match bits {
            32 => i64::from((number as u32 ^ 1 << 31) as i32),
            _ => (number ^ 1 << 63) as i64,
        })
    }
}

/// Floats: nan has the maximum key, and both zeros have the key of the positive one.
macro_rules! floats {
    ($($t:ident $bits:ident $int:ident),*) => {$(
        impl Ordered for $t {
            #[inline(always)]
            fn number(self, _bits: u32) -> u64 {
                let bits = (self + 0.0).to_bits();
                let negative = (bits as $int >> ($bits::BITS - 1)) as $bits;
                let number = bits ^ (negative | 1 << ($bits::BITS - 1));
                u64::from(if self.is_nan() { $bits::MAX } else { number })
            }
            #[inline(always)]
            fn of_number(number: u64, _bits: u32) -> Option<$t> {
                let number = number as $bits;
                let sign = 1 << ($bits::BITS - 1);
                let bits = if number & sign == 0 { !number } else { number ^ sign };
                (number != $bits::MAX && number != sign).then(|| $t::from_bits(bits))
            }
        }
    )*};
}

floats!(f32 u32 i32, f64 u64 i64);

// Complex numbers have no order. All get the same key here, and operations reject sorting them.
macro_rules! unordered {
    ($($t:ident),*) => {$(
        impl Ordered for $t {
            fn number(self, _bits: u32) -> u64 {
                0
            }
            fn of_number(_number: u64, _bits: u32) -> Option<$t> {
                None
            }
        }
    )*};
}

unordered!(C64, C128);
