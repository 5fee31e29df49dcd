"""Runs the same work with hookpoint and with other libraries, turn by turn, checks that the numbers agree, and
prints how many times longer the others take. `run`, beside this file, starts it."""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SCRATCH = ROOT / "target" / "peers"
BINARY = ROOT / "target" / "release" / "peers"

SIZES = [(1, 16), (1, 64), (1, 256), (8, 64), (1, 1024)]
VOCABULARY, LAYERS, HEADS = 50257, 12, 12
# As long as a sentence about an indirect object.
SENTENCE = 15
# Ours runs with mimalloc, which hands memory back to the system after a while unless told not to.
# Getting it again is a sixth of the time of a forward pass with 1024 tokens.
ENVIRONMENT = dict(os.environ, MIMALLOC_PURGE_DELAY="-1")


def weights():
    """A folder with random weights, as `save_pretrained` writes them; made once."""
    folder = SCRATCH / "gpt2-small-random"
    if not (folder / "model.safetensors").exists():
        import torch
        from transformers import GPT2Config, GPT2LMHeadModel

        torch.manual_seed(0)
        # Larger than before training, so that heads differ and nothing is nearly zero.
        model = GPT2LMHeadModel(GPT2Config(initializer_range=0.05))
        model.save_pretrained(folder)
    return folder


def ids(batch, pos, salt=0):
    return [[(7919 * (row * pos + column + 1) + 104729 * salt) % VOCABULARY for column in range(pos)]
            for row in range(batch)]


class Worker:
    """A process that answers lines with lines."""

    def __init__(self, name, command):
        self.name = name
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE if name != "hookpoint" else None, text=True,
                                        env=ENVIRONMENT)
        self.answer()

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            error = self.process.stderr.read() if self.process.stderr else "see above"
            sys.exit(f"{self.name} has ended:\n{error}")
        return json.loads(line)

    def ask(self, **asked):
        self.process.stdin.write(json.dumps(asked) + "\n")
        self.process.stdin.flush()
        return self.answer()

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Workers:
    """One process at a time beside ours: several would share the caches of the processor."""

    def __init__(self, folder):
        self.folder, self.peer = str(folder), None
        self.ours = Worker("hookpoint", [str(BINARY), "serve", self.folder])

    def of(self, library):
        if self.peer is None or self.peer.name != library:
            if self.peer:
                self.peer.close()
            print(f"  starting {library}", file=sys.stderr, flush=True)
            command = [sys.executable, str(HERE / "worker.py"), library, self.folder]
            self.peer = Worker(library, command)
            # Its messages are of no interest, but must not fill the pipe.
            import threading

            threading.Thread(target=self.peer.process.stderr.read, daemon=True).start()
        return self.peer


def apart(ours, theirs):
    """The largest difference, in parts of the largest number."""
    if len(ours) != len(theirs):
        return float("inf")
    most = max((abs(number) for number in theirs), default=0) or 1
    return max((abs(a - b) for a, b in zip(ours, theirs)), default=0) / most


def measure(workers, library, rounds, asked, tolerance=1e-3):
    """Asks both in turn; the first round is not counted. nnsight gives logits only, so what is compared may be
    the beginning."""
    peer, times = workers.of(library), []
    for number in range(rounds + 1):
        pair = {}
        for worker in [peer, workers.ours][:: 1 if number % 2 else -1]:
            pair[worker.name] = worker.ask(**asked)
        us, them = pair["hookpoint"], pair[library]
        length = min(len(us["values"]), len(them["values"])) if library == "nnsight" else None
        difference = apart(us["values"][:length], them["values"][:length])
        if not difference <= tolerance:
            sys.exit(f"{library} and hookpoint do not agree on {asked['work']}: {difference:.2e} apart")
        if number > 0:
            times.append((us, them))
    return times, difference


def row(work, library, times, difference, target):
    seconds = lambda side: [pair[side]["seconds"] for pair in times]
    cpu = lambda side: [pair[side]["cpu"] for pair in times]
    return dict(
        work=work, library=library, target=target, difference=difference, rounds=len(times),
        ours=statistics.median(seconds(0)), theirs=statistics.median(seconds(1)),
        ratio=statistics.median(them / us for us, them in zip(seconds(0), seconds(1))),
        best=min(seconds(1)) / min(seconds(0)),
        cpu=statistics.median(them / us for us, them in zip(cpu(0), cpu(1))),
    )


