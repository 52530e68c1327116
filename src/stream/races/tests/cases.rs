//! Rows SAN-01 to SAN-20 in their own notation, and additional cases.

#![cfg(test)]

use super::World;
use crate::array::Layout;
use crate::base::{ErrorKind, Piece, Place, Span};
use crate::driver::DeviceId;
use crate::stream::races::{
    Access, Checker, Conflict, EventClock, History, Region, Site, Touch, Watched, Where,
};

/// Name, sequence, races per launch.
const CASES: &[(&str, &str, &[usize])] = &[
    ("SAN-01", "s0: touch nothing", &[0]),
    ("SAN-02", "s1: read t1; s2: read t1", &[0, 0]),
    ("SAN-03", "s1: read t1; s2: write t1", &[0, 1]),
    ("SAN-04", "s1: read t1; record e0 on s1; s2 waits e0; s2: write t1", &[0, 0]),
    ("SAN-05", "s1: write t1; record e0 on s1; s2 waits e0; s2: read t1; s3: read t1", &[0, 0, 1]),
    (
        "SAN-06",
        "s1: write t1; record e0 on s1; s2 waits e0; s3 waits e0; s2: read t1; s3: read t1; s2: write t1",
        &[0, 0, 0, 1],
    ),
    (
        "SAN-07",
        "s0: read t1; record e0 on s0; s1 waits e0; record e1 on s1; s2 waits e1; record e2 on s2; \
         s3 waits e2; record e3 on s3; s4 waits e3; record e4 on s4; s5 waits e4; record e5 on s5; \
         s6 waits e5; record e6 on s6; s7 waits e6; record e7 on s7; s8 waits e7; record e8 on s8; \
         s9 waits e8; record e9 on s9; s10 waits e9; s10: write t1",
        &[0, 0],
    ),
    ("SAN-08", "s1: read t1; record e0 on s1; s1: read t1; s2 waits e0; s2: write t1", &[0, 0, 1]),
    ("SAN-09a", "s1: read t1; record e0 on s1; delete e0; create e0; s2 waits e0; s2: write t1", &[0, 1]),
    ("SAN-09b", "s1: read t1; record e0 on s1; delete e0; s2 waits e0; s2: write t1", &[0, 1]),
    ("SAN-09c", "s1: read t1; record e0 on s1; create e0; s2 waits e0; s2: write t1", &[0, 1]),
    (
        "SAN-10",
        "s1: read t1; record e1 on s1; s2: read t1; record e2 on s2; s3: read t1; record e3 on s3; \
         s4: read t1; record e4 on s4; s0 waits e1; s0 waits e2; s0 waits e3; s0: write t1",
        &[0, 0, 0, 0, 1],
    ),
    (
        "SAN-11",
        "s1: read t1; record e1 on s1; s2: read t1; record e2 on s2; s3: read t1; record e3 on s3; \
         s0 waits e1; s0 waits e2; s0 waits e3; s0: write t1",
        &[0, 0, 0, 0],
    ),
    (
        "SAN-12",
        "s0: write t1,t2,t3,t4,t5,t6,t7,t8,t9,t10; s1: write t1,t2,t3,t4,t5,t6,t7,t8,t9,t10",
        &[0, 10],
    ),
    (
        "SAN-13",
        "s1: write t1; s2: write t2; record e1 on s1; record e2 on s2; s1: write t1; s2: write t2; \
         s2 waits e1; s1 waits e2; record e3 on s2; s1 waits e3; s1: write t1,t2",
        &[0, 0, 0, 0, 0],
    ),
    (
        "SAN-14",
        "s1: read t1; s2: read t2; record e1 on s1; record e1 on s2; s3 waits e1; s3: write t1",
        &[0, 0, 1],
    ),
    (
        "SAN-15",
        "s1: write t1; record e1 on s1; s2 waits e1; s3 waits e1; s2: read t1; s3: read t1",
        &[0, 0, 0],
    ),
    (
        "SAN-16",
        "s1: write t1; s2: write t2; s3: write t3; host syncs device; s0: write t1; s0: write t2; \
         s0: write t3",
        &[0; 6],
    ),
    ("SAN-17", "s1: write t1; host syncs device; s1: write t1; s2: write t1", &[0, 0, 1]),
    ("SAN-18a", "create s1; s1: write t1; host syncs device; create s2; s2: write t1", &[0, 0]),
    ("SAN-19", "s0: write t1; s1: write t2; host syncs s0; s2: read t1; s2: read t2", &[0, 0, 0, 1]),
    (
        "SAN-20",
        "create e1; s1: write t1; record e1 on s1; s1: write t2; host syncs e1; s2: write t1; \
         s2: write t1; s2: write t2",
        &[0, 0, 0, 0, 1],
    ),
    // A reported race still enters the history: the second write hides the read.
    ("reported", "s1: read t1; s2: write t1; s3: write t1; s3: write t1", &[0, 1, 1, 0]),
    // Without reads since the last write, a write is compared with that write, not with older reads.
    ("write after write", "s1: read t1; s1: write t1; s2: write t1", &[0, 0, 1]),
];

