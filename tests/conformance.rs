//! Runs `tests/conformance/*.rnl` on emulated devices, and keeps `docs/conformance.md` up to date.
//!
//! The head of a case contains its title, the number of devices it needs, and the backends it runs on. A case
//! that states PyTorch's figures to the byte uses `# segments: plain` to get PyTorch's segments; the other
//! cases on memory run with both kinds of segments. The `cuda` column comes from
//! `tests/conformance/cuda.tsv`, which `.ci/gpu` writes on a machine with GPUs.
//! `RUNNEL_UPDATE=1 cargo test --test conformance` rewrites the page.

#![cfg(feature = "cli")]
#![allow(clippy::unwrap_used)] // A test that cannot go on fails.

use std::path::{Path, PathBuf};
use std::process::Command;

struct Case {
    id: String,
    title: String,
    devices: usize,
    memory: Option<String>,
    plain: bool,
    backends: String,
    path: PathBuf,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for entry in std::fs::read_dir(root().join("tests/conformance")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "rnl") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let field = |name: &str| {
            let head = format!("# {name}: ");
            text.lines().take(5).find_map(|l| l.strip_prefix(&head)).map(str::to_string)
        };
        let id = path.file_stem().unwrap().to_str().unwrap().to_string();
        let title = field(&id).unwrap_or_else(|| panic!("{id}: the first line is not `# {id}: ...`"));
        let devices = field("devices").expect("a `# devices: N` line").parse().unwrap();
        let backends = field("backends").unwrap_or_else(|| "emu cuda".to_string());
        let plain = field("segments").is_some_and(|kind| kind == "plain");
        cases.push(Case { id, title, devices, memory: field("memory"), plain, backends, path });
    }
    cases.sort_by_key(|c| {
        let (group, number) = c.id.split_once('-').unwrap_or((&c.id, ""));
        let digits: String = number.chars().take_while(char::is_ascii_digit).collect();
        let order =
            ["DEV", "STR", "EVT", "MEM", "ALC", "POOL", "PIN", "XDV", "SAN", "GRF", "COM", "DPL", "FFT"];
        let place = order.iter().position(|g| *g == group).unwrap_or(order.len());
        (place, digits.parse::<u32>().unwrap_or(0), c.id.clone())
    });
    cases
}

/// What went wrong, or `None`.
fn run(case: &Case) -> Option<String> {
    let on_memory = ["MEM-", "ALC-", "POOL-", "PIN-"].iter().any(|group| case.id.starts_with(group));
    let grown = if case.plain { None } else { run_with(case, "expandable_segments:true") };
    let plain = || run_with(case, "expandable_segments:false");
    grown.or_else(|| if case.plain || on_memory { plain() } else { None })
}

fn run_with(case: &Case, alloc: &str) -> Option<String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_runnel"));
    command.args(["--backend", "emu", "--devices", &case.devices.to_string()]);
    if let Some(memory) = &case.memory {
        command.args(["--device-memory", memory]);
    }
    for name in ["CUDA_VISIBLE_DEVICES", "CUDA_LAUNCH_BLOCKING", "RUNNEL_BACKEND"] {
        command.env_remove(name);
    }
    command.env("RUNNEL_ALLOC_CONF", alloc);
    let output = command.arg(&case.path).output().expect("the binary starts");
    let told = || format!("with {alloc}: {}", String::from_utf8_lossy(&output.stderr));
    (!output.status.success()).then(told)
}

#[test]
fn every_case_passes_on_emulated_devices_and_the_page_is_fresh() {
    let cases = cases();
    assert!(cases.len() > 90, "{} cases found", cases.len());
    let next = std::sync::atomic::AtomicUsize::new(0);
    let failures = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    let Some(case) = cases.get(at) else { break };
                    let why = case.backends.contains("emu").then(|| run(case)).flatten();
                    failures.lock().unwrap().extend(why.map(|why| (case.id.clone(), why)));
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    let page = page(&cases, &failures);
    let path = root().join("docs/conformance.md");
    if std::env::var_os("RUNNEL_UPDATE").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let told: Vec<String> = failures.iter().map(|(id, why)| format!("{id}:\n{why}")).collect();
    assert!(failures.is_empty(), "{} of {} cases fail:\n{}", failures.len(), cases.len(), told.join("\n"));
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == page, "docs/conformance.md is stale: RUNNEL_UPDATE=1 cargo test --test conformance");
}

fn page(cases: &[Case], failures: &[(String, String)]) -> String {
    let cuda = std::fs::read_to_string(root().join("tests/conformance/cuda.tsv")).unwrap_or_default();
    let machine = cuda.lines().find_map(|l| l.strip_prefix("# ")).unwrap_or("not run yet");
    let on_cuda = |id: &str| {
        cuda.lines().find_map(|l| l.strip_prefix(id)?.strip_prefix('\t')).unwrap_or("not run").to_string()
    };
    let mut page = String::from(
        "# Conformance\n\nGenerated by `RUNNEL_UPDATE=1 cargo test --test conformance`. Each row is a script in \
         `tests/conformance/`. It checks a behaviour of PyTorch's `torch.cuda`, as its documentation and tests \
         show it, or a deliberate difference of Runnel, which the head of the script describes.\n\n",
    );
    page.push_str(&format!(
        "`cuda`: {machine}.\n\n| id | what | devices | emu | cuda |\n| --- | --- | --- | --- | --- |\n"
    ));
    for case in cases {
        let emu = match case.backends.contains("emu") {
            false => "-",
            true if failures.iter().any(|(id, _)| *id == case.id) => "fail",
            true => "pass",
        };
        let gpu = if case.backends.contains("cuda") { on_cuda(&case.id) } else { "-".to_string() };
        page.push_str(&format!("| {} | {} | {} | {emu} | {gpu} |\n", case.id, case.title, case.devices));
    }
    page
}
