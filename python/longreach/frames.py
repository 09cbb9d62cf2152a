"""Sweeps and their scores in a notebook: `longreach.run` and `longreach.frame`.

    import longreach

    frame = longreach.run("quickstart", seeds=[0, 1], train={"steps": 200})
    result = frame[(frame.part == "result") & (frame.metric == "loss_nats")]
    result.groupby(["method", "variant", "test_len"]).value.mean()
    frame.plot()                                           # perplexity by test length

`run` needs the program, `frame` pandas, and `plot` matplotlib too.
"""

import json
import math
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
from typing import Any, Iterator, Optional

import pandas

from .call import NoProgram, find_program, toml
from .recorded import ADDING, Place, evaluations, methods, metrics, part, records, test_len

# The colours of the reports, in their order.
COLORS = json.loads(pathlib.Path(__file__).with_name("palette.json").read_text())["light"]
MARKERS = ["o", "s", "^", "D", "v", "o", "P", "<"]
# The metric of a figure, unless one is asked for: the first of these that the frame has.
FIRST = ["perplexity", "exact_match", "token_accuracy", "loss_nats"]
# Sections of a record's spec that say what a run was, as columns.
SECTIONS = ["task", "model", "train"]
# What has columns of its own, or adds rows.
EVALUATED = [*ADDING, "every", "during"]
PERIOD = 0.5


class RunError(RuntimeError):
    """The program ended with an error. `code` is its exit code, the text is what it printed."""

    def __init__(self, code: int, text: str):
        super().__init__(text)
        self.code = code


def run(
    config: Place,
    *,
    runs: Place = "runs",
    device: str = "cpu",
    jobs: Optional[int] = None,
    progress: bool = True,
    **overrides: Any,
) -> "Frame":
    """Trains and evaluates what a config asks for and is not recorded yet, and returns its scores.

    `config` is a file, or the name of a config that comes with the program. Overrides replace
    values of it: `seeds=[0, 1]`, `train={"steps": 200}`, `**{"model.pe": {"kind": "alibi"}}`. A
    dictionary with a `kind`, `axes` and `select.over` replace the whole table, any other one the
    keys that it has. The result has the runs of this config with these overrides, those of its
    sweep and halves too; `frame` of the directory of the experiment has all that lie there.

    Interrupted (Ctrl-C, or the notebook's stop), the runs save themselves, and the same call
    continues them. Raises `RunError` with what the program printed if it fails.
    """
    try:
        program = find_program()
    except NoProgram as error:
        raise RunError(1, str(error)) from None
    values = [f"{key}={toml(value)}" for key, value in _dotted(overrides)]
    options = ["--runs", str(runs), "--device", device]
    # Behind `--` a config is one, whatever its name begins with.
    names = ["--", str(config), *values]
    check = [program, "check", "--json", *options, *names]
    plan = _plan(check)
    if jobs is not None:
        options += ["--jobs", str(jobs)]
    place = pathlib.Path(runs, plan["name"])
    with tempfile.TemporaryFile("w+", encoding="utf-8") as said:
        command = [program, "run", *options, *names]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=said)
        try:
            with _Bar(plan["name"], progress) as bar:
                while progress and process.poll() is None:
                    bar.show(*_progress(program, place, len(plan["runs"])))
                    time.sleep(PERIOD)
                process.wait()
                if progress:
                    bar.show(*_progress(program, place, len(plan["runs"])))
        except BaseException:
            process.send_signal(signal.SIGINT)
            process.wait()
            raise
        if process.returncode:
            said.seek(0)
            raise RunError(process.returncode, said.read().strip())
    if plan["chosen_by"]:
        # Which runs the results are is known once the sweep has chosen.
        plan = _plan(check)
    found = (records(place / planned["run_id"]) for planned in plan["runs"])
    return Frame(list(_rows([record for each in found for record in each])))


def frame(place: Place) -> "Frame":
    """The scores of a run, of a directory of runs, or of a file of records, as a DataFrame.

    One row for each score: `run_id`, `experiment`, `method`, `seed`, `part` (`result`; `half`, a
    result again with half the steps; `selection`, of `[select]`, scored on other rows), `variant` (the
    encoding at test time, `trained` for the one of the training), `train_len` and `test_len` (in
    the unit of the task; a range of lengths is a text, `51..100`), `metric`, `value` (losses in nats
    for each token, accuracies from 0 to 1), `n` (what it was averaged over: tokens or rows),
    `status` (`ok`, or why there is no number, with `reason`), and every recorded key of the run's
    task, model, training and way of scoring: `train.lr`, `model.d_model`, `eval.decode`. Records
    leave some keys out at their default. Perplexity is exp of the loss.

    The DataFrame has one method more: `plot`, described at `draw`. `plot.scatter` and the like are
    those of pandas.
    """
    return Frame(list(_rows(records(place))))


