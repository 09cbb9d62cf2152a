"""Runs Longreach, and reads what it writes: scores, records, and trained models in PyTorch.

    import longreach

    frame = longreach.run("quickstart", seeds=[0, 1])      # trains; scores as a DataFrame
    frame.plot()                                           # in the colours of the report
    frame = longreach.frame("runs/quickstart")             # the scores of what has run
    records = longreach.records("runs/quickstart")         # a list of dictionaries
    rows = longreach.scores(records)                       # for pandas.DataFrame or polars.DataFrame
    model = longreach.load("runs/quickstart/0123456789abcdef")
    logits = model(torch.tensor([[72, 101, 108, 108, 111]]))   # [rows, tokens, vocab_size]

`run` needs the program, `run` and `frame` pandas, `plot` matplotlib. The rest is this file, which
can be copied: `records` and `scores` need nothing else, `load` needs numpy, safetensors and torch.
The weights' layout is in docs/interop.md; `scripts/interop` checks the logits against those of
Longreach. `longreach.bench` trains encodings that are written in PyTorch.

`load` knows the encodings nope, rope, alibi, learned, sinusoidal and t5, the scalings linear, ntk
and yarn, both norms, both activations, blocks without an MLP, causal and bidirectional softmax
attention. Other encodings by position come as tables of the program. It refuses everything else by
name.
"""

import importlib.metadata
import json
import math
import os
import pathlib
from typing import TYPE_CHECKING, Any, List, Optional, Union

if TYPE_CHECKING:
    from torch import nn

    from .frames import RunError, draw, frame, run  # noqa: F401

RECORD = "record.json"
WEIGHTS = "weights.safetensors"
# The layout of records that is read here.
SCHEMA = 1
NORM_EPS = 1e-5

Place = Union[str, "os.PathLike[str]"]


class Unsupported(ValueError):
    """A run that this file cannot rebuild."""


def __getattr__(name: str) -> Any:
    if name in ("RunError", "draw", "frame", "run"):
        from . import frames

        return getattr(frames, name)
    if name == "__version__":
        try:
            return importlib.metadata.version("longreach")
        except importlib.metadata.PackageNotFoundError:
            raise AttributeError("a copy of longreach that was not installed has no version") from None
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


# Records


def records(path: Place) -> List[dict]:
    """All records at a path: a run's directory, a directory above, a record, or a .jsonl file. A run
    that is found twice is counted once; if its numbers differ, this raises ValueError."""
    found = {}
    for place, record in _placed(pathlib.Path(path)):
        numbers = _numbers(record)
        run = (record.get("run_id"), record.get("evaluation_of"))
        kept = found.setdefault(run, {})
        for other, _, known in kept.values():
            both = numbers.keys() & known.keys()
            if any(numbers[key] != known[key] for key in both):
                raise ValueError(f"run {run[0]} has other numbers in {other} than in {place}")
        # One machine may have skipped what another one had the memory for.
        experiment = record.get("experiment")
        if experiment not in kept or len(numbers) > len(kept[experiment][2]):
            kept[experiment] = (place, record, numbers)
    return [record for kept in found.values() for _, record, _ in kept.values()]


def _numbers(record):
    """What must be the same wherever a run lies."""
    numbers = {"status": record.get("status")}
    for row in record.get("evals", []):
        if row["status"] != "skipped":
            key = (row["variant"], row.get("from_len"), row["test_len"])
            numbers[key] = (row["status"], row["metrics"])
    return numbers


def _placed(path):
    """Records with the places that they were read from."""
    if path.suffix == ".jsonl" and path.is_file():
        lines = enumerate(path.read_bytes().splitlines(), 1)
        found = [(f"{path}:{number}", line) for number, line in lines if line.strip()]
    elif path.is_file():
        found = [(path, path.read_bytes())]
    else:
        files = sorted(path.glob(f"**/{RECORD}")) + sorted(path.glob("**/evals/*.json"))
        found = [(file, file.read_bytes()) for file in files]
    if not found:
        raise FileNotFoundError(f"{path} holds no {RECORD}" if path.is_dir() else f"no records: {path}")
    return [(place, _record(place, text)) for place, text in found]


