//! Reductions: elementwise work, then one result per kept position. See Note [The order of a reduction] in
//! `fold`.
//!
//! Two loop orders give the same bits. *along* takes the elements of one result after another (rows);
//! *across* takes adjacent results side by side (columns). Long reductions with few results are split into
//! ranges of blocks; the result of a range is a whole subtree of the tree over blocks.

use crate::array::{Class, Dims, Dtype, dispatch};
use crate::kernel::host::fold::{Accumulator, BLOCK, Choice, Combine, LANES};
use crate::kernel::host::interp::{Interpreter, Plane};
use crate::kernel::host::tasks::{self, ELEMENTS_PER_CHECK, Until, threads};
use crate::kernel::host::{CHUNK, FaultSlot, element};
use crate::kernel::{Launch, Ptr, Reduce, Source};
use element::Tile;
use smallvec::{SmallVec, smallvec};
use std::sync::atomic::{AtomicBool, Ordering};

/// Runs a reduction.
///
/// # Safety
/// The launch upholds its invariant, and nothing else writes the memory it reads during the call.
pub(in crate::kernel) unsafe fn run(reduce: &Reduce, launch: &Launch, faults: &FaultSlot) {
    #[cfg(debug_assertions)]
    crate::kernel::host::hazards::check(&reduce.map, launch);
    // SAFETY: guaranteed by the caller.
    unsafe {
        match reduce.map.dtype(reduce.value).class() {
            Class::F32 => run_class::<f32>(reduce, launch, faults),
            Class::F64 => run_class::<f64>(reduce, launch, faults),
            Class::I64 => run_class::<i64>(reduce, launch, faults),
            // The planner rejects these.
            Class::C64 | Class::C128 => {}
        }
    }
}

/// The extents of a reduction and the order of its loops.
struct Plan<'a> {
    reduce: &'a Reduce,
    launch: &'a Launch,
    faults: &'a FaultSlot,
    /// Number of leading dimensions that are kept.
    kept: usize,
    /// Number of results.
    results: usize,
    /// Elements per result.
    length: usize,
    /// The kept dimension of a tile.
    side: Option<usize>,
    /// The loop order.
    across: bool,
    /// True when more than one reduced dimension is longer than 1.
    folded: bool,
    /// Maximum number of elements of a tile.
    most: usize,
    /// The condition for an early end.
    until: Until,
}

unsafe fn run_class<T: Accumulator>(reduce: &Reduce, launch: &Launch, faults: &FaultSlot) {
    let plan = Plan::of(reduce, launch, faults);
    if plan.results == 0 {
        return;
    }
    let job = match (T::combine(&reduce.f.host), T::choice(&reduce.f.host)) {
        (Some(combine), _) => Job::Combine(*combine),
        (_, Some(choice)) => Job::Choose(*choice),
        _ => return,
    };
    // SAFETY: guaranteed by the caller.
    unsafe { plan.run::<T>(job) };
}

#[derive(Clone, Copy)]
enum Job<T: 'static> {
    Combine(Combine<T>),
    Choose(Choice<T>),
}

/// Maximum number of blocks in a tile, which are folded side by side.
const MOST_BLOCKS: usize = 4;

/// Reductions of more elements read memory, not a cache: reading several blocks side by side is slower there.
const MOST_CACHED: usize = 1 << 23;

/// Elements between two stop checks, and the limit on the number of partial results added by the checks.
const STOP_INTERVAL: usize = 1 << 20;
const PARTIAL: usize = 1 << 16;

