//! The output of `--profile`, `profile(...)` and `--timeline` on emulated devices.

#![cfg(feature = "cli")]
#![allow(clippy::unwrap_used)] // A test that cannot go on fails.

#[path = "common/command.rs"]
mod command;

use serde_json::Value;
use std::path::Path;
use std::process::Output;

const TWO_STREAMS: &str = "\
let x = ones(256, 256)
let s = Stream()
s.wait_stream(cuda.current_stream())
nvtx.mark(\"begin\")
let total = with nvtx(\"both\") {
    let a = x @ x
    let b = with stream(s) { (x @ x) * 2 + 1 }
    cuda.current_stream().wait_stream(s)
    (a + b).sum()
}
let far = x.to(cuda:1)
print(total.item())
";

fn runnel(folder: &Path, args: &[&str]) -> Output {
    let mut command = command::runnel();
    for name in ["CUDA_VISIBLE_DEVICES", "CUDA_LAUNCH_BLOCKING", "RUNNEL_BACKEND", "RUNNEL_ALLOC_CONF"] {
        command.env_remove(name);
    }
    command.current_dir(folder).args(["--backend", "emu", "--devices", "2"]).args(args);
    command.output().expect("the program starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a script with a profile; returns the output and the profile's events.
fn profiled(script: &str, options: &[&str]) -> (String, Vec<Value>) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.rnl"), script).unwrap();
    let done = runnel(folder.path(), &[options, &["run", "--profile", "t.json", "a.rnl"]].concat());
    assert!(done.status.success(), "{}", text(&done.stderr));
    let file = std::fs::read_to_string(folder.path().join("t.json")).unwrap();
    let json: Value = serde_json::from_str(&file).expect("valid JSON");
    let events = json["traceEvents"].as_array().unwrap().clone();
    (file, events)
}

fn of<'a>(events: &'a [Value], category: &str) -> Vec<&'a Value> {
    events.iter().filter(|e| e["cat"] == category).collect()
}

fn times(event: &Value) -> (f64, f64) {
    let start = event["ts"].as_f64().unwrap();
    (start, start + event["dur"].as_f64().unwrap())
}

#[test]
fn a_profile_has_a_row_per_stream_with_names_places_and_sizes() {
    let (_, events) = profiled(TWO_STREAMS, &[]);
    let names: Vec<(i64, i64, &str)> = events
        .iter()
        .filter(|e| e["ph"] == "M" && e["name"] != "process_sort_index")
        .map(|e| {
            (e["pid"].as_i64().unwrap(), e["tid"].as_i64().unwrap(), e["args"]["name"].as_str().unwrap())
        })
        .collect();
    for row in [
        (0, 0, "host"),
        (0, 0, "script"),
        (1, 0, "cuda:0 (Runnel emulated GPU)"),
        (1, 0, "default stream"),
        (1, 1, "stream 1"),
        (2, 0, "cuda:1 (Runnel emulated GPU)"),
    ] {
        assert!(names.contains(&row), "{row:?} in {names:?}");
    }
    let products: Vec<&Value> = of(&events, "launch").into_iter().filter(|e| e["name"] == "matmul").collect();
    assert_eq!(products.len(), 2);
    assert_eq!(products[0]["args"]["source"], "a.rnl:6:13");
    assert_eq!(products[1]["args"]["source"], "a.rnl:7:31");
    assert_eq!(products[0]["args"]["bytes"], 3 * 256 * 256 * 4);
    let fused = of(&events, "launch").into_iter().find(|e| e["tid"] == 1 && e["name"] != "matmul").unwrap();
    assert_eq!((&fused["name"], &fused["args"]["shape"]), (&"mul+add".into(), &"[256, 256]".into()));
    assert_eq!(fused["args"]["source"], "a.rnl:7:30");
    let copies = of(&events, "copy");
    assert!(
        copies
            .iter()
            .any(|e| e["pid"] == 2 && e["name"] == "copy from cuda:0" && e["args"]["bytes"] == 256 * 256 * 4)
    );
    assert!(copies.iter().any(|e| e["name"] == "copy to host"));
    assert!(
        of(&events, "memory").iter().any(|e| e["ph"] == "C" && e["args"]["allocated"].as_u64().unwrap() > 0)
    );
    assert!(!of(&events, "wait").is_empty());
}

