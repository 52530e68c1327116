//! `.safetensors`: named tensors. A length, a JSON header, then the elements without gaps.
//!
//! Source: the format's description (github.com/huggingface/safetensors). Its guarantees are enforced: the
//! ranges cover the data exactly once, names are unique, and nothing follows.

use super::{
    Column, Contents, Elements, Format, Head, Input, Options, Output, Plain, Sink, error, exactly, length,
};
use crate::array::Dtype;
use crate::base::{Result, stop};
use serde::de::{Deserializer, MapAccess, Visitor};
use serde::{Deserialize, de};
use std::collections::HashSet;
use std::io::SeekFrom;

/// This format's entry.
pub const FORMAT: Format = Format {
    name: "safetensors",
    endings: &[],
    doc: "Tensors with names: a dict in the order of the header. `files.metadata(path)` gives the strings beside them, \
          `save(path, value, metadata=...)` writes them.",
    read,
    write,
};

/// Maximum header size that the format allows.
const HEADER: u64 = 100_000_000;
/// Maximum bytes of a header entry, excluding its strings.
const ENTRY: usize = 256;

fn read(input: &mut dyn Input, _: &Options, sink: &mut dyn Sink) -> Result<()> {
    let length = length(input)?;
    let mut size = [0; 8];
    input
        .read_exact(&mut size)
        .map_err(|_| error::malformed("safetensors", "it is too short for a header"))?;
    let size = u64::from_le_bytes(size);
    if size > HEADER {
        return Err(error::too_large(format!("a header of {size} bytes")));
    }
    let data = 8 + size;
    if data > length {
        return Err(error::short(data, length));
    }
    sink.hold(size as usize)?;
    let mut text = vec![0; size as usize];
    input.read_exact(&mut text).map_err(error::reading)?;
    if text.first() != Some(&b'{') {
        return Err(error::malformed("safetensors", "its header does not begin with `{`"));
    }
    // Each name is stored twice: in the list and in the set of names seen. Every entry has a colon.
    let colons = text.iter().filter(|&&byte| byte == b':').count();
    sink.hold(ENTRY.saturating_mul(colons).saturating_add(2 * text.len()))?;
    let header: Header = match serde_json::from_slice(&text) {
        Ok(header) => header,
        Err(e) => {
            sink.hold(0)?;
            return Err(error::malformed("safetensors", format!("its header cannot be read ({e})")));
        }
    };
    drop(text);
    if let Some(name) = &header.twice {
        return Err(error::duplicate(name));
    }
    header.check_ranges(length - data)?;
    for (key, note) in &header.notes {
        sink.note(key, note)?;
    }
    for (name, part) in &header.parts {
        if !sink.wants(name) {
            continue;
        }
        let head = part.head(name)?;
        input.seek(SeekFrom::Start(data + part.range()[0])).map_err(error::reading)?;
        let mut input = &mut *input;
        sink.array(Some(name), &head, &mut Plain::new(&mut input, head.dtype, false) as &mut dyn Elements)?;
    }
    Ok(())
}

/// The header, in file order.
#[derive(Default)]
struct Header {
    parts: Vec<(String, Part)>,
    notes: Vec<(String, String)>,
    /// The first duplicate name.
    twice: Option<String>,
}

/// A tensor in the header.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Part {
    dtype: String,
    shape: Vec<Count>,
    data_offsets: [Count; 2],
}

/// A non-negative number.
#[derive(Clone, Copy)]
struct Count(u64);

impl Part {
    fn head(&self, name: &str) -> Result<Head> {
        let dtype = Dtype::ALL.into_iter().find(|dtype| dtype.safetensors() == Some(&*self.dtype));
        let dtype = dtype.ok_or_else(|| error::foreign_dtype(name, &self.dtype))?;
        let shape = self.shape.iter().map(|n| usize::try_from(n.0).ok()).collect::<Option<Vec<usize>>>();
        let head = Head::new(dtype, shape.ok_or_else(|| error::too_large("an extent"))?)?;
        let [from, to] = self.range();
        let given = to - from;
        if head.bytes() != given {
            let what = format!("an array of {} bytes has a range of {given}", head.bytes());
            return Err(error::ranges(what));
        }
        Ok(head)
    }

    /// Start and end of its elements, relative to the end of the header.
    fn range(&self) -> [u64; 2] {
        self.data_offsets.map(|offset| offset.0)
    }
}

impl Header {
    /// Checks that the ranges cover `length` bytes exactly once.
    fn check_ranges(&self, length: u64) -> Result<()> {
        let mut ranges: Vec<[u64; 2]> = self.parts.iter().map(|(_, part)| part.range()).collect();
        ranges.sort_unstable();
        let mut end = 0;
        for [from, to] in ranges {
            if from > to {
                return Err(error::ranges(format!("a range goes from {from} to {to}")));
            }
            match from.cmp(&end) {
                std::cmp::Ordering::Less => {
                    return Err(error::ranges(format!("byte {from} belongs to two arrays")));
                }
                std::cmp::Ordering::Greater => {
                    return Err(error::ranges(format!("bytes {end} to {from} belong to no array")));
                }
                std::cmp::Ordering::Equal => end = to,
            }
        }
        exactly(end, length)
    }
}

