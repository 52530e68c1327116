//! `runnel cache`: the compiled kernels on disk.

use super::args::{CacheAction, CacheLimit};
use super::terminal::Terminal;
use super::{Outcome, error, refuse, table};
use crate::base::{Result, SourceMap, bytes_text};
use crate::driver::kernel_cache::{Cache, Limit, VARIABLE};
use crate::engine::Builder;

pub fn cache(terminal: &Terminal, action: Option<CacheAction>) -> Outcome {
    let done = Builder::from_env().and_then(|_| match Cache::of_user() {
        None => Ok(format!("{}\n", Cache::why_none())),
        Some(cache) => act(&cache, action),
    });
    match done {
        Ok(text) => {
            terminal.print(&text);
            terminal.flush();
            Outcome::Done
        }
        Err(error) => refuse(terminal, &error, &SourceMap::default()),
    }
}

fn act(cache: &Cache, action: Option<CacheAction>) -> Result<String> {
    let refused = |reason: std::io::Error| error::unwritable(cache.folder(), &reason);
    match action {
        None => {}
        Some(CacheAction::Limit { limit: CacheLimit(limit) }) => {
            cache.set_limit(limit).map_err(refused)?;
            cache.trim(cache.limit().bytes());
        }
        Some(CacheAction::Clear) => {
            let removed = cache.clear().map_err(refused)?;
            let kernels = if removed.entries == 1 { "kernel" } else { "kernels" };
            return Ok(format!("removed {} {kernels}, {}\n", removed.entries, bytes_text(removed.bytes)));
        }
    }
    let usage = cache.usage();
    let from = match cache.limit() {
        Limit::Usual => String::new(),
        Limit::Kept(_) => " (`runnel cache limit`)".to_string(),
        Limit::Variable(_) => format!(" ({VARIABLE})"),
    };
    Ok(table::aligned(&[
        ["path".to_string(), cache.folder().display().to_string()],
        ["entries".to_string(), usage.entries.to_string()],
        ["size".to_string(), bytes_text(usage.bytes)],
        ["limit".to_string(), bytes_text(cache.limit().bytes()) + &from],
    ]))
}