#[test]
fn the_cases_of_pytorchs_sanitizer() {
    for (name, sequence, expected) in CASES {
        assert_eq!(World::new(1, 12).run(sequence), *expected, "{name}");
    }
}

#[test]
fn default_streams_of_two_devices_are_two_streams() {
    // Streams 0 and 1 are the default streams of two devices; both have handle 0.
    let mut world = World::new(2, 2);
    assert_eq!(world.streams[0].handle(), world.streams[1].handle());
    assert_eq!(world.run("s0: write t1; s1: read t1"), [0, 1]);
    // Waiting for device 0 orders nothing on device 1.
    assert_eq!(world.run("s1: write t2; host syncs device; s0: read t2"), [0, 1]);
}

#[test]
fn wait_stream_covers_work_queued_so_far() {
    let mut world = World::new(1, 3);
    assert_eq!(world.run("s1: write t1"), [0]);
    world.checker.wait_stream(&world.streams[2], &world.streams[1]);
    assert_eq!(world.run("s2: read t1; s1: write t2; s2: read t2"), [0, 0, 1]);
}

fn piece(_: &Conflict) -> Piece {
    Piece { id: 1, from: 0, to: 8 }
}

fn site(name: &'static str, lo: u32) -> Site {
    Site { name, span: Span::new(lo, lo + 4) }
}

#[test]
fn the_host_races_with_copies_from_and_to_its_memory() {
    let World { mut checker, streams, .. } = World::new(1, 2);
    let s1 = &*streams[1];
    let mut pinned = History::new();
    // Filled on the host, then copied: a launch comes after earlier host work.
    assert_eq!(checker.access(None, &mut pinned, 0..8, Access::Write, site("fill", 1)), None);
    assert_eq!(checker.access(Some(s1), &mut pinned, 0..8, Access::Read, site("copy_", 10)), None);
    // Reading it meanwhile is fine; writing it is a race until the host has waited.
    assert_eq!(checker.access(None, &mut pinned, 0..8, Access::Read, site("item", 20)), None);
    let race = checker.access(None, &mut pinned, 0..8, Access::Write, site("fill", 30)).unwrap();
    assert_eq!((race.access, race.place), (Access::Read, Where::Stream(DeviceId::Cuda(0), 1)));
    assert_eq!(race.site, site("copy_", 10));
    // A copy into it: reading it too early is a race, reading it after a wait is not.
    assert_eq!(checker.access(Some(s1), &mut pinned, 0..8, Access::Write, site("copy_", 40)), None);
    assert!(checker.access(None, &mut pinned, 0..8, Access::Read, site("item", 50)).is_some());
    let mut event = EventClock::default();
    checker.record(&mut event, s1);
    checker.host_wait_event(&event);
    assert_eq!(checker.access(None, &mut pinned, 0..8, Access::Read, site("item", 60)), None);
}

#[test]
fn ranges_that_do_not_meet_do_not_race() {
    let World { mut checker, streams, .. } = World::new(1, 3);
    let (s1, s2) = (&*streams[1], &*streams[2]);
    let mut history = History::new();
    let mut go =
        |stream, bytes, access| checker.access(Some(stream), &mut history, bytes, access, site("f", 1));
    assert!(go(s1, 0..32, Access::Write).is_none());
    assert!(go(s2, 32..64, Access::Write).is_none());
    assert!(go(s1, 0..32, Access::Read).is_none());
    assert!(go(s1, 31..33, Access::Read).is_some());
    assert!(go(s2, 8..9, Access::Write).is_some());
    assert!(go(s2, 9..9, Access::Write).is_none(), "no bytes, no access");
    checker.host_wait_device(DeviceId::Cuda(0));
    let mut go =
        |stream, bytes, access| checker.access(Some(stream), &mut history, bytes, access, site("f", 1));
    assert!(go(s2, 0..64, Access::Write).is_none());
    assert_eq!(history.ranges(), 1, "a write of the whole makes one range again");
}

