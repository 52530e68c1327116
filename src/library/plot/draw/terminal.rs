//! Charts and pictures as text: braille dots, block characters, and colours if the output supports them.

use super::chart::{Chart, Shape};
use super::picture::Picture;
use crate::vm::Colors;
use std::fmt::Write;

/// Colours of marks, from the terminal's palette.
const COLORS: [&str; 6] = ["36", "33", "32", "35", "31", "34"];
/// Dash patterns that distinguish marks without colours.
const DASHES: [&[bool]; 4] = [
    &[true],
    &[true, true, true, false, false, false],
    &[true, false, false],
    &[true, true, true, true, true, false, false, true, false, false],
];
const DOTS: [char; 4] = ['•', '×', '+', '○'];
const SAMPLES: [&str; 4] = ["───", "╌╌╌", "┈┈┈", "─┈─"];
const EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// A grid of characters of 2 by 4 dots each.
struct Grid {
    columns: usize,
    rows: usize,
    /// Braille dots of each cell.
    dots: Vec<u8>,
    /// A character that replaces the dots of a cell.
    signs: Vec<Option<char>>,
    /// The number of the mark drawn last in each cell.
    mark: Vec<usize>,
}

impl Grid {
    fn new(columns: usize, rows: usize) -> Grid {
        let cells = columns * rows;
        Grid { columns, rows, dots: vec![0; cells], signs: vec![None; cells], mark: vec![0; cells] }
    }

    /// The dot at a position from 0 to 1 in both directions; y points up.
    fn dot(&self, (x, y): (f64, f64)) -> (i64, i64) {
        let scaled = |at: f64, dots: usize| (at * (dots - 1) as f64).round() as i64;
        (scaled(x, self.columns * 2), scaled(1.0 - y, self.rows * 4))
    }

    fn set(&mut self, (x, y): (i64, i64), mark: usize) {
        const BITS: [[u8; 4]; 2] = [[0x01, 0x02, 0x04, 0x40], [0x08, 0x10, 0x20, 0x80]];
        if (0..self.columns as i64 * 2).contains(&x) && (0..self.rows as i64 * 4).contains(&y) {
            let cell = (y / 4) as usize * self.columns + (x / 2) as usize;
            self.dots[cell] |= BITS[(x % 2) as usize][(y % 4) as usize];
            self.mark[cell] = mark;
        }
    }

    /// Draws the dots between two points; `phase` counts dots along the whole line.
    fn line(&mut self, from: (i64, i64), to: (i64, i64), dashes: &[bool], phase: &mut usize, mark: usize) {
        let (dx, dy) = (to.0 - from.0, to.1 - from.1);
        let steps = dx.abs().max(dy.abs());
        for step in 0..=steps {
            let along = |d: i64| (d as f64 * step as f64 / steps.max(1) as f64).round() as i64;
            if dashes[*phase % dashes.len()] {
                self.set((from.0 + along(dx), from.1 + along(dy)), mark);
            }
            *phase += usize::from(step > 0);
        }
    }

    fn sign(&mut self, column: usize, row: usize, sign: char, mark: usize) {
        let cell = row * self.columns + column;
        self.signs[cell] = Some(sign);
        self.mark[cell] = mark;
    }

    /// A row as text, without trailing blanks.
    fn row(&self, row: usize, color: bool) -> String {
        let mut text = String::new();
        let mut current = None;
        let cells = row * self.columns..(row + 1) * self.columns;
        let filled = |cell: &usize| self.signs[*cell].is_some() || self.dots[*cell] != 0;
        let Some(last) = cells.clone().rev().find(filled) else { return text };
        for cell in cells.start..=last {
            let braille = || char::from_u32(0x2800 + u32::from(self.dots[cell])).filter(|_| filled(&cell));
            let sign = self.signs[cell].or_else(braille).unwrap_or(' ');
            let wanted = (color && sign != ' ').then_some(self.mark[cell]);
            if sign != ' ' && wanted != current {
                text.push_str(&paint(wanted));
                current = wanted;
            }
            text.push(sign);
        }
        if current.is_some() {
            text.push_str(&paint(None));
        }
        text
    }
}