def first_answer(folder, rounds, rows, report):
    numbers = [str(id) for id in ids(1, 16)[0]]
    for library, target in [("transformer_lens", 10), ("transformers", None)]:
        times = []
        for number in range(rounds + 1):
            commands = [
                [str(BINARY), "first", str(folder), *numbers],
                [sys.executable, str(HERE / "worker.py"), library, str(folder), "--first", *numbers],
            ]
            pair = []
            for command in commands:
                start = time.perf_counter()
                done = subprocess.run(command, check=True, capture_output=True, text=True, env=ENVIRONMENT)
                answer = json.loads(done.stdout)
                pair.append(dict(seconds=time.perf_counter() - start, cpu=1.0, values=answer["values"]))
            difference = apart(pair[0]["values"], pair[1]["values"])
            assert difference < 1e-3, difference
            # The first reads files from the disk.
            if number > 0:
                times.append(pair)
        made = row("start to first answer", library, times, difference, target)
        made["cpu"] = None
        rows.append(made)
        report(made)


def sweep_costs(workers, rounds):
    """How long our sweeps take: over positions of one layer, by layer; and in one layer, by number of cells."""
    clean, corrupted = ids(1, 16, 1), ids(1, 16, 2)
    asked = dict(work="sweep", clean=clean, corrupted=corrupted, right=1000, wrong=2000)
    best = lambda points: min(workers.ours.ask(**asked, points=points)["seconds"] for _ in range(rounds + 1))
    at = lambda layer, *names: [f"blocks.{layer}.hook_{name}[:, *]" for name in names]
    layers = [(layer, best(at(layer, "resid_pre"))) for layer in range(LAYERS)]
    names = ["resid_pre", "attn_out", "resid_mid", "mlp_out"]
    cells = [(16 * count, best(at(6, *names[:count]))) for count in range(1, 5)]
    return dict(layers=layers, cells=cells)


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--quick", action="store_true", help="fewer rounds")
    arguments.add_argument("--only", default="", help="forward, cached, sweeps, attribution, first, costs")
    chosen = arguments.parse_args()
    only = set(filter(None, chosen.only.split(",")))
    does = lambda name: not only or name in only
    rounds = lambda full, quick: quick if chosen.quick else full

    folder, rows = weights(), []
    title = f"{'work':32} {'against':17} {'theirs':>9} {'ours':>9} {'ratio':>7} {'best':>7} {'CPU':>7}  target"
    print(f"{title}\n{'-' * len(title)}")

    def report(made):
        cpu = f"{made['cpu']:7.2f}" if made["cpu"] is not None else "      -"
        target = "" if made["target"] is None else f"{made['target']:5.1f} {'met' if made['ratio'] >= made['target'] else 'MISSED'}"
        print(f"{made['work']:32} {made['library']:17} {1e3 * made['theirs']:6.0f} ms {1e3 * made['ours']:6.0f} ms "
              f"{made['ratio']:7.2f} {made['best']:7.2f} {cpu}  {target}", flush=True)

    def compare(work, library, count, target, asked):
        made = row(work, library, *measure(workers, library, count, asked), target)
        rows.append(made)
        report(made)

    if does("first"):
        first_answer(folder, rounds(5, 2), rows, report)
    workers = Workers(folder)
    if does("forward"):
        for batch, pos in SIZES:
            count = rounds(20, 5) if batch * pos <= 64 else rounds(8, 3)
            asked = dict(work="forward", ids=ids(batch, pos))
            compare(f"forward {batch}x{pos}", "transformers", count, 1.0, asked)
    clean, corrupted = ids(1, SENTENCE, 1), ids(1, SENTENCE, 2)
    tokens = dict(clean=clean, corrupted=corrupted, right=1000, wrong=2000)
    for pos in [64, 256]:
        if does("cached"):
            asked = dict(work="cached", ids=ids(1, pos))
            compare(f"everything cached 1x{pos}", "transformer_lens", rounds(10, 3), 1.2, asked)
    if does("sweeps"):
        for kind, point, target in [("residual", "blocks.*.hook_resid_pre[:, *]", 10),
                                    ("heads", "blocks.*.attn.hook_z[:, :, *]", 8)]:
            asked = dict(work="sweep", kind=kind, points=[point], **tokens)
            size = SENTENCE if kind == "residual" else HEADS
            compare(f"{kind} sweep {LAYERS}x{size}", "transformer_lens", rounds(3, 1), target, asked)
    if does("attribution"):
        asked = dict(work="attribution", **tokens)
        compare("attribution patching", "transformer_lens", rounds(10, 3), 2, asked)
    if does("cached"):
        asked = dict(work="cached", ids=ids(1, 64))
        compare("everything cached 1x64", "nnsight", rounds(10, 3), None, asked)
    costs = sweep_costs(workers, rounds(3, 1)) if does("costs") else None
    SCRATCH.mkdir(parents=True, exist_ok=True)
    (SCRATCH / "results.json").write_text(json.dumps(dict(rows=rows, costs=costs), indent=1) + "\n")
    import plot

    for path in plot.write(rows, costs, SCRATCH):
        print(f"written: {path.relative_to(ROOT)}", file=sys.stderr)


if __name__ == "__main__":
    main()