#[test]
fn a_history_does_not_grow_with_the_number_of_accesses() {
    let mut world = World::new(1, 4);
    let mut history = History::new();
    for round in 0..2000_u64 {
        let row = round % 100 * 16;
        let stream = &world.streams[(round % 4) as usize];
        world.checker.access(Some(stream), &mut history, row..row + 16, Access::Read, site("f", 1));
        world.checker.access(Some(stream), &mut history, 0..1600, Access::Read, site("g", 1));
    }
    assert!(history.ranges() <= 100, "{}", history.ranges());
    for round in 0..10_000_u64 {
        let row = round * 16;
        world.checker.access(
            Some(&world.streams[0]),
            &mut history,
            row..row + 16,
            Access::Write,
            site("f", 1),
        );
        world.checker.host_wait_stream(&world.streams[0]);
    }
    assert!(history.ranges() <= 400, "settled ranges are joined: {}", history.ranges());
}

/// Column `j` of a square matrix of bytes, from the diagonal down.
fn column(n: usize, j: usize) -> Region {
    let layout = Layout {
        shape: [n - j].as_slice().into(),
        strides: [n as isize].as_slice().into(),
        offset: j * n + j,
    };
    Region::of(&layout, 1)
}

#[test]
fn parts_that_one_stream_touches_are_not_split() {
    let World { mut checker, streams, .. } = World::new(1, 3);
    let (s1, s2, n) = (&*streams[1], &*streams[2], 300);
    let tensor = Watched::default();
    let go = |checker: &mut Checker, stream, region, access, name, line| {
        let touch = Touch { history: &tensor, region, access };
        checker.admit(Some(stream), &[touch], site(name, line))
    };
    let whole = Region::from(0..(n * n) as u64);
    assert!(go(&mut checker, s1, whole, Access::Write, "zeros", 1).is_empty());
    for j in 0..n {
        assert!(go(&mut checker, s1, column(n, j), Access::Read, "sqrt", 2).is_empty());
        assert!(go(&mut checker, s1, column(n, j), Access::Write, "div_", 3).is_empty());
    }
    let history = tensor.lock();
    assert_eq!(history.ranges(), 1);
    assert!(history.marks() <= 66, "{}", history.marks());
    drop(history);
    let races = go(&mut checker, s2, column(n, n - 2), Access::Read, "sum", 4);
    assert_eq!(races.iter().map(|race| race.site.name).collect::<Vec<_>>(), ["div_"]);
    checker.wait_stream(s2, s1);
    assert!(go(&mut checker, s2, whole, Access::Write, "fill_", 5).is_empty());
    assert_eq!(go(&mut checker, s1, column(n, 0), Access::Read, "sum", 6).len(), 1);
}

#[test]
fn a_race_over_one_of_several_parts_names_the_access_to_it() {
    let World { mut checker, streams, .. } = World::new(1, 3);
    let (s1, s2) = (&*streams[1], &*streams[2]);
    let tensor = Watched::default();
    let mut go = |stream, j, line| {
        let touch = Touch { history: &tensor, region: column(40, j), access: Access::Write };
        checker.admit(Some(stream), &[touch], site("fill_", line))
    };
    for j in 0..40 {
        assert!(go(s1, j, 100 + j as u32).is_empty());
    }
    let spans: Vec<_> = [7, 21, 39].map(|j| go(s2, j, 200)[0].site.span).into();
    assert_eq!(spans, [107, 121, 139].map(|line| site("fill_", line).span));
}

#[test]
fn a_million_reads_take_no_more_memory_than_one() {
    let World { mut checker, streams, mut events, .. } = World::new(2, 8);
    let mut history = History::new();
    let (reader, event) = (site("sum", 1), events.entry(0).or_default());
    for round in 0..1_000_000_usize {
        let stream = &*streams[round % 8];
        checker.access(Some(stream), &mut history, 0..64, Access::Read, reader);
        if round % 1000 == 0 {
            checker.record(event, stream);
            checker.wait(&streams[(round / 1000) % 8], event);
        }
    }
    assert_eq!(history.ranges(), 1);
    let marks = history.marks();
    assert!(marks <= 8, "one read per stream at most: {marks}");
}

#[test]
fn an_operation_that_is_refused_leaves_no_trace() {
    let World { mut checker, streams, .. } = World::new(1, 3);
    let (s1, s2, s0) = (&*streams[1], &*streams[2], &*streams[0]);
    let (a, b) = (Watched::default(), Watched::default());
    let touch = |history, access| Touch { history, region: Region::from(0..8), access };
    assert!(checker.admit(Some(s1), &[touch(&b, Access::Write)], site("fill_", 1)).is_empty());
    // `a + b` on s2 races over `b`. So `a` was not read, and may be written elsewhere.
    let sum = [touch(&a, Access::Read), touch(&b, Access::Read)];
    assert_eq!(checker.admit(Some(s2), &sum, site("add", 2)).len(), 1);
    assert!(checker.admit(Some(s0), &[touch(&a, Access::Write)], site("fill_", 3)).is_empty());
}

