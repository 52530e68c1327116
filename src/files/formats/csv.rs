//! `.csv`: a table of numbers, or of named columns.
//!
//! The table is read twice: first for its size and column types, then for the values. A table of numbers is
//! read row by row; the values of named columns are held until each column becomes a tensor. A column is bool
//! (`true`, `false`), int, float or text; an empty numeric field is nan.

use super::image::Unpacked;
use super::{
    Column, Contents, Elements, Entry, Format, Head, Input, Options, Output, Pieces, Sink, error, length,
};
use crate::array::{Dtype, Scalar};
use crate::base::{Error, Result};
use ::csv::{ByteRecord, Reader, ReaderBuilder, WriterBuilder};
use std::io::{Read, SeekFrom};

/// This format's entry.
pub const FORMAT: Format = Format {
    name: "csv",
    endings: &["tsv"],
    doc: "A table. Only numbers: a tensor `[rows, columns]` (i64 when all are ints, else f32). With a first line of \
          names: a dict of columns, each a tensor or a list of strings. `header`, `delimiter` and `dtype` override \
          this.",
    read,
    write,
};

/// The longest line, in bytes.
const LINE: usize = 4 << 20;

/// The type of a column's fields so far.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Kind {
    /// All fields so far are empty.
    Empty,
    Bool,
    Int,
    Float,
    Text,
}

/// The type of a field.
fn kind_of(field: &[u8]) -> Kind {
    let field = field.trim_ascii();
    match std::str::from_utf8(field) {
        Ok("") => Kind::Empty,
        Ok("true" | "false") => Kind::Bool,
        Ok(text) if text.parse::<i64>().is_ok() => Kind::Int,
        Ok(text) if text.parse::<f64>().is_ok() => Kind::Float,
        _ => Kind::Text,
    }
}

impl Kind {
    /// The type that holds both. Empty fields are tracked by the caller.
    fn and(self, other: Kind) -> Kind {
        match (self, other) {
            (Kind::Empty, kind) | (kind, Kind::Empty) => kind,
            (Kind::Int | Kind::Float, Kind::Float) | (Kind::Float, Kind::Int) => Kind::Float,
            (a, b) if a == b => a,
            _ => Kind::Text,
        }
    }

    fn dtype(self, options: &Options) -> Dtype {
        match self {
            Kind::Bool => Dtype::Bool,
            Kind::Int => Dtype::I64,
            // The requested dtype is converted later, from the widest type.
            _ if options.dtype.is_some() => Dtype::F64,
            _ => Dtype::F32,
        }
    }
}

/// The state of a column during the first pass.
#[derive(Clone, Copy)]
struct ColumnState {
    kind: Kind,
    gaps: bool,
}

impl ColumnState {
    const NEW: ColumnState = ColumnState { kind: Kind::Empty, gaps: false };

    fn see(&mut self, kind: Kind) {
        self.gaps |= kind == Kind::Empty;
        self.kind = self.kind.and(kind);
    }

    /// The type of the column after the first pass.
    fn kind(self) -> Kind {
        match (self.kind, self.gaps) {
            (Kind::Int | Kind::Empty, true) => Kind::Float,
            (Kind::Bool, true) => Kind::Text,
            (kind, _) => kind,
        }
    }
}

/// The result of the first pass.
struct Shape {
    names: Option<Vec<String>>,
    columns: Vec<ColumnState>,
    rows: usize,
    /// The first text field and its line.
    text: Option<(u64, String)>,
}

fn read(input: &mut dyn Input, options: &Options, sink: &mut dyn Sink) -> Result<()> {
    let length = length(input)?;
    let shape = infer_shape(input, options, sink)?;
    if shape.rows as u64 > length {
        return Err(changed());
    }
    input.seek(SeekFrom::Start(0)).map_err(error::reading)?;
    match &shape.names {
        Some(names) => read_columns(input, options, sink, names, (&shape, length)),
        None => read_numbers(input, options, sink, &shape),
    }
}

