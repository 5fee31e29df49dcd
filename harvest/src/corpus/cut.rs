//! Where one unit ends and the next begins: behind a document, when there are enough bytes. The corpus is read once for
//! it, in order, and every unit gets the hash of its bytes.

use hookpoint::Result;

use super::file::Source;
use crate::error::HarvestError;
use crate::job::{CorpusFile, Documents, Unit};

/// A unit with a document that is longer is not computed: it is held in memory as a whole.
pub(crate) const LONGEST_UNIT: u64 = 256 << 20;
const PIECE: u64 = 4 << 20;

/// The units of one file, which has this number in the corpus.
pub(crate) fn cut(
    number: usize,
    file: &CorpusFile,
    documents: &Documents,
    unit_bytes: u64,
) -> Result<Vec<Unit>> {
    let source = Source::of(file)?;
    let mut units = Vec::new();
    let mut hasher = blake3::Hasher::new();
    let (mut begin, mut at) = (0, 0);
    let mut line = Line::Empty;
    let mut finish = |hasher: &mut blake3::Hasher, start: u64, end: u64| -> Result<()> {
        if end - start > LONGEST_UNIT {
            let what = format!(
                "{}: a document that begins at byte {start} or later is longer than {LONGEST_UNIT} bytes",
                file.path
            );
            let remedy = match documents {
                Documents::Text => "plain text is cut at empty lines: put one between documents",
                _ => "take it out of the corpus, or make several of it",
            };
            return Err(HarvestError::CannotPlan { what, remedy: remedy.to_string() }.into());
        }
        let blake3 = std::mem::take(hasher).finalize().to_hex().to_string();
        units.push(Unit { file: number, start, end, blake3 });
        Ok(())
    };
    while at < file.bytes {
        let piece = source.read(at..file.bytes.min(at + PIECE))?;
        let mut hashed = 0;
        for (place, byte) in piece.iter().enumerate() {
            let end = at + place as u64 + 1;
            if line.ends_document(*byte, documents) && end - begin >= unit_bytes {
                hasher.update(piece.get(hashed..place + 1).unwrap_or_default());
                hashed = place + 1;
                finish(&mut hasher, begin, end)?;
                begin = end;
            }
        }
        hasher.update(piece.get(hashed..).unwrap_or_default());
        at += piece.len() as u64;
    }
    if begin < file.bytes {
        finish(&mut hasher, begin, file.bytes)?;
    }
    Ok(units)
}

/// What the line has so far.
enum Line {
    Empty,
    Text,
}

impl Line {
    /// Takes the next byte. Does a document end with it?
    fn ends_document(&mut self, byte: u8, documents: &Documents) -> bool {
        match byte {
            b'\n' => {
                let was_empty = matches!(std::mem::replace(self, Self::Empty), Self::Empty);
                was_empty || !matches!(documents, Documents::Text)
            }
            b'\r' => false,
            _ => {
                *self = Self::Text;
                false
            }
        }
    }
}
