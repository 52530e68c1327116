//! Drawing. A chart ([`chart`]) is drawn as text ([`terminal`]) or as a figure ([`figure`]), in pixels or SVG.

mod axis;
mod chart;
mod data;
mod figure;
mod picture;
mod raster;
mod svg;
mod terminal;
#[cfg(test)]
mod tests;

use crate::base::{Result, stop};
use crate::driver::error::stopped;
use crate::library::core::owned;
use crate::library::files::formats::replace;
use crate::library::files::open::named;
use crate::library::io::allowed;
use crate::vm::{Value, Vm, charge, charge_values, error};
use axis::{Axis, written};
use chart::{Chart, Mark, Shape};
use data::{Numbers, Set, row, sets};
use picture::{Map, Picture};

// Argument positions shared by several functions.
const TITLE_AT: usize = 2;
const PATH_AT: usize = 5;
const WIDTH_AT: usize = 6;
const HEIGHT_AT: usize = 7;
const LABELS_AT: usize = 8;
const X_SCALE_AT: usize = 9;
const RANGE_AT: usize = 8;

/// `plot.line`
pub(super) fn line(vm: &mut Vm, args: &mut [Value]) -> Result<Value> {
    series(vm, args, Shape::Line)
}

/// `plot.scatter`
pub(super) fn scatter(vm: &mut Vm, args: &mut [Value]) -> Result<Value> {
    series(vm, args, Shape::Dots)
}

fn series(vm: &mut Vm, args: &mut [Value], shape: fn(Vec<(f64, f64)>) -> Shape) -> Result<Value> {
    let (x_log, y_log) =
        (scale(&args[X_SCALE_AT], X_SCALE_AT)?, scale(&args[X_SCALE_AT + 1], X_SCALE_AT + 1)?);
    let (xs, mut all) = match &args[1] {
        Value::None => (None, sets(vm, &args[0], 0)?),
        y => (Some(row(vm, &args[0], 0)?), sets(vm, y, 1)?),
    };
    name(vm, &mut all, &args[LABELS_AT])?;
    let mut marks = Vec::with_capacity(all.len());
    for Set { name, values } in all {
        charge(values.len().saturating_mul(16))?;
        let points = match &xs {
            Some(xs) if xs.len() != values.len() => {
                let (wide, high) = (xs.len(), values.len());
                return Err(error::bad_value(1, format!("`x` has {wide} values and `y` has {high}"))
                    .operand(0, format!("these are {wide}"))
                    .help("each point needs one of each"));
            }
            Some(xs) => stop::until(xs.iter().copied().zip(values)).collect(),
            None => stop::until(values.into_iter().enumerate().map(|(i, y)| (i as f64, y))).collect(),
        };
        stopped()?;
        marks.push(Mark { name, shape: shape(points) });
    }
    let points = || {
        marks.iter().flat_map(|mark| match &mark.shape {
            Shape::Line(points) | Shape::Dots(points) => points.as_slice(),
            Shape::Bars(_) => &[],
        })
    };
    let lines = marks.iter().any(|m| matches!(m.shape, Shape::Line(_)));
    let x = Axis::around(stop::until(points().map(|p| p.0)), x_log, if lines { 0.0 } else { 0.04 });
    let y = Axis::around(stop::until(points().map(|p| p.1)), y_log, 0.04);
    stopped()?;
    show(vm, args, x, y, marks)
}

/// `linear` or `log`.
fn scale(value: &Value, index: usize) -> Result<bool> {
    match value.as_str() {
        Some("linear") => Ok(false),
        Some("log") => Ok(true),
        other => Err(error::bad_value(index, format!("`{}` is not an axis scale", other.unwrap_or("")))
            .help("write `\"linear\"` or `\"log\"`")),
    }
}

/// Names the data sets as the caller requests.
fn name(vm: &mut Vm, all: &mut [Set], labels: &Value) -> Result<()> {
    let labels = match labels {
        Value::None => return Ok(()),
        Value::Str(_) => [labels.clone()].into(),
        list => vm.collect(list)?,
    };
    if labels.len() != all.len() {
        let (found, wanted) = (labels.len(), all.len());
        return Err(error::bad_value(
            LABELS_AT,
            format!("{found} labels are given for {wanted} sets of data"),
        )
        .help("give a list with a string for each"));
    }
    for (set, label) in all.iter_mut().zip(&labels) {
        set.name = vm.display(label)?;
    }
    Ok(())
}