fn infer_shape(input: &mut dyn Input, options: &Options, sink: &mut dyn Sink) -> Result<Shape> {
    let mut reader = reader(input, options);
    let mut record = ByteRecord::new();
    if !next(&mut reader, &mut record)? {
        return Err(error::malformed("csv", "it is empty"));
    }
    let columns = record.len();
    // Each name is stored twice: in the list and in the set of names seen.
    sink.hold(columns.saturating_mul(160).saturating_add(record.as_slice().len()))?;
    let named = options.header.unwrap_or_else(|| record.iter().any(|field| kind_of(field) == Kind::Text));
    let mut shape = Shape { names: None, columns: vec![ColumnState::NEW; columns], rows: 0, text: None };
    if named {
        let names: Option<Vec<String>> =
            record.iter().map(|f| std::str::from_utf8(f.trim_ascii()).ok().map(str::to_string)).collect();
        let names = names.ok_or_else(|| error::table(1, "a name is not UTF-8 text"))?;
        let mut seen = std::collections::HashSet::new();
        if let Some(twice) = names.iter().find(|name| !seen.insert(name.as_str())) {
            return Err(error::duplicate(twice));
        }
        shape.names = Some(names);
        record.clear();
        if !next(&mut reader, &mut record)? {
            return Ok(shape);
        }
    }
    loop {
        let line = record.position().map_or(0, ::csv::Position::line);
        if record.len() != columns {
            return Err(error::table(
                line,
                format!("it has {}, not {columns}", crate::base::counted(record.len(), "field")),
            ));
        }
        for (look, field) in shape.columns.iter_mut().zip(&record) {
            let kind = kind_of(field);
            if kind == Kind::Text && shape.text.is_none() {
                let text = String::from_utf8_lossy(field).chars().take(40).collect();
                shape.text = Some((line, text));
            }
            look.see(kind);
        }
        shape.rows += 1;
        if !next(&mut reader, &mut record)? {
            return Ok(shape);
        }
    }
}

/// Reads a purely numeric table as one array.
fn read_numbers(input: &mut dyn Input, options: &Options, sink: &mut dyn Sink, shape: &Shape) -> Result<()> {
    if let Some((line, text)) = &shape.text {
        let error = error::table(*line, format!("`{text}` is not a number"));
        return Err(error.help("with `header=true` the columns have names, and may hold strings"));
    }
    let mut whole = ColumnState::NEW;
    for look in &shape.columns {
        whole.see(look.kind());
    }
    let kind = match whole.kind() {
        // Bools in a numeric table count as numbers.
        Kind::Text => Kind::Float,
        kind => kind,
    };
    let head = Head::new(kind.dtype(options), vec![shape.rows, shape.columns.len()])?;
    let mut reader = reader(input, options);
    let mut record = ByteRecord::new();
    let mut numbers = Pieces::new(|row: &mut Vec<u8>| {
        if !next(&mut reader, &mut record)? {
            return Err(changed());
        }
        record.iter().for_each(|field| push_field(field, head.dtype, row));
        Ok(())
    });
    sink.array(None, &head, &mut numbers)?;
    match numbers.begun() && next(&mut reader, &mut record)? {
        true => Err(changed()),
        false => Ok(()),
    }
}

/// The values of a column during the second pass.
enum Values {
    Numbers(Dtype, Vec<u8>),
    Texts(Vec<String>),
    Unwanted,
}

fn read_columns(
    input: &mut dyn Input,
    options: &Options,
    sink: &mut dyn Sink,
    names: &[String],
    (shape, length): (&Shape, u64),
) -> Result<()> {
    let mut columns = Vec::new();
    for (name, look) in names.iter().zip(&shape.columns) {
        columns.push(match look.kind() {
            _ if !sink.wants(name) => Values::Unwanted,
            Kind::Text => {
                // A string takes at least one minimal allocation.
                sink.hold(shape.rows.saturating_mul(size_of::<String>() + 24))?;
                Values::Texts(Vec::with_capacity(shape.rows))
            }
            kind => {
                let dtype = kind.dtype(options);
                let bytes = Head::new(dtype, vec![shape.rows])?.bytes() as usize;
                sink.hold(bytes)?;
                Values::Numbers(dtype, Vec::with_capacity(bytes))
            }
        });
    }
    let texts = columns.iter().any(|column| matches!(column, Values::Texts(_)));
    if texts {
        sink.hold(usize::try_from(length).unwrap_or(usize::MAX))?;
    }
    let mut reader = reader(input, options);
    let mut record = ByteRecord::new();
    next(&mut reader, &mut record)?;
    let mut rows = 0;
    while next(&mut reader, &mut record)? {
        rows += 1;
        for (column, field) in columns.iter_mut().zip(&record) {
            match column {
                Values::Numbers(dtype, bytes) => push_field(field, *dtype, bytes),
                Values::Texts(texts) => {
                    let line = record.position().map_or(0, ::csv::Position::line);
                    let text = std::str::from_utf8(field)
                        .map_err(|_| error::table(line, "a field is not UTF-8 text"))?;
                    texts.push(text.to_string());
                }
                Values::Unwanted => {}
            }
        }
    }
    if rows != shape.rows {
        return Err(changed());
    }
    for (name, column) in names.iter().zip(columns) {
        match column {
            Values::Numbers(dtype, bytes) => {
                let head = Head::new(dtype, vec![shape.rows])?;
                sink.array(Some(name), &head, &mut Unpacked(&bytes) as &mut dyn Elements)?;
            }
            Values::Texts(texts) => sink.texts(name, texts)?,
            Values::Unwanted => {}
        }
    }
    Ok(())
}

