//! Messages of the language server protocol: a header with the length, then JSON.
//!
//! Invariant: a message longer than [`MAX_MESSAGE`] ends the connection; one that is not JSON gets an error
//! response.

use serde_json::Value;
use std::io::{BufRead, Read, Result, Write};

/// The longest accepted message: 64 MiB.
const MAX_MESSAGE: usize = 64 << 20;

/// The result of a read.
pub enum Message {
    /// JSON.
    Json(Value),
    /// A message that is not valid JSON.
    Broken,
    /// End of input, or input that is not a message.
    End,
}

/// Reads a message.
pub fn read(from: &mut impl BufRead) -> Result<Message> {
    let mut length = None;
    loop {
        let mut line = String::new();
        // Header lines are short; a longer one is not a header.
        if from.by_ref().take(4096).read_line(&mut line)? == 0 {
            return Ok(Message::End);
        }
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        let Some((name, value)) = line.split_once(':') else { return Ok(Message::End) };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse::<usize>().ok().filter(|length| *length <= MAX_MESSAGE);
        }
    }
    let Some(length) = length else { return Ok(Message::End) };
    let mut bytes = Vec::new();
    if from.by_ref().take(length as u64).read_to_end(&mut bytes)? < length {
        return Ok(Message::End);
    }
    Ok(serde_json::from_slice(&bytes).map_or(Message::Broken, Message::Json))
}

/// Writes a message.
pub fn write(to: &mut impl Write, message: &Value) -> Result<()> {
    let text = message.to_string();
    write!(to, "Content-Length: {}\r\n\r\n{text}", text.len())?;
    to.flush()
}