impl<'a> Plan<'a> {
    fn of(reduce: &'a Reduce, launch: &'a Launch, faults: &'a FaultSlot) -> Plan<'a> {
        let shape = &launch.shape[..];
        let kept = shape.len() - launch.reduced.min(shape.len());
        let results: usize = shape[..kept].iter().product();
        let length: usize = shape[kept..].iter().product();
        let last = (kept..shape.len()).rev().find(|&d| shape[d] > 1);
        let loads = || {
            reduce.map.sources.iter().filter_map(|source| match source {
                Source::Load { view, .. } | Source::Gathered { view, .. } => {
                    Some(&launch.views[usize::from(*view)].strides)
                }
                _ => None,
            })
        };
        let follows = |d: usize| loads().any(|strides| strides[d] == 1);
        let long = (0..kept).rev().filter(|&d| shape[d] > 1);
        let run = last.map_or(1, |d| shape[d]);
        let side = long.clone().find(|&d| follows(d)).or(long.clone().next());
        // Results of few elements (sliding windows): compute many adjacent results together, whatever their strides.
        let longest = || long.clone().max_by_key(|&d| shape[d]);
        let side = side.filter(|&d| run >= 8 || shape[d] >= 32).or_else(longest);
        // A combining loop handles several rows of few results at a time, a choosing loop only one.
        let least = if reduce.out_index.is_some() { 8 } else { 2 };
        let across = match (side, last) {
            (Some(side), Some(last)) if shape[side] >= least => {
                let short = run < 8 && shape[side] >= 32 && run < length;
                // Overlapping rows: results are adjacent, and so are the elements of a row.
                let overlaps = follows(side) && run < 64 && shape[side] >= 32;
                short || overlaps || (follows(side) && !follows(last))
            }
            _ => false,
        };
        let folded = shape[kept..].iter().filter(|&&n| n > 1).count() > 1;
        // Without instructions, a tile takes no registers, so it may be larger.
        let are_cached = results.saturating_mul(length) <= MOST_CACHED;
        let most = if reduce.map.instrs.is_empty() && are_cached { MOST_BLOCKS * BLOCK } else { CHUNK };
        let until = Until::now();
        Plan { reduce, launch, faults, kept, results, length, side, across, folded, most, until }
    }

    unsafe fn run<T: Accumulator>(&self, job: Job<T>) {
        let blocks = self.length.div_ceil(BLOCK).max(1);
        let strip = self.strip();
        let side = self.side.map_or(1, |d| self.launch.shape[d]);
        let strips = side.div_ceil(strip) * (self.results / side);
        let views = self.launch.views.len() + self.reduce.map.instrs.len();
        let visits = self.results.saturating_mul(self.length).saturating_mul(views);
        let threads = threads(visits);
        // Few strips of many blocks: split the blocks too, into powers of two.
        let mut range = blocks.next_power_of_two();
        if threads > 1 {
            while strips * blocks.div_ceil(range) < threads * 4 && range > 8 {
                range /= 2;
            }
        }
        // Work that may end early is cut into ranges and checks between them. The cuts do not change any bit.
        let until = &self.until;
        while until.is_set()
            && range * BLOCK > STOP_INTERVAL
            && blocks.div_ceil(range) * self.results < PARTIAL
        {
            range /= 2;
        }
        let ended = AtomicBool::new(false);
        let ranges = blocks.div_ceil(range);
        let mut partial: Vec<Held<T>> = Vec::new();
        if ranges > 1 {
            partial.resize(ranges * self.results, Held { value: T::default(), at: 0 });
        }
        let shared = Shared(partial.as_mut_ptr());
        let task = |numbers: std::ops::Range<usize>| {
            let mut worker = None;
            for number in numbers {
                if until.ended() {
                    return ended.store(true, Ordering::Relaxed);
                }
                let (strip_number, part) = (number / ranges, number % ranges);
                let first = part * range * BLOCK;
                let elements = first..(first + range * BLOCK).min(self.length);
                // SAFETY: guaranteed by the caller; each strip and range belongs to one task.
                unsafe {
                    let worker = worker.get_or_insert_with(|| Worker::<T>::new(self, job));
                    worker.strip(strip_number, strip, elements);
                    if worker.ended {
                        return ended.store(true, Ordering::Relaxed);
                    }
                    if ranges == 1 {
                        worker.finish();
                    } else {
                        let partial = { &shared }.0;
                        for (i, &held) in worker.held.iter().enumerate() {
                            partial.add(part * self.results + worker.first + i).write(held);
                        }
                    }
                }
            }
        };
        let total = strips * ranges;
        if total == 1 || threads == 1 {
            task(0..total);
        } else {
            let tasks = total.min(threads * 8);
            let from = |i: usize| (total as u128 * i as u128 / tasks as u128) as usize;
            tasks::each(tasks, true, |i| task(from(i)..from(i + 1)));
        }
        if ranges > 1 && !ended.into_inner() {
            // SAFETY: guaranteed by the caller; the tasks have ended.
            unsafe { self.join(job, &partial, ranges) };
        }
    }

    /// The number of adjacent results that a task computes side by side.
    fn strip(&self) -> usize {
        let side = self.side.map_or(1, |d| self.launch.shape[d]);
        match self.across {
            true => side.min(256),
            false if self.length <= BLOCK && !self.folded => {
                side.min((self.most / self.length.max(1)).max(1))
            }
            false => 1,
        }
    }

    /// Combines the ranges' subtrees.
    unsafe fn join<T: Accumulator>(&self, job: Job<T>, partial: &[Held<T>], ranges: usize) {
        // SAFETY: guaranteed by the caller.
        let mut worker = unsafe { Worker::<T>::new(self, job) };
        let side = self.side.map_or(1, |d| self.launch.shape[d]);
        for strip in 0..self.results / side {
            worker.place(strip, side);
            let mut spine = TreeSpine::default();
            let first = worker.first;
            for part in 0..ranges {
                let held = &partial[part * self.results + first..][..side];
                match job {
                    Job::Combine(combine) => {
                        let values: Vec<T> = held.iter().map(|h| h.value).collect();
                        spine.push(&combine, &values);
                    }
                    Job::Choose(choice) if part > 0 => {
                        for (have, &new) in worker.held.iter_mut().zip(held) {
                            if (choice.better)(have.value, new.value) {
                                *have = new;
                            }
                        }
                    }
                    Job::Choose(_) => {
                        worker.held.clear();
                        worker.held.extend_from_slice(held);
                    }
                }
            }
            if let Job::Combine(combine) = job {
                let values = spine.finish(&combine);
                worker.held.clear();
                worker.held.extend(values.iter().map(|&value| Held { value, at: 0 }));
            }
            // SAFETY: the results lie in the launch's result views.
            unsafe { worker.finish() };
        }
    }
}

/// A partial result: the value and, for choosing reductions, its position.
#[derive(Clone, Copy)]
struct Held<T> {
    value: T,
    at: i64,
}

/// A pointer shared by tasks that access disjoint elements.
struct Shared<T>(*mut T);

// SAFETY: tasks write disjoint elements, and the owner reads after all of them have ended.
unsafe impl<T: Send> Sync for Shared<T> {}

/// The right spine of the balanced tree over blocks, for adjacent results.
struct TreeSpine<T> {
    /// Subtrees of decreasing size.
    levels: SmallVec<[(usize, SmallVec<[T; 4]>); 4]>,
}

impl<T> Default for TreeSpine<T> {
    fn default() -> TreeSpine<T> {
        TreeSpine { levels: SmallVec::new() }
    }
}

impl<T: Accumulator> TreeSpine<T> {
    /// Adds the results of the next block (or of the next range of equal size).
    fn push(&mut self, combine: &Combine<T>, block: &[T]) {
        let (mut size, mut new): (usize, SmallVec<[T; 4]>) = (1, block.into());
        while self.levels.last().is_some_and(|level| level.0 == size) {
            if let Some((_, mut left)) = self.levels.pop() {
                (combine.across)(&mut left, &new);
                (size, new) = (size * 2, left);
            }
        }
        self.levels.push((size, new));
    }