def draw(
    frame: pandas.DataFrame, metric: Optional[str] = None, *, by: str = "method", ax: Any = None
) -> Any:
    """Draws a metric of the results by test length: one line for each method and variant, means
    over seeds. Runs of one method that differ in a setting have a line each. Ranges of lengths are
    left out.

    `metric` is perplexity, or the first that the frame has. `by` is the column that tells lines
    apart. Losses and perplexities are averaged in nats. Dots are single seeds. The dotted line is
    the training length. Returns the axes of matplotlib.
    """
    import matplotlib.pyplot as pyplot

    found = list(dict.fromkeys(frame.metric.dropna()))
    if not found:
        raise ValueError("no score to draw: the column `status` says why")
    metric = metric or next((name for name in FIRST if name in found), found[0])
    if metric not in found:
        raise ValueError(f"no metric {metric!r}; there are: {', '.join(found)}")
    ranges = frame.test_len.map(lambda length: isinstance(length, str))
    rows = frame[(frame.metric == metric) & (frame.part == "result") & ~ranges]
    if rows.empty:
        raise ValueError(f"no {metric} of a result at a single length to draw")
    rows = rows.assign(test_len=rows.test_len.astype(int))
    if ax is None:
        # Makes room for the legend beside the axes.
        _, ax = pyplot.subplots(figsize=(7, 4.2), layout="constrained")
    into, back = (math.log, math.exp) if metric == "perplexity" else (float, float)
    # The same run may be in several experiments.
    rows = rows.drop_duplicates(["run_id", "variant", "test_len"])
    apart = _apart(rows, [by, "variant", "seed", "test_len"])
    lines = rows.groupby([by, "variant", *apart], sort=False, dropna=False)
    for at, ((name, variant, *values), line) in enumerate(lines):
        style = {"color": COLORS[at % len(COLORS)], "marker": MARKERS[at % len(MARKERS)]}
        means = line.groupby("test_len").value.agg(lambda v: back(sum(map(into, v)) / len(v)))
        label = str(name) if variant == "trained" else f"{name} + {variant}"
        # As in a report, a key that is not set is not named.
        told = zip(apart, values)
        told = ", ".join(f"{key} = {value}" for key, value in told if value == value)
        label = f"{label} [{told}]" if told else label
        ax.plot(means.index, means.values, label=label, markersize=5, linewidth=1.6, **style)
        if line.seed.nunique() > 1:
            ax.plot(line.test_len, line.value, linestyle="", markersize=3, alpha=0.45, **style)
    lengths = sorted(set(rows.test_len))
    ax.set_xscale("log", base=2)
    ax.set_xticks(lengths, [str(length) for length in lengths])
    ax.minorticks_off()
    if metric == "perplexity":
        ax.set_yscale("log")
        for axis in (ax.yaxis.set_major_formatter, ax.yaxis.set_minor_formatter):
            axis(lambda value, _: f"{value:g}")
    for length in set(rows.train_len):
        ax.axvline(length, color="#8a8a8a", linestyle=":", linewidth=1, zorder=0)
    ax.set_xlabel("test length")
    ax.set_ylabel(metric.replace("_", " "))
    ax.grid(color="#e6e6e6", linewidth=0.6)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, loc="center left", bbox_to_anchor=(1.01, 0.5))
    return ax


def _apart(rows: pandas.DataFrame, keys: list) -> list:
    """The columns that tell apart what has the same `keys`: settings, or else the experiment."""
    twice = rows[rows.duplicated(keys, keep=False)].groupby(keys)
    differs = lambda column: (twice[column].nunique(dropna=False) > 1).any()
    settings = [key for key in rows.columns if "." in key and key not in keys]
    return [key for key in settings if differs(key)] or [
        key for key in ("experiment",) if key not in keys and differs(key)
    ]


def _plan(check: list) -> dict:
    done = subprocess.run(check, text=True, capture_output=True)
    if done.returncode:
        raise RunError(done.returncode, done.stderr.strip())
    return json.loads(done.stdout)