#[test]
fn a_race_names_every_wait_that_is_missing_and_no_other() {
    let World { mut checker, streams, .. } = World::new(2, 6);
    let shared = Watched::default();
    let other = Watched::default();
    let touch = |history, access| Touch { history, region: Region::from(0..8), access };
    for (at, reader) in (1..).zip(&streams[1..4]) {
        let read = [touch(&shared, Access::Read)];
        assert!(checker.admit(Some(reader), &read, site("sum", at)).is_empty());
    }
    assert!(checker.admit(Some(&streams[4]), &[touch(&other, Access::Write)], site("mul_", 9)).is_empty());
    // Stream 2 has since waited for 1, and 4 for 3.
    checker.wait_stream(&streams[2], &streams[1]);
    checker.wait_stream(&streams[4], &streams[3]);
    let work = [touch(&shared, Access::Write), touch(&other, Access::Read)];
    let races = checker.admit(Some(&streams[5]), &work, site("add_", 20));
    let place = |stream: usize| Where::Stream(streams[stream].device(), streams[stream].id());
    assert_eq!(races.iter().map(|r| r.place).collect::<Vec<_>>(), [place(4), place(2)]);
    let error = crate::stream::error::race(site("add_", 20), place(5), &races, piece);
    assert!(error.help_text().unwrap().contains(" and "), "{error}");
    assert_eq!(error.labels().len(), 3);
    for race in races {
        let stream = streams.iter().position(|s| Where::Stream(s.device(), s.id()) == race.place);
        checker.wait_stream(&streams[5], &streams[stream.unwrap()]);
    }
    assert!(checker.admit(Some(&streams[5]), &work, site("add_", 20)).is_empty());
}

#[test]
fn a_race_names_both_lines_and_the_repair() {
    let World { mut checker, streams, .. } = World::new(1, 2);
    let (default, side) = (&*streams[0], &*streams[1]);
    let mut history = History::new();
    checker.access(Some(default), &mut history, 0..8, Access::Write, site("normal_", 10));
    let sum = site("sum", 50);
    let race = checker.access(Some(side), &mut history, 0..8, Access::Read, sum).unwrap();
    let place = Where::Stream(side.device(), side.id());
    let error = crate::stream::error::race(sum, place, &[race], piece);
    assert_eq!((error.code().id, error.kind()), ("E0601", ErrorKind::Race));
    let message = "`sum` on \u{27e6}cuda:0#1\u{27e7} may start before `normal_` on \u{27e6}cuda:0#0\u{27e7} has \
                   finished";
    assert_eq!(error.message(), message);
    assert_eq!(error.labels()[1].place, Place::Span(Span::new(10, 14)));
    let help = "insert `\u{27e6}cuda:0#1\u{27e7}.wait_stream(\u{27e6}cuda:0#0\u{27e7})` before this line";
    assert_eq!(error.help_text(), Some(help));
    let race = checker.access(None, &mut history, 0..8, Access::Read, sum).unwrap();
    let error = crate::stream::error::race(sum, Where::Host, &[race], piece);
    let help = "insert `\u{27e6}cuda:0#0\u{27e7}.synchronize()` before this line";
    assert_eq!(error.help_text(), Some(help));
}

#[test]
fn checkers_are_shared_between_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<Checker>();
    shared::<History>();
    shared::<crate::device::Machine>();
    shared::<crate::device::Block>();
    shared::<crate::stream::Event>();
    shared::<crate::memory::PinnedBlock>();
}

/// Reads at two distances, both of which miss the written byte.
#[test]
fn a_read_of_neighbouring_bytes_keeps_the_last_write() {
    let mut world = World::new(2, 2);
    let history = Watched::default();
    let rows = |offset: usize, rows: usize, step: isize| {
        let (shape, strides) = ([rows, 1].as_slice().into(), [step, 1].as_slice().into());
        Region::of(&Layout { shape, strides, offset }, 1)
    };
    let mut is_free = |by: Option<usize>, region: Region, access: Access| {
        let touch = Touch { history: &history, region, access };
        let stream = by.map(|s| &*world.streams[s]);
        world.checker.admit(stream, &[touch], site("op", 1)).is_empty()
    };
    assert!(is_free(Some(0), rows(7, 1, 0), Access::Write));
    assert!(is_free(None, rows(0, 2, 5), Access::Read));
    assert!(is_free(None, rows(5, 2, 3), Access::Read));
    assert!(!is_free(None, Region::from(0..12), Access::Write));
}
