use hookpoint::prelude::*;

struct Model;

#[auto_hook]
impl Model {
    const SIZE: usize = 1;

    fn new() -> Self {
        Model
    }
}

fn main() {}
