#[derive(AutoHook)]
struct Mlp {
    up: Linear,
    #[hook(name = "out")]
    down: Option<Linear>,
    #[hook(skip)]
    config: Config,
}

#[derive(AutoHook)]
struct Wrapper<'a, M: Module, F: Fn(usize), const N: usize = 2>([M; N], &'a Tensor, F);

#[derive(AutoHook)]
enum Kind {
    One(Linear),
    Two { up: Linear, r#type: Tensor },
    None,
}
