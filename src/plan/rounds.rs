//! The size limits of groups, and where groups are cut: between the iterations of a loop, so that a loop launches
//! the same program each time.

use super::batch::{self, MAX_BYTES, Waiting};
use super::chain::MAX_GROUPS;
use super::gather::MOST_OF_GROUP;
use super::queue::{FusedGroup, Queue, RAW_INSTR};
use super::{MAX_INSTRS, MAX_VIEWS, Runtime};
use crate::base::{Result, Span};

/// Detects loop iterations among the operations of a group: an iteration begins at an operation whose source
/// position the group has seen before, in another call. Operations that are composed of others, and backward
/// passes, submit all their parts from one position in one call.
#[derive(Clone, Default)]
pub(super) struct Rounds {
    /// One bit for each position seen, by hash.
    seen: u64,
    /// The call of the first operation, and whether another call has added one: parts of one call do not repeat.
    first: Option<u64>,
    is_mixed: bool,
    /// The call of the last operation.
    last: Option<u64>,
    /// The first repeated position, and the size of the group when it was last repeated.
    newest: Option<(Called, Size)>,
}

/// Detects loop iterations among the groups of a batch.
#[derive(Default)]
pub(super) struct BatchRounds {
    /// One bit for each position in its closed groups, by hash.
    seen: u64,
    /// The first repeated position, and the numbers of groups and of bytes when it was last repeated.
    newest: Option<(Called, usize, u64)>,
    /// The newest call that was found to repeat none of its groups.
    new_call: Option<u64>,
}

impl BatchRounds {
    /// Notes the operations of a closed group.
    #[inline]
    pub fn note(&mut self, group: &Rounds) {
        self.seen |= group.seen;
    }
}

/// The position and the number of a script's call of an operation.
#[derive(Clone, Copy)]
pub(super) struct Called {
    pub span: Span,
    /// The number of the call.
    pub call: u64,
}

impl Called {
    /// True for a later call at the same position.
    fn repeats(self, before: Called) -> bool {
        self.span == before.span && self.call != before.call
    }
}

/// The size of a group.
#[derive(Clone, Copy)]
pub(super) struct Size {
    pub instrs: usize,
    pub views: usize,
    pub nodes: usize,
    /// Loads that gather.
    pub gathers: usize,
}

impl Rounds {
    /// Notes an operation of the group.
    #[inline]
    pub fn note(&mut self, called: Called) {
        self.seen |= bit_of(called.span);
        self.last = Some(called.call);
        self.is_mixed |= *self.first.get_or_insert(called.call) != called.call;
    }
}

/// The instructions of an operation, with conversions of its operands.
pub(super) const FEW: usize = 8;

/// The size that an operation adds to a group.
#[derive(Clone, Copy)]
pub(super) struct Room {
    pub instrs: usize,
    pub views: usize,
}

impl Room {
    /// Room for a few instructions and this many views.
    pub fn of(views: usize) -> Room {
        Room { instrs: FEW, views }
    }
}

impl Queue {
    /// True when the open group has room for `extra` more views and a few instructions.
    pub(super) fn has_room(&self, extra: usize) -> bool {
        self.has_room_for(Room::of(extra))
    }

    /// True when the open group has room.
    pub(super) fn has_room_for(&self, room: Room) -> bool {
        let Room { instrs, views } = room;
        self.group.as_ref().is_none_or(|group| group.reduce.is_none())
            && self.has_size(Size { instrs, views, nodes: 0, gathers: 0 })
    }

    /// True when the open group and the chain before it together have room for `extra` more views and a few
    /// instructions.
    pub(super) fn has_room_with_chain(&self, extra: usize) -> bool {
        self.has_size(Size { instrs: FEW, views: extra, nodes: 0, gathers: 0 })
    }

