//! Axes: map values to positions from 0 to 1, and choose round tick values.
//!
//! Invariant: the extent of an axis is finite and positive, whatever the values, so that every finite value
//! in its range has a position.

/// One axis of a chart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Axis {
    lo: f64,
    hi: f64,
    log: bool,
}

/// A labelled position on an axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Tick {
    /// Position from 0 to 1.
    pub at: f64,
    /// The label.
    pub text: String,
}

/// The largest magnitude drawn: differences between such values are finite.
const LARGEST: f64 = 1e300;

impl Axis {
    /// An axis that contains all values, with a fraction `free` of its extent as margin at both ends. Values
    /// without a position are ignored: non-finite ones, and on a logarithmic axis those not above zero.
    pub fn around(values: impl Iterator<Item = f64>, log: bool, free: f64) -> Axis {
        let mut axis = Axis { lo: f64::INFINITY, hi: f64::NEG_INFINITY, log };
        for value in values.filter_map(move |v| axis.scaled(v)) {
            axis.lo = axis.lo.min(value);
            axis.hi = axis.hi.max(value);
        }
        if axis.lo > axis.hi {
            (axis.lo, axis.hi) = (0.0, 1.0);
        }
        let magnitude = axis.lo.abs().max(axis.hi.abs());
        if axis.hi - axis.lo <= (magnitude * 1e-12).max(1e-290) {
            let half = if magnitude > 1e-280 { magnitude * 0.1 } else { 0.5 };
            (axis.lo, axis.hi) = (axis.lo - half, axis.hi + half);
        }
        let more = (axis.hi - axis.lo) * free;
        Axis { lo: axis.lo - more, hi: axis.hi + more, log }
    }

    /// This axis without a lower margin; it starts at `lo`.
    pub fn from(self, lo: f64) -> Axis {
        Axis { lo: lo.min(self.hi - (self.hi - self.lo) * 1e-3), ..self }
    }

    /// The position of a value; `None` if it has none.
    pub fn place(&self, value: f64) -> Option<f64> {
        self.scaled(value).map(|v| (v - self.lo) / (self.hi - self.lo))
    }

    fn scaled(&self, value: f64) -> Option<f64> {
        match self.log {
            true => (value > 0.0 && value.is_finite()).then(|| value.log10()),
            false => value.is_finite().then(|| value.clamp(-LARGEST, LARGEST)),
        }
    }

    /// About `count` round numbers: at least one, at most twice `count`.
    pub fn ticks(&self, count: usize) -> Vec<Tick> {
        let count = count.clamp(1, 50) as f64;
        let span = self.hi - self.lo;
        let decades = self.hi.floor() - self.lo.ceil();
        let whole = self.log && decades >= 1.0;
        if self.log && !whole {
            // Less than two decades: linear round numbers at their logarithmic positions.
            let ends = [self.lo, self.hi].map(|v| 10f64.powf(v).min(LARGEST));
            let flat = Axis { lo: ends[0], hi: ends[1], log: false }.ticks(count as usize);
            let moved = flat.into_iter().filter_map(|tick| {
                let value = ends[0] + tick.at * (ends[1] - ends[0]);
                self.place(value).map(|at| Tick { at: at.clamp(0.0, 1.0), ..tick })
            });
            return moved.collect();
        }
        let step = if whole { (span / count).ceil().max(1.0) } else { round_step(span / count) };
        let first = (self.lo / step).ceil() * step;
        let largest = self.lo.abs().max(self.hi.abs());
        let mut ticks: Vec<Tick> = Vec::new();
        for i in 0..=(2.0 * count) as usize {
            let value = first + i as f64 * step;
            let at = (value - self.lo) / span;
            if !(-1e-9..=1.0 + 1e-9).contains(&at) {
                break;
            }
            let text = match self.log {
                true => power(value.round()),
                false => written(value, step, largest),
            };
            if ticks.last().is_none_or(|last| last.text != text) {
                ticks.push(Tick { at: at.clamp(0.0, 1.0), text });
            }
        }
        ticks
    }
}