def _rows(found: list) -> Iterator[dict]:
    for record, method, scored in zip(found, methods(found), evaluations(found)):
        spec = record["spec"]
        config = {}
        for section in SECTIONS:
            config.update(_leaves(spec[section], f"{section}."))
        base = {
            "run_id": record["run_id"],
            "experiment": record["experiment"],
            "method": method,
            "seed": record["seed"],
            "part": part(record),
        }
        lengths = {"train_len": record["task"]["train_len"]}
        none = {"metric": None, "value": math.nan, "n": 0}
        how = {key: value for key, value in spec["eval"].items() if key not in EVALUATED}
        config.update(_leaves(how, "eval."))
        if not record["evals"]:
            yield {**base, **none, **lengths, "status": record["status"], "reason": None, **config}
        for each in scored:
            lengths["test_len"] = test_len(each)
            about = {"variant": each["variant"], **lengths}
            end = {"status": each["status"], "reason": each.get("reason"), **config}
            found_metrics = metrics(each, record["task"])
            for name, metric in found_metrics.items():
                score = {"metric": name, "value": metric["value"], "n": metric["n"]}
                yield {**base, **about, **score, **end}
            if not found_metrics:
                yield {**base, **about, **none, **end}


def _leaves(table: dict, above: str = "") -> Iterator[tuple]:
    """Dotted keys and values; lists and encodings are values, as JSON."""
    for key, value in table.items():
        path = f"{above}{key}"
        if isinstance(value, dict) and "kind" not in value:
            yield from _leaves(value, f"{path}.")
        else:
            plain = not isinstance(value, (dict, list))
            yield path, value if plain else json.dumps(value)


def _dotted(overrides: dict, above: str = "") -> Iterator[tuple]:
    """Overrides as dotted keys. A table with a `kind` is one value, and one whose own keys are dotted
    is too."""
    for key, value in overrides.items():
        path = f"{above}{key}"
        whole = path in ("axes", "select.over") or not isinstance(value, dict)
        if whole or not value or "kind" in value:
            yield path, value
        else:
            yield from _dotted(value, f"{path}.")


def _progress(program: str, place: pathlib.Path, planned: int) -> tuple:
    """Runs that have ended, runs in all, and the share of all steps that is done."""
    status = subprocess.run([program, "status", str(place), "--json"], text=True, capture_output=True)
    found = json.loads(status.stdout) if status.returncode == 0 else []
    ended = sum(run["state"] in ("done", "diverged", "failed") for run in found)
    steps = sum(run["steps"] for run in found)
    done = sum(run["step"] for run in found)
    known = len(found) / planned if planned else 1.0
    return ended, max(planned, len(found)), min(known, 1.0) * done / steps if steps else 0.0


class _Bar:
    """One line that is written again: tqdm where it is installed, else plain text."""

    def __init__(self, name: str, shown: bool):
        self.name, self.shown, self.bar, self.last = name, shown, None, None

    def __enter__(self) -> "_Bar":
        if self.shown:
            try:
                from tqdm.auto import tqdm

                form = "{desc}: {percentage:3.0f}%|{bar}| {postfix} [{elapsed}<{remaining}]"
                self.bar = tqdm(total=1.0, desc=self.name, bar_format=form)
            except ImportError:
                pass
        return self

    def show(self, ended: int, runs: int, share: float) -> None:
        text = f"{ended} of {runs} runs"
        if self.bar is not None:
            self.bar.n = share
            self.bar.set_postfix_str(text)
        elif self.shown and (text, round(share, 2)) != self.last:
            self.last = (text, round(share, 2))
            print(f"\r{self.name}: {share:4.0%}, {text}", end="", file=sys.stderr, flush=True)

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.close()
        elif self.shown:
            print(file=sys.stderr)


class Frame(pandas.DataFrame):
    """Scores, one in each row. See `longreach.frame`."""

    @property
    def _constructor(self) -> type:
        return Frame

    @property
    def plot(self) -> "_Plot":
        return _Plot(self)


class _Plot:
    """Calls `draw`; everything else is pandas' own `plot`."""

    def __init__(self, frame: Frame):
        self._frame = frame

    def __call__(self, metric: Optional[str] = None, **options: Any) -> Any:
        return draw(self._frame, metric, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(pandas.DataFrame(self._frame).plot, name)
