"""Training and scoring of the Python model as the program does it: AdamW with its schedule and
clipping, the end by `train.stop`, losses and answers."""

import math
from dataclasses import dataclass, field
from typing import List, Optional

import torch
from torch.nn import functional

from .model import Transformer
from .program import BenchError, Program

# Metrics of one pass over the rows, and those that follow from the loss.
SCORES = ("loss_nats", "token_accuracy", "exact_match")
KNOWN = (*SCORES, "perplexity")
LOWER_IS_BETTER = ("loss_nats", "perplexity")


@dataclass
class Trained:
    """What a training leaves beside the weights. `losses`: nats of every step, fewer than the
    steps where a loss or gradient was not finite, or where `train.stop` ended the training.
    `tokens`: those of these steps, without padding."""

    losses: List[float] = field(default_factory=list)
    tokens: int = 0
    stop_scores: List[dict] = field(default_factory=list)
    diverged: bool = False


def train(model: Transformer, program: Program, job: dict) -> Trained:
    """Trains a model as the program would. A step whose loss or gradient is not finite is not
    applied."""
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
    done, stop = Trained(), _Stop(program, job)
    model.train()
    for step, batch in enumerate(program.batches(job, spec["steps"])):
        optimizer.zero_grad()
        nll, counted, _ = _nll(model, batch)
        loss = (nll * counted).sum() / counted.sum()
        loss.backward()
        grads = [value.grad for value in own if value.grad is not None]
        norm = math.sqrt(sum(grad.double().square().sum().item() for grad in grads))
        if not (math.isfinite(loss.item()) and math.isfinite(norm)):
            done.diverged = True
            break
        if 0 < spec["grad_clip"] < norm:
            for grad in grads:
                grad.mul_(spec["grad_clip"] / norm)
        for group in optimizer.param_groups:
            group["lr"] = _rate(spec, step)
        optimizer.step()
        done.losses.append(loss.item())
        done.tokens += batch["tokens"]
        if stop.is_due(step + 1) and stop.ends(model, step + 1, done.stop_scores):
            break
    return done


class _Stop:
    """`train.stop`: every so many steps, a score on selection rows."""

    def __init__(self, program: Program, job: dict):
        self.program, self.job = program, job
        self.options = job["job"]["spec"]["train"].get("stop")
        self.rows: Optional[list] = None

    def is_due(self, step: int) -> bool:
        train = self.job["job"]["spec"]["train"]
        # In stages only the last one is ended.
        begun = sum(stage["steps"] for stage in train.get("stages", [])[:-1])
        return bool(self.options) and begun < step < train["steps"] and step % self.options["every"] == 0

    def ends(self, model: Transformer, step: int, scores: List[dict]) -> bool:
        spec = self.job["job"]["spec"]
        if self.rows is None:
            self.rows = self.program.stop_rows(self.job)
        size = spec["eval"]["batch_tokens"]
        found = sum((score(model, rows, size) for rows in self.rows), Score.none())
        found = value(found.metrics(), self.options["metric"])
        model.train()
        # A record has no number where it is not finite.
        is_finite = found is not None and math.isfinite(found)
        scores.append({"step": step, "value": found} if is_finite else {"step": step})
        if not is_finite:
            return False
        if "at_least" in self.options:
            return found >= self.options["at_least"]
        return found <= self.options["at_most"]


def _rate(spec: dict, step: int) -> float:
    """The learning rate of a step counted from 0."""
    warmup = spec["warmup_steps"]
    if step < warmup:
        return spec["lr"] * (step + 1) / warmup
    progress = (step - warmup) / max(spec["steps"] - warmup, 1)
    cosine = spec.get("schedule", "cosine") == "cosine"
    left = 0.5 * (1 + math.cos(math.pi * progress)) if cosine else 1 - progress
    return spec["lr"] * (spec["final_lr"] + (1 - spec["final_lr"]) * left)


def _nll(model: Transformer, batch: dict):
    """Nats of every target [B, L], which of them count, and which are predicted right."""
    targets = torch.tensor(batch["targets"], dtype=torch.long)
    logits = model(torch.tensor(batch["inputs"], dtype=torch.long))
    nll = functional.cross_entropy(logits.transpose(1, 2), targets, reduction="none")
    right = logits.argmax(-1) == targets
    return nll, torch.tensor(batch["counted"], dtype=torch.bool), right


