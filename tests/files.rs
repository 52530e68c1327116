//! Hostile files and paths in scripts: each is rejected at once with a coded error. Limits on file access
//! apply to every function that takes a path.

#![cfg(feature = "files")]
#![allow(clippy::unwrap_used)] // A test that cannot go on fails.
#![cfg(unix)]

use runnel::engine::Builder;
use runnel::vm::FileAccess;
use runnel::{Backend, Engine};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

fn builder() -> Builder {
    Engine::builder().backend(Backend::Emu).devices(1).device_memory(64 << 20)
}

/// Every function that takes a path, with a call; `{}` is the path as a text.
const CALLS: &[(&str, &str)] = &[
    ("read", "read({})"),
    ("write", "write({}, \"text\")"),
    ("exists", "exists({})"),
    ("load", "load({}, format=\"raw\")"),
    ("save", "save({}, [1], format=\"npy\")"),
    ("files.names", "files.names({}, format=\"npz\")"),
    ("files.list", "files.list({})"),
    ("data.text_lines", "import data\ndata.text_lines({})"),
    ("data.text_bytes", "import data\ndata.text_bytes({})"),
    ("files.metadata", "files.metadata({}, format=\"safetensors\")"),
    ("profile", "with profile({}) { ones(1) }"),
    ("cuda.memory_snapshot", "cuda.memory_snapshot(file={})"),
    ("plot.hist", "plot.hist([1.0, 2.0], path={})"),
    ("plot.line", "plot.line([1, 2], path={})"),
    ("plot.scatter", "plot.scatter([1, 2], [1, 2], path={})"),
    ("plot.image", "plot.image([[0.5, 0.25]], path={})"),
    ("import", "import {} as m"),
];

/// Functions with a parameter of such a name that use no file.
const NO_FILES: &[&str] = &[];

