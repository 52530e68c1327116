//! Reductions for the ready-made kernel: the order of `kernels/reduce.cu`, one lane per element of a unit.

use super::{Cut, LANES, Reduce, axes, is_columns};
use crate::array::{Class, Dtype};
use crate::base::Result;
use crate::kernel::cuda::Queue;
use crate::kernel::cuda::element::counts;
use crate::kernel::cuda::interpret::{
    Coder, Encoded, Form, HEAD, Location, Phase, Squeezed, is_known, op, opcode,
};
use crate::kernel::kinds::map::parts;
use crate::kernel::{Kind, Launch, Map, Ptr, Source, View};
use foldhash::{HashMap, HashMapExt};

/// Minimum threads of a block.
const THREADS: u64 = 64;
/// Minimum threads if results are adjacent in memory: a block computes several, so that its loads are adjacent.
const COLUMN_THREADS: u64 = 256;

/// Queues a launch; false when it cannot be interpreted.
pub(super) fn enqueue(reduce: &Reduce, launch: &Launch, queue: &mut dyn Queue) -> Result<bool> {
    let cut = Cut::of(launch);
    let mut between = None;
    if cut.segments > 1 {
        let bytes = 8 * cut.kept * cut.segments;
        let positions = if reduce.f.indexed { queue.scratch(bytes)? } else { 0 };
        between = Some([queue.scratch(bytes)?, positions]);
    }
    let Some(encoded) = encode(reduce, launch, &cut, between) else {
        return separately(reduce, launch, queue);
    };
    // The second stage calls no function whose bits depend on the compiler.
    for stage in encoded {
        if !queue.interpret(&stage)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Queues a launch too large for one program in two parts: the elements, to scratch memory, then the reduction.
fn separately(reduce: &Reduce, launch: &Launch, queue: &mut dyn Queue) -> Result<bool> {
    if reduce.map.instrs.is_empty() || !is_known(&reduce.map) {
        return Ok(false);
    }
    let map = &reduce.map;
    let values = parts::scratch_view(map, launch, reduce.value, queue)?;
    let view = |number: u16| launch.views[usize::from(number)].clone();
    let mut stores: Vec<(u16, View)> = map.stores.iter().map(|store| (store.reg, view(store.view))).collect();
    stores.push((reduce.value, values.clone()));
    let (elements, work) = parts::part(map, launch, 0..map.instrs.len(), &HashMap::new(), &stores);
    if !elements.interpret(&work, queue)? {
        return Ok(false);
    }
    let source = Source::Load { view: 0, dtype: values.dtype };
    let rest = Reduce {
        map: Map { sources: vec![source], ..Map::default() },
        value: 0,
        out: 1,
        out_index: reduce.out_index.map(|_| 2),
        ..reduce.clone()
    };
    // Without a stored value there may be no view for it.
    let out = launch.views.get(usize::from(reduce.out)).unwrap_or(&values).clone();
    let views = [Some(values), Some(out), reduce.out_index.map(view)];
    let work = Launch { views: views.into_iter().flatten().collect(), ..launch.clone() };
    enqueue(&rest, &work, queue)
}

/// The stages of a reduction. With several segments, values and positions of the first stage lie `between`.
pub(super) fn encode(
    reduce: &Reduce,
    launch: &Launch,
    cut: &Cut,
    between: Option<[Ptr; 2]>,
) -> Option<Vec<Encoded>> {
    let class = reduce.map.dtype(reduce.value).class();
    let native = match class {
        Class::F32 => Dtype::F32,
        Class::F64 => Dtype::F64,
        Class::I64 => Dtype::I64,
        Class::C64 | Class::C128 => return None,
    };
    let stage = |cut, loads, stores| Stage { reduce, launch, cut, class, native, loads, stores }.encode();
    let first = stage(cut, None, between)?;
    if between.is_none() {
        return Some(vec![first]);
    }
    let lanes = cut.segments.clamp(1, LANES).next_power_of_two();
    let rest = Cut { kept: cut.kept, reduced: cut.segments, segment: cut.segments, segments: 1, lanes };
    Some(vec![first, stage(&rest, between, None)?])
}

struct Stage<'a> {
    reduce: &'a Reduce,
    launch: &'a Launch,
    cut: &'a Cut,
    class: Class,
    /// The dtype of the class itself.
    native: Dtype,
    /// The partial results that it combines; `None` for elements.
    loads: Option<[Ptr; 2]>,
    /// The buffer of partial results; `None` when results are final.
    stores: Option<[Ptr; 2]>,
}

impl Stage<'_> {
    fn encode(&self) -> Option<Encoded> {
        let (reduce, cut, mut coder) = (self.reduce, self.cut, Coder::new());
        let shape = Squeezed::new(&self.launch.shape);
        let kept_rank = self.launch.shape.len() - self.launch.reduced.min(self.launch.shape.len());
        let kept = Squeezed::new(&self.launch.shape[..kept_rank]);
        let dims = coder.dims(&shape.extents);
        let kept_dims = coder.dims(&kept.extents);
        let value = coder.take(self.class);
        let position = reduce.f.indexed.then(|| coder.take(Class::I64));

        let init = coder.number(self.class, (reduce.f.init)(self.class));
        coder.emit_sized(op::COPY, value, &[init]);
        if let Some(position) = position {
            let last = coder.number(Class::I64, i64::MAX as u64);
            coder.emit_sized(op::COPY, position, &[last]);
        }
        let init = Phase { code: [0, coder.at()], ..Phase::default() };

        let (found, place) = match self.loads {
            None => {
                let views = &self.launch.views[..counts(&reduce.map).0];
                let views: Vec<u64> = views.iter().map(|view| shape.view(&mut coder, view)).collect();
                let found = coder.map(&reduce.map, self.launch, &views, Some(reduce.value))??;
                let place = position.map(|_| coder.take(Class::I64));
                if let Some(place) = place {
                    coder.emit(op::WITHIN, place, &[]);
                }
                (found, place)
            }
            Some([values, positions]) => {
                let found = self.load(&mut coder, self.native, values)?;
                let place = position.map(|_| self.load(&mut coder, Dtype::I64, positions));
                (found, place.map_or(Some(None), |place| place.map(Some))?)
            }
        };
        let (next, next_position) = (coder.take(self.class), position.map(|_| coder.take(Class::I64)));
        self.combine(&mut coder, [value, found, next], position.zip(place).zip(next_position))?;
        coder.emit_sized(op::EXISTING, value, &[value, next]);
        if let Some((position, next)) = position.zip(next_position) {
            coder.emit_sized(op::EXISTING, position, &[position, next]);
        }
        let main = Phase { code: [init.code[1], coder.at()], dims };

        coder.emit_sized(op::LANES_AWAY, next, &[value]);
        if let Some((position, next)) = position.zip(next_position) {
            coder.emit_sized(op::LANES_AWAY, next, &[position]);
        }
        let both = position.zip(next_position).zip(position);
        self.combine(&mut coder, [value, next, value], both)?;
        let tree = Phase { code: [main.code[1], coder.at()], ..Phase::default() };

        self.finish(&mut coder, &kept, value, position)?;
        let last = Phase { code: [tree.code[1], coder.at()], dims: kept_dims };
        let mut head = [0; HEAD];
        let segments = cut.kept * cut.segments;
        head[0] = segments;
        head[6..10].copy_from_slice(&[cut.lanes, cut.reduced, cut.segment, cut.segments]);
        let views = &self.launch.views[..counts(&reduce.map).0];
        let (kept, reduced) = axes(self.launch);
        let columns = self.loads.is_none() && is_columns(views, &kept, &reduced);
        let wide = cut.kept.saturating_mul(cut.reduced.max(1)) >= 1 << 31;
        head[10] = u64::from(wide) | u64::from(columns) << 1;
        let each = (cut.lanes / 4).max(1);
        let threads = if columns { COLUMN_THREADS } else { each.max(THREADS) };
        let mut encoded =
            coder.finish(head, main, [init, tree, last], threads as usize, each.max(32) as usize)?;
        encoded.blocks = segments.div_ceil(encoded.threads as u64 / each);
        (encoded.blocks < 1 << 31).then_some(encoded)
    }

    /// Loads a partial result of the segment.
    fn load(&self, coder: &mut Coder, dtype: Dtype, ptr: Ptr) -> Option<Location> {
        let view = self.partial(coder, dtype, ptr);
        let place = coder.take(dtype.class());
        coder.emit_move(dtype, view, place, false);
        Some(place)
    }

    /// The view of partial results.
    fn partial(&self, coder: &mut Coder, dtype: Dtype, ptr: Ptr) -> u64 {
        coder.view(&[2], &[1], &View::new(ptr, dtype, [1].as_slice().into()))
    }

    /// `out = held combined with new`; with positions for indexed reductions.
    fn combine(
        &self,
        coder: &mut Coder,
        [held, new, out]: [Location; 3],
        positions: Option<((Location, Location), Location)>,
    ) -> Option<()> {
        let text = self.reduce.f.cuda.of(self.class);
        let Some(((held_at, new_at), out_at)) = positions else {
            coder.emit(opcode(Form::Plain, self.class, self.class, text)?, out, &[held, new]);
            return Some(());
        };
        let wins = coder.take(Class::I64);
        let code = opcode(Form::Wins, self.class, Class::I64, text)?;
        coder.emit(code, wins, &[held, new, held_at, new_at]);
        let choose = |class| opcode(Form::Select, class, class, "(a ? b : c)");
        coder.emit(choose(self.class)?, out, &[wins, new, held]);
        coder.emit(choose(Class::I64)?, out_at, &[wins, new_at, held_at]);
        coder.free(wins);
        Some(())
    }

    fn finish(
        &self,
        coder: &mut Coder,
        kept: &Squeezed<'_>,
        value: Location,
        position: Option<Location>,
    ) -> Option<()> {
        let reduce = self.reduce;
        if let Some([values, positions]) = self.stores {
            let view = self.partial(coder, self.native, values);
            coder.emit_move(self.native, view, value, true);
            if let Some(position) = position {
                let view = self.partial(coder, Dtype::I64, positions);
                coder.emit_move(Dtype::I64, view, position, true);
            }
            return Some(());
        }
        if reduce.store_value {
            let mut result = value;
            if reduce.f.mean {
                // The number of elements per result, in both stages.
                let count = Cut::of(self.launch).reduced;
                let bits = match self.class {
                    Class::F32 => u64::from((count as f32).to_bits()),
                    _ => (count as f64).to_bits(),
                };
                let count = coder.number(self.class, bits);
                result = coder.take(self.class);
                coder.emit(opcode(Form::Plain, self.class, self.class, "(a / b)")?, result, &[value, count]);
            }
            let result = coder.convert(result, self.class, reduce.dtype)?;
            let view = kept.view(coder, &self.launch.views[usize::from(reduce.out)]);
            coder.emit_move(reduce.dtype, view, result, true);
        }
        if let (Some(view), Some(position)) = (reduce.out_index, position) {
            let view = kept.view(coder, &self.launch.views[usize::from(view)]);
            coder.emit_move(Dtype::I64, view, position, true);
        }
        Some(())
    }
}
