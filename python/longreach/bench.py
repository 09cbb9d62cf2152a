"""Your own encoding, written in PyTorch, beside those of the program.

    from longreach import bench

    class MyEncoding(bench.Encoding):
        def logits_bias(self, layer, length):      # [H, L, L]
            ...

    bench.run("quickstart.toml", MyEncoding, seeds=[0, 1, 2])

The reference model is trained in PyTorch on the rows of the program, in the same order, from the
same initial weights, with the same optimizer, schedule and clipping, and tested at the lengths of
the config. The records go to `runs/EXPERIMENT/`, where `longreach report` finds them. They have no
seal, and their method is named `MyEncoding (pytorch VERSION)`.
"""

import hashlib
import json
import math
import pathlib
from typing import Iterable, List, Optional

try:
    import torch
except ImportError as error:
    raise ImportError("longreach.bench needs PyTorch 2.0 or newer: pip install torch") from error

from torch.nn import functional

from . import checks, encodings
from .model import Content, Encoding, Shape, Transformer
from .program import BenchError, Program

__all__ = ["BenchError", "Content", "Encoding", "Shape", "run", "self_check", "train"]

OLDEST_TORCH = (2, 0)
# Losses of SELF_CHECK_STEPS steps and the score after them, relative to those of the program.
TOLERANCE = 1e-4
SELF_CHECK_STEPS = 20


