//! `:help NAME`: a function of the session, a command, an error, or another documented name.

use super::{Repl, commands, show};
use crate::base::Result;
use crate::cli::{doc, explain};
use crate::vm::{Value, bind};

/// The page of a name.
///
/// # Errors
/// E0954.
pub fn page(repl: &mut Repl, name: &str) -> Result<String> {
    if let Some(command) = name.strip_prefix(':').and_then(commands::find) {
        return Ok(format!("{}\n\n{}\n", command.usage(), command.help));
    }
    if let Some(page) = explain::of(name) {
        return Ok(page);
    }
    let vm = repl.session.engine.vm();
    match vm.global(name) {
        Some(Value::Fn(closure)) => {
            let doc = closure.proto.doc.as_deref().map(|doc| format!("\n{}\n", doc.trim_end()));
            let signature = bind::script_signature(&closure.proto);
            Ok(format!("{name}{signature}\n{}", doc.unwrap_or_default()))
        }
        Some(value) => {
            let kind = show::kind(&value);
            let members = doc::page(value.type_name()).map(|page| format!("\n{page}"));
            Ok(format!("{name}: {kind}\n{}", members.unwrap_or_default()))
        }
        None => doc::page(name),
    }
}