/// The first of 1, 2 or 5 times a power of ten that is not far below `rough`.
fn round_step(rough: f64) -> f64 {
    let power = 10f64.powf(rough.log10().floor());
    let times = [1.0, 2.0, 5.0, 10.0].into_iter().find(|t| t * power >= rough * 0.7);
    times.unwrap_or(10.0) * power
}

/// Formats a power of ten.
fn power(exponent: f64) -> String {
    match exponent {
        e if (-3.0..=4.0).contains(&e) => format!("{}", 10f64.powf(e)),
        e => format!("1e{e}"),
    }
}

/// Formats a number with enough digits to distinguish values one step apart.
pub fn written(value: f64, step: f64, largest: f64) -> String {
    let value = if value.abs() < step * 1e-6 { 0.0 } else { value };
    let exponent = |magnitude: f64| (magnitude * (1.0 + 1e-9)).log10().floor();
    let digits = |exponent: f64| exponent.clamp(0.0, 12.0) as usize;
    let largest = largest.max(value.abs());
    if value != 0.0 && !(1e-3..1e6).contains(&largest) {
        return format!("{value:.*e}", digits(exponent(value.abs()) - exponent(step)));
    }
    format!("{value:.*}", digits(-exponent(step)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(axis: Axis, count: usize) -> Vec<String> {
        axis.ticks(count).into_iter().map(|t| t.text).collect()
    }

    #[test]
    fn ticks_are_round_numbers_in_the_range() {
        let around = |lo: f64, hi: f64| Axis::around([lo, hi].into_iter(), false, 0.0);
        assert_eq!(texts(around(0.0, 1.0), 5), ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        assert_eq!(texts(around(-3.0, 12.0), 4), ["0", "5", "10"]);
        assert_eq!(texts(around(0.0, 4e9), 4), ["0", "1e9", "2e9", "3e9", "4e9"]);
        assert_eq!(texts(around(1.5e-5, 3.5e-5), 2), ["2e-5", "3e-5"]);
        assert_eq!(texts(around(0.1 + 0.2, 0.3), 3).len(), 3);
        let log = Axis::around([0.01, 1000.0].into_iter(), true, 0.0);
        assert_eq!(texts(log, 5), ["0.01", "0.1", "1", "10", "100", "1000"]);
        assert_eq!(
            texts(Axis::around([2.0, 3.0].into_iter(), true, 0.0), 5),
            ["2.0", "2.2", "2.4", "2.6", "2.8", "3.0"]
        );
    }

    #[test]
    fn every_range_has_an_extent_and_ticks() {
        let hard = [
            0.0,
            -0.0,
            1.0,
            -1.0,
            f64::MAX,
            f64::MIN,
            5e-324,
            1e-300,
            1e16,
            1e16 + 2.0,
            f64::NAN,
            f64::INFINITY,
        ];
        for lo in hard {
            for hi in hard {
                for (log, free) in [(false, 0.0), (false, 0.04), (true, 0.04)] {
                    let axis = Axis::around([lo, hi].into_iter(), log, free);
                    let extent = axis.hi - axis.lo;
                    assert!(extent > 0.0 && extent.is_finite(), "{lo} {hi} {axis:?}");
                    for value in [lo, hi] {
                        assert!(axis.place(value).is_none_or(|at| (-0.01..=1.01).contains(&at)), "{lo} {hi}");
                    }
                    let ticks = axis.ticks(6);
                    assert!(ticks.iter().all(|t| (0.0..=1.0).contains(&t.at)), "{lo} {hi} {ticks:?}");
                    assert!(ticks.len() <= 13 && ticks.iter().all(|t| t.text.len() < 22), "{ticks:?}");
                }
            }
        }
    }
}