def run(
    config,
    encoding: type,
    seeds: Iterable[int] = (0,),
    runs="runs",
    overrides: Iterable[str] = (),
) -> List[dict]:
    """Trains and tests an encoding under a config of the program; returns the records.

    `config` is a path; its axes and variants are left aside.
    `encoding` is a class derived from `Encoding`. `overrides` are `KEY=VALUE`, as on the command
    line. Raises `BenchError` for what cannot be compared, before anything is trained.
    """
    if tuple(int(part) for part in torch.__version__.split(".")[:2]) < OLDEST_TORCH:
        raise BenchError(f"PyTorch {torch.__version__} is too old; 2.0 or newer is needed")
    seeds, program = list(seeds), Program(config, overrides)
    if not seeds or len(set(seeds)) != len(seeds):
        raise BenchError(f"seeds = {seeds}: give each seed once")
    nope = {"kind": "nope"}
    jobs = program.jobs(nope, seeds)
    spec = jobs[0]["job"]["spec"]
    checks.check_config(spec)
    starts = program.initial(nope, seeds)
    checks.check_task(starts[0][0]["task"])
    first = _tensor(next(program.batches(jobs[0], 1))["inputs"])[:2]
    longest = jobs[0]["test_seq_lens"][-1]
    checks.check_encoding(encoding, _shape(spec), spec["model"], starts[0][1], first, longest)
    proof = self_check(program)
    print(proof["text"], flush=True)
    records = []
    for job, (start, weights) in zip(jobs, starts):
        seed = job["job"]["spec"]["seed"]
        model = Transformer(spec["model"], checks.make(encoding, _shape(spec), seed))
        model.start_from(weights)
        losses = train(model, program, job)
        record = _record(job, start, model, encoding, losses, proof)
        record["evals"] = _evaluate(model, program, job) if record["status"] == "ok" else []
        place = pathlib.Path(runs, record["experiment"], record["run_id"])
        place.mkdir(parents=True, exist_ok=True)
        (place / "record.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
        (place / "self-check.json").write_text(json.dumps(proof, indent=2) + "\n", encoding="utf-8")
        print(f"{encoding.__name__} seed {seed}: {record['status']}, {place}", flush=True)
        records.append(record)
    return records


def self_check(program: Program, pe: Optional[dict] = None, steps: int = SELF_CHECK_STEPS) -> dict:
    """Trains an encoding of the program with it and with the Python model, for some steps of its
    config: the largest relative differences of losses and score. Raises `BenchError` where they
    pass TOLERANCE: this machine's PyTorch then computes something else."""
    pe = pe or {"kind": "rope"}
    short = Program(program.config, program.overrides)
    short.path = program.path
    short.overrides += [f"train.steps={steps}", f"train.warmup_steps={min(2, steps)}"]
    job, (_, weights) = short.jobs(pe, [0])[0], short.initial(pe, [0])[0]
    [(record, theirs, _)] = short.trained(pe, [0])
    spec = job["job"]["spec"]
    model = Transformer(spec["model"], checks.make(encodings.of(spec["model"]["pe"]), _shape(spec), 0))
    model.start_from(weights)
    ours = train(model, short, job)
    by_loss = max(abs(a / b - 1.0) for a, b in zip(ours, theirs))
    by_score = 0.0
    for row, other in zip(_evaluate(model, short, job), record["evals"]):
        if row["status"] == other["status"] == "ok":
            a, b = (each["metrics"]["loss_nats"] for each in (row, other))
            if a["n"] != b["n"]:
                raise BenchError(f"{a['n']} tokens scored; the program scores {b['n']}")
            by_score = max(by_score, abs(a["value"] / b["value"] - 1.0))
    passed = len(ours) == len(theirs) and max(by_loss, by_score) <= TOLERANCE
    text = (
        f"self-check with {pe['kind']}: losses of {steps} steps within {by_loss:.1e} of the "
        f"program's, scores within {by_score:.1e}; allowed {TOLERANCE:.0e}"
    )
    if not passed:
        raise BenchError(f"{text}: the Python model does not train as the program does here")
    return {"text": text, "losses": by_loss, "scores": by_score, "steps": steps, "pe": pe}


def train(model: Transformer, program: Program, job: dict) -> List[float]:
    """Trains a model as the program would; returns the loss of every step in nats. Shorter than
    the steps if a loss or gradient was not finite: that step is not applied."""
    spec = job["job"]["spec"]["train"]
    options = spec["adamw"]
    own = [value for value in model.parameters() if value.requires_grad]
    keep = options.get("decay", "all") == "matrices"
    groups = [
        {"params": [p for p in own if not keep or p.ndim > 1]},
        {"params": [p for p in own if keep and p.ndim <= 1], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(
        [group for group in groups if group["params"]],
        betas=(options["beta1"], options["beta2"]),
        eps=options["eps"],
        weight_decay=options["weight_decay"],
    )
    losses: List[float] = []
    model.train()
    for step, batch in enumerate(program.batches(job, spec["steps"])):
        optimizer.zero_grad()
        nll, counted = _nll(model, batch)
        loss = (nll * counted).sum() / counted.sum()
        loss.backward()
        grads = [value.grad for value in own if value.grad is not None]
        norm = math.sqrt(sum(grad.double().square().sum().item() for grad in grads))
        if not (math.isfinite(loss.item()) and math.isfinite(norm)):
            break
        if 0 < spec["grad_clip"] < norm:
            for grad in grads:
                grad.mul_(spec["grad_clip"] / norm)
        for group in optimizer.param_groups:
            group["lr"] = _rate(spec, step)
        optimizer.step()
        losses.append(loss.item())
    return losses


def _rate(spec: dict, step: int) -> float:
    """The learning rate of a step counted from 0."""
    warmup = spec["warmup_steps"]
    if step < warmup:
        return spec["lr"] * (step + 1) / warmup
    progress = (step - warmup) / max(spec["steps"] - warmup, 1)
    cosine = spec.get("schedule", "cosine") == "cosine"
    left = 0.5 * (1 + math.cos(math.pi * progress)) if cosine else 1 - progress
    return spec["lr"] * (spec["final_lr"] + (1 - spec["final_lr"]) * left)


def _evaluate(model: Transformer, program: Program, job: dict) -> List[dict]:
    """The rows of a record, one for each test length."""
    spec, rows = job["job"]["spec"]["eval"], []
    model.eval()
    lengths = zip(spec["test_lens"], job["test_seq_lens"], job["test_rows"])
    for length, seq_len, count in lengths:
        row = {"variant": "trained", "test_len": length, "status": "ok", "metrics": {}}
        rows.append(row)
        most = model.encoding.max_position
        if most is not None and seq_len > most:
            reason = f"{seq_len} tokens, but the encoding has {most} positions"
            row.update(status="unsupported", reason=reason)
            continue
        batch = program.test_rows(job, length, count)
        size = max(spec["batch_tokens"] // seq_len, 1)
        sums, counts = torch.zeros(seq_len).double(), torch.zeros(seq_len).double()
        for at in range(0, count, size):
            part = {key: values[at : at + size] for key, values in batch.items()}
            with torch.no_grad():
                nll, counted = _nll(model, part)
            sums += (nll.double() * counted).sum(0)
            counts += counted.sum(0)
        loss = (sums.sum() / counts.sum()).item()
        if not math.isfinite(loss):
            row.update(status="diverged", reason=f"the loss at length {length} is not finite")
            continue
        row["metrics"] = {"loss_nats": {"value": loss, "n": int(counts.sum())}}
        width = max(-(-seq_len // 64), 1)
        row["loss_by_position"] = [
            {"from": a, "to": b, "loss_nats": (sums[a:b].sum() / counts[a:b].sum()).item()}
            for a, b in ((a, min(a + width, seq_len)) for a in range(0, seq_len, width))
            if counts[a:b].sum() > 0
        ]
    return rows


def _record(job: dict, start: dict, model, encoding: type, losses: List[float], proof: dict) -> dict:
    """A record of the program's layout, but for its evaluations and without a seal. `start` is the
    record that the initial weights came with: its task is that of this run."""
    source = f"pytorch {torch.__version__}"
    spec = json.loads(json.dumps(job["job"]["spec"]))
    # The same for all seeds, so that they stay seeds of one method; numbers: self-check.json.
    passed = f"passed: {proof['pe']['kind']}, {proof['steps']} steps, {TOLERANCE:.0e}"
    pe = {"kind": encoding.__name__, "source": source, "self_check": passed}
    spec["model"]["pe"] = pe
    spec["eval"]["variants"] = [{"name": "trained", "pe": [pe] * len(spec["eval"]["test_lens"])}]
    text = json.dumps(spec, sort_keys=True, separators=(",", ":"))
    status = "ok" if len(losses) == spec["train"]["steps"] else "diverged"
    weights = hashlib.sha256()
    for _, value in sorted(model.state_dict().items()):
        weights.update(value.contiguous().numpy().tobytes())
    own = [p.numel() for p in model.encoding.parameters() if p.requires_grad]
    everything = [p.numel() for p in model.parameters() if p.requires_grad]
    width = max(-(-len(losses) // 200), 1)
    parts = [losses[at : at + width] for at in range(0, len(losses), width)]
    ends = [min((at + 1) * width, len(losses)) for at in range(len(parts))]
    tail = losses[-max(len(losses) // 10, 1) :]
    label = f"{encoding.__name__} (pytorch {torch.__version__.split('+')[0]})"
    size = spec["train"]["seq_len"] * spec["train"]["batch_size"]
    facts = {
        "steps": len(losses),
        "tokens": size * len(losses),
        "loss_curve": [
            {"step": end, "loss_nats": sum(part) / len(part)} for end, part in zip(ends, parts)
        ],
    }
    record = {
        "schema": start["schema"],
        "run_id": hashlib.sha256(text.encode()).hexdigest()[:16],
        "experiment": job["job"]["experiment"],
        "labels": [{"key": "model.pe", "text": label, "value": label}],
        "seed": spec["seed"],
        "status": status,
        "task": start["task"],
        "model": {
            "parameters": sum(everything),
            "encoding_parameters": sum(own),
            "weights_blake3": f"sha256:{weights.hexdigest()}",
        },
        "train": facts,
        "evals": [],
        "environment": {**start["environment"], "burn": f"none: {source}"},
        "spec": spec,
    }
    if status == "ok":
        facts["final_loss_nats"] = sum(tail) / len(tail)
    else:
        record["diverged"] = {"step": len(losses), "what": "loss or gradient"}
    return record


def _shape(spec: dict) -> Shape:
    sizes = {key: spec["model"][key] for key in ("d_model", "n_layers", "n_heads", "head_dim")}
    return Shape(**sizes, train_len=spec["train"]["seq_len"])


def _tensor(rows: list) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.long)


def _nll(model: Transformer, batch: dict):
    """Nats of every target [B, L], and which of them count."""
    targets = _tensor(batch["targets"])
    every = [[True] * targets.shape[1]] * targets.shape[0]
    counted = [own if own is not None else all_ for own, all_ in zip(batch["counted"], every)]
    logits = model(_tensor(batch["inputs"]))
    nll = functional.cross_entropy(logits.transpose(1, 2), targets, reduction="none")
    return nll, torch.tensor(counted, dtype=torch.bool)
