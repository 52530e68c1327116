//! House rules that the compiler does not check: the import order of modules, the length of files, which
//! files may name cudarc, and text that sources may not contain.

#![allow(clippy::unwrap_used)] // A test that cannot go on fails.

use std::path::{Path, PathBuf};

/// The modules of `src`, lowest first; a module may import those before it.
const MODULES: [&str; 18] = [
    "base", "array", "files", "kernel", "driver", "stream", "memory", "device", "group", "tensor", "plan",
    "ops", "syntax", "check", "vm", "library", "engine", "cli",
];

const LONGEST: usize = 800;

fn files(root: &str, endings: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join(root)];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for entry in entries {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if endings.iter().any(|e| path.extension().is_some_and(|x| x == *e)) {
                found.push(path);
            }
        }
    }
    assert!(!found.is_empty() || root != "src", "no sources under {root}");
    found
}

fn shown(path: &Path) -> String {
    path.strip_prefix(env!("CARGO_MANIFEST_DIR")).unwrap_or(path).display().to_string()
}

/// The module that a source file belongs to; `None` for `lib.rs` and `main.rs`.
fn module_of(path: &Path) -> Option<usize> {
    let relative = path.strip_prefix(Path::new(env!("CARGO_MANIFEST_DIR")).join("src")).ok()?;
    let first = relative.iter().next()?.to_str()?;
    MODULES.iter().position(|r| *r == first.trim_end_matches(".rs"))
}

/// The lines of a source outside of tests, with their numbers: none of a test file (`#![cfg(test)]`), otherwise all
/// outside of items with `#[cfg(test)]`. Sources are formatted, so an item ends at the indentation where it begins.
fn outside_tests(text: &str) -> Vec<(usize, &str)> {
    let mut outside = Vec::new();
    if text.contains("\n#![cfg(test)]") {
        return outside;
    }
    let mut lines = text.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let indent = line.len() - line.trim_start().len();
        if line.trim() != "#[cfg(test)]" {
            outside.push((number + 1, line));
            continue;
        }
        let ends = |line: &str| {
            let code = line.split(" //").next().unwrap_or("").trim_end();
            line.len() - line.trim_start().len() == indent && code.ends_with(['}', ';', ','])
        };
        lines.by_ref().find(|(_, line)| ends(line));
    }
    outside
}

#[test]
fn code_after_a_test_is_not_test_code() {
    let text = "use a;\n#[cfg(test)]\nuse b;\nfn f() {\n    #[cfg(test)]\n    g();\n    h();\n}\n#[cfg(test)]\n#[path = \"x\"]\nmod tests;\n#[cfg(test)] \nmod more {\n    fn i() {}\n}\nfn j() {}\n";
    let lines: Vec<&str> = outside_tests(text).into_iter().map(|(_, line)| line.trim()).collect();
    assert_eq!(lines, ["use a;", "fn f() {", "h();", "}", "fn j() {}"]);
    assert!(outside_tests("//! Tests.\n\n#![cfg(test)]\nfn f() {}\n").is_empty());
}

/// `cargo package` packs everything needed to build: every file that the sources include.
#[test]
fn the_package_holds_the_files_that_sources_include() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let manifest = std::fs::read_to_string(root.join("Cargo.toml")).unwrap();
    let list = manifest.lines().find_map(|line| line.strip_prefix("include = ")).unwrap();
    let packed: Vec<&str> = list.split('"').skip(1).step_by(2).map(|entry| entry.trim_matches('/')).collect();
    let mut seen = 0;
    for path in files("src", &["rs"]) {
        let text = std::fs::read_to_string(&path).unwrap();
        let code = outside_tests(&text).into_iter();
        for piece in code.flat_map(|(_, line)| line.split("include_str!(\"").skip(1)) {
            let file = path.parent().unwrap().join(piece.split('"').next().unwrap()).canonicalize().unwrap();
            let inside = file.strip_prefix(root.canonicalize().unwrap()).unwrap();
            assert!(
                packed.iter().any(|entry| inside.starts_with(entry)),
                "{} is not packed",
                inside.display()
            );
            seen += 1;
        }
    }
    assert!(seen > 10, "only {seen} files are included");
}