    /// Combines the remaining subtrees from the right; empty when nothing was pushed.
    fn finish(mut self, combine: &Combine<T>) -> SmallVec<[T; 4]> {
        let mut right = self.levels.pop().map(|level| level.1).unwrap_or_default();
        while let Some((_, mut left)) = self.levels.pop() {
            (combine.across)(&mut left, &right);
            right = left;
        }
        right
    }
}

/// The state of one thread: the machine and the results of the current strip.
struct Worker<'a, T: Accumulator> {
    plan: &'a Plan<'a>,
    job: Job<T>,
    init: T,
    machine: Interpreter<'a>,
    /// Coordinates of the strip's first result, then of a tile.
    at: Dims,
    /// The index of the strip's first result; adjacent results follow.
    first: usize,
    held: Vec<Held<T>>,
    /// Accumulators of the current block: lane by lane, or values for one fold.
    lanes: Vec<T>,
    values: Vec<T>,
    positions: Vec<i64>,
    until: Until,
    /// Elements since the last check for an early end.
    unseen: usize,
    /// The work has ended early.
    ended: bool,
}

impl<'a, T: Accumulator> Worker<'a, T> {
    unsafe fn new(plan: &'a Plan<'a>, job: Job<T>) -> Worker<'a, T> {
        let shape = &plan.launch.shape;
        let mut long = (plan.kept..shape.len()).rev().filter(|&d| shape[d] > 1);
        let last = long.next().or((plan.kept < shape.len()).then_some(plan.kept));
        let plane = match (plan.across, plan.folded) {
            (true, _) => Plane { row: last, col: plan.side },
            (false, false) => Plane { row: plan.side, col: last },
            (false, true) => Plane { row: long.next(), col: last },
        };
        let reduce = plan.reduce;
        // SAFETY: guaranteed by the caller.
        let machine = unsafe {
            let kept = Some(reduce.value);
            Interpreter::new(&reduce.map, plan.launch, plane, plan.most, kept, plan.faults)
        };
        let init = T::from_bits64((reduce.f.init)(reduce.map.dtype(reduce.value).class()));
        Worker {
            plan,
            job,
            init,
            machine,
            at: smallvec![0; shape.len()],
            first: 0,
            held: Vec::new(),
            lanes: Vec::new(),
            values: Vec::new(),
            positions: Vec::new(),
            until: plan.until.clone(),
            unseen: 0,
            ended: false,
        }
    }

    /// Counts elements; true when the work should end early.
    fn ends(&mut self, elements: usize) -> bool {
        self.unseen += elements;
        if self.unseen >= ELEMENTS_PER_CHECK {
            self.unseen = 0;
            self.ended |= self.until.ended();
        }
        self.ended
    }

    /// Moves to a strip by number, for strips of this width; returns the strip's actual width.
    fn place(&mut self, number: usize, width: usize) -> usize {
        let shape = &self.plan.launch.shape;
        let side = self.plan.side.map_or(1, |d| shape[d]);
        let parts = side.div_ceil(width);
        let (mut rest, position) = (number / parts, number % parts * width);
        self.first = rest * side + position;
        for d in (0..self.plan.kept).rev() {
            if Some(d) == self.plan.side {
                self.at[d] = position;
            } else {
                self.at[d] = rest % shape[d];
                rest /= shape[d];
            }
        }
        width.min(side - position)
    }

    /// Computes the results of a strip over a range of their elements that starts at a block boundary.
    unsafe fn strip(&mut self, number: usize, width: usize, elements: std::ops::Range<usize>) {
        let width = self.place(number, width);
        self.held.clear();
        self.held.resize(width, Held { value: self.init, at: elements.start as i64 });
        if elements.is_empty() {
            return;
        }
        // SAFETY: guaranteed by the caller.
        unsafe {
            match (self.plan.across, self.job) {
                (true, Job::Combine(combine)) => self.combine_across(combine, width, elements),
                (true, Job::Choose(choice)) => self.choose_across(choice, width, elements),
                (false, Job::Combine(combine)) => self.combine_along(combine, width, elements),
                (false, Job::Choose(choice)) => self.choose_along(choice, width, elements),
            }
        }
    }

    /// Sets the coordinates of the reduced dimensions to an element. Returns how many elements remain along
    /// the last dimension longer than 1, including this one.
    fn seek(&mut self, element: usize) -> usize {
        let shape = &self.plan.launch.shape;
        let (mut rest, mut run) = (element, 0);
        for d in (self.plan.kept..shape.len()).rev() {
            self.at[d] = rest % shape[d];
            rest /= shape[d];
            if run == 0 && shape[d] > 1 {
                run = shape[d] - self.at[d];
            }
        }
        run.max(1)
    }

    /// The rows and columns of the next box of a folded result, starting at the element that `seek` set.
    fn next_box(&self, run: usize, left: usize) -> (usize, usize) {
        let shape = &self.plan.launch.shape;
        let mut long = (self.plan.kept..shape.len()).rev().filter(|&d| shape[d] > 1);
        let (Some(last), Some(above)) = (long.next(), long.next()) else { return (1, run.min(left)) };
        if self.at[last] != 0 || left < shape[last] {
            return (1, run.min(left));
        }
        ((left / shape[last]).min(shape[above] - self.at[above]), shape[last])
    }

    /// Calls `each(index of the element, values)` for the values of the strip's only result, piece by piece. A piece
    /// that crosses a block boundary starts at one.
    unsafe fn pieces(&mut self, elements: std::ops::Range<usize>, mut each: impl FnMut(usize, &[T])) {
        let mut i = elements.start;
        while i < elements.end {
            if self.ends(0) {
                return;
            }
            let run = self.seek(i);
            let left = (BLOCK - i % BLOCK).min(elements.end - i);
            let (h, w) = match self.plan.folded {
                true => self.next_box(run, left),
                false if i.is_multiple_of(BLOCK) => (1, run.min(self.plan.most).min(elements.end - i)),
                false => (1, run.min(left)),
            };
            // SAFETY: the box lies in the shape, and has at most `most` elements.
            unsafe { self.machine.run(&self.at, h, w) };
            // SAFETY: the tile has just run, and `value` is kept.
            let values = unsafe { self.machine.register(self.plan.reduce.value, h * w) };
            each(i, T::of(values).unwrap_or_default());
            i += h * w;
            self.unseen += h * w;
        }
    }

    unsafe fn combine_along(&mut self, combine: Combine<T>, rows: usize, elements: std::ops::Range<usize>) {
        let length = elements.len();
        if rows > 1 || (length <= BLOCK && !self.plan.folded) {
            self.seek(elements.start);
            // SAFETY: the tile lies in the shape; `Plan::strip` limits it to `most` elements.
            unsafe { self.machine.run(&self.at, rows, length) };
            // SAFETY: the tile has just run, and `value` is kept.
            let values = unsafe { self.machine.register(self.plan.reduce.value, rows * length) };
            let values = T::of(values).unwrap_or_default();
            self.values.clear();
            self.values.resize(rows, self.init);
            combine.fold(self.init, length, values, &mut self.values);
            for (held, &value) in self.held.iter_mut().zip(&self.values) {
                held.value = value;
            }
            return;
        }
        let (init, end) = (self.init, elements.end);
        let mut spine = TreeSpine::default();
        let mut block = std::mem::take(&mut self.values);
        block.clear();
        // SAFETY: guaranteed by the caller.
        unsafe {
            self.pieces(elements, |i, values| {
                let (mut i, mut values) = (i, values);
                if block.is_empty() && values.len() >= BLOCK {
                    let (whole, rest) = values.split_at(values.len() / BLOCK * BLOCK);
                    let mut results = [init; MOST_BLOCKS];
                    let results = &mut results[..whole.len() / BLOCK];
                    combine.fold(init, BLOCK, whole, results);
                    results.iter().for_each(|&result| spine.push(&combine, &[result]));
                    (i, values) = (i + whole.len(), rest);
                    if values.is_empty() {
                        return;
                    }
                }
                block.extend_from_slice(values);
                if (i + values.len()).is_multiple_of(BLOCK) || i + values.len() == end {
                    spine.push(&combine, &[fold_block(&combine, init, &block)]);
                    block.clear();
                }
            });
        }
        self.values = block;
        if let (Some(held), [value]) = (self.held.first_mut(), &spine.finish(&combine)[..]) {
            held.value = *value;
        }
    }

    unsafe fn choose_along(&mut self, choice: Choice<T>, rows: usize, elements: std::ops::Range<usize>) {
        let length = elements.len();
        if rows > 1 {
            self.seek(elements.start);
            // SAFETY: as in `combine_along`.
            unsafe { self.machine.run(&self.at, rows, length) };
            // SAFETY: as in `combine_along`.
            let values = unsafe { self.machine.register(self.plan.reduce.value, rows * length) };
            let values = T::of(values).unwrap_or_default();
            for (held, row) in self.held.iter_mut().zip(values.chunks_exact(length)) {
                let (value, at) = (choice.best)(held.value, row);
                *held = Held { value, at: at.map_or(held.at, |at| at as i64) };
            }
            return;
        }
        let Some(mut held) = self.held.first().copied() else { return };
        // SAFETY: guaranteed by the caller.
        unsafe {
            self.pieces(elements, |i, values| {
                let (value, at) = (choice.best)(held.value, values);
                held = Held { value, at: at.map_or(held.at, |at| (i + at) as i64) };
            });
        }
        self.held[0] = held;
    }

    /// Calls `each(self, index of the element, rows, values)` for rows of elements of adjacent results. No
    /// piece crosses a block boundary.
    unsafe fn rows(
        &mut self,
        width: usize,
        elements: std::ops::Range<usize>,
        mut each: impl FnMut(&mut Buffers<'_, T>, usize, usize, &[T]),
    ) {
        let most = (CHUNK / width).max(1);
        let mut i = elements.start;
        while i < elements.end {
            if self.ends(0) {
                return;
            }
            let run = self.seek(i);
            let h = run.min(most).min(BLOCK - i % BLOCK).min(elements.end - i);
            // SAFETY: the tile lies in the shape and has at most `CHUNK` elements.
            unsafe { self.machine.run(&self.at, h, width) };
            // SAFETY: the tile has just run, and `value` is kept.
            let values = unsafe { self.machine.register(self.plan.reduce.value, h * width) };
            let mut buffers =
                Buffers { lanes: &mut self.lanes, values: &mut self.values, positions: &mut self.positions };
            each(&mut buffers, i, h, T::of(values).unwrap_or_default());
            i += h;
            self.unseen += h * width;
        }
    }

    unsafe fn combine_across(&mut self, combine: Combine<T>, width: usize, elements: std::ops::Range<usize>) {
        let (init, end) = (self.init, elements.end);
        let mut spine = TreeSpine::default();
        self.lanes.clear();
        self.lanes.resize(LANES * width, init);
        // SAFETY: guaranteed by the caller.
        unsafe {
            self.rows(width, elements, |buffers, i, h, values| {
                let (mut row, lanes) = (0, &mut *buffers.lanes);
                while row < h {
                    let lane = (i + row) % LANES;
                    let rows = (h - row).min(LANES - lane);
                    let new = &values[row * width..(row + rows) * width];
                    (combine.across)(&mut lanes[lane * width..(lane + rows) * width], new);
                    row += rows;
                }
                if (i + h).is_multiple_of(BLOCK) || i + h == end {
                    let mut half = LANES / 2;
                    while half > 0 {
                        let (low, high) = lanes.split_at_mut(half * width);
                        (combine.across)(low, &high[..half * width]);
                        half /= 2;
                    }
                    spine.push(&combine, &lanes[..width]);
                    lanes.fill(init);
                }
            });
        }
        for (held, &value) in self.held.iter_mut().zip(&spine.finish(&combine)) {
            held.value = value;
        }
    }

    unsafe fn choose_across(&mut self, choice: Choice<T>, width: usize, elements: std::ops::Range<usize>) {
        self.values.clear();
        self.values.resize(width, self.init);
        self.positions.clear();
        self.positions.resize(width, elements.start as i64);
        // SAFETY: guaranteed by the caller.
        unsafe {
            self.rows(width, elements, |buffers, i, _, values| {
                for (row, new) in values.chunks_exact(width).enumerate() {
                    (choice.across)(buffers.values, buffers.positions, new, (i + row) as i64);
                }
            });
        }
        for (i, held) in self.held.iter_mut().enumerate() {
            *held = Held { value: self.values[i], at: self.positions[i] };
        }
    }

    /// Writes the strip's results.
    unsafe fn finish(&mut self) {
        let reduce = self.plan.reduce;
        if reduce.store_value {
            let mean = |value: T| if reduce.f.mean { value.divided(self.plan.length) } else { value };
            self.values.clear();
            self.values.extend(self.held.iter().map(|h| mean(h.value)));
            // SAFETY: guaranteed by the caller: the results lie in the launch's result view.
            unsafe { self.write(reduce.out, reduce.dtype, &self.values) };
        }
        if let Some(out) = reduce.out_index {
            self.positions.clear();
            self.positions.extend(self.held.iter().map(|h| h.at));
            // SAFETY: as above.
            unsafe { self.write(out, Dtype::I64, &self.positions) };
        }
    }

    unsafe fn write<L: Accumulator>(&self, view: u16, dtype: Dtype, results: &[L]) {
        let view = &self.plan.launch.views[usize::from(view)];
        let strides = &view.strides[..];
        let at = self.at.iter().zip(strides).map(|(&i, &s)| i as isize * s).sum::<isize>();
        let cs = self.plan.side.map_or(1, |d| strides[d]);
        let to = (view.ptr as Ptr as usize as *mut u8).wrapping_offset(at * dtype.size() as isize);
        let tile = Tile { h: 1, w: results.len(), rs: 0, cs };
        let mut converted: Vec<u64> = Vec::new();
        let from = results_as(dtype.class(), results, &mut converted);
        // SAFETY: guaranteed by the caller; `from` holds this many lanes of the dtype's class.
        unsafe { dispatch!(dtype, M => element::store::<M>(from.cast(), tile, to.cast())) };
    }
}

