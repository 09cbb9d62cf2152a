"""Encodings of the program, written again for `longreach.bench` in PyTorch. They prove that the
Python model trains as the program does (scripts/bench-proof), and are examples of every kind of
hook. `of(pe)` makes the class for `spec["model"]["pe"]` of a record, with the options named here;
all other options must have their defaults."""

import math

import torch
from torch import nn

from . import Unsupported, _bucket, _rotate, _slopes
from .model import Encoding


def _angles(length: int, dim: int, base: float) -> torch.Tensor:
    """Angles in f64, [L, dim / 2]."""
    exponents = -2.0 * torch.arange((dim + 1) // 2, dtype=torch.float64) / dim
    return torch.arange(length, dtype=torch.float64)[:, None] * float(base) ** exponents


class Nope(Encoding):
    """Nothing."""


class Rope(Encoding):
    """Su et al. 2021, with `base`, `layout` and `rotary_dim`."""

    pe = {"base": 10000.0, "layout": "half", "rotary_dim": None}

    def transform_qk(self, layer, q, k, hidden):
        dim = self.pe["rotary_dim"] or self.shape.head_dim
        angles = _angles(q.shape[2], dim, self.pe["base"])
        cos, sin = angles.cos().to(q), angles.sin().to(q)
        return tuple(_rotate(x, cos, sin, self.pe["layout"]) for x in (q, k))


def _distance(length: int) -> torch.Tensor:
    at = torch.arange(length)
    return (at[:, None] - at[None, :]).abs()


class Alibi(Encoding):
    """Press et al. 2021."""

    def logits_bias(self, layer, length):
        slopes = torch.tensor(_slopes(self.shape.n_heads), dtype=torch.float64)
        return (-slopes[:, None, None] * _distance(length)).float()


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
        return -r1[:, None, None] * torch.log1p(_distance(length) * r2[:, None, None])


class T5(Encoding):
    """Raffel et al. 2020, causal, with `num_buckets`, `max_distance` and `scaled`."""

    pe = {"num_buckets": 32, "max_distance": 128, "bidirectional": False, "scaled": False}

    def __init__(self, shape):
        super().__init__(shape)
        self.table = nn.Parameter(torch.randn(self.pe["num_buckets"], shape.n_heads))

    def transform_qk(self, layer, q, k, hidden):
        return (q, k) if self.pe["scaled"] else (q * math.sqrt(self.shape.head_dim), k)

    def logits_bias(self, layer, length):
        buckets = torch.tensor([_bucket(self.pe, -distance) for distance in range(length)])
        # Keys after the query are hidden by the mask; they read the bucket of the same distance.
        return self.table[buckets[_distance(length)]].permute(2, 0, 1)


class Learned(Encoding):
    """A table of `max_position` rows."""

    pe = {"max_position": 1024}

    def __init__(self, shape):
        super().__init__(shape)
        self.max_position = self.pe["max_position"]
        self.table = nn.Parameter(0.02 * torch.randn(self.max_position, shape.d_model))

    def embed(self, x):
        return x + self.table[: x.shape[1]]


class Sinusoidal(Encoding):
    """Vaswani et al. 2017, with `base` and `scale`, sine and cosine interleaved."""

    pe = {"base": 10000.0, "scale": 1.0, "order": "interleaved"}

    def embed(self, x):
        angles = _angles(x.shape[1], self.shape.d_model, self.pe["base"])
        table = torch.stack([angles.sin(), angles.cos()], -1).flatten(1)[:, : x.shape[2]]
        return x + table.to(x) * self.pe["scale"]


KINDS = {"nope": Nope, "rope": Rope, "alibi": Alibi, "kerple": Kerple, "t5": T5}
KINDS.update({"learned": Learned, "sinusoidal": Sinusoidal})
# Options with only one value here.
_FIXED = {"form": "log", "bidirectional": False, "order": "interleaved"}


def of(pe: dict) -> type:
    """The class of an encoding's resolved configuration."""
    kind, options = pe["kind"], {key: value for key, value in pe.items() if key != "kind"}
    if kind not in KINDS:
        raise Unsupported(f"encoding {kind!r}; allowed: {', '.join(KINDS)}")
    known = getattr(KINDS[kind], "pe", {})
    for key, value in options.items():
        idle = value is None or value is False or key in ("factor", "init_std")
        idle = idle and (key != "factor" or value == 1.0)
        if (key not in known and not idle) or _FIXED.get(key, value) != value:
            raise Unsupported(f"{kind} with {key} = {value!r}: not written in PyTorch here")
    return type(kind, (KINDS[kind],), {"pe": {**known, **options}})
