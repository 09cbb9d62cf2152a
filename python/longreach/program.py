"""What `longreach.bench` asks the program for: specs, initial weights, rows, and short runs."""

import concurrent.futures
import copy
import itertools
import json
import pathlib
import subprocess
import tempfile
from typing import Iterator

from .call import NoProgram, find_program, toml
from .model import read_weights


# Tokens of training rows that are read at a time.
CHUNK_TOKENS = 1 << 17


class BenchError(ValueError):
    """A mistake in a class, a config or the installation, in words for the one who made it."""


class Program:
    """The program `longreach` with one config. `overrides` are KEY=VALUE as on its command line."""

    def __init__(self, config, overrides=()):
        try:
            self.path = find_program()
        except NoProgram as error:
            raise BenchError(str(error)) from None
        if not pathlib.Path(config).is_file():
            hint = "`longreach new --from quickstart` writes one"
            raise BenchError(f"config = {str(config)!r}: no such file; {hint}")
        self.config = str(pathlib.Path(config).resolve())
        self.overrides = [f"{each}" for each in overrides]
        self.tables = {}
        self.planned = None

    def _call(self, *arguments: str, cwd=None) -> str:
        done = subprocess.run([self.path, *arguments], cwd=cwd, text=True, capture_output=True)
        if done.returncode:
            raise BenchError(f"longreach {arguments[0]} failed:\n{done.stderr.strip()}")
        return done.stdout

    def with_values(self, *overrides: str) -> "Program":
        """The same program and config with more overrides."""
        other = copy.copy(self)
        other.overrides = [*self.overrides, *overrides]
        other.tables, other.planned = {}, None
        return other

    def short(self, steps: int, spec: dict) -> "Program":
        """The same with a training of a few steps, which nothing ends before. `spec` is that of a
        run."""
        values = [f"train.steps={steps}", f"train.warmup_steps={min(2, steps - 1)}"]
        if spec["train"].get("stop"):
            values.append(f"train.stop.every={steps}")
        if spec["train"].get("stages"):
            values += ['train.length="fixed"', "train.stages=[]"]
        return self.with_values(*values)

    def _values(self, pe: dict, seeds: list, more=(), halves=()) -> list:
        own = [*self.overrides, f"seeds={toml(seeds)}", f"half_seeds={toml(halves)}", *more]
        return [self.config, *self._fixed(pe), *own]

    def _fixed(self, pe: dict) -> list:
        # Without the axes, so that a config for many methods gives one run for each seed.
        return ["axes={}", f"model.pe={toml(pe)}", "eval.variants=[]"]

    def seeds(self, pe: dict, part: str = "result") -> list:
        """The seeds that the config has for its results, or for those with half the steps."""
        if self.planned is None:
            values = [self.config, *self._fixed(pe), *self.overrides]
            self.planned = json.loads(self._call("check", *values, "--json"))["runs"]
        return [run["seed"] for run in self.planned if run["part"] == part]

    def _planned(self, pe: dict, seeds: list, halves=()) -> list:
        with tempfile.TemporaryDirectory() as place:
            out = str(pathlib.Path(place) / "plan")
            values = self._values(pe, seeds, halves=halves)
            self._call("submit", *values, "--cluster", "parallel", "--out", out)
            lines = pathlib.Path(out, "manifest.jsonl").read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]

    def jobs(self, pe: dict, seeds: list) -> list:
        """The resolved runs, one for each seed, and after them those of `half_seeds`: `job` with its
        spec, `test_rows`."""
        halves = self.seeds(pe, "half_steps")
        jobs = self._planned(pe, seeds, [seed for seed in seeds if seed in halves])
        jobs.sort(key=lambda job: "half_of" in job["job"])
        if [job["job"]["spec"]["seed"] for job in jobs][: len(seeds)] != list(seeds):
            raise BenchError(f"{self.config} has {len(jobs)} runs; expected one for each seed")
        return jobs

    def sweep(self, pe: dict, seeds: list) -> tuple:
        """The runs of the sweep of [select] and the metric that chooses, or ([], None)."""
        by = json.loads(self._call("check", *self._values(pe, seeds), "--json"))["chosen_by"]
        return (self._planned(pe, seeds), by) if by else ([], None)

    def trained(self, pe: dict, seeds: list, *more: str) -> list:
        """Trains with the program: (record, losses by step, initial weights) for each seed."""
        with tempfile.TemporaryDirectory() as place:
            values = self._values(pe, seeds, more)
            self._call("run", *values, "--initial-weights", "--runs", place)
            found = {}
            for file in pathlib.Path(place).glob("*/*/record.json"):
                record = json.loads(file.read_text(encoding="utf-8"))
                lines = (file.parent / "steps.jsonl").read_text(encoding="utf-8").splitlines()
                steps = [json.loads(line) for line in lines]
                losses = [step["loss_nats"] for step in steps if "loss_nats" in step]
                weights = read_weights(file.parent / "initial_weights.safetensors")
                found[record["seed"]] = (record, losses, weights)
        return [found[seed] for seed in seeds]

    def initial(self, pe: dict, job: dict) -> tuple:
        """The initial weights of a run, and a record of a run of one step from them, whose task and
        environment are the run's."""
        spec = job["job"]["spec"]
        short = self.short(1, spec)
        lengths = f"eval.test_lens=[{spec['train']['train_len']}]"
        rows = f"eval.rows={spec['eval'].get('rows', 'test')}"
        [(record, _, weights)] = short.trained(pe, [spec["seed"]], lengths, rows)
        return record, weights

    def _task(self) -> list:
        if not self.tables:
            pe = {"kind": "nope"}
            shown = json.loads(self._call("config", "show", *self._values(pe, [0]), "--json"))
            self.tables = {each["key"]: each["value"] for each in shown["values"]}
        keys = {key[5:]: value for key, value in self.tables.items() if key.startswith("task.")}
        kind = keys.pop("kind")
        return [kind, *(f"{k}={toml(v)}" for k, v in keys.items() if v is not None)]

    def _rows(self, job: dict, length: int, *which: str) -> dict:
        """Rows of the task: lists of `inputs`, `targets` and `counted`."""
        train_len = str(job["job"]["spec"]["train"]["train_len"])
        sizes = ["--length", str(length), "--train-len", train_len]
        text = self._call("export-rows", *self._task(), *sizes, *which, cwd=job["job"]["config_dir"])
        return _columns([json.loads(line) for line in text.splitlines()[1:]])

    def _rows_of_run(self, job: dict, *which: str) -> list:
        """Rows of a run as it reads them; those of `train.stop` by length."""
        with tempfile.TemporaryDirectory() as place:
            pathlib.Path(place, "job.json").write_text(json.dumps(job["job"]), encoding="utf-8")
            text = self._call("export-rows", "--run", place, *which)
        return [json.loads(line) for line in text.splitlines()[1:]]

    def batches(self, job: dict, steps: int) -> Iterator[dict]:
        """The batches of a training, in its order; the next ones are made meanwhile. `tokens` are
        those of all rows without padding."""
        train = job["job"]["spec"]["train"]
        rows = max(stage["batch_size"] for stage in [train, *train.get("stages", [])])
        chunk = max(1, min(64, CHUNK_TOKENS // (rows * train["seq_len"])))

        def several(first: int) -> list:
            count = str(min(chunk, steps - first))
            return self._rows_of_run(job, "--step", str(first), "--steps", count)

        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            ahead = pool.submit(several, 0)
            for first in range(0, steps, chunk):
                found = ahead.result()
                if first + chunk < steps:
                    ahead = pool.submit(several, first + chunk)
                for _, of_step in itertools.groupby(found, key=lambda row: row["step"]):
                    batch = list(of_step)
                    yield {**_columns(batch), "tokens": batch[0]["tokens"]}

    def test_rows(self, job: dict, length: int, count: int) -> dict:
        """The rows of a length that a run is scored on."""
        spec = job["job"]["spec"]["eval"]
        which = (f"--{spec.get('rows', 'test')}", "--seed", str(spec["seed"]))
        return self._rows(job, length, "--rows", str(count), *which)

    def stop_rows(self, job: dict) -> list:
        """The rows that `train.stop` decides by, those of each length together."""
        rows = self._rows_of_run(job, "--selection")
        rows.sort(key=lambda row: len(row["inputs"]))
        by_length = itertools.groupby(rows, key=lambda row: len(row["inputs"]))
        return [_columns(list(each)) for _, each in by_length]


def _columns(rows: list) -> dict:
    """Lists of `inputs`, `targets` and `counted`."""
    return {key: [row[key] for row in rows] for key in ("inputs", "targets", "counted")}
