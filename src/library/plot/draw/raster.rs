//! Draws figures as pixels.
//!
//! Only a few shapes are needed, so there is no general renderer. The coverage of a pixel follows from the
//! distance between its centre and the shape's edge; this is accurate enough for lines of any direction. Text
//! uses bitmap glyphs for Latin characters; other characters are drawn as a box.

use super::figure::{Anchor, Canvas, Color, Point};
use noto_sans_mono_bitmap::{FontWeight, RasterHeight, RasterizedChar, get_raster, get_raster_width};

/// A figure being drawn.
pub struct Raster {
    width: usize,
    height: usize,
    rgb: Vec<u8>,
    /// Coverage of each pixel by the current shape.
    covered: Vec<f32>,
}

impl Raster {
    /// A black figure of this size.
    pub fn new(width: usize, height: usize) -> Raster {
        let count = width * height;
        Raster { width, height, rgb: vec![0; count * 3], covered: vec![0.0; count] }
    }

    /// Memory in bytes of a figure of this size.
    pub fn bytes(width: usize, height: usize) -> usize {
        width.saturating_mul(height).saturating_mul(7)
    }

    /// Red, green and blue of each pixel.
    pub fn finish(self) -> Vec<u8> {
        self.rgb
    }

    /// Adds the inside of a border to the shape; `distance` is negative inside.
    fn cover(&mut self, from: Point, to: Point, distance: impl Fn(Point) -> f32) {
        let (columns, rows) = (self.span(from.0, to.0, self.width), self.span(from.1, to.1, self.height));
        for y in rows {
            for x in columns.clone() {
                let part = (0.5 - distance((x as f32 + 0.5, y as f32 + 0.5))).clamp(0.0, 1.0);
                let slot = &mut self.covered[y * self.width + x];
                *slot = slot.max(part);
            }
        }
    }

    fn span(&self, from: f32, to: f32, end: usize) -> std::ops::Range<usize> {
        (from - 1.0).max(0.0) as usize..((to + 2.0).max(0.0) as usize).min(end)
    }

    /// Paints the shape between two corners and clears it.
    fn paint(&mut self, from: Point, to: Point, color: Color) {
        let (columns, rows) = (self.span(from.0, to.0, self.width), self.span(from.1, to.1, self.height));
        for y in rows {
            for x in columns.clone() {
                let part = std::mem::take(&mut self.covered[y * self.width + x]);
                if part > 0.0 {
                    self.blend(x, y, part, color);
                }
            }
        }
    }

    fn blend(&mut self, x: usize, y: usize, part: f32, color: Color) {
        let at = (y * self.width + x) * 3;
        for (slot, wanted) in self.rgb[at..at + 3].iter_mut().zip(color) {
            let mixed = f32::from(*slot) + (f32::from(wanted) - f32::from(*slot)) * part;
            *slot = mixed.round() as u8;
        }
    }
}

/// The distance of a point from a line segment.
fn from_segment(p: Point, a: Point, b: Point) -> f32 {
    let (ax, ay) = (p.0 - a.0, p.1 - a.1);
    let (dx, dy) = (b.0 - a.0, b.1 - a.1);
    let length = dx * dx + dy * dy;
    let along = if length > 0.0 { ((ax * dx + ay * dy) / length).clamp(0.0, 1.0) } else { 0.0 };
    (ax - along * dx).hypot(ay - along * dy)
}

fn corners(points: &[Point], around: f32) -> (Point, Point) {
    let start = ((f32::INFINITY, f32::INFINITY), (f32::NEG_INFINITY, f32::NEG_INFINITY));
    let (lo, hi) = points
        .iter()
        .fold(start, |(lo, hi), p| ((lo.0.min(p.0), lo.1.min(p.1)), (hi.0.max(p.0), hi.1.max(p.1))));
    ((lo.0 - around, lo.1 - around), (hi.0 + around, hi.1 + around))
}

