//! The kinds of programs. Each is one file or folder with its data, its host code and its CUDA source; the
//! templates are in `kernels/`. To add a kind, write its file and name it here.

mod count;
pub mod fft;
mod gather;
mod map;
mod maps;
mod matmul;
mod nonzero;
mod pack;
mod recurrent;
mod reduce;
mod rows;
mod scan;
mod scatter;
mod search;
mod sort;

pub use count::Count;
pub use gather::Gather;
pub use map::{Instr, Map, Regs, Source, Store};
pub use maps::Maps;
pub use matmul::{Addresses, LEAST_RESULTS, MappedMatmul, Matmul, ThinProduct, TiledProduct, TinyProduct};
pub use nonzero::NonZero;
pub use pack::{PART_ALIGN, Pack};
pub use recurrent::{Place, Recurrent};
pub(crate) use reduce::MOST_REDUCTIONS;
pub use reduce::{Also, Reduce};
pub use rows::{Fold, Rows, SHORT_ROW, Step, Temporary, takes_rows};
pub use scan::Scan;
pub use scatter::{LEAST_SORTED, MappedScatter, Scatter, has_one_source, sorted_strides};
pub use search::Search;
pub use sort::{Nth, Sort, SortFew, Top};