def _record(place, text):
    try:
        record = json.loads(text)
    except ValueError as error:
        raise ValueError(f"{place} is not a record: {error}") from None
    if not isinstance(record, dict) or "schema" not in record:
        raise ValueError(f"{place} is not a record")
    if record["schema"] != SCHEMA:
        version = record["schema"]
        raise ValueError(f"{place} is a record of schema {version}; this package reads {SCHEMA}")
    return record


def method(record: dict) -> str:
    """The values on the axes of the experiment: `rope, 10000`."""
    return ", ".join(label["text"] for label in record["labels"])


def methods(records: List[dict]) -> List[str]:
    """The method of each record. Classes of `longreach.bench` that share a name are told apart by
    their code, as in the report."""
    named = [(method(record), record["spec"]["model"]["pe"].get("code")) for record in records]
    codes = {}
    for name, code in named:
        codes.setdefault(name, set()).add(code)
    return [
        f"{name} [model.pe.code = {code}]" if code and len(codes[name]) > 1 else name
        for name, code in named
    ]


def part(record: dict) -> str:
    """What a run is for: `result`, `half` (a result again with half the steps), or `sweep` (of
    `[select]`, scored on other rows)."""
    if record["spec"]["eval"].get("rows") == "selection":
        return "sweep"
    return "half" if record.get("half_of") else "result"


def test_len(evaluation: dict) -> Union[int, str]:
    """The test length: a number, or `3..7` where each row has a length in this range."""
    longest = evaluation["test_len"]
    return f"{evaluation['from_len']}..{longest}" if "from_len" in evaluation else longest


def metrics(evaluation: dict, task: Optional[dict] = None) -> dict:
    """Value and count by metric. Where there is a loss, perplexity is among them, and bits per byte
    if the record's `task` says how many bytes a token is."""
    found = dict(evaluation["metrics"])
    if "loss_nats" in found:
        loss = found["loss_nats"]["value"]
        value = math.exp(loss) if loss < 709 else math.inf
        found["perplexity"] = {**found["loss_nats"], "value": value}
        if task and task.get("bytes_per_token"):
            value = loss / math.log(2) / task["bytes_per_token"]
            found["bits_per_byte"] = {**found["loss_nats"], "value": value}
    return found


# Keys of `eval` that leave the scores of a row as they are.
ADDING = ["test_lens", "variants", "last_tokens", "attention_distance"]


def evaluations(records: List[dict]) -> List[List[dict]]:
    """The evaluations of each record, each number once: what a later one repeats is left out.
    Encodings of one method under one name are told apart: `yarn [scaling.factor = 4.0]`, where the
    encoding that the runs themselves were evaluated under keeps its name."""
    names = methods(records)
    named: dict = {}
    for record, name in zip(records, names):
        for row in record["evals"]:
            group = named.setdefault(_group(record, name, row), {})
            own = "evaluation_of" not in record
            encoding = _encoding_of(record, row)
            group[encoding] = group.get(encoding, False) or own
    found: List[List[dict]] = [[] for _ in records]
    seen: dict = {}
    # A run before its later evaluations.
    for at in sorted(range(len(records)), key=lambda at: "evaluation_of" in records[at]):
        record = records[at]
        spec = record["spec"]["eval"]
        how = {key: value for key, value in spec.items() if key not in ADDING}
        run_id = record.get("evaluation_of") or record["run_id"]
        run = (record["experiment"], run_id, json.dumps(how, sort_keys=True))
        for row in record["evals"]:
            encoding = _encoding_of(record, row)
            group = named[_group(record, names[at], row)]
            key = (run, row["variant"], test_len(row), encoding)
            known = seen.setdefault(key, set())
            new = {key: value for key, value in row["metrics"].items() if key not in known}
            if not new and (known or row["status"] in known):
                continue
            known.update(new or [row["status"]])
            name = _told(row["variant"], encoding, group)
            found[at].append({**row, "variant": name, "metrics": new})
    return found