/// A worker's buffers, borrowed while its machine is read.
struct Buffers<'w, T> {
    lanes: &'w mut Vec<T>,
    values: &'w mut Vec<T>,
    positions: &'w mut Vec<i64>,
}

/// Folds one block of one result: lanes, then halving.
#[inline]
fn fold_block<T: Accumulator>(combine: &Combine<T>, init: T, block: &[T]) -> T {
    let mut out = [init];
    combine.fold(init, block.len(), block, &mut out);
    out[0]
}

/// The results as lanes of a class: unchanged, or converted into `space`.
fn results_as<L: Accumulator>(class: Class, results: &[L], space: &mut Vec<u64>) -> *const u8 {
    use crate::kernel::{Reg, RegMut};
    let from = L::register(results);
    let same = matches!(
        (class, from),
        (Class::F32, Reg::F32(_)) | (Class::F64, Reg::F64(_)) | (Class::I64, Reg::I64(_))
    );
    // No reduction has complex results.
    if same || class.is_complex() {
        return results.as_ptr().cast();
    }
    space.resize(results.len(), 0);
    let (to, n) = (space.as_mut_ptr(), results.len());
    // SAFETY: `space` has eight aligned bytes per result, and no other reference to them is live.
    let out = unsafe {
        match class {
            Class::F32 => RegMut::F32(std::slice::from_raw_parts_mut(to.cast(), n)),
            Class::F64 => RegMut::F64(std::slice::from_raw_parts_mut(to.cast(), n)),
            _ => RegMut::I64(std::slice::from_raw_parts_mut(to.cast(), n)),
        }
    };
    crate::kernel::host::cast(&[from], out);
    to.cast_const().cast()
}
