//! The bars of `progress(...)`, on the standard error.
//!
//! A bar is a line that changes while a loop runs. Of loops inside one another, the inner ones' bars go
//! when they end, and the outermost one's stays. Whatever else is written meanwhile goes above the bars
//! ([`Bars::around`]).

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
    /// Shows how far a loop is.
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
            // What a script calls its loop is no command to the terminal.
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
            // The line stays where it is, and nothing goes behind it; the next loop has lines of its own.
            std::io::stderr().write_all(b"\n").ok();
            self.lines = MultiProgress::new();
        } else {
            bar.finish_and_clear();
            self.lines.remove(&bar);
        }
    }

    /// The script has ended: so have its loops.
    pub fn end_all(&mut self) {
        while let Some((&id, _)) = self.shown.last_key_value() {
            self.end(id);
        }
    }

    /// Writes something above the bars.
    pub fn around<T>(&self, write: impl FnOnce() -> T) -> T {
        if self.shown.is_empty() { write() } else { self.lines.suspend(write) }
    }
}
