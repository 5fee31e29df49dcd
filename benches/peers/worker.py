"""The side of the other libraries: does what lines of JSON ask for, and answers each with the time that it took
and some of the numbers that came out.

    worker.py LIBRARY FOLDER                serve
    worker.py LIBRARY FOLDER --first ID ..  load, run once, print the numbers

LIBRARY is `transformers`, `transformer_lens` or `nnsight`. Each is used as its documentation says."""

import json
import sys
import time

SHOWN = 500


def shown(tensor):
    flat = tensor.detach().float().contiguous().reshape(-1)
    step = max(1, -(-flat.numel() // SHOWN))
    return flat[::step].tolist()


class Transformers:
    def __init__(self, folder, attention="sdpa"):
        import torch
        from transformers import GPT2LMHeadModel

        self.torch = torch
        self.model = GPT2LMHeadModel.from_pretrained(folder, attn_implementation=attention).eval()

    def forward(self, asked):
        with self.torch.no_grad():
            return [self.model(self.torch.tensor(asked["ids"]), use_cache=False).logits]


class TransformerLens(Transformers):
    def __init__(self, folder):
        super().__init__(folder, attention="eager")
        from transformer_lens import patching
        from transformer_lens.model_bridge import TransformerBridge

        self.patching = patching
        self.lens = TransformerBridge.boot_transformers(folder, hf_model=self.model, device="cpu")
        self.lens.enable_compatibility_mode(no_processing=True)

    def forward(self, asked):
        with self.torch.no_grad():
            return [self.lens(self.torch.tensor(asked["ids"]))]

    def cached(self, asked):
        with self.torch.no_grad():
            logits, cache = self.lens.run_with_cache(self.torch.tensor(asked["ids"]))
        self.kept = cache
        names = ["blocks.11.hook_resid_post", "blocks.5.attn.hook_pattern", "blocks.3.attn.hook_q",
                 "blocks.7.mlp.hook_post"]
        return [logits] + [cache[name] for name in names]

    def metric(self, asked):
        right, wrong = asked["right"], asked["wrong"]
        return lambda logits: logits[0, -1, right] - logits[0, -1, wrong]

    def sweep(self, asked):
        clean, corrupted = self.torch.tensor(asked["clean"]), self.torch.tensor(asked["corrupted"])
        sweeps = {
            "residual": self.patching.get_act_patch_resid_pre,
            "heads": self.patching.get_act_patch_attn_head_out_all_pos,
        }
        import contextlib, io

        with self.torch.no_grad(), contextlib.redirect_stderr(io.StringIO()):
            _, cache = self.lens.run_with_cache(clean)
            return [sweeps[asked["kind"]](self.lens, corrupted, cache, self.metric(asked))]

    def attribution(self, asked):
        clean, corrupted = self.torch.tensor(asked["clean"]), self.torch.tensor(asked["corrupted"])
        wanted = lambda name: name.endswith("hook_resid_pre")
        with self.torch.no_grad():
            _, there = self.lens.run_with_cache(clean, names_filter=wanted)
        here, grads = {}, {}

        # A hook is told the name that the point has inside, which is another one.
        def keep_in(kept, name):
            def keep(value, hook):
                kept[name] = value.detach()

            return name, keep

        names = [f"blocks.{layer}.hook_resid_pre" for layer in range(self.model.config.n_layer)]
        with self.lens.hooks(
            fwd_hooks=[keep_in(here, name) for name in names], bwd_hooks=[keep_in(grads, name) for name in names]
        ):
            self.metric(asked)(self.lens(corrupted)).backward()
        self.lens.zero_grad()
        found = [((there[name] - here[name]) * grads[name]).sum(-1) for name in names]
        return [self.torch.stack(found)]


class Nnsight(Transformers):
    def __init__(self, folder):
        super().__init__(folder)
        from nnsight import NNsight

        self.sight = NNsight(self.model)

    def cached(self, asked):
        sight, ids = self.sight, self.torch.tensor(asked["ids"])
        with self.torch.no_grad(), sight.trace(ids, use_cache=False) as tracer:
            cache = tracer.cache()
            logits = sight.output.logits.save()
        self.kept = cache
        return [logits]


def main():
    library, folder, *rest = sys.argv[1:]
    kinds = {"transformers": Transformers, "transformer_lens": TransformerLens, "nnsight": Nnsight}
    # What libraries print is not an answer.
    answers, sys.stdout = sys.stdout, sys.stderr
    worker = kinds[library](folder)
    say = lambda **answer: print(json.dumps(answer), file=answers, flush=True)
    if rest[:1] == ["--first"]:
        ids = [[int(id) for id in rest[1:]]]
        return say(values=shown(worker.forward({"ids": ids})[0]))
    say(ready=True)
    for line in sys.stdin:
        asked = json.loads(line)
        start, computing = time.perf_counter(), time.process_time()
        found = getattr(worker, asked["work"])(asked)
        seconds, cpu = time.perf_counter() - start, time.process_time() - computing
        say(seconds=seconds, cpu=cpu, values=[number for tensor in found for number in shown(tensor)])


if __name__ == "__main__":
    main()