/// `plot.hist(x, bins, title, x_label, y_label, path, width, height, range)`
pub(super) fn hist(vm: &mut Vm, args: &mut [Value]) -> Result<Value> {
    let bins = match args[1].as_int() {
        Some(bins @ 1..=10_000) => bins as usize,
        _ => return Err(error::bad_value(1, "the number of bins is 1 to 10000")),
    };
    let values = Numbers::of(vm, &args[0], 0)?.values;
    let finite = || stop::until(values.iter().copied()).filter(|v| v.is_finite());
    let (lo, hi) = match &args[RANGE_AT] {
        Value::None => {
            let (lo, hi) =
                finite().fold((f64::INFINITY, f64::NEG_INFINITY), |(lo, hi), v| (lo.min(v), hi.max(v)));
            match lo.total_cmp(&hi) {
                std::cmp::Ordering::Less if (hi - lo).is_finite() => (lo, hi),
                std::cmp::Ordering::Less => (-1e300, 1e300),
                // As numpy: for equal values, half a unit on each side.
                std::cmp::Ordering::Equal => (lo - 0.5, hi + 0.5),
                std::cmp::Ordering::Greater => (0.0, 1.0),
            }
        }
        given => {
            let ends = vm.collect(given)?;
            let ends: Vec<f64> = ends.iter().filter_map(Value::as_float).collect();
            match *ends.as_slice() {
                [lo, hi] if lo < hi && (hi - lo).is_finite() => (lo, hi),
                _ => {
                    return Err(error::bad_value(RANGE_AT, "a range is two numbers, the lower one first")
                        .help("write `range=(0, 1)`"));
                }
            }
        }
    };
    charge_values(bins * 3)?;
    let mut counts = vec![0u64; bins];
    for value in finite().filter(|v| (lo..=hi).contains(v)) {
        let bin = ((value - lo) / (hi - lo) * bins as f64) as usize;
        counts[bin.min(bins - 1)] += 1;
    }
    stopped()?;
    let edge = |i: usize| lo + (hi - lo) * (i as f64 / bins as f64);
    let bars: Vec<(f64, f64, f64)> =
        counts.iter().enumerate().map(|(i, &n)| (edge(i), edge(i + 1), n as f64)).collect();
    let x = Axis::around([lo, hi].into_iter(), false, 0.0);
    let most = counts.iter().copied().max().unwrap_or(0).max(1);
    let y = Axis::around([0.0, most as f64].into_iter(), false, 0.04).from(0.0);
    show(vm, args, x, y, vec![Mark { name: String::new(), shape: Shape::Bars(bars) }])
}

/// Prints a chart, or writes it to a file.
fn show(vm: &mut Vm, args: &[Value], x: Axis, y: Axis, marks: Vec<Mark>) -> Result<Value> {
    let line = |i: usize| owned(&args[TITLE_AT + i]).replace(|c: char| c.is_control(), " ");
    let marks = marks.into_iter().map(|m| Mark { name: m.name.replace(|c: char| c.is_control(), " "), ..m });
    let marks = marks.collect();
    let chart = Chart { title: line(0), x_label: line(1), y_label: line(2), x, y, marks };
    if let Value::Str(path) = &args[PATH_AT] {
        let format = Format::of(path.as_str(), PATH_AT)?;
        let width = within(&args[WIDTH_AT], WIDTH_AT, 800, 100..=8000)?;
        let height = within(&args[HEIGHT_AT], HEIGHT_AT, 500, 100..=8000)?;
        let bytes = match format {
            Format::Svg => {
                let mut canvas = svg::Svg::new(width, height);
                figure::draw(&chart, &mut canvas, width as f32, height as f32);
                canvas.finish().into_bytes()
            }
            Format::Png => {
                charge(raster::Raster::bytes(width, height))?;
                let mut canvas = raster::Raster::new(width, height);
                figure::draw(&chart, &mut canvas, width as f32, height as f32);
                png(width, height, &canvas.finish())?
            }
        };
        stopped()?;
        return write(vm, &args[PATH_AT], &bytes);
    }
    let width = within(&args[WIDTH_AT], WIDTH_AT, vm.print_options.line_width.clamp(20, 400), 20..=400)?;
    let height = within(&args[HEIGHT_AT], HEIGHT_AT, (width / 5).clamp(8, 20), 2..=200)?;
    let text = terminal::chart(&chart, width, height, vm.colors);
    stopped()?;
    vm.write(&text)?;
    Ok(Value::None)
}

