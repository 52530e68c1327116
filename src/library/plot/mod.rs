//! `plot.line`, `plot.scatter`, `plot.hist`, `plot.image`: to the script's output or to a file.

#[cfg(feature = "plot")]
mod draw;

use super::{any, optional, takes};
use crate::ops::signature::{Default, Kind, Param, Signature};
use crate::vm::NativeDef;

const TITLE: Param = Param::named("title", Kind::Str, Default::Str(""));
const X_LABEL: Param = Param::named("x_label", Kind::Str, Default::Str(""));
const Y_LABEL: Param = Param::named("y_label", Kind::Str, Default::Str(""));
const PATH: Param = Param::named("path", Kind::Str, Default::None);
const WIDTH: Param = Param::named("width", Kind::Int, Default::None);
const HEIGHT: Param = Param::named("height", Kind::Int, Default::None);
const LABELS: Param = Param::named("labels", Kind::Any, Default::None);
const X_SCALE: Param = Param::named("x_scale", Kind::Str, Default::Str("linear"));
const Y_SCALE: Param = Param::named("y_scale", Kind::Str, Default::Str("linear"));

/// The signature of line and point plots.
const SERIES: Signature = takes(&[
    any("x"),
    optional("y", Kind::Any),
    TITLE,
    X_LABEL,
    Y_LABEL,
    PATH,
    WIDTH,
    HEIGHT,
    LABELS,
    X_SCALE,
    Y_SCALE,
]);

/// The native functions of this module.
pub static TABLE: &[NativeDef] = &[
    NativeDef {
        name: "plot.line",
        receiver: "",
        signature: SERIES,
        doc: "Draws lines: `plot.line(y)` over 0, 1, 2, ..., or `plot.line(x, y)`. The data are tensors on any device, \
              ranges, or lists of numbers and one-element tensors; a record or dict draws a line for each field and a \
              matrix one for each column, which `labels` names. A nan leaves a gap. `x_scale` and `y_scale` are \
              `\"linear\"` or `\"log\"`.\n\nThe chart is printed, as wide as the terminal; with `path` it is written \
              to a file that ends in `.svg` or `.png`. `width` and `height` are columns and rows, in files \
              pixels.\n\nSource: `matplotlib.pyplot.plot`.",
        example: "plot.line([1, 4, 9, 16], title=\"squares\", width=40, height=5)\n\
                  let path = files.temp_folder() ++ \"/loss.svg\"\n\
                  plot.line((train = [1.0, 0.5, 0.3], test = [1.1, 0.7, 0.6]), x_label=\"epoch\", path=path)\n\
                  assert(exists(path))",
        run: part!("plot", draw::line),
    },
    NativeDef {
        name: "plot.scatter",
        receiver: "",
        signature: SERIES,
        doc: "Draws points. Arguments are those of `plot.line`.\n\nSource: `matplotlib.pyplot.scatter`.",
        example: "plot.scatter(randn(100), randn(100), width=40, height=8)",
        run: part!("plot", draw::scatter),
    },
    NativeDef {
        name: "plot.hist",
        receiver: "",
        signature: takes(&[
            any("x"),
            Param::or("bins", Kind::Int, Default::Int(30)),
            TITLE,
            X_LABEL,
            Y_LABEL,
            PATH,
            WIDTH,
            HEIGHT,
            Param::named("range", Kind::Any, Default::None),
        ]),
        doc: "Draws a histogram: counts in `bins` intervals of equal width, from the minimum to the maximum value, or \
              in `range=(lo, hi)`. Values outside, and nan, are ignored. All elements of a tensor count. The output \
              goes to the same places as that of `plot.line`.\n\nSource: `matplotlib.pyplot.hist`.",
        example: "plot.hist([1, 1, 2, 3, 3, 3], bins=3, width=40, height=5)",
        run: part!("plot", draw::hist),
    },
    NativeDef {
        name: "plot.image",
        receiver: "",
        signature: takes(&[
            any("x"),
            Param::named("lo", Kind::Float, Default::None),
            Param::named("hi", Kind::Float, Default::None),
            Param::named("colors", Kind::Str, Default::Str("gray")),
            PATH,
            WIDTH,
        ]),
        doc: "Shows a matrix or an image: `[height, width]`, or `[channels, height, width]` with 1, 3 or 4 channels, \
              as `load` returns it. Levels from `lo` to `hi` become dark to bright, for one channel in the `colors` \
              `\"gray\"` or `\"viridis\"`. By default they are 0 and 255 for u8, the minimum and the maximum for other \
              matrices, 0 and 1 for other colours.\n\nIt is printed in blocks of colour if the output has colours, \
              otherwise in dots. With `path` it is written to a file that ends in `.svg` or `.png`: one pixel per \
              element, or `width` pixels wide.\n\nSource: `matplotlib.pyplot.imshow`.",
        example: "plot.image(arange(64).reshape(8, 8), width=16)\n\
                  let path = files.temp_folder() ++ \"/steps.png\"\n\
                  plot.image(arange(64).reshape(8, 8), colors=\"viridis\", path=path)\n\
                  assert(load(path).shape == (3, 8, 8))",
        run: part!("plot", draw::image),
    },
];
