use hookpoint::prelude::*;

#[auto_hook]
mod elsewhere;

fn main() {}
