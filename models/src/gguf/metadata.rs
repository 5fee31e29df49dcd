//! What a file says about its model.

use std::collections::HashMap;

use hookpoint::{Error, Result};

/// Values by name.
#[derive(Default, Debug)]
pub struct Metadata(HashMap<String, Value>);

/// One of them.
#[derive(Debug)]
pub enum Value {
    Number(f64),
    Bool(bool),
    Text(String),
    Array(Array),
}

/// Many of one kind.
#[derive(Debug)]
pub enum Array {
    /// As the file has them.
    Numbers(Number, Vec<u8>),
    Texts(Vec<String>),
    /// Nothing that is used here.
    Other,
}

/// How a number is written.
#[derive(Clone, Copy, Debug)]
pub enum Number {
    Unsigned(usize),
    Signed(usize),
    F32,
    F64,
}

impl Number {
    /// By the number of the type.
    pub fn of(kind: u32) -> Option<Self> {
        Some(match kind {
            0 => Self::Unsigned(1),
            1 => Self::Signed(1),
            2 => Self::Unsigned(2),
            3 => Self::Signed(2),
            4 => Self::Unsigned(4),
            5 => Self::Signed(4),
            6 => Self::F32,
            10 => Self::Unsigned(8),
            11 => Self::Signed(8),
            12 => Self::F64,
            _ => return None,
        })
    }

    /// How many bytes it has.
    pub fn size(self) -> usize {
        match self {
            Self::Unsigned(size) | Self::Signed(size) => size,
            Self::F32 => 4,
            Self::F64 => 8,
        }
    }

    /// The number of these bytes. Whole numbers above 2^53, which nothing here is, lose digits.
    pub fn read(self, bytes: &[u8]) -> Option<f64> {
        let unsigned = || bytes.iter().rev().fold(0u64, |number, byte| number << 8 | u64::from(*byte));
        Some(match self {
            Self::Unsigned(_) => unsigned() as f64,
            Self::Signed(size) => {
                // The sign is the highest bit of the bytes that there are.
                let unused = 64 - 8 * size as u32;
                ((unsigned() << unused) as i64 >> unused) as f64
            }
            Self::F32 => f64::from(f32::from_le_bytes(bytes.try_into().ok()?)),
            Self::F64 => f64::from_le_bytes(bytes.try_into().ok()?),
        })
    }
}

impl Metadata {
    pub(super) fn insert(&mut self, name: String, value: Value) -> Result<()> {
        match self.0.insert(name.clone(), value) {
            None => Ok(()),
            Some(_) => Err(Error::msg(format!("there are two entries `{name}`"))),
        }
    }

    fn get<'m, T>(
        &'m self,
        name: &str,
        kind: &str,
        read: impl Fn(&'m Value) -> Option<T>,
    ) -> Result<Option<T>> {
        let wrong = || Error::msg(format!("the entry `{name}` is not {kind}"));
        self.0.get(name).map(|value| read(value).ok_or_else(wrong)).transpose()
    }

    /// An entry that has to be there.
    pub fn needed<T>(name: &str, found: Option<T>) -> Result<T> {
        found.ok_or_else(|| Error::msg(format!("the metadata have no entry `{name}`, which is needed")))
    }

    /// A text.
    pub fn text(&self, name: &str) -> Result<Option<&str>> {
        self.get(name, "a text", |value| match value {
            Value::Text(text) => Some(text.as_str()),
            _ => None,
        })
    }

    /// True or false.
    pub fn bool(&self, name: &str) -> Result<Option<bool>> {
        self.get(name, "true or false", |value| match value {
            Value::Bool(value) => Some(*value),
            _ => None,
        })
    }

    /// A number.
    pub fn number(&self, name: &str) -> Result<Option<f64>> {
        self.get(name, "a number", |value| match value {
            Value::Number(number) => Some(*number),
            _ => None,
        })
    }

    /// A size, or the number of a token.
    pub fn size(&self, name: &str) -> Result<Option<usize>> {
        self.get(name, "a whole number that is not negative", |value| match value {
            Value::Number(number) if *number >= 0. && number.fract() == 0. && *number <= 2f64.powi(53) => {
                Some(*number as usize)
            }
            _ => None,
        })
    }

    /// Several texts.
    pub fn texts(&self, name: &str) -> Result<Option<&[String]>> {
        self.get(name, "a list of texts", |value| match value {
            Value::Array(Array::Texts(texts)) => Some(texts.as_slice()),
            _ => None,
        })
    }

    /// Several numbers.
    pub fn numbers(&self, name: &str) -> Result<Option<Vec<f64>>> {
        self.get(name, "a list of numbers", |value| match value {
            Value::Array(Array::Numbers(number, bytes)) => {
                bytes.chunks_exact(number.size()).map(|bytes| number.read(bytes)).collect()
            }
            _ => None,
        })
    }
}
