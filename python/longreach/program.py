"""What `longreach.bench` asks the program for: specs, initial weights, rows, and short runs."""

import concurrent.futures
import json
import pathlib
import subprocess
import tempfile
from typing import Iterator

from .call import NO_PROGRAM, find_program, toml
from .model import read_weights


class BenchError(ValueError):
    """A mistake in a class, a config or the installation, in words for the one who made it."""


class Program:
    """The program `longreach` with one config. `overrides` are KEY=VALUE as on its command line."""

    def __init__(self, config, overrides=()):
        self.path = find_program()
        if self.path is None:
            raise BenchError(NO_PROGRAM)
        if not pathlib.Path(config).is_file():
            hint = "`longreach new --from quickstart` writes one"
            raise BenchError(f"config = {str(config)!r}: no such file; {hint}")
        self.config = str(pathlib.Path(config).resolve())
        self.overrides = [f"{each}" for each in overrides]
        self.tables = {}

    def _call(self, *arguments: str, cwd=None) -> str:
        done = subprocess.run([self.path, *arguments], cwd=cwd, text=True, capture_output=True)
        if done.returncode:
            raise BenchError(f"longreach {arguments[0]} failed:\n{done.stderr.strip()}")
        return done.stdout

    def _values(self, pe: dict, seeds: list, more=()) -> list:
        # Without the axes, so that a config for many methods gives one run for each seed.
        fixed = ["axes={}", f"model.pe={toml(pe)}", "eval.variants=[]", f"seeds={toml(seeds)}"]
        return [self.config, *fixed, *self.overrides, *more]

    def jobs(self, pe: dict, seeds: list) -> list:
        """The resolved runs, as a sweep writes them: `job` with its spec, `test_rows`."""
        with tempfile.TemporaryDirectory() as place:
            out = str(pathlib.Path(place) / "plan")
            self._call("submit", *self._values(pe, seeds), "--cluster", "parallel", "--out", out)
            lines = pathlib.Path(out, "manifest.jsonl").read_text(encoding="utf-8").splitlines()
        jobs = [json.loads(line) for line in lines]
        if [job["job"]["spec"]["seed"] for job in jobs] != list(seeds):
            raise BenchError(
                f"{self.config} has {len(jobs)} runs where one for each seed was expected; "
                "bench takes no [select], half_seeds or stages: leave them out"
            )
        return jobs

    def trained(self, pe: dict, seeds: list, *more: str) -> list:
        """Trains with the program: (record, losses by step, weights) for each seed."""
        with tempfile.TemporaryDirectory() as place:
            self._call("run", *self._values(pe, seeds, more), "--runs", place)
            found = {}
            for file in pathlib.Path(place).glob("*/*/record.json"):
                record = json.loads(file.read_text(encoding="utf-8"))
                lines = (file.parent / "steps.jsonl").read_text(encoding="utf-8").splitlines()
                steps = [json.loads(line) for line in lines]
                losses = [step["loss_nats"] for step in steps if "loss_nats" in step]
                weights = read_weights(file.parent / "weights.safetensors")
                found[record["seed"]] = (record, losses, weights)
        return [found[seed] for seed in seeds]

    def initial(self, pe: dict, seeds: list) -> list:
        """(record, initial weights) for each seed: those after one step at the least rate there
        is, 1e-12, which changes no weight that matters in single precision."""
        idle = ["train.steps=1", "train.lr=1e-12", "train.warmup_steps=0"]
        spec = self.jobs(pe, seeds[:1])[0]["job"]["spec"]
        idle += ["train.adamw.weight_decay=0", f"eval.test_lens=[{spec['train']['train_len']}]"]
        return [(record, weights) for record, _, weights in self.trained(pe, seeds, *idle)]

    def _task(self) -> list:
        if not self.tables:
            pe = {"kind": "nope"}
            shown = json.loads(self._call("config", "show", *self._values(pe, [0]), "--json"))
            self.tables = {each["key"]: each["value"] for each in shown["values"]}
        keys = {key[5:]: value for key, value in self.tables.items() if key.startswith("task.")}
        kind = keys.pop("kind")
        return [kind, *(f"{k}={toml(v)}" for k, v in keys.items() if v is not None)]

    def rows(self, job: dict, length: int, count: int, *which: str) -> dict:
        """Rows of the task: `inputs`, `targets`, `counted`, lists of `count` rows."""
        train_len = str(job["job"]["spec"]["train"]["train_len"])
        sizes = ["--length", str(length), "--rows", str(count), "--train-len", train_len]
        text = self._call("export-rows", *self._task(), *sizes, *which, cwd=job["job"]["config_dir"])
        rows = [json.loads(line) for line in text.splitlines()[1:]]
        return {key: [row.get(key) for row in rows] for key in ("inputs", "targets", "counted")}

    def batches(self, job: dict, steps: int) -> Iterator[dict]:
        """The batches of a training, in its order; a few are made ahead."""
        spec = job["job"]["spec"]
        length, rows = spec["train"]["train_len"], spec["train"]["batch_size"]
        self._task()

        def batch(step: int) -> dict:
            return self.rows(job, length, rows, "--step", str(step), "--seed", str(spec["seed"]))

        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            ahead = [pool.submit(batch, step) for step in range(min(8, steps))]
            for step in range(steps):
                if step + 8 < steps:
                    ahead.append(pool.submit(batch, step + 8))
                yield ahead.pop(0).result()

    def test_rows(self, job: dict, length: int, count: int) -> dict:
        """The test set of a length."""
        seed = str(job["job"]["spec"]["eval"]["seed"])
        return self.rows(job, length, count, "--test", "--seed", seed)
