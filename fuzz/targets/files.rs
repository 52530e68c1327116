//! File formats: arrays whose elements all come from the file, or an error with a code.

use runnel::files::{Elements, Head, Options, Sink, format};

/// Collects a reader's output in pieces.
struct Pieces;

impl Sink for Pieces {
    fn wants(&mut self, name: &str) -> bool {
        name != "unwanted"
    }

    fn array(&mut self, _: Option<&str>, head: &Head, elements: &mut dyn Elements) -> runnel::Result<()> {
        let mut left = head.bytes() as usize;
        let mut piece = [0; 4096];
        while left > 0 {
            let now = left.min(piece.len());
            elements.fill(&mut piece[..now])?;
            left -= now;
        }
        Ok(())
    }

    fn texts(&mut self, _: &str, _: Vec<String>) -> runnel::Result<()> {
        Ok(())
    }

    fn note(&mut self, _: &str, _: &str) -> runnel::Result<()> {
        Ok(())
    }

    fn hold(&mut self, _: usize) -> runnel::Result<()> {
        Ok(())
    }
}

/// Reads bytes as a file of this format.
pub fn read(name: &str, data: &[u8]) {
    let format = format(name).expect("a known format");
    let result = (format.read)(&mut std::io::Cursor::new(data), &Options::default(), &mut Pieces);
    if let Err(error) = result {
        assert!(error.code().id.starts_with("E09"), "{error:?}");
    }
}
