use hookpoint::prelude::*;

#[auto_hook]
struct Layer;

#[auto_hook]
enum Kind {
    One,
}

#[auto_hook]
async fn forward() {}

#[auto_hook]
trait Forward {
    fn forward(&self);
}

#[auto_hook]
const SIZE: usize = 1;

struct Model;

impl Model {
    #[auto_hook]
    fn forward(&self) {}
}

fn main() {}
