//! File formats: arrays whose every element came from the file, or a coded error.

use runnel::files::{Elements, Head, Options, Sink, format};

/// Takes what a reader finds, in pieces.
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
}

/// Reads bytes as a file of a format.
pub fn read(name: &str, data: &[u8]) {
    let format = format(name).expect("a known format");
    let result = (format.read)(&mut std::io::Cursor::new(data), &Options::default(), &mut Pieces);
    if let Err(error) = result {
        assert!(error.code().id.starts_with("E09"), "{error:?}");
    }
}