#[test]
fn modules_import_downwards_only() {
    let mut wrong = Vec::new();
    for path in files("src", &["rs"]) {
        let Some(own) = module_of(&path) else { continue };
        let text = std::fs::read_to_string(&path).unwrap();
        for (number, line) in outside_tests(&text) {
            let code = line.split("//").next().unwrap_or("");
            for part in code.split("crate::").skip(1) {
                let name: String = part.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                if MODULES.iter().position(|r| *r == name).is_some_and(|other| other > own) {
                    wrong.push(format!("{}:{}: {} uses {name}", shown(&path), number, MODULES[own]));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "imports that go upwards:\n{}", wrong.join("\n"));
}

#[test]
fn a_dtype_is_named_in_few_files() {
    let is_test = |path: &Path| {
        let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let folder = path.components().any(|part| ["tests", "gpu"].iter().any(|f| part.as_os_str() == *f));
        folder || name.starts_with("tests") || name.ends_with("_tests.rs")
    };
    let names = |path: &PathBuf| {
        let text = std::fs::read_to_string(path).unwrap();
        let words =
            |line: &str| line.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == "F16");
        !is_test(path) && outside_tests(&text).into_iter().any(|(_, line)| words(line))
    };
    let named: Vec<String> =
        files("src", &["rs"]).into_iter().filter(names).map(|path| shown(&path)).collect();
    assert!((1..=6).contains(&named.len()), "`F16` is named in {named:?}; ask a property of the dtype");
}

/// Kinds of programs that more than one file outside of `kernel` may name.
const NAMED_OFTEN: [(&str, &str); 3] = [
    ("Gather", "an assertion is a gather of one element"),
    ("Map", "the planner fuses elementwise work, and splits it"),
    ("Reduce", "the planner fuses elementwise work with the reduction behind it, and splits both"),
];

/// The words of all paths that begin with `kernel::`, like `kernel::{Gather, fft::Fft}`.
fn words_of_kernel_paths(code: &str) -> Vec<String> {
    let mut words = Vec::new();
    for path in code.split("kernel::").skip(1) {
        let mut depth = 0;
        let is_part = |c: &char| {
            depth += i32::from(*c == '{') - i32::from(*c == '}');
            depth > 0 || c.is_alphanumeric() || "_:}".contains(*c)
        };
        let path: String = path.chars().take_while(is_part).collect();
        let parts = path.split(|c: char| !c.is_alphanumeric() && c != '_');
        words.extend(parts.filter(|word| !word.is_empty()).map(String::from));
    }
    words
}

#[test]
fn a_kind_of_program_is_named_in_few_files() {
    assert_eq!(
        words_of_kernel_paths("use crate::kernel::{A, b::{C}};\nx(kernel::D { e })"),
        ["A", "b", "C", "D"]
    );
    let all: Vec<(String, String)> = files("src", &["rs"])
        .into_iter()
        .map(|path| {
            let text = std::fs::read_to_string(&path).unwrap();
            let code = |(_, line): (usize, &'_ str)| line.split("//").next().unwrap_or("").to_string();
            let code: Vec<String> = outside_tests(&text).into_iter().map(code).collect();
            (shown(&path), code.join("\n"))
        })
        .collect();
    let inside = |path: &str| path.starts_with("src/kernel/");
    let mut kinds = Vec::new();
    for (_, code) in all.iter().filter(|(path, _)| path.starts_with("src/kernel/kinds/")) {
        for implemented in ["\nimpl Kind for ", "\nimpl OwnProduct for "] {
            let starts = code.split(implemented).skip(1);
            kinds.extend(starts.map(|start| start.split_whitespace().next().unwrap().to_string()));
        }
    }
    assert!(kinds.len() >= 19, "{kinds:?}");
    for kind in kinds {
        let names =
            |(path, code): &&(String, String)| !inside(path) && words_of_kernel_paths(code).contains(&kind);
        let named: Vec<&str> = all.iter().filter(names).map(|(path, _)| path.as_str()).collect();
        let often = NAMED_OFTEN.iter().any(|(name, _)| *name == kind);
        assert_eq!(often, named.len() > 1, "{kind} is named in {named:?}; programs are known by `Kind`");
    }
}

#[test]
fn files_are_short() {
    let mut long = Vec::new();
    for root in ["src", "tests", "kernels", "stdlib", "grammar", "examples", "benches"] {
        for path in files(root, &["rs", "rnl", "cu", "cuh", "lalrpop"]) {
            let lines = std::fs::read_to_string(&path).unwrap().lines().count();
            if lines > LONGEST {
                long.push(format!("{}: {lines} lines", shown(&path)));
            }
        }
    }
    assert!(long.is_empty(), "files over {LONGEST} lines:\n{}", long.join("\n"));
}

#[test]
fn only_the_cuda_folder_names_cudarc() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/driver/cuda");
    for path in files("src", &["rs"]) {
        if !path.starts_with(&folder) {
            let text = std::fs::read_to_string(&path).unwrap();
            assert!(!text.contains("cudarc::"), "{} names cudarc", shown(&path));
        }
    }
}

#[test]
fn only_the_command_line_prints_or_exits() {
    let mut wrong = Vec::new();
    for path in files("src", &["rs"]) {
        let own = module_of(&path);
        if own.is_none() || own == Some(MODULES.len() - 1) {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        for (number, line) in outside_tests(&text) {
            let line = line.split("//").next().unwrap_or("");
            for call in ["println!", "eprintln!", "print!(", "process::exit", "todo!", "unimplemented!"] {
                if line.contains(call) {
                    wrong.push(format!("{}:{}: {call}", shown(&path), number + 1));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "outside of cli:\n{}", wrong.join("\n"));
}

#[test]
fn every_module_of_the_library_is_part_of_the_program() {
    let table = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/library/modules.rs"));
    let table = table.unwrap();
    for path in files("stdlib", &["rnl"]) {
        let file = shown(&path);
        assert!(table.contains(&file), "src/library/modules.rs does not name {file}");
    }
}

/// The anchor of a heading, as Markdown readers make it.
fn anchor(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = text.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// The lines of a page outside of its blocks of code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut code = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        code ^= fence;
        !code && !fence
    })
}

#[test]
fn links_of_the_documentation_lead_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut pages = files("docs", &["md"]);
    pages.extend(["README.md", "CONTRIBUTING.md"].map(|page| root.join(page)));
    let anchors = |page: &Path| -> Vec<String> {
        let text = std::fs::read_to_string(page).unwrap();
        prose(&text).filter(|line| line.starts_with('#')).map(anchor).collect()
    };
    let (mut seen, mut dead) = (0, Vec::new());
    for page in &pages {
        let text = std::fs::read_to_string(page).unwrap();
        let text: Vec<&str> = prose(&text).collect();
        let text = text.join(" ");
        let is_link = |target: &&str| !target.starts_with("http") && !target.contains(['`', ' ', '"']);
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()).filter(is_link) {
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let file = if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
            let there = file.exists() && (heading.is_empty() || anchors(&file).iter().any(|a| a == heading));
            if !there {
                dead.push(format!("{}: {target}", shown(page)));
            }
            seen += 1;
        }
    }
    assert!(seen > 100 && dead.is_empty(), "of {seen} links these lead nowhere:\n{}", dead.join("\n"));
}

#[test]
fn the_contents_of_the_tutorial_list_every_chapter() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/language.md");
    let text = std::fs::read_to_string(page).unwrap();
    let chapters: Vec<&str> = prose(&text).filter_map(|line| line.strip_prefix("## ")).collect();
    assert!(chapters.len() > 20, "{chapters:?}");
    for chapter in chapters {
        assert!(text.contains(&format!("[{chapter}](#{})", anchor(chapter))), "{chapter} is not listed");
    }
}
