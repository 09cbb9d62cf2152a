"""Your own encoding, written in PyTorch, beside those of the program.

    from longreach import bench

    class MyEncoding(bench.Encoding):
        def logits_bias(self, layer, length):      # [H, L, L]
            ...

    bench.run("quickstart.toml", MyEncoding)

The reference model is trained in PyTorch on the rows of the program, in the same order, from the
same initial weights, with the same optimizer, schedule, clipping, selection and stopping, and
tested at the lengths of the config. The records go to `runs/EXPERIMENT/`, where `longreach report`
finds them. They have no seal, and their method is named `MyEncoding (pytorch VERSION)`.
"""

import hashlib
import json
import os
import pathlib
import platform
from typing import Iterable, List, Optional, Type

try:
    import torch
except ImportError as error:
    raise ImportError("longreach.bench needs PyTorch 2.0 or newer: pip install torch") from error

from . import checks, encodings
from .choice import NOPE, Choice
from .fingerprint import bytes_of, code_of
from .model import Content, Encoding, Shape, Transformer
from .program import BenchError, Program
from .recorded import Place
from .training import Trained, evaluate, train

__all__ = ["BenchError", "Content", "Encoding", "Shape", "run", "self_check", "train"]

OLDEST_TORCH = (2, 0)
# Losses of SELF_CHECK_STEPS steps and the score after them, relative to those of the program.
TOLERANCE = 1e-4
SELF_CHECK_STEPS = 20


def run(
    config: Place,
    encoding: Type[Encoding],
    seeds: Optional[Iterable[int]] = None,
    runs: Place = "runs",
    overrides: Iterable[str] = (),
) -> List[dict]:
    """Trains and tests an encoding under a config of the program; returns the records.

    `config` is a path; its axes and variants are ignored. `seeds` are those of the config unless
    others are given. Every call trains again, even if a record exists: changes of code in other
    modules may go unseen. A record is replaced once the new one is whole. Under `[select]` the
    encoding is first trained with every combination of values, as the program's own methods are.
    Seeds that are among `half_seeds` are also trained for half the steps.
    `encoding` is a class derived from `Encoding`. `overrides` are `KEY=VALUE`, as on the command
    line. Raises `BenchError` for what cannot be compared, before anything is trained.
    """
    if tuple(int(part) for part in torch.__version__.split(".")[:2]) < OLDEST_TORCH:
        raise BenchError(f"PyTorch {torch.__version__} is too old; 2.0 or newer is needed")
    checks.check_class(encoding)
    program = Program(config, overrides)
    try:
        seeds = program.seeds(NOPE) if seeds is None else list(seeds)
    except TypeError:
        raise BenchError(f"seeds = {seeds!r}: give a list of whole numbers, [0, 1]") from None
    if not seeds or len(set(seeds)) != len(seeds):
        raise BenchError(f"seeds = {seeds}: give each seed once")
    choice = Choice(program, seeds)
    # The first combination stands for all in what is checked before.
    first = choice.with_values(0)
    job = first.jobs(NOPE, seeds)[0]
    spec = job["job"]["spec"]
    checks.check_config(spec)
    # A stage without an encoding differs from any other one.
    checks.check_stages(first.jobs({"kind": "alibi"}, seeds)[0]["job"]["spec"])
    start, weights = first.initial(NOPE, job)
    checks.check_task(start["task"])
    tokens = torch.tensor(next(first.batches(job, 1))["inputs"][:2], dtype=torch.long)
    lengths = job["test_seq_lens"]
    checks.check_encoding(encoding, _shape(spec), spec["model"], weights, tokens, lengths)
    code = code_of(encoding)
    proof = self_check(first)
    print(proof["text"], flush=True)

    whole = {}

    def make(program: Program, job: dict, selected: Optional[dict] = None) -> dict:
        more = {"selected": selected} if selected else {}
        if "half_of" in job["job"]:
            more["half_of"] = whole[job["job"]["half_of"]]
        record = _run(program, job, encoding, code, proof, runs, more)
        whole[job["job"]["run_id"]] = record["run_id"]
        return record

    chosen, selected = choice.make(make)
    if selected:
        values = selected["candidates"][selected["chosen"]]["values"]
        text = ", ".join(f"{value['key']} = {value['text']}" for value in values)
        print(f"{encoding.__name__}: chosen by {selected['by']}: {text}", flush=True)
    return [make(chosen, job, selected) for job in chosen.jobs(NOPE, seeds)]


