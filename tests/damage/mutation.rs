use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{select, Index};
use serde_json::{json, Value};

/// One thing that happens to a file.
#[derive(Clone, Debug)]
pub enum Mutation {
    Flip(Index, u8),
    Set(Index, u8),
    /// A length, a count or an offset becomes another.
    Number(Index, u64),
    Cut(Index),
    Remove(Index, usize),
    Insert(Index, Vec<u8>),
    Duplicate(Index, usize, Index),
}

/// Numbers at which something ends.
const EDGES: [u64; 10] =
    [0, 1, 0x7f, 1 << 16, 1 << 31, u32::MAX as u64, 1 << 40, 1 << 62, i64::MAX as u64, u64::MAX];

/// A few things, one after the other.
pub fn mutations() -> impl Strategy<Value = Vec<Mutation>> {
    let at = any::<Index>;
    let one = prop_oneof![
        (at(), 0..8u8).prop_map(|(at, bit)| Mutation::Flip(at, bit)),
        (at(), any::<u8>()).prop_map(|(at, byte)| Mutation::Set(at, byte)),
        (at(), select(&EDGES[..])).prop_map(|(at, number)| Mutation::Number(at, number)),
        at().prop_map(Mutation::Cut),
        (at(), 1..64usize).prop_map(|(at, count)| Mutation::Remove(at, count)),
        (at(), vec(any::<u8>(), 1..40)).prop_map(|(at, bytes)| Mutation::Insert(at, bytes)),
        (at(), 1..64usize, at()).prop_map(|(from, count, to)| Mutation::Duplicate(from, count, to)),
    ];
    vec(one, 1..5)
}

/// The bytes after all that has happened to them.
pub fn mutated(bytes: &[u8], mutations: &[Mutation]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for mutation in mutations {
        if bytes.is_empty() {
            break;
        }
        let length = bytes.len();
        match mutation {
            Mutation::Flip(at, bit) => bytes[at.index(length)] ^= 1 << bit,
            Mutation::Set(at, byte) => bytes[at.index(length)] = *byte,
            Mutation::Number(at, number) => {
                let place = bytes[at.index(length)..].iter_mut();
                place.zip(number.to_le_bytes()).for_each(|(byte, new)| *byte = new);
            }
            Mutation::Cut(at) => bytes.truncate(at.index(length)),
            Mutation::Remove(at, count) => {
                let at = at.index(length);
                bytes.drain(at..length.min(at + count));
            }
            Mutation::Insert(at, new) => {
                let at = at.index(length);
                bytes.splice(at..at, new.iter().copied());
            }
            Mutation::Duplicate(from, count, to) => {
                let (from, to) = (from.index(length), to.index(length));
                let part = bytes[from..length.min(from + count)].to_vec();
                bytes.splice(to..to, part);
            }
        }
    }
    bytes
}

/// What an entry of a config may have become.
pub fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        select(&EDGES[..]).prop_map(Value::from),
        (0..70u64).prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
        "[a-z_0-9]{0,12}".prop_map(Value::from),
        Just(Value::Null),
        Just(json!([])),
        Just(json!([1, "a", null])),
        Just(json!({ "rope_type": "linear", "factor": 1e300 })),
    ]
}
