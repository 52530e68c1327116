//! `runnel devices`: the usable devices, and why CUDA is not available.

use super::args::Options;
use super::terminal::Terminal;
use super::{Outcome, refuse, table};
use crate::base::{Result, SourceMap, bytes_text};
use crate::device::Machine;
use crate::driver::DeviceId;

pub fn devices(options: &Options, terminal: &Terminal) -> Outcome {
    match listing(options) {
        Ok(text) => {
            terminal.print(&text);
            terminal.flush();
            Outcome::Done
        }
        Err(error) => refuse(terminal, &error, &SourceMap::default()),
    }
}

fn listing(options: &Options) -> Result<String> {
    let machine = {
        let mut builder = crate::engine::Builder::from_env()?;
        options.configure(builder.config_mut());
        Machine::open(builder.config())?
    };
    let mut rows = vec![["device", "backend", "name", "capability", "memory"].map(String::from)];
    for index in 0..machine.device_count() as u32 {
        let id = DeviceId::Cuda(index);
        let device = machine.device(id)?;
        let about = device.properties();
        rows.push([
            id.to_string(),
            machine.backend().to_string(),
            about.name.clone(),
            format!("{}.{}", about.major, about.minor),
            bytes_text(about.total_memory),
        ]);
    }
    rows.push(["cpu", "host", "the processor", "", ""].map(String::from));
    let mut text = table::aligned(&rows);
    #[cfg(feature = "cuda")]
    if machine.backend() == "cuda" {
        text.push_str(&format!("\n{}", libraries()));
    }
    if let Some(notice) = machine.notice() {
        text.push_str(&format!("\n{notice}\n"));
    }
    Ok(text)
}

/// The libraries that CUDA devices use; for a missing one, the consequences and how to get it.
#[cfg(feature = "cuda")]
fn libraries() -> String {
    let mut rows = vec![["library", "version", "file"].map(String::from)];
    let mut missing = String::new();
    for library in crate::driver::cuda::libraries() {
        let name = library.name.to_string();
        rows.push(match library.found {
            Ok((version, file)) => [name, version, file.display().to_string()],
            Err(error) => {
                missing.push_str(&format!("\n{}\n  without it: {}\n", error.message(), library.without));
                if let Some(help) = error.help_text() {
                    missing.push_str(&format!("  help: {help}\n"));
                }
                [name, "missing".into(), String::new()]
            }
        });
    }
    format!("{}{missing}", table::aligned(&rows))
}