#[test]
fn every_function_that_takes_a_path_is_listed() {
    let mut missing = Vec::new();
    for entry in runnel::library::docs::entries() {
        let takes = ["path", "file"].iter().any(|name| {
            let parameters = entry.signature.trim_matches(['(', ')']).split(", ");
            parameters.map(|p| p.split('=').next().unwrap_or("")).any(|p| p == *name)
        });
        let listed = CALLS.iter().any(|(name, _)| *name == entry.name) || NO_FILES.contains(&&*entry.name);
        if takes != listed {
            missing.push(format!("{}{}", entry.name, entry.signature));
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

/// The code of a call's error; `none` when it passes.
fn code(engine: &mut Engine, call: &str, path: &Path) -> String {
    let call = call.replace("{}", &format!("{:?}", path.to_str().unwrap()));
    match engine.eval::<()>(&call) {
        Ok(()) => "none".into(),
        Err(error) => error.code().id.to_string(),
    }
}

#[test]
fn special_files_are_rejected_without_waiting() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    rustix::fs::mknodat(rustix::fs::CWD, at("pipe.png"), rustix::fs::FileType::Fifo, 0o600.into(), 0)
        .unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(at("socket.png")).unwrap();
    std::fs::create_dir(at("folder.png")).unwrap();
    symlink(at("pipe.png"), at("link to pipe.png")).unwrap();
    symlink("/dev/zero", at("link to zero.png")).unwrap();
    symlink(at("loop.png"), at("loop.png")).unwrap();
    symlink(at("nothing"), at("dangling.png")).unwrap();
    let mut engine = builder().build().unwrap();
    let specials = ["pipe.png", "socket.png", "folder.png", "link to pipe.png", "loop.png", "dangling.png"];
    let specials = specials.map(at);
    for path in specials.iter().map(PathBuf::as_path).chain([Path::new("/dev/zero"), &at("link to zero.png")])
    {
        for (name, call) in CALLS {
            let found = code(&mut engine, call, path);
            // Devices may be written to; writing to a dangling link creates its target if links may be followed.
            let device = path.starts_with("/dev") || path.ends_with("link to zero.png");
            let writes = matches!(*name, "write" | "profile" | "cuda.memory_snapshot");
            let lists = *name == "files.list" && path.ends_with("folder.png");
            let free = *name == "exists" || lists || writes && (device || path.ends_with("dangling.png"));
            let expected: &[&str] = match *name {
                _ if free => &["none"],
                "import" => &["E0903"],
                // Its extension selects no image format.
                _ if name.starts_with("plot") && path.extension().is_none() => &["E0325"],
                _ => &["E0907", "E0920", "E0921"],
            };
            assert!(expected.contains(&&*found), "{name} of {}: {found}", path.display());
            let _ = std::fs::remove_file(at("nothing"));
        }
        for links in ["load({}, format=\"npy\", links=true)", "save({}, [1], format=\"npy\", links=true)"] {
            let found = code(&mut engine, links, path);
            assert!(["E0907", "E0920"].contains(&&*found), "{links} of {}: {found}", path.display());
        }
    }
    // The folder is unchanged: nothing was replaced, and no partial file is left.
    let mut names: Vec<_> =
        std::fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    let expected = ["dangling", "folder", "link to pipe", "link to zero", "loop", "pipe", "socket"];
    assert_eq!(names, expected.map(|name| std::ffi::OsString::from(format!("{name}.png"))));
}

#[test]
fn links_are_followed_when_the_call_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let (file, link) = (folder.path().join("x.npy"), folder.path().join("link.npy"));
    symlink(&file, &link).unwrap();
    let mut engine = builder().build().unwrap();
    assert_eq!(code(&mut engine, "save({}, [1, 2])", &file), "none");
    assert_eq!(code(&mut engine, "load({})", &link), "E0921");
    assert_eq!(code(&mut engine, "save({}, [3])", &link), "E0921");
    assert_eq!(code(&mut engine, "assert(load({}, links=true).tolist() == [1, 2])", &link), "none");
    assert_eq!(code(&mut engine, "save({}, [3], links=true)", &link), "none");
    assert!(link.symlink_metadata().unwrap().is_symlink(), "what it leads to is replaced, not the link");
    assert_eq!(code(&mut engine, "assert(load({}).tolist() == [3])", &file), "none");
}

#[test]
fn folders_hold_for_every_function() {
    let (inside, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    // Canonical names, so that the paths below differ only in the tested property.
    let (inside, outside) = (inside.path().canonicalize().unwrap(), outside.path().canonicalize().unwrap());
    std::fs::write(outside.join("secret.png"), "let secret = 1").unwrap();
    std::fs::write(inside.join("own.png"), "let own = 1").unwrap();
    std::fs::create_dir(inside.join("deeper")).unwrap();
    symlink(outside.join("secret.png"), inside.join("link.png")).unwrap();
    symlink(&outside, inside.join("door")).unwrap();
    symlink(outside.join("new.png"), inside.join("dangling.png")).unwrap();
    let mut engine = builder().files(FileAccess::Folders(vec![inside.clone()])).build().unwrap();
    let up = inside.join("deeper/../..").join(outside.file_name().unwrap()).join("secret.png");
    let outsiders = [
        outside.join("secret.png"),
        outside.join("new.png"),
        up,
        inside.join("link.png"),
        inside.join("door/secret.png"),
        inside.join("door/new.png"),
        inside.join("dangling.png"),
        inside.join(".."),
        "/etc/passwd".into(),
        "/dev/null".into(),
    ];
    for path in &outsiders {
        for (name, call) in CALLS {
            let found = code(&mut engine, call, path);
            let nameless = name.starts_with("plot") && path.extension().is_none();
            assert_eq!(found, if nameless { "E0325" } else { "E0908" }, "{name} of {}", path.display());
        }
    }
    assert!(!outside.join("new.png").exists());
    assert_eq!(std::fs::read_to_string(outside.join("secret.png")).unwrap(), "let secret = 1");
    let own = inside.join("deeper/../own.png");
    for call in ["assert(read({}) == \"let own = 1\")", "import {} as own", "assert(exists({}))"] {
        assert_eq!(code(&mut engine, call, &own), "none");
    }
    let new = inside.join("deeper/../new.npy");
    assert_eq!(code(&mut engine, "save({}, [1, 2])\nassert(load({}).tolist() == [1, 2])", &new), "none");
    // A new folder of the session is inside the allowed folders.
    let folder: String = engine.eval("files.temp_folder()").unwrap();
    assert!(Path::new(&folder).starts_with(&inside), "{folder}");
}

#[test]
fn files_that_are_switched_off_are_off_for_every_function() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("own.png");
    std::fs::write(&path, "let own = 1").unwrap();
    let mut engine = builder().files(false).build().unwrap();
    for (name, call) in CALLS {
        assert_eq!(code(&mut engine, call, &path), "E0908", "{name}");
    }
    assert_eq!(engine.eval::<()>("files.temp_folder()").unwrap_err().code().id, "E0908");
    engine.eval::<()>("import parallel\nimport data").unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "let own = 1");
}