    /// True when the program has room for this much more.
    #[inline]
    fn has_size(&self, more: Size) -> bool {
        let Size { mut instrs, mut views, mut nodes, mut gathers } = more;
        let mut before = 0;
        for group in self.rows() {
            let size = group.size();
            before += size.views;
            instrs += size.instrs;
        }
        if let Some(group) = &self.group {
            let size = group.size();
            views += size.views;
            instrs += size.instrs;
            nodes += size.nodes;
            gathers += size.gathers;
        }
        // Most views of a chain connect its groups, so a chain may have more.
        let fits = views < MAX_VIEWS && before + views < 2 * MAX_VIEWS;
        fits && instrs <= MAX_INSTRS && nodes < MAX_INSTRS && gathers <= MOST_OF_GROUP
    }

    /// True when the open group must be cut before this operation: a loop iteration begins there that does not
    /// fit, or earlier groups that were full began there.
    fn ends_before(&mut self, called: Called) -> bool {
        let has_aside = self.has_large_aside();
        let rows = self.rows().len();
        let Some(group) = self.group.as_mut().filter(|group| !group.nodes.is_empty()) else { return false };
        if called.span == Span::NONE {
            return false;
        }
        let is_repeated = group.has_seen(called);
        if has_aside && is_repeated {
            return true;
        }
        let now = group.size();
        let begun = match group.rounds.newest {
            Some((place, begun)) if called.repeats(place) => begun,
            Some((place, _)) if called.span == place.span => return false,
            None if is_repeated => group.size_before(called),
            _ => {
                let is_begun = is_repeated || group.rounds.last == Some(called.call);
                return !is_begun && self.full_from.is_some_and(|first| called.repeats(first));
            }
        };
        group.rounds.newest = Some((called, now));
        let is_less = 2 * now.instrs + 8 <= MAX_INSTRS && 2 * now.views < MAX_VIEWS;
        if is_less && 2 * now.gathers <= MOST_OF_GROUP && rows == 0 {
            // An iteration is no larger than the whole group.
            return false;
        }
        let grown = |now: usize, begun: usize| now.saturating_sub(begun);
        let round = Size {
            instrs: grown(now.instrs, begun.instrs) + 8,
            views: grown(now.views, begun.views) + 1,
            nodes: grown(now.nodes, begun.nodes),
            gathers: grown(now.gathers, begun.gathers),
        };
        !self.has_size(round)
    }
}

impl Queue {
    /// True when a chain of rows must be cut before this operation: a loop iteration begins there that does not fit.
    fn rows_end_before(&mut self, called: Called) -> bool {
        let rows = self.rows();
        // A group that ends with a reduction accepts no more work, but is closed by the next operation.
        let ended = self.group.as_deref().filter(|group| group.reduce.is_some());
        let now = rows.len() + usize::from(ended.is_some());
        if now == 0 || called.span == Span::NONE {
            return false;
        }
        let begun = match self.rows_from {
            Some((place, begun)) if called.repeats(place) => Some(begun),
            Some(_) => None,
            None if ended.is_some_and(|group| group.has_seen(called)) => Some(rows.len()),
            None => rows.iter().rposition(|group| group.has_seen(called)),
        };
        let Some(begun) = begun else { return false };
        let round = now.saturating_sub(begun);
        let (instrs, views) =
            rows.iter().chain(self.group.as_deref()).fold((0, 0), |(instrs, views), group| {
                let size = group.size();
                (instrs + size.instrs, views + size.views)
            });
        // An iteration is about as large as its share of the groups.
        let with_next = |size: usize| size + (size * round).div_ceil(now);
        self.rows_from = Some((called, now));
        now + round + 1 >= MAX_GROUPS
            || with_next(instrs) + FEW > MAX_INSTRS
            || with_next(views) + FEW >= 2 * MAX_VIEWS
    }
}

