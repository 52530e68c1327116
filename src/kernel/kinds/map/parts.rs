//! Splits maps that are too large for the ready-made kernel. Parts pass values to later parts in scratch memory.

use crate::array::contiguous_strides;
use crate::base::Result;
use crate::kernel::cuda::Queue;
use crate::kernel::cuda::interpret::{Encoded, encode_map, is_known};
use crate::kernel::{Instr, Launch, Map, Source, Store, View};
use foldhash::{HashMap, HashMapExt};
use std::ops::Range;

/// The launches of a map, in order; `None` if the kernel lacks one of its functions.
pub(crate) fn encode(map: &Map, launch: &Launch, queue: &mut dyn Queue) -> Result<Option<Vec<Encoded>>> {
    if let Some(encoded) = encode_map(map, launch) {
        return Ok(Some(vec![encoded]));
    }
    if !is_known(map) {
        return Ok(None);
    }
    if map.instrs.len() < 2 {
        return if map.stores.len() > 1 { each_store(map, launch, queue) } else { Ok(None) };
    }
    let (sources, cut) = (map.sources.len(), map.instrs.len() / 2);
    let is_first = |reg: &u16| (sources..sources + cut).contains(&usize::from(*reg));
    let read = map.instrs[cut..].iter().flat_map(|instr| instr.args.iter().copied());
    let mut kept: Vec<u16> = read.chain(map.stores.iter().map(|store| store.reg)).filter(is_first).collect();
    kept.sort_unstable();
    kept.dedup();
    let mut given = HashMap::new();
    for reg in kept {
        given.insert(reg, scratch_view(map, launch, reg, queue)?);
    }
    let mut stores: Vec<(u16, View)> = given.iter().map(|(reg, view)| (*reg, view.clone())).collect();
    stores.sort_by_key(|(reg, _)| *reg);
    let first = part(map, launch, 0..cut, &HashMap::new(), &stores);
    let stores: Vec<(u16, View)> =
        map.stores.iter().map(|store| (store.reg, launch.views[usize::from(store.view)].clone())).collect();
    let second = part(map, launch, cut..map.instrs.len(), &given, &stores);
    let mut all = Vec::new();
    for (map, launch) in [first, second] {
        let Some(encoded) = encode(&map, &launch, queue)? else { return Ok(None) };
        all.extend(encoded);
    }
    Ok(Some(all))
}

/// A part for each result. All are computed before the first one is stored, because other parts may load its view.
fn each_store(map: &Map, launch: &Launch, queue: &mut dyn Queue) -> Result<Option<Vec<Encoded>>> {
    let (mut computed, mut stored) = (Vec::new(), Vec::new());
    for store in &map.stores {
        let (reg, view) = (store.reg, launch.views[usize::from(store.view)].clone());
        let kept = scratch_view(map, launch, reg, queue)?;
        let all = 0..map.instrs.len();
        computed.push(part(map, launch, all, &HashMap::new(), &[(reg, kept.clone())]));
        let given = HashMap::from_iter([(reg, kept)]);
        stored.push(part(map, launch, 0..0, &given, &[(reg, view)]));
    }
    let all = computed.iter().chain(&stored);
    Ok(all.map(|(map, launch)| encode_map(map, launch)).collect())
}

/// Scratch memory for a register.
pub(crate) fn scratch_view(map: &Map, launch: &Launch, reg: u16, queue: &mut dyn Queue) -> Result<View> {
    let dtype = map.dtype(reg);
    let elements: u64 = launch.shape.iter().map(|&extent| extent as u64).product();
    let ptr = queue.scratch(elements.max(1) * dtype.size() as u64)?;
    Ok(View::new(ptr, dtype, contiguous_strides(&launch.shape)))
}

/// Some of a map's instructions and everything that they need. Registers in `given` are loaded.
pub(crate) fn part(
    map: &Map,
    launch: &Launch,
    instrs: Range<usize>,
    given: &HashMap<u16, View>,
    stores: &[(u16, View)],
) -> (Map, Launch) {
    let first = map.sources.len();
    let own = first + instrs.start..first + instrs.end;
    let read = map.instrs[instrs.clone()].iter().flat_map(|instr| instr.args.iter().copied());
    let mut needed: Vec<u16> = read.chain(stores.iter().map(|(reg, _)| *reg)).collect();
    needed.retain(|reg| !own.contains(&usize::from(*reg)));
    needed.sort_unstable();
    needed.dedup();
    let (mut new, mut views) = (Map::default(), Vec::new());
    let mut load = |new: &mut Map, view: &View, dtype| {
        new.sources.push(Source::Load { view: views.len() as u16, dtype });
        views.push(view.clone());
    };
    for &reg in &needed {
        match (given.get(&reg), map.sources.get(usize::from(reg))) {
            (Some(view), _) => load(&mut new, view, view.dtype),
            (None, Some(&Source::Load { view, dtype })) => {
                load(&mut new, &launch.views[usize::from(view)], dtype);
            }
            (None, Some(other)) => new.sources.push(*other),
            (None, None) => debug_assert!(false, "a part reads a register of another one"),
        }
    }
    let renamed = |reg: u16| match needed.binary_search(&reg) {
        Ok(at) => at as u16,
        Err(_) => (usize::from(reg) - own.start + needed.len()) as u16,
    };
    for instr in &map.instrs[instrs] {
        new.instrs.push(Instr { args: instr.args.iter().map(|&arg| renamed(arg)).collect(), ..*instr });
    }
    for (reg, view) in stores {
        new.stores.push(Store { reg: renamed(*reg), view: views.len() as u16 });
        views.push(view.clone());
    }
    (new, Launch { views: views.into_iter().collect(), reduced: 0, ..launch.clone() })
}