/// The escape sequence that starts a mark's colour or resets colours.
fn paint(mark: Option<usize>) -> String {
    match mark {
        Some(mark) => format!("\x1b[{}m", COLORS[mark % COLORS.len()]),
        None => "\x1b[0m".to_string(),
    }
}

/// A chart with this many columns; `rows` is the number of rows between the axes.
pub fn chart(chart: &Chart, columns: usize, rows: usize, colors: Colors) -> String {
    let color = colors != Colors::None;
    let y_ticks = chart.y.ticks((rows / 4).max(2));
    let margin = y_ticks.iter().map(|t| t.text.chars().count()).max().unwrap_or(0);
    let width = columns.saturating_sub(margin + 2).max(8);
    let mut grid = Grid::new(width, rows);
    for (number, mark) in chart.marks.iter().enumerate() {
        draw(&mut grid, chart, &mark.shape, number, color);
    }
    let mut text = String::new();
    let centred = |words: &str| {
        let free = width.saturating_sub(words.chars().count()) / 2;
        format!("{:1$}{words}\n", "", margin + 2 + free)
    };
    if !chart.title.is_empty() {
        text.push_str(&centred(&chart.title));
    }
    if !chart.y_label.is_empty() {
        let _ = writeln!(text, "{}", chart.y_label);
    }
    let row_of = |at: f64| (((1.0 - at) * (rows * 4 - 1) as f64).round() as usize) / 4;
    for row in 0..rows {
        let tick = y_ticks.iter().find(|t| row_of(t.at) == row);
        let (label, bar) = tick.map_or(("", '│'), |t| (t.text.as_str(), '┤'));
        let line = format!("{label:>margin$} {bar}{}", grid.row(row, color));
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text.push_str(&below(chart, margin, width));
    if !chart.x_label.is_empty() {
        text.push_str(&centred(&chart.x_label));
    }
    let legend: Vec<String> = chart
        .names()
        .map(|(i, name)| {
            let sample = match (&chart.marks[i].shape, color) {
                (Shape::Dots(_), false) => DOTS[i % DOTS.len()].to_string(),
                (Shape::Dots(_), true) => "•".to_string(),
                (Shape::Line(_), false) => SAMPLES[i % SAMPLES.len()].to_string(),
                _ => "───".to_string(),
            };
            let (on, off) = if color { (paint(Some(i)), paint(None)) } else { Default::default() };
            format!("{on}{sample}{off} {name}")
        })
        .collect();
    if !legend.is_empty() {
        let _ = writeln!(text, "{:1$}{2}", "", margin + 2, legend.join("   "));
    }
    text
}

fn draw(grid: &mut Grid, chart: &Chart, shape: &Shape, number: usize, color: bool) {
    match shape {
        Shape::Line(points) => {
            let dashes = if color { DASHES[0] } else { DASHES[number % DASHES.len()] };
            for piece in chart.pieces(points, grid.columns * 2) {
                let mut phase = 0;
                let mut last = None;
                for place in piece {
                    let dot = grid.dot(place);
                    grid.line(last.unwrap_or(dot), dot, dashes, &mut phase, number);
                    last = Some(dot);
                }
            }
        }
        Shape::Dots(points) => {
            let signs = !color && chart.marks.len() > 1;
            for place in chart.dots(points) {
                let dot = grid.dot(place);
                match signs {
                    true => {
                        grid.sign(dot.0 as usize / 2, dot.1 as usize / 4, DOTS[number % DOTS.len()], number)
                    }
                    false => grid.set(dot, number),
                }
            }
        }
        Shape::Bars(bars) => {
            let mut bars = bars.iter().peekable();
            for column in 0..grid.columns {
                let at = (column as f64 + 0.5) / grid.columns as f64;
                // Bars are sorted: find the one that contains this column's centre.
                while bars.next_if(|bar| chart.x.place(bar.1).is_some_and(|end| end < at)).is_some() {}
                let Some(&&(start, _, height)) = bars.peek() else { break };
                if chart.x.place(start).is_none_or(|start| start > at) {
                    continue;
                }
                let Some(height) = chart.y.place(height) else { continue };
                let exact = height * (grid.rows * 8) as f64;
                // A positive height is always visible.
                let eighths = if height > 0.0 { (exact.round() as usize).max(1) } else { 0 };
                for row in 0..grid.rows {
                    let part = eighths.saturating_sub((grid.rows - 1 - row) * 8).min(8);
                    if part > 0 {
                        grid.sign(column, row, EIGHTHS[part], number);
                    }
                }
            }
        }
    }
}

/// The horizontal axis and its numbers.
fn below(chart: &Chart, margin: usize, width: usize) -> String {
    let mut axis = vec!['─'; width];
    let mut numbers = vec![' '; margin + 2 + width];
    let mut free = 0;
    for tick in chart.x.ticks((width / 10).max(2)) {
        let column = (((width * 2 - 1) as f64 * tick.at).round() as usize / 2).min(width - 1);
        axis[column] = '┬';
        let length = tick.text.chars().count();
        let start =
            (margin + 2 + column).saturating_sub(length / 2).min(numbers.len().saturating_sub(length));
        if start >= free && start + length <= numbers.len() {
            for (slot, sign) in numbers[start..].iter_mut().zip(tick.text.chars()) {
                *slot = sign;
            }
            free = start + length + 1;
        }
    }
    let axis: String = axis.into_iter().collect();
    let numbers: String = numbers.into_iter().collect();
    format!("{:margin$} └{axis}\n{}\n", "", numbers.trim_end())
}

/// A picture with at most this many columns. With colours a character shows two pixels, one above the other;
/// without colours, eight dots whose number shows the brightness.
pub fn picture(picture: &Picture, columns: usize, colors: Colors) -> String {
    match colors {
        Colors::None => dots(picture, columns),
        Colors::Indexed => blocks(picture, columns, |[r, g, b]: [u8; 3]| {
            let level = |v: u8| (u16::from(v) * 5 + 127) / 255;
            format!("5;{}", 16 + 36 * level(r) + 6 * level(g) + level(b))
        }),
        Colors::Full => blocks(picture, columns, |[r, g, b]: [u8; 3]| format!("2;{r};{g};{b}")),
    }
}

fn blocks(picture: &Picture, columns: usize, code: impl Fn([u8; 3]) -> String) -> String {
    let picture = picture.fitted(columns, 32);
    let mut text = String::new();
    for row in (0..picture.height).step_by(2) {
        let mut last = String::new();
        for column in 0..picture.width {
            let upper = code(picture.pixel(column, row));
            let now = match row + 1 < picture.height {
                true => format!("\x1b[38;{upper};48;{}m", code(picture.pixel(column, row + 1))),
                false => format!("\x1b[0m\x1b[38;{upper}m"),
            };
            if now != last {
                text.push_str(&now);
                last = now;
            }
            text.push('▀');
        }
        text.push_str("\x1b[0m\n");
    }
    text
}

/// Shows brightness by dots with error diffusion (weights of Floyd and Steinberg).
fn dots(picture: &Picture, columns: usize) -> String {
    let picture = picture.fitted(columns * 2, 64);
    let (width, height) = (picture.width, picture.height);
    let mut grid = Grid::new(width.div_ceil(2), height.div_ceil(4));
    let mut now: Vec<f32> = Vec::new();
    let mut below = vec![0.0; width + 2];
    for y in 0..height {
        let carried = std::mem::replace(&mut below, vec![0.0; width + 2]);
        now.clear();
        now.extend((0..width).map(|x| picture.brightness(x, y) + carried[x + 1]));
        now.push(0.0);
        for x in 0..width {
            let bright = now[x] >= 0.5;
            if bright {
                grid.set((x as i64, y as i64), 0);
            }
            let error = now[x] - f32::from(u8::from(bright));
            now[x + 1] += error * 7.0 / 16.0;
            below[x] += error * 3.0 / 16.0;
            below[x + 1] += error * 5.0 / 16.0;
            below[x + 2] += error / 16.0;
        }
    }
    (0..grid.rows).map(|row| grid.row(row, false) + "\n").collect()
}
