//! The table of `torch.cuda.memory_summary`.

use super::stats::{Stat, Stats};

/// The width between the outer bars.
const WIDTH: usize = 75;

/// Formats a number; the second number sets the unit of its row group.
type Unit = fn(u64, u64) -> String;

impl Stats {
    /// The statistics as a table; `abbreviated` omits the lines per pool.
    pub fn summary(&self, device: u32, abbreviated: bool) -> String {
        let named = |name: &str| self.pools().into_iter().find(|(n, _)| *n == name).map(|(_, stat)| stat);
        let metrics: [(&str, &str, Unit); 9] = [
            ("allocated_bytes", "Allocated memory", size),
            ("active_bytes", "Active memory", size),
            ("requested_bytes", "Requested memory", size),
            ("reserved_bytes", "GPU reserved memory", size),
            ("inactive_split_bytes", "Non-releasable memory", size),
            ("allocation", "Allocations", count),
            ("active", "Active allocs", count),
            ("segment", "GPU reserved segments", count),
            ("inactive_split", "Non-releasable allocs", count),
        ];
        let mut lines = vec![
            "=".repeat(WIDTH),
            format!(" {:16} Runnel CUDA memory summary, device ID {device:<18} ", ""),
            "-".repeat(WIDTH),
            format!(
                "  {:9} CUDA OOMs: {:<12} | {:6} cudaMalloc retries: {:<8}  ",
                "", self.num_ooms, "", self.num_alloc_retries
            ),
            "=".repeat(WIDTH),
            "        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  ".to_string(),
        ];
        for (name, title, unit) in metrics {
            let Some(stat) = named(name) else { continue };
            lines.push("-".repeat(WIDTH));
            lines.push(row(title, stat.all(), stat.all(), unit));
            if !abbreviated {
                lines.push(row("      from large pool", stat.pool(super::Pool::Large), stat.all(), unit));
                lines.push(row("      from small pool", stat.pool(super::Pool::Small), stat.all(), unit));
            }
        }
        let oversize = [
            ("Oversize allocations", &self.oversize_allocations),
            ("Oversize GPU segments", &self.oversize_segments),
        ];
        for (title, stat) in oversize {
            lines.push("-".repeat(WIDTH));
            lines.push(row(title, stat, stat, count));
        }
        lines.push("=".repeat(WIDTH));
        lines.iter().map(|line| format!("|{line}|\n")).collect()
    }
}

fn row(title: &str, stat: &Stat, unit_of: &Stat, unit: Unit) -> String {
    let mut line = format!(" {title:<21} ");
    for ((_, value), (_, scale)) in stat.parts().into_iter().zip(unit_of.parts()) {
        line += &format!("| {} ", unit(value, scale));
    }
    line
}

/// Bytes in the unit in which `scale` has about six digits at most.
fn size(value: u64, scale: u64) -> String {
    let (mut value, mut scale, mut prefix) = (value, scale as f64, "B  ");
    for next in ["KiB", "MiB", "GiB", "TiB", "PiB"] {
        if scale < 768.0 * 1024.0 {
            break;
        }
        (value, scale, prefix) = (value / 1024, scale / 1024.0, next);
    }
    format!("{value:6} {prefix}")
}

fn count(value: u64, scale: u64) -> String {
    let (mut value, mut scale, mut prefix) = (value, scale as f64, " ");
    for next in ["K", "M"] {
        if scale < 750.0 * 1000.0 {
            break;
        }
        (value, scale, prefix) = (value / 1000, scale / 1000.0, next);
    }
    format!("{value:7} {prefix} ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::alloc::Pool;

    #[test]
    fn every_line_has_the_same_width_and_large_numbers_get_units() {
        let mut stats = Stats::default();
        stats.allocated_bytes.increase(Pool::Large, 20 << 20);
        stats.allocation.increase(Pool::Large, 1);
        let table = stats.summary(1, false);
        assert!(table.lines().all(|line| line.len() == WIDTH + 2), "{table}");
        assert!(
            table.contains("| Allocated memory      |  20480 KiB |  20480 KiB |  20480 KiB |      0 B   |")
        );
        assert_eq!(stats.summary(0, true).lines().count(), table.lines().count() - 18);
    }
}