#[test]
fn streams_overlap_where_nothing_orders_them_and_nowhere_else() {
    let (_, events) = profiled(TWO_STREAMS, &[]);
    let on = |tid: i64, name: &str| {
        let launches = of(&events, "launch");
        times(launches.iter().find(|e| e["pid"] == 1 && e["tid"] == tid && e["name"] == name).unwrap())
    };
    let (a, b) = (on(0, "matmul"), on(1, "matmul"));
    assert!(a.0 < b.1 && b.0 < a.1, "the products overlap: {a:?} {b:?}");
    let (fused, after) = (on(1, "mul+add"), on(0, "add+sum"));
    assert!(after.0 >= fused.1 - 1e-6, "the sum waits for the stream: {fused:?} {after:?}");
    // Within a row nothing overlaps.
    for tid in [0, 1] {
        let mut row: Vec<(f64, f64)> =
            events.iter().filter(|e| e["ph"] == "X" && e["pid"] == 1 && e["tid"] == tid).map(times).collect();
        row.sort_by(|a, b| a.0.total_cmp(&b.0));
        assert!(row.windows(2).all(|pair| pair[0].1 <= pair[1].0 + 1e-6), "{row:?}");
    }
    // The read waits for the sum, and the range contains the submission of its launches.
    let waits = of(&events, "wait");
    assert!(waits.iter().any(|e| times(e).1 >= after.1 - 1e-6), "{waits:?}");
    let nvtx = of(&events, "nvtx");
    assert!(nvtx.iter().any(|e| e["ph"] == "i" && e["name"] == "begin"));
    assert!(
        nvtx.iter().any(|e| e["ph"] == "X" && e["name"] == "both" && e["args"]["source"] == "a.rnl:5:18"),
        "{nvtx:?}"
    );
}

#[test]
fn a_profile_is_the_same_bytes_every_time() {
    let first = profiled(TWO_STREAMS, &[]).0;
    for _ in 0..2 {
        assert_eq!(first, profiled(TWO_STREAMS, &[]).0);
    }
    let seeded = profiled(TWO_STREAMS, &["--schedule", "seed:7"]).0;
    assert_eq!(seeded, profiled(TWO_STREAMS, &["--schedule", "seed:7"]).0);
}

#[test]
fn the_context_profiles_its_block_also_after_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let script = "\
let x = ones(8)
try {
    with profile(\"t.json\") {
        let a = nvtx.range_start(\"a\")
        let b = nvtx.range_start(\"b\")
        print((x * 2).sum().item())
        nvtx.range_end(a)
        with profile(\"inner.json\") { x.exp().sum().item() }
        throw \"out\"
    }
} catch e { print(e.message) }
";
    std::fs::write(folder.path().join("a.rnl"), script).unwrap();
    let done = runnel(folder.path(), &["a.rnl"]);
    assert_eq!(text(&done.stdout), "16.0\nout\n", "{}", text(&done.stderr));
    let read = |name: &str| -> Vec<Value> {
        let file = std::fs::read_to_string(folder.path().join(name)).unwrap();
        let json: Value = serde_json::from_str(&file).unwrap();
        json["traceEvents"].as_array().unwrap().clone()
    };
    let (outer, inner) = (read("t.json"), read("inner.json"));
    let ranges: Vec<&str> = of(&outer, "nvtx").iter().map(|e| e["ph"].as_str().unwrap()).collect();
    assert_eq!(ranges, ["b", "e", "b", "e"]);
    let launches = |events: &[Value]| -> Vec<String> {
        of(events, "launch").iter().map(|e| e["name"].as_str().unwrap().to_string()).collect()
    };
    assert_eq!(launches(&inner), ["exp+sum"]);
    assert_eq!(launches(&outer), ["mul+sum", "exp+sum"]);
    // A file that cannot be written is an error of the script.
    let done = runnel(folder.path(), &["-e", "with profile(\"no/such/folder.json\") { 1 }"]);
    assert_eq!(done.status.code(), Some(1));
    assert!(text(&done.stderr).contains("no/such/folder.json"), "{}", text(&done.stderr));
}

#[test]
fn a_timeline_draws_the_streams_and_keeps_the_output() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.rnl"), TWO_STREAMS).unwrap();
    let done = runnel(folder.path(), &["run", "--timeline", "a.rnl"]);
    assert!(done.status.success(), "{}", text(&done.stderr));
    assert_eq!(text(&done.stdout), "50397184.0\n");
    insta::assert_snapshot!(text(&done.stderr), @r"
    timeline: 16.9 us, modelled
                          0                                     8.45 us                         16.9 us
    host             58% |                               ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~|
    cuda:0 default   49% |ffffffbbbbbbbbbbbbbbbbbbbb         dddddddddd                           ggggg|
    cuda:0 stream 1  34% |         cccccccccccccccccccceeeeeee                                         |
    cuda:1 default   36% |                                            aaaaaaaaaaaaaaaaaaaaaaaaaaaaa    |
      a   6.24 us     1x  copy from cuda:0  a.rnl:11
      b   4.36 us     1x  matmul            a.rnl:6
      c   4.36 us     1x  matmul            a.rnl:7
      d   1.79 us     1x  add+sum           a.rnl:9
      e   1.52 us     1x  mul+add           a.rnl:7
      f   1.26 us     1x  ones              a.rnl:1
      g   1.00 us     1x  copy to host      a.rnl:12
      ~   9.91 us     1x  the host waits
    ");
}