@dataclass
class Score:
    """Sums over rows. Tensors of doubles [L], by position."""

    nats: torch.Tensor
    counts: torch.Tensor
    right: torch.Tensor
    rows: int = 0
    rows_right: int = 0

    @classmethod
    def none(cls, length: int = 0) -> "Score":
        return cls(*(torch.zeros(length, dtype=torch.float64) for _ in range(3)))

    def __add__(self, other: "Score") -> "Score":
        """Sums of both, by position."""
        sums = []
        for name in ("nats", "counts", "right"):
            a, b = getattr(self, name), getattr(other, name)
            length = max(len(a), len(b))
            sums.append(sum(functional.pad(each, (0, length - len(each))) for each in (a, b)))
        return Score(*sums, self.rows + other.rows, self.rows_right + other.rows_right)

    def metrics(self) -> dict:
        """Each metric with its value and the tokens or rows behind it."""
        tokens = int(self.counts.sum())
        return {
            "loss_nats": {"value": (self.nats.sum() / tokens).item(), "n": tokens},
            "token_accuracy": {"value": (self.right.sum() / tokens).item(), "n": tokens},
            "exact_match": {"value": self.rows_right / self.rows, "n": self.rows},
        }


def score(model: Transformer, batch: dict, batch_tokens: int) -> Score:
    """Scores rows of one length, a few at a time."""
    count, length = len(batch["inputs"]), len(batch["inputs"][0])
    size = max(batch_tokens // length, 1)
    found = Score.none(length)
    model.eval()
    for at in range(0, count, size):
        part = {key: values[at : at + size] for key, values in batch.items()}
        with torch.no_grad():
            nll, counted, right = _nll(model, part)
        found.nats += (nll.double() * counted).sum(0)
        found.counts += counted.sum(0)
        found.right += (right & counted).sum(0)
        found.rows += len(part["inputs"])
        found.rows_right += int((right | ~counted).all(1).sum())
    return found


def value(metrics: dict, metric: str) -> Optional[float]:
    """The value of a metric of `KNOWN` in a row's metrics; None if they have none."""
    if metric == "perplexity":
        loss = metrics["loss_nats"]["value"]
        return math.exp(loss) if loss < 709 else math.inf
    return metrics[metric]["value"] if metric in metrics else None


def check_metric(metric: str, key: str) -> None:
    """Refuses a metric that is not known here. `key`: where it is written."""
    if metric not in KNOWN:
        raise BenchError(f"{key} = {metric!r}: bench knows {', '.join(KNOWN)}")


def evaluate(model: Transformer, program: Program, job: dict, definitions) -> List[dict]:
    """The rows of a record, one for each test length, with the metrics of the task."""
    spec, rows = job["job"]["spec"]["eval"], []
    lengths = zip(spec["test_lens"], job["test_seq_lens"], job["test_rows"])
    for length, seq_len, count in lengths:
        row = {"variant": "trained", "test_len": length, "status": "ok", "metrics": {}}
        rows.append(row)
        most = model.encoding.max_position
        if most is not None and seq_len > most:
            reason = f"{seq_len} tokens, but the encoding has {most} positions"
            row.update(status="unsupported", reason=reason)
            continue
        found = score(model, program.test_rows(job, length, count), spec["batch_tokens"])
        metrics = found.metrics()
        if not math.isfinite(metrics["loss_nats"]["value"]):
            row.update(status="diverged", reason=f"the loss at length {length} is not finite")
            continue
        row["metrics"] = {name: metrics[name] for name in SCORES if name in definitions}
        # As in the program, losses by position are those of text.
        if "exact_match" in definitions:
            continue
        sums, counts, width = found.nats, found.counts, max(-(-seq_len // 64), 1)
        row["loss_by_position"] = [
            {"from": a, "to": b, "loss_nats": (sums[a:b].sum() / counts[a:b].sum()).item()}
            for a, b in ((a, min(a + width, seq_len)) for a in range(0, seq_len, width))
            if counts[a:b].sum() > 0
        ]
    return rows