/// An error if this thread has been asked to stop.
fn check_stop<E: de::Error>() -> Result<(), E> {
    match stop::is_due(16) && stop::reason().is_some() {
        true => Err(E::custom("stopped")),
        false => Ok(()),
    }
}

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Header, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Header;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a table of arrays")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Header, A::Error> {
                let (mut header, mut names) = (Header::default(), HashSet::new());
                while let Some(name) = map.next_key::<String>()? {
                    check_stop()?;
                    if !names.insert(name.clone()) {
                        header.twice.get_or_insert_with(|| name.clone());
                    }
                    match name.as_str() {
                        "__metadata__" => {
                            let Notes { texts, twice } = map.next_value()?;
                            header.notes = texts;
                            header.twice = header.twice.take().or(twice);
                        }
                        _ => header.parts.push((name, map.next_value()?)),
                    }
                }
                Ok(header)
            }
        }
        from.deserialize_map(Entries)
    }
}

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Count, D::Error> {
        struct Number;
        impl Visitor<'_> for Number {
            type Value = Count;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a number of 0 or more")
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Count, E> {
                Ok(Count(number))
            }
        }
        from.deserialize_u64(Number)
    }
}

/// The strings stored next to the tensors.
struct Notes {
    texts: Vec<(String, String)>,
    /// The first duplicate key.
    twice: Option<String>,
}

impl<'de> Deserialize<'de> for Notes {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Notes, D::Error> {
        struct Texts;
        impl<'de> Visitor<'de> for Texts {
            type Value = Notes;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a table of strings")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Notes, A::Error> {
                let (mut texts, mut twice, mut keys) = (Vec::new(), None, HashSet::new());
                while let Some((key, text)) = map.next_entry::<String, String>()? {
                    check_stop()?;
                    if !keys.insert(key.clone()) {
                        twice.get_or_insert_with(|| key.clone());
                    }
                    texts.push((key, text));
                }
                Ok(Notes { texts, twice })
            }
        }
        from.deserialize_map(Texts)
    }
}

fn write(output: &mut dyn Output, contents: Contents<'_>, _: &Options) -> Result<()> {
    if !contents.named {
        return Err(error::contents("safetensors", "tensors with names", "one tensor without a name"));
    }
    let mut arrays = Vec::new();
    for entry in &contents.entries {
        let Column::Array { dtype, shape } = &entry.column else {
            return Err(error::contents("safetensors", "tensors", "strings"));
        };
        let Some(name) = dtype.safetensors() else {
            let help = match dtype.is_complex() {
                true => "convert it with `.to(c64)`, or save its parts: `view_as_real(x)`",
                false => "convert it with `.to(f32)`",
            };
            return Err(error::cannot_hold("safetensors", *dtype, help));
        };
        if entry.name == "__metadata__" {
            return Err(error::contents(
                "safetensors",
                "strings under `__metadata__`",
                "a tensor of that name",
            ));
        }
        arrays.push((Head::new(*dtype, shape.clone())?, name));
    }
    // Wide elements first, so that each array is aligned to its element size. The header keeps the given
    // order.
    let mut order: Vec<usize> = (0..arrays.len()).collect();
    order.sort_by_key(|&i| std::cmp::Reverse(arrays[i].0.dtype.size()));
    let mut offsets = vec![0; arrays.len()];
    let mut end = 0u64;
    for &i in &order {
        offsets[i] = end;
        end = end.saturating_add(arrays[i].0.bytes());
    }
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let mut fields = Vec::new();
    if !contents.notes.is_empty() {
        let notes = contents.notes.iter().map(|(k, v)| format!("{}:{}", quoted(k), quoted(v)));
        fields.push(format!("\"__metadata__\":{{{}}}", notes.collect::<Vec<_>>().join(",")));
    }
    for ((entry, (head, dtype)), from) in contents.entries.iter().zip(&arrays).zip(&offsets) {
        let shape = head.stored.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        let (name, to) = (quoted(&entry.name), from + head.bytes());
        fields.push(format!(
            "{name}:{{\"dtype\":\"{dtype}\",\"shape\":[{shape}],\"data_offsets\":[{from},{to}]}}"
        ));
    }
    let mut header = format!("{{{}}}", fields.join(","));
    header.extend(std::iter::repeat_n(' ', header.len().next_multiple_of(8) - header.len()));
    if header.len() as u64 > HEADER {
        return Err(error::contents("safetensors", "a header of at most 100 MB", "more names than that"));
    }
    output.write_all(&(header.len() as u64).to_le_bytes()).map_err(error::reading)?;
    output.write_all(header.as_bytes()).map_err(error::reading)?;
    for &i in &order {
        let bytes = (contents.bytes)(i)?;
        output.write_all(&bytes).map_err(error::reading)?;
    }
    Ok(())
}
