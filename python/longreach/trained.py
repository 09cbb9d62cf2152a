"""The trained model of a run in PyTorch. The layout of its weights is in docs/interop.md;
`scripts/interop` checks its logits against those of the program."""

import json
import pathlib
from typing import Optional

import torch

from . import Place, Unsupported, encodings
from .model import Shape, Transformer
from .recorded import RECORD, read

WEIGHTS = "weights.safetensors"


def load(
    run: Place,
    variant: str = "trained",
    test_len: Optional[int] = None,
    tables: Optional[Place] = None,
) -> Transformer:
    """The trained model of a run's directory, in evaluation mode: logits `[rows, tokens,
    vocab_size]`, in nats, of token ids `[rows, tokens]`.

    `variant` and `test_len` choose one of the encodings that the run was evaluated under, by itself
    or by `longreach eval`; scalings with `factor = "auto"` differ between test lengths.

    Encodings that `encodings` does not have, and positions other than contiguous, come as tables of
    the program: for up to `test_len` tokens (the first test length if there is none), from the file
    `tables` or else from `longreach export --format tables`, which is called. Raises `Unsupported`
    for what the model cannot do, `tables.TableError` for encodings that read content, and
    RuntimeError if weights and record do not fit together.
    """
    from safetensors.torch import load_file

    run = pathlib.Path(run)
    if not (run / RECORD).is_file():
        raise FileNotFoundError(f"{run} has no {RECORD}: name a run's directory, EXPERIMENT/RUN_ID")
    record = read(run / RECORD, (run / RECORD).read_bytes())
    if record["environment"]["burn"].startswith("none: pytorch"):
        raise Unsupported(f"{run} was trained in PyTorch by longreach.bench, which keeps no weights")
    spec = record["spec"]
    pe, positions = _evaluated(run, spec, variant, test_len)
    config = {**spec["model"], "pe": pe}
    weights = load_file(str(run / WEIGHTS))
    check(config)
    kind = (positions or {}).get("kind", "contiguous")
    if tables is not None or kind != "contiguous" or not encodings.has(pe):
        from . import tables as module

        at = _end(test_len or spec["eval"]["test_lens"][0])
        given = tables is not None
        encoding = module.Tables(tables, variant, at) if given else module.export(run, variant, at)
        if encoding.run_id != record["run_id"]:
            raise module.TableError(f"{tables} belongs to run {encoding.run_id}, not {record['run_id']}")
        drawn = kind not in ("contiguous", "random_offset")
        encoding.whole = drawn or config.get("coordinates") == "task"
        weights = {name: each for name, each in weights.items() if not name.startswith("encoding.")}
    else:
        sizes = [config[name] for name in ("d_model", "n_layers", "n_heads", "head_dim")]
        # What is drawn here is replaced by the weights.
        with torch.random.fork_rng(devices=[]):
            encoding = encodings.of(pe)(Shape(*sizes, spec["train"]["seq_len"]))
    model = Transformer(config, encoding)
    model.load_state_dict(weights, strict=True)
    return model.eval()


def _evaluated(run, spec, variant, test_len):
    """Encoding and positions of a variant at a test length, of the run or of later evaluations."""
    try:
        return _encoding(spec, variant, test_len)
    except Unsupported as error:
        found = {}
        for file in sorted((run / "evals").glob("*.json")):
            try:
                one = _encoding(read(file, file.read_bytes())["spec"], variant, test_len)
            except Unsupported:
                continue
            found[json.dumps(one, sort_keys=True)] = one
        if len(found) > 1:
            text = f"{len(found)} evaluations named {variant!r} at {test_len} differ in {run / 'evals'}"
            raise Unsupported(text) from None
        if not found:
            raise error from None
        return next(iter(found.values()))


def _encoding(spec, variant, test_len):
    """Encoding and positions of a variant at a test length."""
    model, evaluation = spec["model"], spec["eval"]
    if variant == "trained" and test_len is None:
        return model["pe"], model.get("positions")
    variants = {each["name"]: each for each in evaluation["variants"]}
    if variant not in variants:
        raise Unsupported(f"no variant {variant!r}; allowed: {', '.join(variants)}")
    lengths = evaluation["test_lens"]
    # A range is also named by its upper end.
    ends = lengths if test_len in lengths else list(map(_end, lengths))
    if test_len not in ends:
        allowed = ", ".join(map(str, lengths))
        if test_len is None:
            raise Unsupported(f"variant {variant!r} follows the length: test_len is one of {allowed}")
        raise Unsupported(f"no test length {test_len!r}; allowed: {allowed}")
    at = ends.index(test_len)
    positions = variants[variant].get("positions") or []
    return variants[variant]["pe"][at], positions[at] if positions else model.get("positions")


def _end(length):
    """A test length, or the upper end of a range of them."""
    return int(str(length).rpartition(".")[2])


def check(config: dict) -> None:
    """Refuses `spec["model"]` of a record where `model.Transformer` does not do what it says."""
    if config.get("attention", "softmax") != "softmax":
        raise Unsupported(f"attention {config['attention']!r}; allowed: softmax")
    known = {
        "vocab_size", "d_model", "n_layers", "n_heads", "head_dim", "mlp", "d_ff", "norm",
        "activation", "tied_head", "biases", "dropout", "embedding_std", "matrix_std", "qk_norm",
        "attention", "mask", "matmul", "pe", "positions", "coordinates", "feature_map", "normalizer",
    }  # fmt: skip
    unknown = sorted(set(config) - known)
    if unknown:
        raise Unsupported(f"model.{unknown[0]}: not known here")
