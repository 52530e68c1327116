//! The time model: how long work takes on the virtual clock.

use crate::driver::Work;
use crate::driver::graph::Task;

/// Modelled nanoseconds: each kind models its launches, copies run at 50 GB/s, a sleep takes 1 ns per cycle.
pub(super) fn cost(work: Work<'_>) -> u64 {
    match work {
        Work::Launch(launch) => launch.program.kind.cost(launch),
        Work::Copy(bytes) => 1000 + bytes / 50,
        Work::Sleep(cycles) => cycles,
        Work::Graph(steps) => steps.iter().fold(0, |sum, step| {
            sum.saturating_add(match &step.task {
                Task::Launch(launch) => cost(Work::Launch(launch)),
                Task::Copy { bytes, .. } => cost(Work::Copy(*bytes)),
                Task::Write { bytes, .. } => cost(Work::Copy(bytes.len() as u64)),
                Task::Sleep(cycles) => *cycles,
                Task::Mark(_) | Task::Wait(_) => 0,
            })
        }),
    }
}
