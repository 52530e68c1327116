//! Runs each script of `tests/conformance` as a separate test case on emulated devices, and keeps `docs/conformance.md` up to date.
//!
//! The head of a case contains its title, the number of devices it needs, and the backends it runs on. A case
//! that states PyTorch's figures to the byte uses `# segments: plain` to get PyTorch's segments; the other
//! cases on memory run with both kinds of segments. The `cuda` column comes from
//! `tests/conformance/cuda.tsv`, which `.ci/gpu` writes on a machine with GPUs.
//! `RUNNEL_UPDATE=1 cargo test --test conformance` rewrites the page.

#![cfg(feature = "cli")]
#![allow(clippy::unwrap_used)] // A test that cannot go on fails.

#[path = "common/cases.rs"]
mod cases;

#[path = "common/command.rs"]
mod command;

use cases::Case;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

struct Script {
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

fn scripts() -> Vec<Script> {
    let mut scripts = Vec::new();
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
        scripts.push(Script { id, title, devices, memory: field("memory"), plain, backends, path });
    }
    scripts.sort_by_key(|c| {
        let (group, number) = c.id.split_once('-').unwrap_or((&c.id, ""));
        let digits: String = number.chars().take_while(char::is_ascii_digit).collect();
        let order =
            ["DEV", "STR", "EVT", "MEM", "ALC", "POOL", "PIN", "XDV", "SAN", "GRF", "COM", "DPL", "FFT"];
        let place = order.iter().position(|g| *g == group).unwrap_or(order.len());
        (place, digits.parse::<u32>().unwrap_or(0), c.id.clone())
    });
    scripts
}

/// The failure, or `None`.
fn run(case: &Script) -> Option<String> {
    let on_memory = ["MEM-", "ALC-", "POOL-", "PIN-"].iter().any(|group| case.id.starts_with(group));
    let grown = if case.plain { None } else { run_with(case, "expandable_segments:true") };
    let plain = || run_with(case, "expandable_segments:false");
    grown.or_else(|| if case.plain || on_memory { plain() } else { None })
}

fn run_with(case: &Script, alloc: &str) -> Option<String> {
    let mut command = command::runnel();
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

fn main() -> ExitCode {
    let scripts = scripts();
    assert!(scripts.len() > 90, "{} scripts found", scripts.len());
    let mut cases: Vec<Case<'_>> = scripts.iter().map(case).collect();
    let fresh = Box::new(|| page_is_fresh(&scripts));
    cases.push(Case { name: "the_page_is_fresh".into(), ignored: None, run: fresh });
    cases::run(&cases, 2)
}

fn case(script: &Script) -> Case<'_> {
    let ignored = (!script.backends.contains("emu")).then_some("needs a GPU");
    let run = Box::new(|| run(script).map_or(Ok(()), Err));
    Case { name: script.id.clone(), ignored, run }
}

fn page_is_fresh(scripts: &[Script]) -> Result<(), String> {
    let page = page(scripts);
    let path = root().join("docs/conformance.md");
    if std::env::var_os("RUNNEL_UPDATE").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    let stale = "docs/conformance.md is stale: RUNNEL_UPDATE=1 cargo test --test conformance";
    if kept == page { Ok(()) } else { Err(stale.to_string()) }
}

fn page(scripts: &[Script]) -> String {
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
    for case in scripts {
        // A case that fails is not committed.
        let emu = if case.backends.contains("emu") { "pass" } else { "-" };
        let gpu = if case.backends.contains("cuda") { on_cuda(&case.id) } else { "-".to_string() };
        page.push_str(&format!("| {} | {} | {} | {emu} | {gpu} |\n", case.id, case.title, case.devices));
    }
    page
}
