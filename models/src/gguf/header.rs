//! The bytes before the tensors, read one after the other.

use std::io::Read;

use hookpoint::{Error, Result};

use super::metadata::{Array, Metadata, Number, Value};

/// More than any model has.
const MOST_ENTRIES: u64 = 1 << 20;
const MOST_ELEMENTS: u64 = 1 << 24;
const LONGEST_NAME: u64 = 1 << 16;
const LONGEST_TEXT: u64 = 1 << 24;

/// A tensor as the header speaks of it.
pub struct Entry {
    pub name: String,
    /// As candle has it: the dimension that is contiguous last.
    pub shape: Vec<usize>,
    /// The number of its type.
    pub dtype: u32,
    /// From where the tensors begin.
    pub offset: u64,
}

/// Reads, and knows how much of the file is left.
pub struct Header<R> {
    from: R,
    left: u64,
    read: u64,
}

impl<R: Read> Header<R> {
    /// Of a file of so many bytes.
    pub fn new(from: R, length: u64) -> Self {
        Self { from, left: length, read: 0 }
    }

    /// All of it: metadata, tensors, and where the header ends.
    pub fn read(mut self) -> Result<(Metadata, Vec<Entry>, u64)> {
        let magic = self.bytes(4).map_err(|_| not_gguf())?;
        if magic != b"GGUF" {
            return Err(not_gguf());
        }
        match self.u32()? {
            2 | 3 => {}
            1 => {
                return Err(Error::msg(
                    "this is GGUF of version 1, which is no longer written\n  convert the model anew",
                ))
            }
            big if big.swap_bytes() <= 3 => {
                return Err(Error::msg(
                    "this file is for machines of the other byte order\n  convert the model anew",
                ))
            }
            other => {
                return Err(Error::msg(format!(
                    "this is GGUF of version {other}, which is not known here\n  known are 2 and 3"
                )))
            }
        }
        let tensors = self.count("tensors", 8 + 4 + 4 + 8, MOST_ENTRIES)?;
        let entries = self.count("entries of metadata", 8 + 4 + 1, MOST_ENTRIES)?;
        let mut metadata = Metadata::default();
        for _ in 0..entries {
            let name = self.text(LONGEST_NAME)?;
            let kind = self.u32()?;
            let value = self.value(kind).map_err(|error| Error::msg(format!("`{name}`: {error}")))?;
            metadata.insert(name, value)?;
        }
        let tensors = (0..tensors).map(|_| self.entry()).collect::<Result<_>>()?;
        Ok((metadata, tensors, self.read))
    }

    fn entry(&mut self) -> Result<Entry> {
        let name = self.text(LONGEST_NAME)?;
        let dims = self.u32()?;
        if dims > 4 {
            return Err(Error::msg(format!("`{name}` has {dims} dimensions; there are at most 4")));
        }
        let mut shape = (0..dims).map(|_| Ok(self.u64()? as usize)).collect::<Result<Vec<_>>>()?;
        shape.reverse();
        Ok(Entry { name, shape, dtype: self.u32()?, offset: self.u64()? })
    }

    fn value(&mut self, kind: u32) -> Result<Value> {
        if let Some(number) = Number::of(kind) {
            let bytes = self.bytes(number.size())?;
            return match number.read(&bytes) {
                Some(number) => Ok(Value::Number(number)),
                None => Err(Error::msg("this is no number")),
            };
        }
        match kind {
            7 => match self.bytes(1)?.as_slice() {
                [0] => Ok(Value::Bool(false)),
                [1] => Ok(Value::Bool(true)),
                other => Err(Error::msg(format!("{other:?} is neither true nor false"))),
            },
            8 => Ok(Value::Text(self.text(LONGEST_TEXT)?)),
            9 => self.array().map(Value::Array),
            other => Err(Error::msg(format!("values of type {other} are not known here"))),
        }
    }

    fn array(&mut self) -> Result<Array> {
        let kind = self.u32()?;
        match (Number::of(kind), kind) {
            (Some(number), _) => {
                let count = self.count("elements", number.size() as u64, MOST_ELEMENTS)?;
                let bytes = self.bytes(count as usize * number.size())?;
                Ok(Array::Numbers(number, bytes))
            }
            (None, 7) => {
                let count = self.count("elements", 1, MOST_ELEMENTS)?;
                self.bytes(count as usize)?;
                Ok(Array::Other)
            }
            (None, 8) => {
                let count = self.count("elements", 8, MOST_ELEMENTS)?;
                Ok(Array::Texts((0..count).map(|_| self.text(LONGEST_TEXT)).collect::<Result<_>>()?))
            }
            (None, 9) => Err(Error::msg("lists of lists are not known here")),
            (None, other) => Err(Error::msg(format!("lists of type {other} are not known here"))),
        }
    }

    /// How many of something there are, each of at least `least` bytes.
    fn count(&mut self, what: &str, least: u64, most: u64) -> Result<u64> {
        let count = self.u64()?;
        if count > most || count.saturating_mul(least) > self.left {
            let left = self.left;
            return Err(Error::msg(format!("it claims {count} {what}, and {left} bytes are left")));
        }
        Ok(count)
    }

    fn text(&mut self, most: u64) -> Result<String> {
        let length = self.u64()?;
        if length > most {
            return Err(Error::msg(format!("it claims a text of {length} bytes")));
        }
        // Some converters have written bytes that are no UTF-8.
        Ok(String::from_utf8_lossy(&self.bytes(length as usize)?).into_owned())
    }

    fn u32(&mut self) -> Result<u32> {
        let bytes = self.bytes(4)?;
        Ok(bytes.iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte)))
    }

    fn u64(&mut self) -> Result<u64> {
        let bytes = self.bytes(8)?;
        Ok(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    fn bytes(&mut self, count: usize) -> Result<Vec<u8>> {
        let size = count as u64;
        if size > self.left {
            return Err(Error::msg(format!("it ends where {count} bytes more should be")));
        }
        let mut bytes = vec![0; count];
        self.from.read_exact(&mut bytes).map_err(|error| Error::msg(error.to_string()))?;
        self.left -= size;
        self.read += size;
        Ok(bytes)
    }
}

fn not_gguf() -> Error {
    Error::msg("this is no GGUF file: it does not begin with `GGUF`")
}