def _group(record: dict, name: str, row: dict) -> tuple:
    return (record["experiment"], part(record), name, row["variant"], test_len(row))


def _encoding_of(record: dict, row: dict) -> str:
    return json.dumps(_leaves_of(record["spec"]["eval"], row), sort_keys=True)


def _told(name: str, encoding: str, group: dict) -> str:
    """The name of a variant: with the keys that differ among the encodings of this name, unless it
    is the only one or that of the runs themselves."""
    if len(group) == 1 or group[encoding]:
        return name
    own = json.loads(encoding)
    others = [json.loads(other) for other in group]
    keys = sorted({key for other in others for key in other})
    differ = [key for key in keys if any(other.get(key) != own.get(key) for other in others)]
    values = [f"{key} = {own.get(key, 'not set')}" for key in differ]
    return f"{name} [{', '.join(values)}]"


def _leaves_of(spec: dict, row: dict) -> dict:
    """Dotted keys and values of the encoding of a row, and of its positions."""
    lengths = [str(length) for length in spec["test_lens"]]
    of = next((each for each in spec["variants"] if each["name"] == row["variant"]), {})
    leaves = {}

    def flatten(path, value):
        if isinstance(value, dict):
            for key, inner in value.items():
                flatten(f"{path}.{key}" if path else key, inner)
        else:
            leaves[path] = json.dumps(value)

    if str(test_len(row)) in lengths:
        place = lengths.index(str(test_len(row)))
        for above, values in (("", of.get("pe", [])), ("positions", of.get("positions", []))):
            if place < len(values):
                flatten(above, values[place])
    return leaves


def scores(records: List[dict]) -> List[dict]:
    """One dictionary for each score: run, part, variant, test length, metric and value. Perplexity
    and bits per byte are derived from the loss."""
    rows = []
    for record, name, found in zip(records, methods(records), evaluations(records)):
        for evaluation in found:
            for key, metric in metrics(evaluation, record["task"]).items():
                rows.append(
                    {
                        "run_id": record["run_id"],
                        "experiment": record["experiment"],
                        "method": name,
                        "seed": record["seed"],
                        "part": part(record),
                        "train_len": record["task"]["train_len"],
                        "variant": evaluation["variant"],
                        "test_len": test_len(evaluation),
                        "metric": key,
                        "value": metric["value"],
                    }
                )
    return rows


# Models


def load(
    run: Place,
    variant: str = "trained",
    test_len: Optional[int] = None,
    tables: Optional[Place] = None,
) -> "nn.Module":
    """The trained model of a run's directory, in evaluation mode: logits `[rows, tokens,
    vocab_size]`, in nats, of token ids `[rows, tokens]`.

    `variant` and `test_len` choose one of the encodings that the run was evaluated under, by itself
    or by `longreach eval`; scalings with `factor = "auto"` differ between test lengths.

    Encodings that this file does not know, and positions other than contiguous, come as tables of
    the program: for up to `test_len` tokens (the first test length if there is none), from the file
    `tables` or else from `longreach export --format tables`, which is called. Raises `Unsupported`
    for what this file cannot rebuild, `tables.TableError` for encodings that read content, and
    RuntimeError if weights and record do not fit together.
    """
    from safetensors.torch import load_file

    run = pathlib.Path(run)
    record = _record(run / RECORD, (run / RECORD).read_bytes())
    spec = record["spec"]
    config = dict(spec["model"])
    config["pe"], positions = _evaluated(run, spec, variant, test_len)
    weights = load_file(str(run / WEIGHTS))
    encoding = None
    if tables is not None or _unknown_encoding(config["pe"], positions):
        from . import tables as module

        at = _end(test_len or spec["eval"]["test_lens"][0])
        read = tables is not None
        encoding = module.Tables(tables, variant, at) if read else module.export(run, variant, at)
        if encoding.run_id != record["run_id"]:
            raise module.TableError(f"{tables} is of run {encoding.run_id}, not {record['run_id']}")
        kind = (positions or {}).get("kind", "contiguous")
        drawn = kind not in ("contiguous", "random_offset")
        encoding.whole = drawn or config.get("coordinates") == "task"
        weights = {name: each for name, each in weights.items() if not name.startswith("encoding.")}
    model = build(config, positions, encoding)
    model.load_state_dict(weights, strict=True)
    return model.eval()