fn changed() -> Error {
    error::malformed("csv", "it changed while it was read")
}

/// Appends the value of a field.
fn push_field(field: &[u8], dtype: Dtype, bytes: &mut Vec<u8>) {
    let text = std::str::from_utf8(field.trim_ascii()).unwrap_or("");
    let float = || match text {
        "true" => 1.0,
        "false" => 0.0,
        text => text.parse::<f64>().unwrap_or(f64::NAN),
    };
    match dtype {
        Dtype::Bool => bytes.push(u8::from(text == "true")),
        Dtype::I64 => bytes.extend(text.parse::<i64>().unwrap_or(0).to_ne_bytes()),
        Dtype::F64 => bytes.extend(float().to_ne_bytes()),
        // Parse directly: going through f64 would round twice.
        _ => bytes.extend(text.parse::<f32>().unwrap_or_else(|_| float() as f32).to_ne_bytes()),
    }
}

fn reader<'a>(input: &'a mut dyn Input, options: &Options) -> Reader<Lines<'a>> {
    ReaderBuilder::new().has_headers(false).flexible(true).delimiter(options.delimiter).from_reader(Lines {
        input,
        run: 0,
        quotes: Quotes::new(options.delimiter),
    })
}

fn next(reader: &mut Reader<Lines<'_>>, record: &mut ByteRecord) -> Result<bool> {
    let found = reader.read_byte_record(record).map_err(|e| match e.into_kind() {
        ::csv::ErrorKind::Io(e) if e.kind() == std::io::ErrorKind::FileTooLarge => {
            error::too_large("a line of more than 4 MiB")
        }
        ::csv::ErrorKind::Io(e) => error::reading(e),
        other => error::malformed("csv", format!("{other:?}")),
    })?;
    match reader.get_ref().quotes.open {
        // The field that starts here took the rest of the file.
        Some(line) if reader.get_ref().quotes.ended => {
            Err(error::table(line, "a quote that begins here is never closed"))
        }
        _ => Ok(found),
    }
}

/// Tracks quotes: the CSV reader accepts a quoted field without an end.
struct Quotes {
    delimiter: u8,
    place: State,
    line: u64,
    /// Number of bytes of a byte order mark seen.
    mark: usize,
    /// The line of the open quote.
    open: Option<u64>,
    ended: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    /// Before a field.
    Before,
    /// In an unquoted field, or after a closing quote.
    Plain,
    Quoted,
    /// After a quote inside a quoted field: either the closing quote or the first half of an escaped one.
    Quote,
}

impl Quotes {
    fn new(delimiter: u8) -> Quotes {
        Quotes { delimiter, place: State::Before, line: 1, mark: 0, open: None, ended: false }
    }

