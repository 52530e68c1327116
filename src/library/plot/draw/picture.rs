//! Pictures: pixels of a tensor, scaled and coloured.

use super::data::Numbers;
use crate::array::Dtype;
use crate::base::{Result, stop};
use crate::driver::error::stopped;
use crate::vm::{charge, error};

/// Red, green and blue of each pixel, row by row from the top.
pub struct Picture {
    pub width: usize,
    pub height: usize,
    rgb: Vec<[u8; 3]>,
}

/// Maps a brightness from 0 to 1 to a colour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Map {
    Gray,
    Viridis,
}

impl Map {
    /// The colour map with this name.
    pub fn from_name(name: &str) -> Option<Map> {
        match name {
            "gray" => Some(Map::Gray),
            "viridis" => Some(Map::Viridis),
            _ => None,
        }
    }

    fn color(self, level: f64) -> [u8; 3] {
        /// Nine evenly spaced colours of matplotlib's map.
        const VIRIDIS: [[u8; 3]; 9] = [
            [0x44, 0x01, 0x54],
            [0x47, 0x2d, 0x7b],
            [0x3b, 0x52, 0x8b],
            [0x2c, 0x72, 0x8e],
            [0x21, 0x91, 0x8c],
            [0x28, 0xae, 0x80],
            [0x5e, 0xc9, 0x62],
            [0xad, 0xdc, 0x30],
            [0xfd, 0xe7, 0x25],
        ];
        match self {
            Map::Gray => [byte(level); 3],
            Map::Viridis => {
                let at = level.clamp(0.0, 1.0) * 8.0;
                let low = (at as usize).min(7);
                let part = at - low as f64;
                let mix = |c: usize| {
                    let (a, b) = (f64::from(VIRIDIS[low][c]), f64::from(VIRIDIS[low + 1][c]));
                    (a + (b - a) * part).round() as u8
                };
                [mix(0), mix(1), mix(2)]
            }
        }
    }
}

fn byte(level: f64) -> u8 {
    (level * 255.0 + 0.5).clamp(0.0, 255.0) as u8
}

impl Picture {
    /// The picture of an array `[height, width]` or `[channels, height, width]`. Levels from `lo` to `hi` map
    /// to brightness. Defaults for one channel: the extremes of its elements (for u8, 0 and 255); for
    /// colours: 0 and 1 (for u8, 255). nan is black.
    pub fn of(numbers: &Numbers, lo: Option<f64>, hi: Option<f64>, map: Map) -> Result<Picture> {
        let shape = || {
            error::bad_value(0, format!("a tensor of shape {:?} is not an image", numbers.shape))
                .help("give `[height, width]`, or `[channels, height, width]` with 1, 3 or 4 channels")
        };
        let (channels, height, width) = match *numbers.shape.as_slice() {
            [height, width] => (1, height, width),
            [channels @ (1 | 3 | 4), height, width] => (channels, height, width),
            _ => return Err(shape()),
        };
        if height == 0 || width == 0 {
            return Err(shape());
        }
        let bytes = numbers.dtype == Dtype::U8;
        let extremes = || {
            let finite = numbers.values.iter().copied().filter(|v| v.is_finite());
            finite.fold((f64::INFINITY, f64::NEG_INFINITY), |(lo, hi), v| (lo.min(v), hi.max(v)))
        };
        let (least, most) = match channels {
            _ if bytes => (0.0, 255.0),
            1 if lo.is_none() || hi.is_none() => extremes(),
            _ => (0.0, 1.0),
        };
        let (lo, hi) = (lo.unwrap_or(least), hi.unwrap_or(most));
        let level = |value: f64| match hi > lo {
            true => ((value - lo) / (hi - lo)).clamp(0.0, 1.0),
            // All elements are equal.
            false => 0.5,
        };
        let plane = height * width;
        charge(plane.saturating_mul(3))?;
        let at = |channel: usize, i: usize| {
            let value = numbers.values[channel * plane + i];
            if value.is_nan() { 0.0 } else { level(value) }
        };
        let rgb = stop::until(0..plane).map(|i| match channels {
            1 if numbers.values[i].is_nan() => [0; 3],
            1 => map.color(level(numbers.values[i])),
            // Transparent pixels show a white background.
            4 => [0, 1, 2].map(|c| byte(at(c, i) * at(3, i) + 1.0 - at(3, i))),
            _ => [0, 1, 2].map(|c| byte(at(c, i))),
        });
        let rgb = rgb.collect();
        stopped()?;
        Ok(Picture { width, height, rgb })
    }

    /// The colour of a pixel.
    pub fn pixel(&self, column: usize, row: usize) -> [u8; 3] {
        self.rgb[row * self.width + column]
    }

    /// Brightness of a pixel, from 0 to 1. Source: ITU-R BT.601.
    pub fn brightness(&self, column: usize, row: usize) -> f32 {
        let [r, g, b] = self.pixel(column, row).map(f32::from);
        (0.299 * r + 0.587 * g + 0.114 * b) / 255.0
    }

    /// All bytes: red, green, blue, pixel by pixel.
    pub fn bytes(&self) -> &[u8] {
        self.rgb.as_flattened()
    }

    /// Resizes to at most `columns` wide by averaging pixels. Enlarges a small picture by an integer factor
    /// up to about `small` columns.
    pub fn fitted(&self, columns: usize, small: usize) -> Picture {
        let longest = self.width.max(self.height);
        let times = (small / longest.max(1)).min(columns / self.width.max(1)).max(1);
        if self.width * times <= columns {
            return self.scaled(self.width * times, self.height * times);
        }
        let height = (self.height as f64 * columns as f64 / self.width as f64).round() as usize;
        // Limit the height of very tall pictures.
        self.scaled(columns, height.clamp(1, 4 * columns.max(16)))
    }

    /// Resizes; each pixel is the mean of those it covers.
    pub fn scaled(&self, width: usize, height: usize) -> Picture {
        let covered = |at: usize, from: usize, to: usize| {
            let start = at * from / to;
            start..((at + 1) * from).div_ceil(to).clamp(start + 1, from)
        };
        let mut rgb = Vec::with_capacity(width * height);
        for row in 0..height {
            let rows = covered(row, self.height, height);
            for column in 0..width {
                let columns = covered(column, self.width, width);
                let count = (rows.len() * columns.len()) as u64;
                let mut sum = [0u64; 3];
                for y in rows.clone() {
                    for x in columns.clone() {
                        let pixel = self.pixel(x, y);
                        (0..3).for_each(|c| sum[c] += u64::from(pixel[c]));
                    }
                }
                rgb.push(sum.map(|s| ((s + count / 2) / count) as u8));
            }
        }
        Picture { width, height, rgb }
    }
}
