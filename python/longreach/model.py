"""The model in PyTorch: a host for any encoding, as that of the program is.

Shapes are written with B rows, L tokens, D `d_model`, H heads and E `head_dim`. The layout of the
weights is that of weights.safetensors (docs/interop.md): a layer computes `x @ W`.
"""

import json
import math
import struct
from dataclasses import dataclass
from typing import Callable, Optional

import torch
from torch import nn
from torch.nn import functional

NORM_EPS = 1e-5


@dataclass(frozen=True)
class Shape:
    """What an encoding is made for. Lengths are in tokens."""

    d_model: int
    n_layers: int
    n_heads: int
    head_dim: int
    train_len: int


@dataclass(frozen=True)
class Content:
    """What `content_bias` and `output_bias` read, of all tokens of a batch."""

    q: torch.Tensor  # [B, H, L, E], after transform_qk, not yet divided by sqrt(E)
    k: torch.Tensor  # [B, H, L, E], after transform_qk
    raw_q: torch.Tensor  # [B, H, L, E], before transform_qk
    raw_k: torch.Tensor  # [B, H, L, E]
    hidden: torch.Tensor  # [B, L, D], what q, k and v are projected from

    def logits(self) -> torch.Tensor:
        """`q k / sqrt(E)` before any bias, [B, H, L, L]."""
        return self.q @ self.k.transpose(-1, -2) / math.sqrt(self.raw_q.shape[-1])


class Encoding(nn.Module):
    """A positional encoding. Override the hooks that yours needs; the others do nothing.

    It is made as `YourEncoding(shape)`, with PyTorch's generator seeded by the run's seed. Positions
    are 0 to L - 1. `max_position` is the most tokens it can take; None if there is no limit: test
    lengths beyond it are reported as unsupported.
    """

    max_position: Optional[int] = None

    def __init__(self, shape: Shape):
        super().__init__()
        self.shape = shape

    def embed(self, x: torch.Tensor) -> torch.Tensor:
        """The embedded tokens [B, L, D] with the encoding added; same shape. Called once."""
        return x

    def transform_qk(self, layer: int, q: torch.Tensor, k: torch.Tensor, hidden: torch.Tensor):
        """Queries and keys [B, H, L, E] before their product, as a pair. Both may come back wider,
        by the same width. `hidden` [B, L, D] is what they are projected from."""
        return q, k

    def logits(self, layer: int, content: Content) -> torch.Tensor:
        """Products of queries and keys over sqrt(E), [B, H, L, L], where they are not just that of
        what `transform_qk` returns."""
        return content.logits()

    def logits_bias(self, layer: int, length: int) -> Optional[torch.Tensor]:
        """Added to the logits after the division by sqrt(E): [H, L, L], queries then keys."""
        return None

    def content_bias(self, layer: int, content: Content) -> Optional[torch.Tensor]:
        """Added to the logits: [B, H, L, L]. Sees queries, keys and hidden states."""
        return None

    def output_bias(
        self, layer: int, content: Content, weights: Callable[[], torch.Tensor]
    ) -> Optional[torch.Tensor]:
        """Added to attention's output: [B, H, L, E]. `weights()` is the softmax [B, H, L, L]."""
        return None


def _parameter(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.zeros(*shape))


def _linear(x: torch.Tensor, weight: nn.Parameter, bias: Optional[nn.Parameter]) -> torch.Tensor:
    return x @ weight if bias is None else x @ weight + bias


class Norm(nn.Module):
    def __init__(self, kind: str, width: int):
        super().__init__()
        self.scale = _parameter(width)
        if kind == "layer_norm":
            self.shift = _parameter(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if hasattr(self, "shift"):
            return functional.layer_norm(x, x.shape[-1:], self.scale, self.shift, NORM_EPS)
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + NORM_EPS) * self.scale


