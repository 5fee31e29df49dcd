use hookpoint::prelude::*;

#[derive(AutoHook)]
union Either {
    a: u32,
    b: f32,
}

#[derive(HookValue)]
union Value {
    a: u32,
    b: f32,
}

fn main() {}