impl Queue {
    /// True when a batch must be cut before this operation: a loop iteration begins there that does not fit.
    #[inline]
    fn batch_ends_before(&mut self, called: Called) -> bool {
        let Waiting { bytes, rounds, .. } = &self.waiting;
        // Only the operation that begins the iterations is compared further.
        let may_repeat = match rounds.newest {
            Some((place, ..)) => called.repeats(place),
            None => rounds.seen & bit_of(called.span) != 0 && rounds.new_call != Some(called.call),
        };
        if !may_repeat || !self.is_batch() || called.span == Span::NONE || self.aside().is_some() {
            return false;
        }
        let begun = match rounds.newest {
            Some((_, groups, bytes)) => Some((groups, bytes)),
            None => self.chain.iter().rposition(|group| group.has_seen(called)).map(|first| {
                let before = self.chain[..first].iter().map(FusedGroup::bytes);
                (first, before.fold(0, u64::saturating_add))
            }),
        };
        let Some((groups, moved)) = begun else {
            self.waiting.rounds.new_call = Some(called.call);
            return false;
        };
        let (now, bytes) = (self.chain.len() + usize::from(self.group.is_some()), *bytes);
        self.waiting.rounds.newest = Some((called, now, bytes));
        // An iteration may have a group more than the one before it.
        now + now.saturating_sub(groups) + 1 >= batch::MAX_GROUPS
            || bytes.saturating_add(bytes.saturating_sub(moved)) >= MAX_BYTES
    }
}

/// The bit of a position in [`Rounds::seen`].
fn bit_of(span: Span) -> u64 {
    1 << ((span.lo ^ span.hi << 3).wrapping_mul(0x9e37_79b9) >> 26)
}

impl FusedGroup {
    #[inline]
    pub(super) fn size(&self) -> Size {
        let nodes = self.nodes.len();
        let results = nodes.saturating_sub(self.forgotten).min(8);
        let (instrs, views) = (self.map.instrs.len(), self.loads.len() + results);
        Size { instrs, views, nodes, gathers: usize::from(self.gathered_loads) }
    }

    /// The group's size before its first operation at the position of `called`.
    fn size_before(&self, called: Called) -> Size {
        let first = self.nodes.iter().position(|node| called.repeats(node.called)).unwrap_or_default();
        let instrs = match first.checked_sub(1) {
            Some(before) => {
                self.nodes[before].reg.checked_sub(RAW_INSTR).map_or(0, |instr| usize::from(instr) + 1)
            }
            None => 0,
        };
        // Count all operands so far: the first iteration also loads those that all iterations share.
        let gathers = usize::from(self.gathered_loads);
        Size { instrs, views: self.loads.len() + first.min(8), nodes: first, gathers }
    }

    /// True when an operation repeats one of the group.
    pub(super) fn has_seen(&self, called: Called) -> bool {
        (self.rounds.is_mixed || self.rounds.first != Some(called.call))
            && self.rounds.seen & bit_of(called.span) != 0
            && self.nodes.iter().any(|node| called.repeats(node.called))
    }
}

impl Runtime {
    /// The operation that the script is calling.
    pub(super) fn called(&self) -> Called {
        Called { span: self.span, call: self.call }
    }

    /// Flushes a queue if its open group must be cut before the operation being submitted.
    pub(super) fn begin_round(&mut self, at: usize) -> Result<()> {
        let called = self.called();
        let queue = &mut self.queues[at];
        if queue.aside().is_some() && queue.group.as_ref().is_some_and(|group| group.has_seen(called)) {
            queue.forget_aside(at);
        }
        if self.queues[at].rows_end_before(called) || self.queues[at].batch_ends_before(called) {
            self.flush_work(at)
        } else if self.queues[at].ends_before(called) {
            self.flush_full(at)
        } else {
            Ok(())
        }
    }

    /// Flushes a queue because it is full.
    pub(super) fn flush_full(&mut self, at: usize) -> Result<()> {
        let queue = &self.queues[at];
        let first = queue.group.as_ref().and_then(|group| group.nodes.first()).map(|node| node.called);
        let from = queue.full_from.or(first);
        let done = self.flush_work(at);
        self.queues[at].full_from = from;
        done
    }
}
