//! Modules, and the options a script declares.
//!
//! A module is a file or a part of the embedded library. It runs once, in its own namespace; importing it
//! again returns the same module. A circular import is an error.

use std::collections::hash_map::Entry;
use std::rc::Rc;
use std::sync::Arc;

use foldhash::HashMap;

use super::error;
use super::function::Module;
use super::value::Value;
use super::{Mode, Vm};
use crate::base::{Error, Result, Source, Span};
use crate::check::imports::{Imports, key_of};
use crate::driver::DeviceId;
use crate::syntax::ast::Block;

/// Supplies the source text of modules.
pub trait Loader: Send {
    /// The text of the file at `path`; `written` is the path as the `import` spells it.
    ///
    /// # Errors
    ///
    /// [`error::module_missing`], and errors that end a script.
    fn file(&self, path: &str, written: &str) -> Result<String>;
    /// The text of a module of the embedded library.
    fn library(&self, name: &str) -> Option<&str>;
    /// The modules of the embedded library.
    fn names(&self) -> Vec<&str>;
}

/// A module that is running or has run.
enum State {
    Running,
    Done(Rc<Module>),
}

/// A module that was parsed and checked before the importing program ran.
struct Ahead {
    text: String,
    block: Rc<Block>,
    /// The source that its spans refer to.
    _source: Option<Arc<Source>>,
}

/// The modules of a VM and the loader of their source texts.
pub(super) struct Modules {
    loader: Box<dyn Loader>,
    states: HashMap<Rc<str>, State>,
    /// Modules that were parsed before the program that imports them ran.
    ahead: HashMap<Rc<str>, Ahead>,
    /// The modules being imported, outermost first.
    importing: Vec<Rc<str>>,
}

impl Modules {
    pub(super) fn new(loader: Box<dyn Loader>) -> Modules {
        let (states, ahead) = Default::default();
        Modules { loader, states, ahead, importing: Vec::new() }
    }

    /// The loader of source texts.
    pub(super) fn loader(&self) -> &dyn Loader {
        &*self.loader
    }

    /// The modules that have run.
    pub(super) fn loaded(&self) -> Vec<Rc<Module>> {
        let done = |state: &State| match state {
            State::Done(module) => Some(Rc::clone(module)),
            State::Running => None,
        };
        self.states.values().filter_map(done).collect()
    }

    /// Forgets them all.
    pub(super) fn clear(&mut self) {
        self.states.clear();
    }

    /// Forgets them all without dropping their contents.
    pub(super) fn leave(&mut self) {
        std::mem::forget(std::mem::take(&mut self.states));
    }
}

impl Vm {
    /// A function of a library module, which is loaded first.
    pub fn library_function(&mut self, module: &str, name: &str) -> Result<Value> {
        let module = self.import(module, false, Span::NONE)?;
        self.attribute(&module, name)
    }

    /// `import path`: from the source at `span`.
    pub(super) fn import(&mut self, path: &str, file: bool, span: Span) -> Result<Value> {
        let from = self.sources.find(span).map_or("", |id| self.sources.name(id));
        let key = key_of(from, path, file);
        match self.modules.states.entry(Rc::clone(&key)) {
            Entry::Occupied(entry) => match entry.get() {
                State::Done(module) => return Ok(Value::Module(Rc::clone(module))),
                State::Running => {
                    let from = self.modules.importing.iter().position(|k| *k == key).unwrap_or(0);
                    let mut chain: Vec<String> =
                        self.modules.importing[from..].iter().map(|k| k.to_string()).collect();
                    chain.push(key.to_string());
                    return Err(error::module_cycle(&chain));
                }
            },
            Entry::Vacant(_) => {}
        }
        let text = if file {
            let full = self.limits.files.resolve(&key)?;
            self.modules.loader.file(&full, path)?
        } else {
            if let Some(value @ Value::Module(_)) = self.natives.functions().get(path) {
                return Ok(value.clone());
            }
            match self.modules.loader.library(path) {
                Some(text) => text.to_string(),
                None => {
                    let known = self.modules.loader.names();
                    return Err(error::module_missing(path, "the library has no such module", known));
                }
            }
        };
        let block = match self.modules.ahead.remove(&key) {
            Some(ahead) if ahead.text == text => ahead.block,
            _ => {
                let block = self.parse(&key, &text)?;
                let mut errors = crate::check::check(&block, &self.known(), &[]).errors.into_iter();
                if let Some(first) = errors.next() {
                    return Err(errors.fold(first, Error::and));
                }
                Rc::new(block)
            }
        };
        let module = Rc::new(Module::new(path));
        self.modules.states.insert(Rc::clone(&key), State::Running);
        self.modules.importing.push(Rc::clone(&key));
        // Tests belong to the file under test, not to files that import it.
        let tests = self.tests.len();
        let result = self.run_in(&block, &module, Mode::Script);
        self.tests.truncate(tests);
        self.modules.importing.pop();
        match result {
            Ok(_) => {
                self.modules.states.insert(key, State::Done(Rc::clone(&module)));
                Ok(Value::Module(module))
            }
            Err(error) => {
                self.modules.states.remove(&key);
                Err(error)
            }
        }
    }