def _run(
    program: Program, job: dict, encoding: type, code: str, proof: dict, runs, more: dict
) -> dict:
    """Trains and tests one run, and writes its record with `more` in it."""
    start, weights = program.initial(NOPE, job)
    spec = job["job"]["spec"]
    model = Transformer(spec["model"], checks.make(encoding, _shape(spec), spec["seed"]))
    model.start_from(weights)
    trained = train(model, program, job)
    record = _record(job, start, model, encoding, code, trained, proof)
    record.update(more)
    if record["status"] == "ok":
        record["evals"] = evaluate(model, program, job, start["task"]["definitions"])
    place = pathlib.Path(runs, record["experiment"], record["run_id"])
    place.mkdir(parents=True, exist_ok=True)
    _write(place / "self-check.json", proof)
    _write(place / "record.json", record)
    part = ", selection" if spec["eval"].get("rows") == "selection" else ""
    part = ", half the steps" if "half_of" in record else part
    print(f"{encoding.__name__} seed {spec['seed']}{part}: {record['status']}, {place}", flush=True)
    return record


def _write(path: pathlib.Path, value: dict) -> None:
    """Writes JSON to a file beside it first: `path` is whole whenever it is there."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        scratch.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
        scratch.replace(path)
    except OSError as error:
        scratch.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path)) from None


def self_check(
    program: Program,
    pe: Optional[dict] = None,
    steps: int = SELF_CHECK_STEPS,
    encoding: Optional[Type[Encoding]] = None,
) -> dict:
    """Trains an encoding of the program with it and with the Python model, for some steps of its
    config: the largest relative differences of losses and score. Raises `BenchError` where they
    pass TOLERANCE: this machine's PyTorch then computes something else. `encoding` is a class that
    is compared with `pe`, with the parameters of the program by name and shape; without it, the
    class in `longreach.encodings` is taken."""
    pe = pe or {"kind": "rope"}
    short = program.short(steps, program.jobs(pe, [0])[0]["job"]["spec"])
    job = short.jobs(pe, [0])[0]
    [(record, theirs, weights)] = short.trained(pe, [0])
    spec = job["job"]["spec"]
    encoding = encoding or encodings.of(spec["model"]["pe"])
    model = Transformer(spec["model"], checks.make(encoding, _shape(spec), 0))
    model.start_from(weights)
    ours = train(model, short, job).losses
    by_loss = max(abs(a / b - 1.0) for a, b in zip(ours, theirs))
    by_score = 0.0
    definitions = record["task"]["definitions"]
    for row, other in zip(evaluate(model, short, job, definitions), record["evals"]):
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


def _record(
    job: dict, start: dict, model, encoding: type, code: str, trained: Trained, proof: dict
) -> dict:
    """A record of the program's layout, except for its evaluations and without a seal. `start` is the
    record that the initial weights came with: its task is that of this run. `code` tells classes of
    one name apart."""
    losses = trained.losses
    source = f"pytorch {torch.__version__}"
    spec = json.loads(json.dumps(job["job"]["spec"]))
    # The same for all seeds, so that they stay seeds of one method; numbers: self-check.json.
    passed = f"passed: {proof['pe']['kind']}, {proof['steps']} steps, {TOLERANCE:.0e}"
    # Bytecode, which `code` is a hash of, differs between versions of Python.
    python = ".".join(platform.python_version_tuple()[:2])
    pe = {"kind": encoding.__name__, "source": source, "python": python, "code": code}
    pe["self_check"] = passed
    spec["model"]["pe"] = pe
    spec["eval"]["variants"] = [{"name": "trained", "pe": [pe] * len(spec["eval"]["test_lens"])}]
    text = json.dumps(spec, sort_keys=True, separators=(",", ":"))
    status = "diverged" if trained.diverged else "ok"
    weights = hashlib.sha256()
    for _, value in sorted(model.state_dict().items()):
        weights.update(bytes_of(value))
    own = [p.numel() for p in model.encoding.parameters() if p.requires_grad]
    everything = [p.numel() for p in model.parameters() if p.requires_grad]
    width = max(-(-len(losses) // 200), 1)
    parts = [losses[at : at + width] for at in range(0, len(losses), width)]
    ends = [min((at + 1) * width, len(losses)) for at in range(len(parts))]
    tail = losses[-max(len(losses) // 10, 1) :]
    label = f"{encoding.__name__} (pytorch {torch.__version__.split('+')[0]})"
    facts = {
        "steps": len(losses),
        "tokens": trained.tokens,
        "loss_curve": [
            {"step": end, "loss_nats": sum(part) / len(part)} for end, part in zip(ends, parts)
        ],
    }
    record = {
        "schema": start["schema"],
        "run_id": hashlib.sha256(text.encode()).hexdigest()[:16],
        "experiment": job["job"]["experiment"],
        "labels": [
            {"key": "model.pe", "text": label, "value": label},
            *(each for each in job["job"]["labels"] if each["key"] != "model.pe"),
        ],
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
    if trained.stop_scores:
        facts["stop_scores"] = trained.stop_scores
    if status == "ok":
        facts["final_loss_nats"] = sum(tail) / len(tail)
    else:
        record["diverged"] = {"step": len(losses), "what": "loss or gradient"}
    return record


def _shape(spec: dict) -> Shape:
    sizes = {key: spec["model"][key] for key in ("d_model", "n_layers", "n_heads", "head_dim")}
    return Shape(**sizes, train_len=spec["train"]["seq_len"])