fn size(large: bool) -> RasterHeight {
    if large { RasterHeight::Size24 } else { RasterHeight::Size16 }
}

fn sign(sign: char, large: bool) -> Option<RasterizedChar> {
    let raster = |c| get_raster(c, FontWeight::Regular, size(large));
    if sign.is_control() { raster(' ') } else { raster(sign) }
}

impl Canvas for Raster {
    fn width_of(&self, text: &str, large: bool) -> f32 {
        (text.chars().count() * get_raster_width(FontWeight::Regular, size(large))) as f32
    }

    fn rect(&mut self, at: Point, size: Point, color: Color) {
        let end = (at.0 + size.0, at.1 + size.1);
        // The covered part of a pixel at the border.
        let inside = |lo: f32, hi: f32, middle: f32| (middle + 0.5).min(hi) - (middle - 0.5).max(lo);
        self.cover(at, end, |p| 0.5 - inside(at.0, end.0, p.0).max(0.0) * inside(at.1, end.1, p.1).max(0.0));
        self.paint(at, end, color);
    }

    fn line(&mut self, points: &[Point], width: f32, color: Color) {
        // Thin lines along the pixel grid fill whole pixels.
        let shift = if width == 1.0 { 0.5 } else { 0.0 };
        let points: Vec<Point> = points.iter().map(|p| (p.0 + shift, p.1 + shift)).collect();
        let half = width / 2.0;
        let ends: Vec<(Point, Point)> = match points.as_slice() {
            [one] => vec![(*one, *one)],
            points => points.windows(2).map(|w| (w[0], w[1])).collect(),
        };
        for (a, b) in ends {
            let (from, to) = corners(&[a, b], half);
            self.cover(from, to, |p| from_segment(p, a, b) - half);
        }
        let (from, to) = corners(&points, half);
        self.paint(from, to, color);
    }

    fn discs(&mut self, centers: &[Point], radius: f32, color: Color) {
        for center in centers {
            let (from, to) = corners(&[*center], radius);
            self.cover(from, to, |p| (p.0 - center.0).hypot(p.1 - center.1) - radius);
        }
        let (from, to) = corners(centers, radius);
        self.paint(from, to, color);
    }

    fn text(&mut self, at: Point, anchor: Anchor, text: &str, large: bool, color: Color) {
        let (wide, high) = (get_raster_width(FontWeight::Regular, size(large)), size(large).val());
        let length = self.width_of(text, large);
        let back = match anchor {
            Anchor::Start => 0.0,
            Anchor::Middle | Anchor::Upright => length / 2.0,
            Anchor::End => length,
        };
        let upright = anchor == Anchor::Upright;
        let along = if upright { at.1 + back } else { at.0 - back }.round() as i64;
        let beside = if upright { at.0 } else { at.1 }.round() as i64 - high as i64 / 2;
        for (i, c) in text.chars().enumerate() {
            let raster = sign(c, large);
            for row in 0..high {
                for column in 0..wide {
                    let dark = match &raster {
                        Some(raster) => raster.pixel(column, row).unwrap_or(0),
                        // A box for an unknown character.
                        None => {
                            let (across, down) = (1..wide - 1, high / 4..high * 3 / 4);
                            let inside = across.contains(&column) && down.contains(&row);
                            let edge = [across.start, across.end - 1].contains(&column)
                                || [down.start, down.end - 1].contains(&row);
                            if inside && edge { 255 } else { 0 }
                        }
                    };
                    let far = (i * wide + column) as i64;
                    let (x, y) = match upright {
                        true => (beside + row as i64, along - far),
                        false => (along + far, beside + row as i64),
                    };
                    let inside = (0..self.width as i64).contains(&x) && (0..self.height as i64).contains(&y);
                    if inside && dark > 0 {
                        self.blend(x as usize, y as usize, f32::from(dark) / 255.0, color);
                    }
                }
            }
        }
    }
}
