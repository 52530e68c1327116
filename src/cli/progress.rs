//! Progress bars of `progress(...)`, on standard error.
//!
//! A bar is a line that changes while a loop runs. Bars of nested loops disappear when the loops end; the
//! outermost one stays. Other output during a loop appears above the bars ([`Bars::around`]).

use crate::vm::Progress;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use std::collections::BTreeMap;
use std::io::Write;

const MEASURED: &str = "{prefix}{percent:>3}% [{wide_bar}] {pos}/{len} {elapsed}<{eta}, {per_sec}";
const OPEN: &str = "{prefix}{pos} {elapsed}, {per_sec}";

/// The bars on the screen.
#[derive(Default)]
pub struct Bars {
    lines: MultiProgress,
    shown: BTreeMap<u64, ProgressBar>,
}

impl Bars {
    /// Shows the progress of a loop.
    pub fn show(&mut self, now: &Progress) {
        let bar = self.shown.entry(now.id).or_insert_with(|| {
            let bar = match now.total {
                Some(total) => ProgressBar::new(total),
                None => ProgressBar::no_length(),
            };
            let bar = self.lines.add(bar);
            let template = if now.total.is_some() { MEASURED } else { OPEN };
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style.progress_chars("=> "));
            }
            // Remove control characters from the script's label.
            let label: String = now.label.chars().filter(|c| !c.is_control()).collect();
            if !label.is_empty() {
                bar.set_prefix(format!("{label} "));
            }
            bar.tick();
            bar
        });
        bar.set_position(now.done);
        if now.ended {
            self.end(now.id);
        }
    }

    fn end(&mut self, id: u64) {
        let Some(bar) = self.shown.remove(&id) else { return };
        if self.shown.is_empty() {
            bar.abandon();
            // The line stays in place; later output starts below it, and the next loop has its own lines.
            std::io::stderr().write_all(b"\n").ok();
            self.lines = MultiProgress::new();
        } else {
            bar.finish_and_clear();
            self.lines.remove(&bar);
        }
    }

    /// Ends all bars: the script has ended, and with it its loops.
    pub fn end_all(&mut self) {
        while let Some((&id, _)) = self.shown.last_key_value() {
            self.end(id);
        }
    }

    /// Runs `write`, which writes above the bars.
    pub fn around<T>(&self, write: impl FnOnce() -> T) -> T {
        if self.shown.is_empty() { write() } else { self.lines.suspend(write) }
    }
}