    fn pass(&mut self, bytes: &[u8]) {
        self.ended |= bytes.is_empty();
        for &byte in bytes {
            if self.mark < 3 {
                self.mark = if byte == b"\xef\xbb\xbf"[self.mark] { self.mark + 1 } else { 4 };
                if self.mark < 4 {
                    continue;
                }
            }
            self.place = match (self.place, byte) {
                (State::Before, b'"') => {
                    self.open = Some(self.line);
                    State::Quoted
                }
                (State::Quoted, b'"') => State::Quote,
                (State::Quoted, _) | (State::Quote, b'"') => State::Quoted,
                (_, b'\n' | b'\r') => State::Before,
                (_, byte) if byte == self.delimiter => State::Before,
                _ => State::Plain,
            };
            if self.place != State::Quoted && self.place != State::Quote {
                self.open = None;
            }
            self.line += u64::from(byte == b'\n');
        }
        if self.ended && self.place == State::Quote {
            self.open = None;
        }
    }
}

/// The input; rejects lines that are too long.
struct Lines<'a> {
    input: &'a mut dyn Input,
    run: usize,
    quotes: Quotes,
}

impl Read for Lines<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let count = self.input.read(into)?;
        self.quotes.pass(&into[..count]);
        self.run = match into[..count].iter().rposition(|&byte| byte == b'\n') {
            Some(last) => count - last - 1,
            None => self.run + count,
        };
        match self.run > LINE {
            true => Err(std::io::ErrorKind::FileTooLarge.into()),
            false => Ok(count),
        }
    }
}

fn write(output: &mut dyn Output, contents: Contents<'_>, options: &Options) -> Result<()> {
    const HOLDS: &str = "a tensor of two dimensions, or columns of one length with names";
    let mut columns = Vec::new();
    let mut rows = None;
    for index in 0..contents.entries.len() {
        let bytes = match contents.entries[index].column {
            Column::Array { .. } => (contents.bytes)(index)?,
            Column::Texts(_) => Vec::new(),
        };
        let (extents, dtype) = match &contents.entries[index].column {
            Column::Array { dtype, shape } => (shape.clone(), Some(*dtype)),
            Column::Texts(texts) => (vec![texts.len()], None),
        };
        let (count, width) = match *extents.as_slice() {
            [] if !contents.named => (1, 1),
            [count] => (count, 1),
            [count, width] if !contents.named => (count, width),
            _ => return Err(error::contents("csv", HOLDS, &format!("a tensor of shape {extents:?}"))),
        };
        if rows.is_some_and(|rows| rows != count) {
            return Err(error::contents(
                "csv",
                HOLDS,
                &format!("columns of {} and {count} rows", rows.unwrap_or(0)),
            ));
        }
        rows = Some(count);
        columns.push((width, dtype, bytes));
    }
    let mut writer = WriterBuilder::new().delimiter(options.delimiter).flexible(true).from_writer(output);
    let mut put = |fields: &[String]| writer.write_record(fields).map_err(write_failed);
    if contents.named {
        put(&contents.entries.iter().map(|e| e.name.clone()).collect::<Vec<_>>())?;
    }
    for row in 0..rows.unwrap_or(0) {
        let mut fields = Vec::new();
        for (Entry { column, .. }, (width, dtype, bytes)) in contents.entries.iter().zip(&columns) {
            match (column, dtype) {
                (Column::Texts(texts), _) => fields.push(texts[row].clone()),
                (_, Some(dtype)) => {
                    let size = dtype.size();
                    let row = &bytes[row * width * size..(row + 1) * width * size];
                    for element in row.chunks_exact(size) {
                        fields.push(text_of(element, *dtype)?);
                    }
                }
                _ => {}
            }
        }
        put(&fields)?;
    }
    writer.flush().map_err(error::reading)
}

fn write_failed(e: ::csv::Error) -> Error {
    match e.into_kind() {
        ::csv::ErrorKind::Io(e) => error::reading(e),
        other => error::malformed("csv", format!("{other:?}")),
    }
}

/// The shortest string that parses to the same element.
fn text_of(bytes: &[u8], dtype: Dtype) -> Result<String> {
    if dtype.is_complex() {
        return Err(error::cannot_hold("csv", dtype, "save the real and the imaginary part as two columns"));
    }
    Ok(match Scalar::decode(bytes, dtype) {
        Scalar::Bool(b) => b.to_string(),
        Scalar::Int(i) => i.to_string(),
        value if value.as_f64().is_nan() => "nan".into(),
        // The shortest digits of an `f32` are those of a half, too.
        value if dtype.accumulator() == Dtype::F32 => format!("{:?}", value.as_f64() as f32),
        value => format!("{:?}", value.as_f64()),
    })
}
