//! The content of a plot, independent of how it is drawn.

use super::axis::Axis;
use crate::base::stop;

/// A chart: axes and the data between them.
pub struct Chart {
    pub title: String,
    pub x_label: String,
    pub y_label: String,
    pub x: Axis,
    pub y: Axis,
    pub marks: Vec<Mark>,
}

/// One set of data.
pub struct Mark {
    /// The name in the legend; empty for none.
    pub name: String,
    pub shape: Shape,
}

/// The shape in which data are drawn. Coordinates are values; those without a position are skipped.
pub enum Shape {
    /// A line from point to point, broken where a coordinate has no position.
    Line(Vec<(f64, f64)>),
    /// Single points.
    Dots(Vec<(f64, f64)>),
    /// Bars from 0: left end, right end, height.
    Bars(Vec<(f64, f64, f64)>),
}

impl Chart {
    /// The names in the legend, with the numbers of their marks.
    pub fn names(&self) -> impl Iterator<Item = (usize, &str)> {
        let named = self.marks.iter().enumerate().map(|(i, mark)| (i, mark.name.as_str()));
        named.filter(|(_, name)| !name.is_empty())
    }

    /// The unbroken pieces of a line, as positions from 0 to 1. A line with more points than `columns` can
    /// show is reduced to the extremes of each column.
    pub fn pieces(&self, points: &[(f64, f64)], columns: usize) -> Vec<Vec<(f64, f64)>> {
        let (mut all, mut piece) = (Vec::new(), Vec::new());
        for &(x, y) in stop::until(points.iter()) {
            match self.x.place(x).zip(self.y.place(y)) {
                Some(place) => piece.push(place),
                None => all.extend(Some(std::mem::take(&mut piece)).filter(|p| !p.is_empty())),
            }
        }
        all.extend(Some(piece).filter(|p| !p.is_empty()));
        all.into_iter().map(|piece| thinned(piece, columns)).collect()
    }

    /// The points that have a position, as positions from 0 to 1.
    pub fn dots<'c>(&'c self, points: &'c [(f64, f64)]) -> impl Iterator<Item = (f64, f64)> + 'c {
        stop::until(points.iter()).filter_map(|&(x, y)| self.x.place(x).zip(self.y.place(y)))
    }
}

/// Keeps the first, lowest, highest and last point of each column.
fn thinned(piece: Vec<(f64, f64)>, columns: usize) -> Vec<(f64, f64)> {
    let column = |x: f64| (x * columns as f64).floor();
    if piece.len() <= columns.saturating_mul(4) || !piece.is_sorted_by(|a, b| a.0 <= b.0) {
        return piece;
    }
    let mut thin = Vec::with_capacity(columns * 4);
    for group in piece.chunk_by(|a, b| column(a.0) == column(b.0)) {
        let extreme = |better: fn(f64, f64) -> bool| {
            (0..group.len()).fold(0, |best, i| if better(group[i].1, group[best].1) { i } else { best })
        };
        let mut picked = [0, extreme(|a, b| a < b), extreme(|a, b| a > b), group.len() - 1];
        picked.sort_unstable();
        for (at, &index) in picked.iter().enumerate() {
            if at == 0 || picked[at - 1] != index {
                thin.push(group[index]);
            }
        }
    }
    thin
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_at_gaps_and_keep_their_extremes_when_thinned() {
        let axis = |hi| Axis::around([0.0, hi].into_iter(), false, 0.0);
        let (title, x_label, y_label) = Default::default();
        let chart = Chart { title, x_label, y_label, x: axis(10_000.0), y: axis(1.0), marks: Vec::new() };
        let broken = [(0.0, 0.0), (1.0, f64::NAN), (2.0, 1.0), (3.0, 1.0)];
        assert_eq!(chart.pieces(&broken, 100).iter().map(Vec::len).collect::<Vec<_>>(), [1, 2]);
        let many: Vec<(f64, f64)> =
            (0..=10_000).map(|i| (f64::from(i), if i == 5_003 { 1.0 } else { 0.5 })).collect();
        let thin = chart.pieces(&many, 100).remove(0);
        assert!(thin.len() <= 404 && thin.contains(&(0.5003, 1.0)), "{}", thin.len());
        assert_eq!((thin.first().unwrap().0, thin.last().unwrap().0), (0.0, 1.0));
    }
}