def build(
    config: dict, positions: Optional[dict] = None, encoding: "Optional[nn.Module]" = None
) -> "nn.Module":
    """A model without weights from `spec["model"]` of a record. `encoding` is one in place of that
    of the record, with the hooks of `tables.Tables`."""
    import torch
    from torch import nn
    from torch.nn import functional

    _check(config)
    unknown = encoding is None and _unknown_encoding(config["pe"], positions)
    if unknown:
        raise Unsupported(unknown)
    d, heads, head_dim = config["d_model"], config["n_heads"], config["head_dim"]
    inner, ff, vocab = heads * head_dim, config["d_ff"], config["vocab_size"]
    pe, biases = config["pe"], config.get("biases", False)

    def parameter(*shape):
        return nn.Parameter(torch.zeros(*shape))

    def linear(x, weight, bias):
        return x @ weight if bias is None else x @ weight + bias

    class Norm(nn.Module):
        def __init__(self, kind, width):
            super().__init__()
            self.kind = kind
            self.scale = parameter(width)
            if kind == "layer_norm":
                self.shift = parameter(width)

        def forward(self, x):
            if self.kind == "layer_norm":
                return functional.layer_norm(x, x.shape[-1:], self.scale, self.shift, NORM_EPS)
            return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + NORM_EPS) * self.scale

    class Encoding(nn.Module):
        """Where positions enter: the input, queries and keys, or the logits."""

        def __init__(self):
            super().__init__()
            kind = pe["kind"]
            if kind == "learned":
                self.table = parameter(pe["max_position"], d)
            elif kind == "t5":
                self.table = parameter(pe["num_buckets"], heads)
            elif kind == "sinusoidal" and pe.get("learnable_scale"):
                self.scale = parameter(1)
            elif kind == "rope" and pe.get("learnable"):
                self.log_frequency = parameter(_rotary_dim(pe, head_dim) // 2)

        def embed(self, x):
            length = x.shape[1]
            if pe["kind"] == "learned":
                return x + self.rows(length)
            if pe["kind"] == "sinusoidal":
                table = torch.from_numpy(_sinusoids(pe, length, d)).to(x)
                return x + table * getattr(self, "scale", pe["scale"])
            return x

        def rows(self, length):
            most = self.table.shape[0]
            if length <= most:
                return self.table[:length]
            if pe.get("clamp"):
                return self.table[torch.arange(length, device=self.table.device).clamp(max=most - 1)]
            if not pe.get("interpolate"):
                raise Unsupported(f"{length} tokens, but the learned table has {most} rows")
            place = torch.arange(length, dtype=torch.float64, device=self.table.device)
            place = place * (most - 1) / (length - 1)
            low = place.floor()
            upper = (place - low).to(self.table)[:, None]
            high = (low + 1).clamp(max=most - 1).long()
            return self.table[low.long()] * (1 - upper) + self.table[high] * upper

        def transform(self, q, k):
            """Queries and keys, `[rows, heads, tokens, head_dim]`."""
            if pe["kind"] == "t5" and not pe["scaled"]:
                return q * math.sqrt(head_dim), k
            if pe["kind"] != "rope":
                return q, k
            frequencies, factor = _frequencies(pe, head_dim)
            frequencies = torch.from_numpy(frequencies)
            if pe.get("learnable"):
                frequencies = frequencies.to(q.device) * self.log_frequency.double().exp()
            # Angles in f64: near position 1e5 neighbouring f32 angles are 0.01 radians apart.
            positions = torch.arange(q.shape[2], dtype=torch.float64, device=frequencies.device)
            angles = positions[:, None] * frequencies
            cos, sin = (angles.cos() * factor).to(q), (angles.sin() * factor).to(q)
            return tuple(_rotate(x, cos, sin, pe["layout"]) for x in (q, k))

        def product(self, q, k, layer):
            """Of queries and keys, `[rows, heads, tokens, tokens]`."""
            q, k = self.transform(q, k)
            return q @ k.transpose(-1, -2)

        def bias(self, length, layer):
            """Added to the logits, `[heads, tokens, tokens]`, or None."""
            positions = torch.arange(length)
            relative = positions[None, :] - positions[:, None]  # key - query
            if pe["kind"] == "alibi":
                slopes = pe.get("slopes") or _slopes(heads)
                slopes = torch.tensor(slopes, dtype=torch.float64) / pe.get("factor", 1.0)
                return (-slopes[:, None, None] * relative.abs()).float()
            if pe["kind"] == "t5":
                buckets = [_bucket(pe, at) for at in range(1 - length, length)]
                index = torch.tensor(buckets)[relative + length - 1]
                return self.table[index.to(self.table.device)].permute(2, 0, 1)
            return None

    class Attention(nn.Module):
        def __init__(self, layer):
            super().__init__()
            self.layer = layer
            self.qkv = parameter(d, 3 * inner)
            self.output = parameter(inner, d)
            self.qkv_bias = parameter(3 * inner) if biases else None
            self.output_bias = parameter(d) if biases else None
            if config.get("qk_norm", "none") != "none":
                self.q_norm = Norm(config["qk_norm"], head_dim)
                self.k_norm = Norm(config["qk_norm"], head_dim)

        def forward(self, x, encoding):
            rows, length, _ = x.shape
            # All queries, then all keys, then all values; inside each, head after head.
            parts = linear(x, self.qkv, self.qkv_bias).split(inner, dim=-1)
            q, k, v = (part.view(rows, length, heads, head_dim) for part in parts)
            if hasattr(self, "q_norm"):
                q, k = self.q_norm(q), self.k_norm(k)
            q, k, v = (part.transpose(1, 2) for part in (q, k, v))
            logits = encoding.product(q, k, self.layer) / math.sqrt(head_dim)
            bias = encoding.bias(length, self.layer)
            if bias is not None:
                logits = logits + bias.to(logits.device)
            if config.get("mask", "causal") == "causal":
                hidden = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
                logits = logits.masked_fill(hidden, -math.inf)
            attended = logits.softmax(-1) @ v
            attended = attended.transpose(1, 2).reshape(rows, length, inner)
            return linear(attended, self.output, self.output_bias)

    class Mlp(nn.Module):
        def __init__(self):
            super().__init__()
            self.up = parameter(d, ff)
            self.down = parameter(ff, d)
            self.up_bias = parameter(ff) if biases else None
            self.down_bias = parameter(d) if biases else None
            if config["activation"] == "swiglu":
                self.gate = parameter(d, ff)
                self.gate_bias = parameter(ff) if biases else None

        def forward(self, x):
            hidden = linear(x, self.up, self.up_bias)
            if config["activation"] == "swiglu":
                hidden = functional.silu(linear(x, self.gate, self.gate_bias)) * hidden
            else:
                hidden = functional.gelu(hidden)  # the exact form, with erf
            return linear(hidden, self.down, self.down_bias)

    class Block(nn.Module):
        def __init__(self, layer):
            super().__init__()
            self.attention_norm = Norm(config["norm"], d)
            self.attention = Attention(layer)
            if config.get("mlp") != "none":
                self.mlp_norm = Norm(config["norm"], d)
                self.mlp = Mlp()

        def forward(self, x, encoding):
            x = x + self.attention(self.attention_norm(x), encoding)
            return x + self.mlp(self.mlp_norm(x)) if config.get("mlp") != "none" else x

    class Transformer(nn.Module):
        """Logits `[rows, tokens, vocab_size]` of token ids `[rows, tokens]`."""

        def __init__(self):
            super().__init__()
            self.config = config
            self.embedding = parameter(vocab, d)
            self.encoding = Encoding() if encoding is None else encoding
            self.blocks = nn.ModuleList(Block(layer) for layer in range(config["n_layers"]))
            self.final_norm = Norm(config["norm"], d)
            if not config["tied_head"]:
                self.head = parameter(d, vocab)

        def forward(self, tokens):
            x = self.encoding.embed(self.embedding[tokens])
            for block in self.blocks:
                x = block(x, self.encoding)
            head = self.embedding.T if config["tied_head"] else self.head
            return self.final_norm(x) @ head

    return Transformer()


def _evaluated(run, spec, variant, test_len):
    """Encoding and positions of a variant at a test length, of the run or of later evaluations."""
    try:
        return _encoding(spec, variant, test_len)
    except Unsupported as error:
        found = {}
        for file in sorted((run / "evals").glob("*.json")):
            try:
                one = _encoding(_record(file, file.read_bytes())["spec"], variant, test_len)
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
        raise Unsupported(f"no test length {test_len}; allowed: {', '.join(map(str, lengths))}")
    at = ends.index(test_len)
    positions = variants[variant].get("positions") or []
    return variants[variant]["pe"][at], positions[at] if positions else model.get("positions")


def _end(length):
    """A test length, or the upper end of a range of them."""
    return int(str(length).rpartition(".")[2])


_KINDS = ("nope", "rope", "alibi", "learned", "sinusoidal", "t5")
_SCALINGS = ("linear", "ntk", "yarn")


def _unknown_encoding(pe, positions):
    """Why this file does not know an encoding by itself, or None."""
    if pe["kind"] not in _KINDS:
        return f"encoding {pe['kind']!r}; allowed: {', '.join(_KINDS)}"
    scaling = pe.get("scaling")
    if scaling and scaling["kind"] not in _SCALINGS:
        return f"scaling {scaling['kind']!r}; allowed: {', '.join(_SCALINGS)}"
    # Left out of a record where they change nothing.
    changes = ("slope_scale", "asymmetric", "log_distance")
    for table, keys in ((pe, changes), (scaling or {}, ("scale_logits",))):
        for key in keys:
            if key in table:
                return f"{table['kind']} with {key}; allowed: without it"
    if positions and positions.get("kind", "contiguous") != "contiguous":
        return f"positions {positions['kind']!r}; allowed: contiguous"
    return None


def _check(config):
    if config.get("attention", "softmax") != "softmax":
        raise Unsupported(f"attention {config['attention']!r}; allowed: softmax")
    known = {
        "vocab_size", "d_model", "n_layers", "n_heads", "head_dim", "mlp", "d_ff", "norm",
        "activation", "tied_head", "biases", "dropout", "embedding_std", "matrix_std", "qk_norm", "attention", "mask", "matmul", "pe",
        "positions", "coordinates", "feature_map", "normalizer",
    }  # fmt: skip
    unknown = sorted(set(config) - known)
    if unknown:
        raise Unsupported(f"model.{unknown[0]}: this file does not know it")


def _rotary_dim(pe, head_dim):
    return pe.get("rotary_dim") or head_dim


def _inv_freq(base, dim):
    import numpy as np

    return np.power(float(base), -2.0 * np.arange(dim // 2) / dim)


def _frequencies(pe, head_dim):
    """Radians per token of each rotated pair, and the factor on cos and sin."""
    import numpy as np

    dim, base = _rotary_dim(pe, head_dim), pe["base"]
    if pe.get("spacing", "geometric") == "linear":
        plain = 1.0 / (1.0 + 2.0 * np.arange(dim // 2))
    else:
        plain = _inv_freq(base, dim)
    scaling = pe.get("scaling")
    if not scaling:
        return plain, 1.0
    s = scaling["factor"]
    if scaling["kind"] == "linear":
        return plain / s, 1.0
    if scaling["kind"] == "ntk":
        return _inv_freq(base * s ** (dim / (dim - 2.0)), dim), 1.0
    # YaRN: a ramp over the pairs between those that turn often in training and those that never
    # complete a turn.
    original = scaling["original_max_position_embeddings"]

    def dimension(turns):
        return dim * math.log(original / (turns * 2.0 * math.pi)) / (2.0 * math.log(base))

    low, high = dimension(scaling["beta_fast"]), dimension(scaling["beta_slow"])
    if scaling["truncate"]:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0.0), min(high, dim - 1.0)
    if low == high:
        high += 0.001
    ramp = np.clip((np.arange(dim // 2) - low) / (high - low), 0.0, 1.0)

    def mscale(m):
        return 1.0 if s <= 1.0 else 0.1 * m * math.log(s) + 1.0

    m, of_all = scaling.get("mscale"), scaling.get("mscale_all_dim")
    factor = scaling.get("attention_factor")
    if factor is None:
        factor = mscale(m) / mscale(of_all) if m and of_all else mscale(1.0)
    return plain / s * ramp + plain * (1.0 - ramp), factor


def _rotate(x, cos, sin, layout):
    import torch

    pairs = cos.shape[-1]
    rotated, rest = x[..., : 2 * pairs], x[..., 2 * pairs :]
    if layout == "half":
        a, b = rotated[..., :pairs], rotated[..., pairs:]
        rotated = torch.cat([a * cos - b * sin, b * cos + a * sin], -1)
    else:
        a, b = rotated[..., 0::2], rotated[..., 1::2]
        rotated = torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2)
    return torch.cat([rotated, rest], -1)


def _sinusoids(pe, length, d):
    import numpy as np

    half = d // 2
    if pe["order"] == "tensor2tensor":
        frequencies = np.power(float(pe["base"]), -np.arange(half) / (max(half, 2) - 1))
    else:
        pairs = np.arange((d + 1) // 2)
        frequencies = np.power(float(pe["base"]), -2.0 * pairs / d)
    angles = np.arange(length)[:, None] * frequencies
    sin, cos = np.sin(angles), np.cos(angles)
    if pe["order"] == "interleaved":
        table = np.stack([sin, cos], -1).reshape(length, -1)
    else:
        table = np.concatenate([sin, cos], -1)
    # An odd width drops the last cosine, or pads a zero.
    out = np.zeros((length, d))
    width = min(d, table.shape[1])
    out[:, :width] = table[:, :width]
    return out


def _slopes(heads):
    power = 1 << (heads.bit_length() - 1)

    def of_power(p):
        return [2.0 ** (-8.0 * h / p) for h in range(1, p + 1)]

    return (of_power(power) + of_power(2 * power)[::2])[:heads]


def _bucket(pe, relative):
    """The bucket of `key - query`."""
    buckets = pe["num_buckets"] // 2 if pe["bidirectional"] else pe["num_buckets"]
    if pe["bidirectional"]:
        first, distance = (buckets if relative > 0 else 0), abs(relative)
    else:
        first, distance = 0, max(-relative, 0)
    exact = buckets // 2
    if distance < exact:
        return first + distance
    ratio = math.log(distance / exact) / math.log(pe["max_distance"] / exact)
    return first + min(exact + math.floor(ratio * (buckets - exact)), buckets - 1)
