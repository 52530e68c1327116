//! Rendered plots and rejected arguments.

use crate::device::{Backend, Config, Machine};
use crate::plan::{Runtime, Settings};
use crate::vm::{Colors, Mode, Vm};
use std::sync::{Arc, Mutex};

fn vm(colors: Colors) -> (Vm, Arc<Mutex<String>>) {
    let config = Config { backend: Backend::Emu, ..Config::default() };
    let mut vm = crate::library::machine(Runtime::new(Machine::open(&config).unwrap(), Settings::default()));
    vm.colors = colors;
    let text = Arc::new(Mutex::new(String::new()));
    let sink = text.clone();
    vm.set_output(move |piece| sink.lock().unwrap().push_str(piece));
    (vm, text)
}

fn shown(script: &str, colors: Colors) -> String {
    let (mut vm, text) = vm(colors);
    vm.eval("<test>", script, Mode::Script).unwrap();
    drop(vm);
    Arc::into_inner(text).unwrap().into_inner().unwrap()
}

#[test]
fn charts_in_plain_text() {
    let script = "
        plot.line((train = [4.0, 2.0, 1.0, 0.5], test = [4.0, 3.0, nan, 2.0]), title=\"loss\", x_label=\"epoch\", width=50, height=8)
        plot.scatter([0, 1, 2, 3], [[0, 9], [1, 4], [4, 1], [9, 0]], labels=[\"up\", \"down\"], width=40, height=6)
        plot.hist([1, 1, 2, 3, 3, 3, 3], bins=3, y_label=\"count\", width=40, height=6)
        plot.line([1, 10, 100, 1000], y_scale=\"log\", width=40, height=6)";
    insta::assert_snapshot!(shown(script, Colors::None));
}

#[test]
fn pictures_in_plain_text_and_in_colours() {
    let ramp = "plot.image(arange(64).reshape(8, 8))";
    insta::assert_snapshot!(shown(ramp, Colors::None));
    let full = shown("plot.image([[0, 1], [1, 0], [1, 1]], width=2)", Colors::Full);
    assert_eq!(
        full,
        "\x1b[38;2;0;0;0;48;2;255;255;255m▀\x1b[38;2;255;255;255;48;2;0;0;0m▀\x1b[0m\n\
         \x1b[0m\x1b[38;2;255;255;255m▀▀\x1b[0m\n"
    );
    let indexed = shown("plot.image(u8[[[255]], [[0]], [[0]]], width=2)", Colors::Indexed);
    assert!(indexed.contains("38;5;196"), "{indexed:?}");
    let line = shown("plot.line((a = [1, 2], b = [2, 1]), width=30, height=4)", Colors::Indexed);
    assert!(line.contains("\x1b[36m───\x1b[0m a") && line.contains("\x1b[33m───\x1b[0m b"), "{line:?}");
}

#[test]
fn empty_and_infinite_data_are_drawn() {
    let hard = [
        "[]",
        "[nan]",
        "[inf, -inf]",
        "[1e308, -1e308]",
        "[5e-324, 0]",
        "zeros(0, 3)",
        "zeros(3, 0)",
        "[true, false]",
        "0..0",
        "[3]",
        "randn(5000)",
        "zeros(1000)",
        "arange(100).to(i8)",
        "[1e16, 1e16]",
        "[tensor(1.0), 2]",
        "(1, 2)",
    ];
    let (mut vm, _) = vm(Colors::None);
    let folder = "let folder = files.temp_folder()";
    vm.eval("<folder>", folder, Mode::Input).unwrap();
    for data in hard {
        for call in [
            "plot.line(DATA)",
            "plot.line(DATA, y_scale=\"log\")",
            "plot.scatter(DATA, width=20, height=2)",
            "plot.scatter(DATA, path=folder ++ \"/a.png\", width=100, height=100)",
            "plot.line(DATA, path=folder ++ \"/a.png\", width=120, height=100, title=\"é ☃ <&>\")",
            "plot.line(DATA, path=folder ++ \"/a.svg\", title=\"é ☃ <&>\")",
        ] {
            let script = call.replace("DATA", data);
            vm.eval("<test>", &script, Mode::Input).unwrap_or_else(|e| panic!("{script}: {e:?}"));
        }
        let script = format!("plot.hist({data})");
        vm.eval("<test>", &script, Mode::Input).unwrap_or_else(|e| panic!("{script}: {e:?}"));
    }
    for image in
        ["[[nan, 1.0]]", "zeros(1, 500)", "zeros(500, 1)", "ones(4, 3, 3)", "rand(3, 200, 300)", "[[true]]"]
    {
        for call in
            ["plot.image(DATA)", "plot.image(DATA, width=7)", "plot.image(DATA, path=folder ++ \"/a.svg\")"]
        {
            let script = call.replace("DATA", image);
            vm.eval("<test>", &script, Mode::Input).unwrap_or_else(|e| panic!("{script}: {e:?}"));
        }
    }
}

#[test]
fn plot_files_contain_the_figure() {
    let script = "
        let folder = files.temp_folder()
        plot.line([0, 1], title=\"a < b\", path=folder ++ \"/a.svg\", width=300, height=200)
        let text = read(folder ++ \"/a.svg\")
        assert(text.startswith(\"<svg\") and \"a &lt; b\" in text and \"<polyline\" in text)
        plot.line([0, 1], path=folder ++ \"/a.png\", width=300, height=200)
        let image = load(folder ++ \"/a.png\")
        assert(image.shape == (3, 200, 300))
        # White paper, and pixels of the line's blue.
        assert(equal(image[.., 1, 1], u8[255, 255, 255]))
        assert(((image[0] == 0x1f) & (image[1] == 0x77) & (image[2] == 0xb4)).sum().item() > 50)
        plot.image(u8[[0, 255], [255, 0]], path=folder ++ \"/b.png\")
        assert(equal(load(folder ++ \"/b.png\")[0], u8[[0, 255], [255, 0]]))
        plot.image(u8[[0, 255], [255, 0]], path=folder ++ \"/b.png\", width=8)
        assert(load(folder ++ \"/b.png\").shape == (3, 8, 8))
        plot.image(u8[[0, 255]], path=folder ++ \"/b.svg\", width=20)
        assert(\"data:image/png;base64,iVBORw0KGgo\" in read(folder ++ \"/b.svg\"))";
    shown(script, Colors::None);
}

#[test]
fn wrong_arguments_get_a_correction() {
    let (mut vm, _) = vm(Colors::None);
    for (script, part) in [
        ("plot.line(\"a\")", "not a str"),
        ("plot.line([1, \"a\"])", "not a str"),
        ("plot.line(zeros(2, 2, 2))", "is not a line"),
        ("plot.line(tensor(1.0))", "is not a line"),
        ("plot.line(zeros(2, dtype=c64))", "complex"),
        ("plot.line([1, 2], [1])", "`x` has 2 values and `y` has 1"),
        ("plot.line(zeros(2, 101))", "101 sets"),
        ("plot.line([1], labels=[\"a\", \"b\"])", "2 labels"),
        ("plot.line([1], y_scale=\"lgo\")", "`lgo` is not an axis scale"),
        ("plot.line([1], path=\"a.pdf\")", "a.pdf"),
        ("plot.line([1], path=\"a.png\", width=9)", "outside of 100 to 8000"),
        ("plot.line([1], width=1000000000000)", "outside of 20 to 400"),
        ("plot.hist([1], bins=0)", "1 to 10000"),
        ("plot.hist([1], range=(1, 0))", "the lower one first"),
        ("plot.image([1, 2])", "is not an image"),
        ("plot.image(zeros(0, 3))", "is not an image"),
        ("plot.image([[1]], colors=\"jet\")", "`jet`"),
    ] {
        let error = vm.eval("<test>", script, Mode::Input).err().unwrap_or_else(|| panic!("{script}"));
        assert_eq!(error.code().id, "E0325", "{script}");
        assert!(error.message().contains(part), "{script}: {}", error.message());
    }
    vm.limits.files = crate::vm::FileAccess::None;
    let error = vm.eval("<test>", "plot.line([1], path=\"a.svg\")", Mode::Input).err().unwrap();
    assert_eq!(error.kind(), crate::base::ErrorKind::Io);
}
