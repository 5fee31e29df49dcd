#[derive(HookValue)]
struct Output {
    logits: Tensor,
    #[hook(skip)]
    steps: usize,
}

#[derive(HookValue)]
struct Pair<T>(T, Tensor);
