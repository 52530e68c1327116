//! How a compiled kernel addresses a view.

use crate::kernel::cuda::index::padding_words;
use crate::kernel::{Beside, Padding};

/// Set in a view's kind when the view has the strides of the first view addressed by coordinates. No gathered or padded
/// view has it.
pub(super) const LIKE_FIRST: usize = 8;

/// The addressing of a view.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ViewKind {
    /// Row-major without gaps: addressed by the element's position.
    Linear = 0,
    /// One element, loaded once per thread.
    Uniform = 1,
    /// Adjacent elements along the innermost dimension are adjacent in memory.
    Row = 2,
    /// Constant along the innermost dimension.
    Repeat = 3,
    /// Addressed by coordinates.
    Strided = 4,
    /// Addressed by coordinates, and wraps.
    Wrapped = 5,
    /// A row that wraps, along any dimension, between units.
    WrappedRow = 6,
    /// Addressed by coordinates and an index. A unit, if it has several elements, is adjacent in memory.
    Gathered = 7,
    /// Gathered, and constant along the innermost dimension.
    GatheredOne = 8,
    /// A row between numbers; a unit is either.
    PaddedRow = 9,
    /// Addressed by coordinates, with numbers beside.
    Padded = 13,
    /// Addressed by coordinates, with copies of elements beside.
    Copied = 14,
}

impl ViewKind {
    const ALL: [ViewKind; 8] = [
        ViewKind::Linear,
        ViewKind::Uniform,
        ViewKind::Row,
        ViewKind::Repeat,
        ViewKind::Strided,
        ViewKind::Wrapped,
        ViewKind::WrappedRow,
        ViewKind::Gathered,
    ];

    /// The kind of a number, and whether the view has the strides of the first one.
    pub fn of(number: usize) -> (ViewKind, bool) {
        let others = [ViewKind::GatheredOne, ViewKind::PaddedRow, ViewKind::Padded, ViewKind::Copied];
        match others.into_iter().find(|kind| *kind as usize == number) {
            Some(kind) => (kind, false),
            None => (ViewKind::ALL[number & 7], number & LIKE_FIRST != 0),
        }
    }

    /// The kind of a padded view, whose units are adjacent elements or not.
    pub fn of_padded(padding: &Padding, is_row: bool) -> ViewKind {
        match padding.beside {
            Beside::Number(_) if is_row => ViewKind::PaddedRow,
            Beside::Number(_) => ViewKind::Padded,
            _ => ViewKind::Copied,
        }
    }

    /// Has numbers beside its elements.
    pub fn has_numbers(self) -> bool {
        matches!(self, ViewKind::PaddedRow | ViewKind::Padded)
    }

    pub fn is_padded(self) -> bool {
        self.has_numbers() || self == ViewKind::Copied
    }

    pub fn by_coordinates(self) -> bool {
        !matches!(self, ViewKind::Linear | ViewKind::Uniform)
    }

    /// Units of the view are adjacent elements.
    pub fn has_units(self) -> bool {
        matches!(self, ViewKind::Linear | ViewKind::Row | ViewKind::WrappedRow | ViewKind::PaddedRow)
    }

    pub fn wraps(self) -> bool {
        matches!(self, ViewKind::Wrapped | ViewKind::WrappedRow)
    }

    /// Other views may have its strides.
    pub fn shares_strides(self) -> bool {
        self.by_coordinates() && !self.wraps() && !self.is_padded()
    }

    /// Parameter words of a view over this many dimensions.
    pub fn words(self, rank: usize) -> usize {
        match self {
            ViewKind::Wrapped | ViewKind::WrappedRow => 3 * rank,
            ViewKind::PaddedRow | ViewKind::Padded => rank + padding_words(rank, true),
            ViewKind::Copied => rank + padding_words(rank, false),
            _ => rank,
        }
    }
}