class Attention(nn.Module):
    def __init__(self, config: dict):
        super().__init__()
        self.heads, self.head_dim = config["n_heads"], config["head_dim"]
        self.causal = config.get("mask", "causal") == "causal"
        inner = self.heads * self.head_dim
        self.qkv = _parameter(config["d_model"], 3 * inner)
        self.output = _parameter(inner, config["d_model"])
        biases = config.get("biases", False)
        self.qkv_bias = _parameter(3 * inner) if biases else None
        self.output_bias = _parameter(config["d_model"]) if biases else None
        if config.get("qk_norm", "none") != "none":
            self.q_norm = Norm(config["qk_norm"], self.head_dim)
            self.k_norm = Norm(config["qk_norm"], self.head_dim)

    def forward(self, x: torch.Tensor, layer: int, encoding: Encoding) -> torch.Tensor:
        rows, length, _ = x.shape
        inner = self.heads * self.head_dim
        # All queries, then all keys, then all values; inside each, head after head.
        parts = _linear(x, self.qkv, self.qkv_bias).split(inner, dim=-1)
        q, k, v = (part.view(rows, length, self.heads, self.head_dim) for part in parts)
        if hasattr(self, "q_norm"):
            q, k = self.q_norm(q), self.k_norm(k)
        raw_q, raw_k, v = (part.transpose(1, 2) for part in (q, k, v))
        q, k = encoding.transform_qk(layer, raw_q, raw_k, x)
        content = Content(q, k, raw_q, raw_k, x)
        logits = encoding.logits(layer, content)
        for bias in (encoding.logits_bias(layer, length), encoding.content_bias(layer, content)):
            if bias is not None:
                logits = logits + bias.to(logits.device)
        if self.causal:
            later = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
            logits = logits.masked_fill(later, -math.inf)
        weights = logits.softmax(-1)
        attended = weights @ v
        term = encoding.output_bias(layer, content, lambda: weights)
        if term is not None:
            attended = attended + term
        attended = attended.transpose(1, 2).reshape(rows, length, inner)
        return _linear(attended, self.output, self.output_bias)


class Mlp(nn.Module):
    def __init__(self, config: dict):
        super().__init__()
        self.up = _parameter(config["d_model"], config["d_ff"])
        self.down = _parameter(config["d_ff"], config["d_model"])
        biases = config.get("biases", False)
        self.up_bias = _parameter(config["d_ff"]) if biases else None
        self.down_bias = _parameter(config["d_model"]) if biases else None
        if config["activation"] == "swiglu":
            self.gate = _parameter(config["d_model"], config["d_ff"])
            self.gate_bias = _parameter(config["d_ff"]) if biases else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        up = _linear(x, self.up, self.up_bias)
        if hasattr(self, "gate"):
            inner = functional.silu(_linear(x, self.gate, self.gate_bias)) * up
        else:
            inner = functional.gelu(up)  # the exact form, with erf
        return _linear(inner, self.down, self.down_bias)


class Block(nn.Module):
    def __init__(self, config: dict):
        super().__init__()
        self.attention_norm = Norm(config["norm"], config["d_model"])
        self.attention = Attention(config)
        if config.get("mlp", "dense") != "none":
            self.mlp_norm = Norm(config["norm"], config["d_model"])
            self.mlp = Mlp(config)

    def forward(self, x: torch.Tensor, layer: int, encoding: Encoding) -> torch.Tensor:
        x = x + self.attention(self.attention_norm(x), layer, encoding)
        return x + self.mlp(self.mlp_norm(x)) if hasattr(self, "mlp") else x


class Transformer(nn.Module):
    """Logits [B, L, vocab_size] of token ids [B, L]. `config` is `spec["model"]` of a record."""

    def __init__(self, config: dict, encoding: Encoding):
        super().__init__()
        self.config = config
        self.embedding = _parameter(config["vocab_size"], config["d_model"])
        self.encoding = encoding
        self.blocks = nn.ModuleList(Block(config) for _ in range(config["n_layers"]))
        self.final_norm = Norm(config["norm"], config["d_model"])
        if not config["tied_head"]:
            self.head = _parameter(config["d_model"], config["vocab_size"])

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.encoding.embed(self.embedding[tokens])
        for layer, block in enumerate(self.blocks):
            x = block(x, layer, self.encoding)
        head = self.head if hasattr(self, "head") else self.embedding.T
        return self.final_norm(x) @ head

    def start_from(self, weights: dict) -> None:
        """Takes the weights of a file of the program; the encoding keeps its own values for
        parameters that the file lacks."""
        own = {name: value for name, value in self.state_dict().items()}
        missing = [n for n in own if n not in weights and not n.startswith("encoding.")]
        unknown = [n for n in weights if n not in own]
        if missing or unknown:
            raise RuntimeError(f"weights do not fit the model: {(missing + unknown)[0]}")
        self.load_state_dict({**own, **weights})


def read_weights(path) -> dict:
    """The tensors of a safetensors file of single precision."""
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = bytearray(file.read())
    tensors = {}
    for name, at in header.items():
        if name != "__metadata__":
            start, end = at["data_offsets"]
            values = torch.frombuffer(data, dtype=torch.float32, offset=start, count=(end - start) // 4)
            tensors[name] = values.reshape(at["shape"]).clone()
    return tensors
