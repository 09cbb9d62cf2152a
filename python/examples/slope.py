"""Your own encoding, compared with those of the program: docs/from-pytorch.md."""
import torch
from longreach import bench


class Slope(bench.Encoding):
    """A penalty on the root of the distance, whose strength each head learns."""

    def __init__(self, shape):
        super().__init__(shape)
        self.strength = torch.nn.Parameter(torch.linspace(0.1, 2.0, shape.n_heads))

    def logits_bias(self, layer, length):  # [heads, queries, keys]
        at = torch.arange(length)
        distance = (at[:, None] - at[None, :]).abs()
        return -self.strength[:, None, None] * distance.sqrt()


if __name__ == "__main__":
    bench.run("quickstart.toml", Slope, seeds=[0, 1, 2])
