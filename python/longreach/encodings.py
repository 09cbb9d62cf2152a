"""Encodings of the program in PyTorch, with the options that each class names in `pe`.

`longreach.load` rebuilds trained models with them. `longreach.bench` proves with them that the
Python model trains as the program does (scripts/bench-proof); they are examples of every kind of
hook. `of(pe)` makes the class for `spec["model"]["pe"]` of a record, and `has(pe)` says whether
there is one.
"""

import functools
import math

import torch
from torch import nn

from . import Unsupported
from .model import Encoding
from .tables import rotate


def _turns(dim: int, base: float) -> torch.Tensor:
    """Radians per token of each pair of dimensions in f64, [(dim + 1) / 2]."""
    return float(base) ** (-2.0 * torch.arange((dim + 1) // 2, dtype=torch.float64) / dim)


class Nope(Encoding):
    """Nothing."""


class Rope(Encoding):
    """Su et al. 2021, plain or under one of `SCALINGS`."""

    pe = {"base": 10000.0, "layout": "half", "rotary_dim": None, "spacing": "geometric"}
    pe.update({"learnable": False, "scaling": None})

    def __init__(self, shape):
        super().__init__(shape)
        self.dim = self.pe["rotary_dim"] or shape.head_dim
        if self.pe["learnable"]:
            self.log_frequency = nn.Parameter(torch.zeros(self.dim // 2))

    def transform_qk(self, layer, q, k, hidden):
        turns, factor = self._scaled()
        if self.pe["learnable"]:
            turns = turns.to(q.device) * self.log_frequency.double().exp()
        # Angles in f64: near position 1e5 neighbouring f32 angles are 0.01 radians apart.
        positions = torch.arange(q.shape[2], dtype=torch.float64, device=turns.device)
        angles = positions[:, None] * turns
        cos, sin = (angles.cos() * factor).to(q), (angles.sin() * factor).to(q)
        neighbours = self.pe["layout"] != "half"
        return tuple(rotate(x, cos, sin, neighbours) for x in (q, k))

    def _scaled(self) -> tuple:
        """Radians per token of each rotated pair, and the factor on cos and sin."""
        dim, base, scaling = self.dim, self.pe["base"], self.pe["scaling"]
        if self.pe["spacing"] == "linear":
            plain = 1.0 / (1.0 + 2.0 * torch.arange(dim // 2, dtype=torch.float64))
        else:
            plain = _turns(dim, base)
        if not scaling:
            return plain, 1.0
        if scaling["kind"] == "linear":
            return plain / scaling["factor"], 1.0
        if scaling["kind"] == "ntk":
            return _turns(dim, base * scaling["factor"] ** (dim / (dim - 2.0))), 1.0
        return _yarn(plain, dim, base, scaling)


def _yarn(plain: torch.Tensor, dim: int, base: float, scaling: dict) -> tuple:
    """Peng et al. 2023: a ramp over the pairs between those that turn often in training and those
    that never complete a turn."""
    s, original = scaling["factor"], scaling["original_max_position_embeddings"]

    def dimension(turns):
        return dim * math.log(original / (turns * 2.0 * math.pi)) / (2.0 * math.log(base))

    low, high = dimension(scaling["beta_fast"]), dimension(scaling["beta_slow"])
    if scaling["truncate"]:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0.0), min(high, dim - 1.0)
    if low == high:
        high += 0.001
    ramp = ((torch.arange(dim // 2, dtype=torch.float64) - low) / (high - low)).clamp(0.0, 1.0)

    def mscale(m):
        return 1.0 if s <= 1.0 else 0.1 * m * math.log(s) + 1.0

    m, of_all = scaling.get("mscale"), scaling.get("mscale_all_dim")
    factor = scaling.get("attention_factor")
    if factor is None:
        factor = mscale(m) / mscale(of_all) if m and of_all else mscale(1.0)
    return plain / s * ramp + plain * (1.0 - ramp), factor


def _distance(length: int) -> torch.Tensor:
    at = torch.arange(length)
    return (at[:, None] - at[None, :]).abs()


class Alibi(Encoding):
    """Press et al. 2021."""

    pe = {"slopes": None, "factor": 1.0}

    def logits_bias(self, layer, length):
        slopes = self.pe["slopes"] or _slopes(self.shape.n_heads)
        slopes = torch.tensor(slopes, dtype=torch.float64) / self.pe["factor"]
        return (-slopes[:, None, None] * _distance(length)).float()


def _slopes(heads: int) -> list:
    power = 1 << (heads.bit_length() - 1)

    def of_power(p):
        return [2.0 ** (-8.0 * h / p) for h in range(1, p + 1)]

    return (of_power(power) + of_power(2 * power)[::2])[:heads]


class Kerple(Encoding):
    """Chi et al. 2022, the logarithmic form."""

    pe = {"form": "log"}

    def __init__(self, shape):
        super().__init__(shape)
        self.r1 = nn.Parameter(2.0 * torch.rand(shape.n_heads))
        self.r2 = nn.Parameter(torch.rand(shape.n_heads))

    def logits_bias(self, layer, length):
        # A parameter below 0.01 is read as 0.01 and keeps its gradient.
        r1, r2 = (r + (r.clamp(min=0.01) - r).detach() for r in (self.r1, self.r2))
        distance = _distance(length).to(r1.device)
        return -r1[:, None, None] * torch.log1p(distance * r2[:, None, None])


class T5(Encoding):
    """Raffel et al. 2020."""

    pe = {"num_buckets": 32, "max_distance": 128, "bidirectional": False, "scaled": False}

    def __init__(self, shape):
        super().__init__(shape)
        self.table = nn.Parameter(torch.randn(self.pe["num_buckets"], shape.n_heads))

    def transform_qk(self, layer, q, k, hidden):
        return (q, k) if self.pe["scaled"] else (q * math.sqrt(self.shape.head_dim), k)

    def logits_bias(self, layer, length):
        of = [self.pe[name] for name in ("num_buckets", "max_distance", "bidirectional")]
        index = _buckets(length, *of).to(self.table.device)
        return self.table[index].permute(2, 0, 1)


@functools.lru_cache(maxsize=64)
def _buckets(length: int, buckets: int, max_distance: int, bidirectional: bool) -> torch.Tensor:
    """The bucket of every query and key, [L, L]."""
    each = buckets // 2 if bidirectional else buckets
    exact = each // 2

    def of(relative):
        first = each if bidirectional and relative > 0 else 0
        distance = abs(relative) if bidirectional else max(-relative, 0)
        if distance < exact:
            return first + distance
        ratio = math.log(distance / exact) / math.log(max_distance / exact)
        return first + min(exact + math.floor(ratio * (each - exact)), each - 1)

    at = torch.arange(length)
    relative = at[None, :] - at[:, None]  # key - query
    return torch.tensor([of(r) for r in range(1 - length, length)])[relative + length - 1]


class Learned(Encoding):
    """A table of `max_position` rows. Past its end it has no row, repeats the last one (`clamp`),
    or is stretched over all tokens (`interpolate`)."""

    pe = {"max_position": 1024, "clamp": False, "interpolate": False}

    def __init__(self, shape):
        super().__init__(shape)
        rows = self.pe["max_position"]
        if not (self.pe["clamp"] or self.pe["interpolate"]):
            self.max_position = rows
        self.table = nn.Parameter(0.02 * torch.randn(rows, shape.d_model))

    def embed(self, x):
        return x + self._rows(x.shape[1])

    def _rows(self, length: int) -> torch.Tensor:
        most = self.table.shape[0]
        if length <= most:
            return self.table[:length]
        if self.pe["clamp"]:
            return self.table[torch.arange(length, device=self.table.device).clamp(max=most - 1)]
        if not self.pe["interpolate"]:
            raise Unsupported(f"{length} tokens, but the learned table has {most} rows")
        place = torch.arange(length, dtype=torch.float64, device=self.table.device)
        place = place * (most - 1) / (length - 1)
        low = place.floor()
        upper = (place - low).to(self.table)[:, None]
        high = (low + 1).clamp(max=most - 1).long()
        return self.table[low.long()] * (1 - upper) + self.table[high] * upper


class Sinusoidal(Encoding):
    """Vaswani et al. 2017: sine and cosine interleaved, or one half each (`order`)."""

    pe = {"base": 10000.0, "scale": 1.0, "order": "interleaved", "learnable_scale": False}

    def __init__(self, shape):
        super().__init__(shape)
        if self.pe["learnable_scale"]:
            self.scale = nn.Parameter(torch.full((1,), float(self.pe["scale"])))

    def embed(self, x):
        table = self._table(x.shape[1], x.shape[2]).to(x)
        return x + table * (self.scale if self.pe["learnable_scale"] else self.pe["scale"])

    def _table(self, length: int, d: int) -> torch.Tensor:
        base, half = float(self.pe["base"]), d // 2
        if self.pe["order"] == "tensor2tensor":
            turns = base ** (-torch.arange(half, dtype=torch.float64) / (max(half, 2) - 1))
        else:
            turns = _turns(d, base)
        angles = torch.arange(length, dtype=torch.float64)[:, None] * turns
        if self.pe["order"] == "interleaved":
            table = torch.stack([angles.sin(), angles.cos()], -1).flatten(1)
        else:
            table = torch.cat([angles.sin(), angles.cos()], -1)
        # An odd width drops the last cosine, or pads a zero.
        return nn.functional.pad(table, (0, max(d - table.shape[1], 0)))[:, :d]


KINDS = {"nope": Nope, "rope": Rope, "alibi": Alibi, "kerple": Kerple, "t5": T5}
KINDS.update({"learned": Learned, "sinusoidal": Sinusoidal})
SCALINGS = ("linear", "ntk", "yarn")


def of(pe: dict) -> type:
    """The class of an encoding's resolved configuration. Raises `Unsupported` where it is not
    written here."""
    kind, options = pe["kind"], {key: value for key, value in pe.items() if key != "kind"}
    if kind not in KINDS:
        raise Unsupported(f"encoding {kind!r}; allowed: {', '.join(KINDS)}")
    known = getattr(KINDS[kind], "pe", {})
    for key, value in options.items():
        # Options left out, and values that are drawn: a run has them in its weights.
        idle = value is None or value is False or key == "init_std"
        if (key not in known and not idle) or (key == "form" and value != "log"):
            raise Unsupported(f"{kind} with {key} = {value!r}: not written in PyTorch here")
    scaling = options.get("scaling")
    if scaling and (scaling["kind"] not in SCALINGS or "scale_logits" in scaling):
        raise Unsupported(f"scaling {scaling}; allowed: {', '.join(SCALINGS)}, without scale_logits")
    return type(kind, (KINDS[kind],), {"pe": {**known, **options}})


def has(pe: dict) -> bool:
    """Whether an encoding's resolved configuration is written here."""
    try:
        return bool(of(pe))
    except Unsupported:
        return False
