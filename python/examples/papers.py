"""Encodings of three recent papers, written from their authors' PyTorch code for `longreach.bench`.

The program has all three. `scripts/bench-proof --papers` and python/tests/test_papers.py compare the
losses and scores. To start from the same weights, parameters have the names and the layout of the
program's (`x @ W`); a class of your own may name them freely.

    from longreach import bench
    from papers import Cope

    bench.run("quickstart.toml", Cope)
"""

import math

import torch
from longreach import bench
from torch import nn
from torch.nn import functional


def uniform(*shape: int, most: float) -> torch.Tensor:
    return torch.empty(*shape).uniform_(-most, most)


class Fire(bench.Encoding):
    """Li et al. 2023, FIRE: arXiv 2310.04418, with code in its appendix; that code in a training:
    mcleish7/arithmetic at 55af9d5, cramming/architectures/embeddings.py. One function for all
    layers."""

    hidden, threshold, epsilon = 32, 512.0, 1e-6

    def __init__(self, shape):
        super().__init__(shape)
        most = 1.0 / math.sqrt(self.hidden)
        function = {
            "c": torch.full((1,), 0.1),
            "multiplier": torch.ones(1),
            "w1": uniform(self.hidden, most=1.0),
            "b1": uniform(self.hidden, most=1.0),
            "w2": uniform(self.hidden, shape.n_heads, most=most),
            "b2": uniform(shape.n_heads, most=most),
        }
        self.functions = nn.ModuleList([nn.ParameterDict(function)])

    def logits_bias(self, layer, length):
        f, at = self.functions[0], torch.arange(length, dtype=torch.float32)
        reach = torch.maximum(at, (f["multiplier"] * self.threshold).abs())
        distance, reach = ((f["c"] * x).abs().log1p() for x in (at[:, None] - at, reach))
        relative = distance / (reach[:, None] + self.epsilon)
        units = (relative[..., None] * f["w1"] + f["b1"]).relu()
        return (units @ f["w2"] + f["b2"]).permute(2, 0, 1)


class Cope(bench.Encoding):
    """Golovneva et al. 2024, CoPE: arXiv 2405.18719, with code in its appendix;
    facebookresearch/RAM at 5420e20, projects/cope/src/cope/context_position.py, whose
    `--cope-nodiv` this is: the product with a position is not divided by sqrt(E)."""

    def __init__(self, shape):
        super().__init__(shape)
        self.positions = min(shape.train_len, 64)
        tables = [torch.zeros(shape.head_dim, self.positions) for _ in range(shape.n_layers)]
        self.tables = nn.ParameterList(tables)

    def content_bias(self, layer, content):
        gates = content.logits().sigmoid().tril()
        counts = gates.flip(-1).cumsum(-1).flip(-1).clamp(max=self.positions - 1)
        products = content.q @ self.tables[layer]
        below, above = (products.gather(-1, x.long()) for x in (counts.floor(), counts.ceil()))
        return torch.lerp(below, above, counts.frac())


class SelectiveRope(bench.Encoding):
    """Movahedi et al. 2026, Selective RoPE: arXiv 2511.17388; timurcarstensen/selective-rope at
    d12e825, src/selective_rope/modules/rotary.py, with the defaults of its class."""

    base, rank, kernel = 500_000.0, 16, 4

    def __init__(self, shape):
        super().__init__(shape)
        width = shape.n_heads * (shape.head_dim // 2)

        def layer() -> nn.ParameterDict:
            down = uniform(shape.d_model, self.rank, most=1.0 / math.sqrt(shape.d_model))
            up = uniform(self.rank, width, most=1.0 / math.sqrt(self.rank))
            convolution = uniform(self.kernel, width, most=1.0 / math.sqrt(self.kernel))
            return nn.ParameterDict({"down": down, "up": up, "convolution": convolution})

        self.layers = nn.ModuleList(layer() for _ in range(shape.n_layers))

    def transform_qk(self, layer, q, k, hidden):
        own, size = self.layers[layer], self.shape.head_dim
        parts = hidden.unflatten(-1, (self.shape.n_heads, -1))
        unit = parts / (parts.square().sum(-1, keepdim=True) + 1e-6).sqrt()
        phi = (unit.flatten(-2) @ own["down"] @ own["up"]).mT
        past = functional.pad(phi, (self.kernel - 1, 0))
        phi = functional.conv1d(past, own["convolution"].mT[:, None], groups=phi.shape[1])
        theta = self.base ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
        angles = phi.cumsum(-1).unflatten(1, (self.shape.n_heads, -1)).mT * theta.float()
        return self._turned(q, angles), self._turned(k, angles)

    @staticmethod
    def _turned(x, angles):
        (a, b), cos, sin = x.chunk(2, -1), angles.cos(), angles.sin()
        return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


# By the program's name of the same encoding.
PAPERS = {"fire": Fire, "cope": Cope, "selective_rope": SelectiveRope}
