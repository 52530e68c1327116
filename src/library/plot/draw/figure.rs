//! Layout of a chart as a figure: positions of titles, axes, lines and legends, in pixels from the upper left
//! corner.
//!
//! A [`Canvas`] does the drawing; this file knows no file format.

use super::chart::{Chart, Shape};

/// Red, green, blue.
pub type Color = [u8; 3];
/// (x, y): right and down.
pub type Point = (f32, f32);

/// Alignment of text relative to its point.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Anchor {
    Start,
    Middle,
    End,
    /// Rotated upwards, centred.
    Upright,
}

/// A drawing surface for figures.
pub trait Canvas {
    /// Approximate width of text.
    fn width_of(&self, text: &str, large: bool) -> f32;
    /// A filled rectangle: its upper left corner, width and height.
    fn rect(&mut self, at: Point, size: Point, color: Color);
    /// A line through points, with round joints.
    fn line(&mut self, points: &[Point], width: f32, color: Color);
    /// Filled circles.
    fn discs(&mut self, centers: &[Point], radius: f32, color: Color);
    /// Text; `at` is at half its height.
    fn text(&mut self, at: Point, anchor: Anchor, text: &str, large: bool, color: Color);
}

/// Colours of marks, from matplotlib.
const COLORS: [Color; 10] = [
    [0x1f, 0x77, 0xb4],
    [0xff, 0x7f, 0x0e],
    [0x2c, 0xa0, 0x2c],
    [0xd6, 0x27, 0x28],
    [0x94, 0x67, 0xbd],
    [0x8c, 0x56, 0x4b],
    [0xe3, 0x77, 0xc2],
    [0x7f, 0x7f, 0x7f],
    [0xbc, 0xbd, 0x22],
    [0x17, 0xbe, 0xcf],
];
const INK: Color = [0x33, 0x33, 0x33];
const GRID: Color = [0xe4, 0xe4, 0xe4];
const PAPER: Color = [0xff, 0xff, 0xff];
const LINE: f32 = 22.0;

/// Draws a chart on a canvas of this size.
pub fn draw(chart: &Chart, canvas: &mut dyn Canvas, width: f32, height: f32) {
    canvas.rect((0.0, 0.0), (width, height), PAPER);
    let top = if chart.title.is_empty() { 16.0 } else { 48.0 };
    let bottom = height - if chart.x_label.is_empty() { 36.0 } else { 60.0 };
    let y_ticks = chart.y.ticks(((bottom - top) / 60.0) as usize);
    let widest = y_ticks.iter().map(|t| canvas.width_of(&t.text, false)).fold(0.0, f32::max);
    let left = widest + 18.0 + if chart.y_label.is_empty() { 0.0 } else { LINE };
    let right = (width - 24.0).max(left + 10.0);
    let (across, down) = (right - left, (bottom - top).max(10.0));
    let place = |(x, y): (f64, f64)| (left + x as f32 * across, bottom - y as f32 * down);
    for tick in &y_ticks {
        let y = place((0.0, tick.at)).1.round();
        canvas.line(&[(left, y), (right, y)], 1.0, GRID);
        canvas.text((left - 8.0, y), Anchor::End, &tick.text, false, INK);
    }
    for tick in chart.x.ticks((across / 100.0) as usize) {
        let x = place((tick.at, 0.0)).0.round();
        canvas.line(&[(x, top), (x, bottom)], 1.0, GRID);
        canvas.text((x, bottom + 16.0), Anchor::Middle, &tick.text, false, INK);
    }
    for (number, mark) in chart.marks.iter().enumerate() {
        let color = COLORS[number % COLORS.len()];
        match &mark.shape {
            Shape::Line(points) => {
                for piece in chart.pieces(points, across.ceil() as usize) {
                    let points: Vec<Point> = piece.into_iter().map(place).collect();
                    canvas.line(&points, 2.0, color);
                }
            }
            Shape::Dots(points) => {
                let mut points: Vec<Point> = chart.dots(points).map(place).collect();
                // Merge points on the same half pixel.
                let half = |p: &Point| ((p.0 * 2.0).round() as i32, (p.1 * 2.0).round() as i32);
                points.sort_by_key(half);
                points.dedup_by_key(|p| half(p));
                canvas.discs(&points, 3.0, color);
            }
            Shape::Bars(bars) => {
                for &(start, end, height) in bars {
                    let (Some(start), Some(end), Some(height)) =
                        (chart.x.place(start), chart.x.place(end), chart.y.place(height))
                    else {
                        continue;
                    };
                    let (x, y) = place((start, height));
                    let wide = (place((end, 0.0)).0 - x - 1.0).max(1.0);
                    canvas.rect((x, y), (wide, bottom - y), color);
                }
            }
        }
    }
    let frame = [(left, top), (left, bottom), (right, bottom)];
    canvas.line(&frame, 1.0, INK);
    canvas.text(((left + right) / 2.0, 26.0), Anchor::Middle, &chart.title, true, INK);
    canvas.text(((left + right) / 2.0, height - 18.0), Anchor::Middle, &chart.x_label, false, INK);
    canvas.text((16.0, (top + bottom) / 2.0), Anchor::Upright, &chart.y_label, false, INK);
    legend(chart, canvas, (right - 8.0, top + 8.0));
}

/// Draws the names of marks in a box with this upper right corner.
fn legend(chart: &Chart, canvas: &mut dyn Canvas, (right, top): Point) {
    let names: Vec<(usize, &str)> = chart.names().collect();
    let Some(widest) = names.iter().map(|(_, n)| canvas.width_of(n, false)).reduce(f32::max) else { return };
    let (wide, high) = (widest + 44.0, names.len() as f32 * LINE + 8.0);
    let left = right - wide;
    canvas.rect((left, top), (wide, high), PAPER);
    let corners = [(left, top), (right, top), (right, top + high), (left, top + high), (left, top)];
    canvas.line(&corners, 1.0, GRID);
    for (row, (number, name)) in names.into_iter().enumerate() {
        let y = top + 4.0 + (row as f32 + 0.5) * LINE;
        let color = COLORS[number % COLORS.len()];
        match chart.marks[number].shape {
            Shape::Dots(_) => canvas.discs(&[(left + 18.0, y)], 4.0, color),
            _ => canvas.line(&[(left + 8.0, y), (left + 28.0, y)], 3.0, color),
        }
        canvas.text((left + 36.0, y), Anchor::Start, name, false, INK);
    }
}
