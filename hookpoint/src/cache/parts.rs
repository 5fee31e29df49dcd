//! Parts of cached tensors that were asked for by index, made when first asked for.

use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;

use candle_core::Tensor;

/// A map that grows behind a shared reference, so that `cache["a[0]"]` can hand out a reference.
///
/// It is a tree in which the bits of a key's hash say where to go on; what is in it stays where it is.
#[derive(Default)]
pub(super) struct Parts {
    hashing: RandomState,
    first: Link,
}

type Link = OnceLock<Box<Part>>;

struct Part {
    key: String,
    tensor: Tensor,
    next: [Link; 4],
}

/// A copy starts empty: what it is asked for, it makes again.
impl Clone for Parts {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl Parts {
    pub fn get(&self, key: &str) -> Option<&Tensor> {
        self.walk(key, |link| link.get())
    }

    /// Adds a part, unless another thread was quicker.
    pub fn add(&self, key: &str, tensor: &Tensor) -> Option<&Tensor> {
        let new = || {
            let (key, tensor) = (key.to_string(), tensor.clone());
            Box::new(Part { key, tensor, next: Default::default() })
        };
        self.walk(key, |link| Some(link.get_or_init(new)))
    }

    fn walk<'p>(&'p self, key: &str, at: impl Fn(&'p Link) -> Option<&'p Box<Part>>) -> Option<&'p Tensor> {
        let hash = self.hashing.hash_one(key);
        let mut link = &self.first;
        for depth in 0u32.. {
            let part = at(link)?;
            if part.key == key {
                return Some(&part.tensor);
            }
            // Two bits for each step. Keys whose hashes are all equal do not occur in practice.
            let way = hash.rotate_right(2 * depth) & 3;
            link = part.next.get(way as usize)?;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::Device;

    fn number(n: usize) -> Tensor {
        Tensor::new(n as u32, &Device::Cpu).unwrap()
    }

    #[test]
    fn many_parts_are_found_again_where_they_were() {
        let parts = Parts::default();
        let added: Vec<&Tensor> =
            (0..2_000).map(|n| parts.add(&format!("a[{n}]"), &number(n)).unwrap()).collect();
        for (n, tensor) in added.iter().enumerate() {
            let found = parts.get(&format!("a[{n}]")).unwrap();
            assert!(std::ptr::eq(found, *tensor));
            assert_eq!(found.to_scalar::<u32>().unwrap(), n as u32);
        }
        assert!(parts.get("b").is_none());
    }

    #[test]
    fn the_first_of_two_equal_keys_stays() {
        let parts = Parts::default();
        parts.add("a", &number(1));
        assert_eq!(parts.add("a", &number(2)).unwrap().to_scalar::<u32>().unwrap(), 1);
    }

    #[test]
    fn threads_agree_on_one_part() {
        let parts = Parts::default();
        let ids: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|n| {
                    scope.spawn({
                        let parts = &parts;
                        move || parts.add("a", &number(n)).unwrap().id()
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(ids.iter().all(|id| *id == ids[0]));
    }
}
