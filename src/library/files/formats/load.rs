//! Reading files: arrays are copied to a device as they are read.

use std::io::Seek;
use std::rc::Rc;

use super::open;
use super::{FileSource, Watched, options, source, usual};
use crate::array::{Dtype, Layout, contiguous_strides};
use crate::base::Result;
use crate::driver::DeviceId;
use crate::files::{Elements, Head, Options, Sink, error};
use crate::library::files::open::named;
use crate::tensor::Tensor;
use crate::vm::{Dict, Held, Key, Value, Values, Vm, charge};

/// `load(path, device, dtype, only, format, header, delimiter, links)`
pub(in crate::library::files) fn load(vm: &mut Vm, args: &mut [Value]) -> Result<Value> {
    let source = source(vm, args, [4, 7])?;
    let mut options = options(&source, args, [5, 6])?;
    if let Value::Dtype(dtype) = args[2] {
        options.dtype = Some(dtype);
    }
    let device = match &args[1] {
        Value::None => vm.rt.current_device(),
        other => crate::library::device::device_of(vm, other, vm.rt.current_cuda())?,
    };
    let only = match &args[3] {
        Value::None => None,
        Value::Str(name) => Some(vec![name.as_str().to_string()]),
        list => Some(vm.collect(list)?.iter().map(crate::library::core::owned).collect()),
    };
    let (single, dict) = (None, Dict::empty());
    let held = Vec::new();
    let mut tensors =
        Tensors { held, vm, device, dtype: options.dtype, only, seen: Vec::new(), single, dict };
    read(&source, &options, &mut tensors)?;
    if let Some(only) = &tensors.only {
        let found =
            |name: &&String| !tensors.dict.borrow().keys().any(|k| k.value().as_str() == Some(name.as_str()));
        if let Some(missing) = only.iter().find(found) {
            let known = tensors.seen.iter().map(String::as_str);
            return Err(named(&source.path, error::no_entry(missing, known)));
        }
    }
    Ok(tensors.single.unwrap_or_else(|| Value::dict(tensors.dict)))
}

fn read(source: &FileSource, options: &Options, sink: &mut dyn Sink) -> Result<()> {
    let mut file = open(&source.path, source.links)?;
    file.rewind().map_err(|e| crate::library::files::open::refused(&source.path, &e))?;
    let mut file = Watched::new(file);
    let found = (source.format.read)(&mut file, options, sink);
    file.result(found).map_err(|e| named(&source.path, e))
}

/// The selected arrays, as tensors.
struct Tensors<'v> {
    /// The charges for the memory that the reader keeps.
    held: Vec<Held>,
    vm: &'v mut Vm,
    device: DeviceId,
    dtype: Option<Dtype>,
    only: Option<Vec<String>>,
    /// Names that were not selected.
    seen: Vec<String>,
    single: Option<Value>,
    dict: Rc<Dict>,
}

impl Tensors<'_> {
    fn tensor(&mut self, head: &Head, elements: &mut dyn Elements) -> Result<Tensor> {
        self.vm.charge(head.count())?;
        if self.device == DeviceId::Cpu {
            charge(usize::try_from(head.bytes()).unwrap_or(usize::MAX))?;
        }
        let mut fill = |piece: &mut [u8]| {
            crate::driver::error::stopped()?;
            elements.fill(piece)
        };
        let stored = self.vm.rt.from_filled("load", &head.stored, head.dtype, self.device, &mut fill)?;
        let strides = contiguous_strides(&head.stored);
        let tensor = match head.axes.is_sorted() {
            true => stored,
            false => stored.with_layout(Layout {
                shape: head.shape().as_slice().into(),
                strides: head.axes.iter().map(|&axis| strides[axis]).collect(),
                offset: 0,
            }),
        };
        match self.dtype {
            Some(dtype) if dtype != tensor.dtype() => self.vm.rt.convert(&tensor, dtype),
            _ => Ok(tensor),
        }
    }

    fn insert(&mut self, name: &str, value: Value) -> Result<()> {
        charge(name.len())?;
        self.dict.insert(Key::new(&Value::str(name))?, value)
    }
}

impl Sink for Tensors<'_> {
    fn wants(&mut self, name: &str) -> bool {
        let wanted = self.only.as_ref().is_none_or(|only| only.iter().any(|o| o == name));
        if !wanted {
            self.seen.push(name.to_string());
        }
        wanted
    }

    fn array(&mut self, name: Option<&str>, head: &Head, elements: &mut dyn Elements) -> Result<()> {
        let tensor = Value::Tensor(self.tensor(head, elements)?);
        match name {
            Some(name) => self.insert(name, tensor),
            None => {
                self.single = Some(tensor);
                Ok(())
            }
        }
    }

    fn texts(&mut self, name: &str, texts: Vec<String>) -> Result<()> {
        let lengths = texts.iter().fold(0usize, |all, text| all.saturating_add(text.len()));
        charge(texts.len().saturating_mul(128).saturating_add(lengths))?;
        self.insert(name, Value::list(texts.into_iter().map(Value::str).collect::<Values>()))
    }

    fn note(&mut self, _: &str, _: &str) -> Result<()> {
        Ok(())
    }

    fn hold(&mut self, bytes: usize) -> Result<()> {
        self.vm.charge(bytes / 64)?;
        crate::driver::error::stopped()?;
        self.held.push(Held::new(bytes)?);
        Ok(())
    }
}

/// `files.names(path, format, links)`
pub(in crate::library::files) fn names(vm: &mut Vm, args: &mut [Value]) -> Result<Value> {
    let found = about(vm, args)?;
    charge(found.names.iter().fold(0usize, |all, name| all.saturating_add(name.len() + 128)))?;
    Ok(Value::list(found.names.into_iter().map(Value::str).collect::<Values>()))
}

/// `files.metadata(path, format, links)`
pub(in crate::library::files) fn metadata(vm: &mut Vm, args: &mut [Value]) -> Result<Value> {
    let dict = Dict::empty();
    for (key, text) in about(vm, args)?.notes {
        dict.insert(Key::new(&Value::str(key))?, Value::str(text))?;
    }
    Ok(Value::dict(dict))
}

/// The contents of a file except arrays.
#[derive(Default)]
struct About {
    held: Vec<Held>,
    names: Vec<String>,
    notes: Vec<(String, String)>,
}

fn about(vm: &mut Vm, args: &mut [Value]) -> Result<About> {
    let source = source(vm, args, [1, 2])?;
    let options = usual(&source);
    let mut about = About::default();
    read(&source, &options, &mut about)?;
    Ok(about)
}

impl Sink for About {
    fn wants(&mut self, name: &str) -> bool {
        self.names.push(name.to_string());
        false
    }

    fn array(&mut self, _: Option<&str>, _: &Head, _: &mut dyn Elements) -> Result<()> {
        Ok(())
    }

    fn texts(&mut self, _: &str, _: Vec<String>) -> Result<()> {
        Ok(())
    }

    fn note(&mut self, key: &str, text: &str) -> Result<()> {
        self.notes.push((key.to_string(), text.to_string()));
        Ok(())
    }

    fn hold(&mut self, bytes: usize) -> Result<()> {
        crate::driver::error::stopped()?;
        // Names and metadata are stored twice.
        self.held.push(Held::new(bytes.saturating_mul(2))?);
        Ok(())
    }
}
