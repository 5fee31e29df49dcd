//! A network that holds its blocks in several ways.

use std::collections::BTreeMap;
use std::sync::Arc;

use candle_core::{Result, Tensor};

use super::blocks::Block;

type Blocks = Vec<Box<dyn Block>>;

pub struct Net {
    pub blocks: Blocks,
    pub shared: Option<Arc<dyn Block + Send + Sync>>,
    pub named: BTreeMap<String, Box<dyn Block>>,
}

impl Net {
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut h = x.clone();
        for block in &self.blocks {
            h = block.run(&h)?;
        }
        if let Some(shared) = &self.shared {
            h = shared.run(&h)?;
        }
        for block in self.named.values() {
            h = block.run(&h)?;
        }
        Ok(h)
    }
}