#[test]
fn nothing_starts_processes_or_reaches_a_network() {
    // Scripts can only use names in the tables.
    let words = ["spawn", "exec", "shell", "command", "socket", "connect", "listen", "http", "url"];
    for entry in runnel::library::docs::entries() {
        let name = entry.name.to_lowercase();
        assert!(!name.split(['.', '_']).any(|part| words.contains(&part)), "{name}");
    }
    let mut engine = builder().environment(false).build().unwrap();
    assert!(std::env::var("PATH").is_ok());
    assert_eq!(engine.eval::<String>("env(\"PATH\", \"off\")").unwrap(), "off");
}

#[test]
fn a_file_that_holds_more_than_a_limit_meets_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("big.npy");
    let file = std::fs::File::create(&path).unwrap();
    let header = format!("{:<117}\n", "{'descr': '|u1', 'fortran_order': False, 'shape': (1073741824,), }");
    std::io::Write::write_all(&mut &file, &[b"\x93NUMPY\x01\x00\x76\x00", header.as_bytes()].concat())
        .unwrap();
    // A sparse file: only its length is stored.
    file.set_len((1 << 30) + 128).unwrap();
    let mut engine = builder().host_memory(16 << 20).pinned_limit(16 << 20).build().unwrap();
    for (call, expected) in [
        ("load({})", "E0701"),
        ("load({}, device=cpu)", "E1003"),
        ("read({})", "E1003"),
        ("load({}, format=\"raw\")", "E0701"),
        ("load({}, device=cpu).pin_memory()", "E1003"),
    ] {
        assert_eq!(code(&mut engine, call, &path), expected, "{call}");
    }
    let mut engine = builder().fuel(1 << 20).build().unwrap();
    assert_eq!(code(&mut engine, "load({})", &path), "E1002");
    let mut engine = builder().time(std::time::Duration::ZERO).build().unwrap();
    assert_eq!(code(&mut engine, "load({}, device=cpu)", &path), "E1008");
}

#[test]
fn every_class_of_images_has_some_that_can_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for class in ["cats", "dogs"] {
        std::fs::create_dir(at(class)).unwrap();
    }
    let mut engine = builder().build().unwrap();
    let text = |path: &Path| format!("{:?}", path.display().to_string());
    let image = format!("save({}, zeros(1, 2, 2, dtype=u8))", text(&at("cats/a.PNG")));
    engine.eval::<()>(&image).unwrap();
    std::fs::write(at("dogs/b.jpg"), "no image").unwrap();
    let count = |engine: &mut Engine, options: &str| {
        let script = format!("import data\nlen(data.image_folder({}{options}).samples)", text(folder.path()));
        engine.eval::<i64>(&script)
    };
    let refused = count(&mut engine, "").unwrap_err().to_string();
    assert!(refused.contains("dogs` has no images") && refused.contains(".png"), "{refused}");
    assert_eq!(count(&mut engine, ", allow_empty=true").unwrap(), 1);
}

#[test]
fn an_interrupted_save_leaves_the_old_file() {
    let folder = tempfile::tempdir().unwrap();
    let mut engine = builder().build().unwrap();
    let handle = engine.interrupt_handle();
    engine.register_fn("asked", move || {
        handle.interrupt();
        true
    });
    engine
        .eval::<()>(
            "let x = full([3_000_000], 2, dtype=f32, device=cpu)\n\
             let image = full([3, 1000, 1000], 2, dtype=u8, device=cpu)\n\
             let text = \"2\" * 3_000_000",
        )
        .unwrap();
    for (name, old, new) in [
        ("a.npy", "x * 2", "x"),
        ("a.raw", "x * 2", "x"),
        ("a.npz", "(a = x * 2, b = x)", "(a = x, b = x)"),
        ("a.safetensors", "(a = x * 2, b = x)", "(a = x, b = x)"),
        ("a.idx", "x * 2", "x"),
        ("a.csv", "x[..1000].reshape(10, 100)", "x.reshape(-1, 100)"),
        ("a.png", "image * 2", "image"),
        ("a.ppm", "image * 2", "image"),
    ] {
        let path = folder.path().join(name);
        let save = |value: &str| format!("save({path:?}, {value})");
        engine.eval::<()>(&save(old)).unwrap();
        let before = std::fs::read(&path).unwrap();
        let error = engine.eval::<()>(&save(&format!("if asked() {{ {new} }} else {{ none }}"))).unwrap_err();
        assert_eq!(error.kind(), runnel::ErrorKind::Interrupted, "{name}: {error}");
        assert!(std::fs::read(&path).unwrap() == before, "{name} is another");
        engine.eval::<()>(&save(new)).unwrap();
        assert!(std::fs::read(&path).unwrap() != before, "{name} was not written");
    }
    // No other files are left.
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 8);
}