/// `plot.image(x, lo, hi, colors, path, width)`
pub(super) fn image(vm: &mut Vm, args: &mut [Value]) -> Result<Value> {
    const PATH_AT: usize = 4;
    const WIDTH_AT: usize = 5;
    let name = owned(&args[3]);
    let map = Map::from_name(&name).ok_or_else(|| {
        error::bad_value(3, format!("`{name}` is not a colour map of images"))
            .help("write `\"gray\"` or `\"viridis\"`")
    })?;
    let numbers = Numbers::of(vm, &args[0], 0)?;
    let picture = Picture::of(&numbers, args[1].as_float(), args[2].as_float(), map)?;
    let Value::Str(path) = &args[PATH_AT] else {
        let width = within(&args[WIDTH_AT], WIDTH_AT, vm.print_options.line_width.clamp(2, 400), 2..=400)?;
        let text = terminal::picture(&picture, width, vm.colors);
        vm.write(&text)?;
        return Ok(Value::None);
    };
    let format = Format::of(path.as_str(), PATH_AT)?;
    let width = within(&args[WIDTH_AT], WIDTH_AT, picture.width, 1..=8000)?;
    let height = (picture.height as f64 * width as f64 / picture.width as f64).round().max(1.0) as usize;
    if height > 100_000 {
        let message =
            format!("at this width the image would be {} pixels high", written(height as f64, 1.0, 0.0));
        return Err(error::bad_value(WIDTH_AT, message).help("give a smaller `width`"));
    }
    charge(width.saturating_mul(height).saturating_mul(3))?;
    let bytes = match format {
        Format::Svg => svg::picture(&picture, width, height)?.into_bytes(),
        Format::Png if width == picture.width => png(width, height, picture.bytes())?,
        Format::Png => png(width, height, picture.scaled(width, height).bytes())?,
    };
    write(vm, &args[PATH_AT], &bytes)
}

/// The file format of a figure.
#[derive(Clone, Copy)]
enum Format {
    Svg,
    Png,
}

impl Format {
    fn of(path: &str, index: usize) -> Result<Format> {
        let ending = std::path::Path::new(path).extension().and_then(|e| e.to_str()).unwrap_or("");
        match ending.to_ascii_lowercase().as_str() {
            "svg" => Ok(Format::Svg),
            "png" => Ok(Format::Png),
            _ => Err(error::bad_value(index, format!("plots are not written to files such as `{path}`"))
                .help("the path ends in `.svg` or `.png`")),
        }
    }
}

/// A size argument, or its default.
fn within(
    value: &Value,
    index: usize,
    default: usize,
    range: std::ops::RangeInclusive<usize>,
) -> Result<usize> {
    let Some(given) = value.as_int() else { return Ok(default) };
    let size = usize::try_from(given).ok().filter(|size| range.contains(size));
    size.ok_or_else(|| {
        let (lo, hi) = (range.start(), range.end());
        error::bad_value(index, format!("this size is {given}, outside of {lo} to {hi}"))
            .help("sizes are columns and rows of a terminal, in files pixels")
    })
}

fn png(width: usize, height: usize, rgb: &[u8]) -> Result<Vec<u8>> {
    let mut bytes = std::io::Cursor::new(Vec::new());
    crate::files::png::write_rgb(&mut bytes, width, height, rgb)?;
    Ok(bytes.into_inner())
}

fn write(vm: &mut Vm, path: &Value, bytes: &[u8]) -> Result<Value> {
    let path = allowed(vm, path)?;
    replace(&path, false, |output| {
        output.write_all(bytes).map_err(|e| named(&path, crate::files::error::reading(e)))
    })?;
    Ok(Value::None)
}
