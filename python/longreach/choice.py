"""`[select]` for an encoding written in PyTorch: its own sweep, and the values that it chose."""

from typing import Callable, List, Optional, Tuple

from .call import toml
from .program import BenchError, Program
from .training import LOWER_IS_BETTER, check_metric, value

# What takes the place of the encoding in configs of the program.
NOPE = {"kind": "nope"}


class Choice:
    """The sweep of a config with `[select]`. Combinations come in the order of the config."""

    def __init__(self, program: Program, seeds: list):
        self.program = program
        self.jobs, self.by = program.sweep(NOPE, seeds)
        self.tried: List[dict] = []
        for job in self.jobs:
            values = [each for each in job["job"]["labels"] if each["key"] != "model.pe"]
            if not self.tried or self.tried[-1]["values"] != values:
                self.tried.append({"values": values, "jobs": []})
            self.tried[-1]["jobs"].append(job)
        if self.by is not None:
            check_metric(self.by, "select.by")
        for at, tried in enumerate(self.tried):
            # Of several keys as one, the program labels those that tell the entries apart.
            result = self.with_values(at).jobs(NOPE, seeds[:1])[0]
            if _settings(result) != _settings(tried["jobs"][0]):
                raise BenchError("select.over: bench takes no keys that vary together")

    def with_values(self, candidate: int) -> Program:
        """The program at the values of a combination; as it is without `[select]`."""
        if not self.tried:
            return self.program
        values = self.tried[candidate]["values"]
        return self.program.with_values(*(f"{v['key']}={toml(v['value'])}" for v in values))

    def make(self, run: Callable[[Program, dict], dict]) -> Tuple[Program, Optional[dict]]:
        """Trains the sweep by `run(program, job)`, which returns a record: the program at the
        chosen values, and what a record says of the choice."""
        if not self.tried:
            return self.program, None
        candidates, ranks = [], []
        for at, tried in enumerate(self.tried):
            records = [run(self.with_values(at), job) for job in tried["jobs"]]
            scores = [_value(record, self.by) for record in records]
            candidates.append({
                "values": tried["values"],
                "runs": [record["run_id"] for record in records],
                "scores": scores,
            })
            if None not in scores:
                losses = [_value(record, "loss_nats") for record in records]
                sign = 1.0 if self.by in LOWER_IS_BETTER else -1.0
                ranks.append((sign * _mean(scores), _mean(losses), at))
        # Of equal scores the lower loss comes first, then the earlier combination.
        chosen = min(ranks)[2] if ranks else 0
        first = self.jobs[0]["job"]["spec"]
        selected = {
            "by": self.by,
            "test_len": first["train"]["train_len"],
            "steps": first["train"]["steps"],
            "seeds": [job["job"]["spec"]["seed"] for job in self.tried[0]["jobs"]],
            "candidates": candidates,
            "chosen": chosen,
        }
        return self.with_values(chosen), selected


def _settings(job: dict) -> list:
    """What a run of the sweep shares with its result."""
    spec = job["job"]["spec"]
    shorter = ("steps", "warmup_steps", "stages")
    train = {key: value for key, value in spec["train"].items() if key not in shorter}
    return [spec["model"], train]


def _mean(values: list) -> float:
    return sum(values) / len(values)


def _value(record: dict, metric: str) -> Optional[float]:
    rows = record["evals"]
    if record["status"] != "ok" or not rows or rows[0]["status"] != "ok":
        return None
    return value(rows[0]["metrics"], metric)