    /// Loads the modules that the program of the source `name` imports outside of a `try`. Unreadable modules
    /// are reported where they are imported.
    pub(super) fn look_ahead(&mut self, name: &str, block: &Block) -> Imports {
        self.modules.ahead.clear();
        let imports = Imports::of(name, block, &mut |key, import| {
            if self.modules.states.contains_key(key) {
                return None;
            }
            let text = match import.file {
                true => self.modules.loader.file(&self.limits.files.resolve(key).ok()?, &import.path).ok()?,
                false if matches!(self.natives.functions().get(&import.path), Some(Value::Module(_))) => {
                    return None;
                }
                false => self.modules.loader.library(&import.path)?.to_string(),
            };
            let parsed = self.parse(key, &text).map(Rc::new);
            if let Ok(block) = &parsed {
                let _source = self.sources.hold(block.span);
                self.modules.ahead.insert(Rc::clone(key), Ahead { text, block: Rc::clone(block), _source });
            }
            Some(parsed)
        });
        if imports.written {
            self.modules.ahead.clear();
        }
        imports
    }

    /// The value of `option(name, default)`: taken from the script's arguments, with the type of the default.
    pub fn option(&self, name: &str, default: &Value) -> Result<Value> {
        let equals = format!("{name}=");
        let mut found = None;
        let mut args = self.script_args.iter().peekable();
        while let Some(arg) = args.next() {
            if arg == "--" {
                break;
            }
            if arg == name {
                found = args.peek().map(|v| v.to_string());
                if found.is_none() {
                    return Err(error::option(format!("`{name}` needs a value"))
                        .help(format!("write `{name} VALUE`")));
                }
            } else if let Some(value) = arg.strip_prefix(&equals) {
                found = Some(value.to_string());
            }
        }
        let Some(text) = found else { return Ok(default.clone()) };
        if let (Value::Device(_), None) = (default, DeviceId::named(&text, DeviceId::Cuda(0))) {
            let count = self.rt.machine().device_count();
            return Err(crate::driver::error::invalid_device_string(&text, count));
        }
        read_as(&text, default).map_err(|what| error::option(format!("`{name}` takes {what}, not `{text}`")))
    }

    /// The value of `flag(name)`: whether the script's arguments contain it.
    pub fn flag(&self, name: &str) -> Result<bool> {
        let equals = format!("{name}=");
        let mut own = self.script_args.iter().take_while(|arg| *arg != "--");
        match own.find(|arg| *arg == name || arg.starts_with(&equals)) {
            Some(arg) if arg != name => Err(error::option(format!("`{name}` takes no value"))
                .help(format!("write `{name}`, or leave it out"))),
            found => Ok(found.is_some()),
        }
    }
}

/// An option's text as a value of its default's type; a list is comma-separated. The error says what the option
/// accepts.
fn read_as(text: &str, default: &Value) -> Result<Value, &'static str> {
    let digits = || text.replace('_', "");
    match default {
        Value::Bool(_) => match text {
            "true" | "yes" | "1" => Ok(Value::Bool(true)),
            "false" | "no" | "0" => Ok(Value::Bool(false)),
            _ => Err("true or false"),
        },
        Value::Int(_) => digits().parse().map(Value::Int).map_err(|_| "an int"),
        Value::Float(_) => digits().parse().map(Value::Float).map_err(|_| "a float"),
        Value::Device(_) => DeviceId::named(text, DeviceId::Cuda(0)).map(Value::Device).ok_or("a device"),
        Value::Dtype(_) => crate::array::Dtype::from_name(text).map(Value::Dtype).ok_or("a dtype"),
        Value::List(list) => {
            let like = list.get(0).filter(|first| !matches!(first, Value::List(_))).unwrap_or_default();
            let parts = text.split(',').filter(|_| !text.is_empty());
            let items: Result<Vec<Value>, _> = parts.map(|part| read_as(part.trim(), &like)).collect();
            items.map(Value::list).map_err(|what| match what {
                "an int" => "ints separated by commas",
                "a float" => "floats separated by commas",
                _ => "elements separated by commas",
            })
        }
        _ => Ok(Value::str(text)),
    }
}
