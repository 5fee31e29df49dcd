//! GGUF files that tests make themselves.

/// A GGUF file, part by part.
#[derive(Clone)]
pub struct Made {
    /// Names, and values with the number of their type before them.
    pub metadata: Vec<(String, Vec<u8>)>,
    /// Names, sizes with the innermost first, the number of the type, and where they are in the data.
    pub tensors: Vec<(String, Vec<u64>, u32, u64)>,
    /// How many bytes of data there are; all are 0.
    pub data: usize,
}

/// A text as it is in a file.
pub fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
}

/// A value with the number of its type before it.
pub fn typed(kind: u32, value: &[u8]) -> Vec<u8> {
    [&kind.to_le_bytes(), value].concat()
}

/// A number as a value.
pub fn number(value: u32) -> Vec<u8> {
    typed(4, &value.to_le_bytes())
}

/// A list of texts as a value.
pub fn texts(values: &[&str]) -> Vec<u8> {
    let count = (values.len() as u64).to_le_bytes();
    let elements: Vec<u8> = values.iter().flat_map(|value| text(value)).collect();
    typed(9, &[&8u32.to_le_bytes()[..], &count, &elements].concat())
}

impl Made {
    /// A model without blocks: the least that can be loaded.
    pub fn smallest() -> Self {
        let sizes = [
            ("context_length", 8),
            ("embedding_length", 4),
            ("block_count", 0),
            ("feed_forward_length", 4),
            ("attention.head_count", 2),
        ];
        let mut made = Self { metadata: Vec::new(), tensors: Vec::new(), data: 200 };
        made.set("general.architecture", typed(8, &text("llama")));
        for (name, size) in sizes {
            made.set(&format!("llama.{name}"), number(size));
        }
        made.set("llama.attention.layer_norm_rms_epsilon", typed(6, &1e-5f32.to_le_bytes()));
        made.tensors.push(("token_embd.weight".to_string(), vec![4, 8], 0, 0));
        made.tensors.push(("output_norm.weight".to_string(), vec![4], 0, 128));
        made
    }

    /// A model with one block and a tokenizer.
    pub fn small() -> Self {
        let mut made = Self::smallest().with("llama.block_count", number(1));
        made.set("tokenizer.ggml.model", typed(8, &text("gpt2")));
        made.set("tokenizer.ggml.tokens", texts(&["a", "b", "ab", "c", "d", "e", "f", "g"]));
        made.set("tokenizer.ggml.merges", texts(&["a b"]));
        for name in ["attn_norm", "ffn_norm"] {
            made.push(&format!("blk.0.{name}.weight"), &[4]);
        }
        for name in ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"] {
            made.push(&format!("blk.0.{name}.weight"), &[4, 4]);
        }
        made
    }

    /// Puts a tensor of f32 behind the data.
    fn push(&mut self, name: &str, dims: &[u64]) {
        let offset = self.data.next_multiple_of(32);
        self.tensors.push((name.to_string(), dims.to_vec(), 0, offset as u64));
        self.data = offset + 4 * dims.iter().product::<u64>() as usize;
    }

    /// Puts an entry into the metadata, in the place of one with that name.
    pub fn set(&mut self, name: &str, value: Vec<u8>) {
        self.metadata.retain(|(other, _)| other != name);
        self.metadata.push((name.to_string(), value));
    }

    /// With an entry of metadata.
    pub fn with(mut self, name: &str, value: Vec<u8>) -> Self {
        self.set(name, value);
        self
    }

    /// Without an entry of metadata.
    pub fn without(mut self, name: &str) -> Self {
        self.metadata.retain(|(other, _)| other != name);
        self
    }

    /// The whole file.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = b"GGUF".to_vec();
        bytes.extend(3u32.to_le_bytes());
        bytes.extend((self.tensors.len() as u64).to_le_bytes());
        bytes.extend((self.metadata.len() as u64).to_le_bytes());
        for (name, value) in &self.metadata {
            bytes.extend(text(name));
            bytes.extend(value);
        }
        for (name, dims, dtype, offset) in &self.tensors {
            bytes.extend(text(name));
            bytes.extend((dims.len() as u32).to_le_bytes());
            bytes.extend(dims.iter().flat_map(|dim| dim.to_le_bytes()));
            bytes.extend(dtype.to_le_bytes());
            bytes.extend(offset.to_le_bytes());
        }
        bytes.resize(bytes.len().next_multiple_of(32) + self.data, 0);
        bytes
    }
}
