"""An encoding as the tables that `longreach export --format tables` writes.

They hold what it does at one test length. Fewer tokens read their first rows: what the program
computes too, except for encodings that read the length (`reads_length` in `list encodings --json`) and
for positions that depend on it, `Tables.whole`, where fewer are refused.
"""

import json
import math
import pathlib
import subprocess
import tempfile
from typing import Optional

import torch
from torch.nn import functional

from .call import NoProgram, find_program
from .model import Content, Encoding
from .recorded import Place


class TableError(ValueError):
    """Tables that cannot be made, or do not fit."""


def export(run: Place, variant: str, test_len: int) -> "Tables":
    """The tables of a run's encoding, written by the program."""
    try:
        program = find_program()
    except NoProgram as error:
        hint = "or give the file of `longreach export --format tables`"
        raise TableError(f"{error}; {hint}") from None
    with tempfile.TemporaryDirectory() as place:
        file = pathlib.Path(place) / "tables.safetensors"
        options = ["--format", "tables", "--out", str(file)]
        options += ["--variant", variant, "--lengths", str(test_len)]
        command = [program, "export", str(run), *options]
        done = subprocess.run(command, text=True, capture_output=True)
        if done.returncode:
            raise TableError(done.stderr.strip())
        return Tables(file, variant, test_len)


class Tables(Encoding):
    """The hooks of an encoding, read from a file."""

    # Whether the rows are right for all tokens of the test length only.
    whole = False

    def __init__(self, file: Place, variant: str, test_len: int):
        super().__init__(shape=None)
        from safetensors import SafetensorError, safe_open

        name = f"{variant}.{test_len}"
        try:
            opened = safe_open(str(file), "pt")
        except SafetensorError as error:
            raise TableError(f"{file}: {error}") from error
        with opened as tensors:
            about = json.loads((tensors.metadata() or {}).get("tables", "{}"))
            layers = about.get("layers", {})
            if name not in layers:
                raise TableError(f"{file} has no {name}; there are: {', '.join(layers) or 'no tables'}")
            for key in tensors.keys():
                if key.startswith(f"{name}."):
                    short = key[len(name) + 1 :].replace(".", "_")
                    self.register_buffer(f"table_{short}", tensors.get_tensor(key), persistent=False)
        self.run_id, self.layers, self.length = about["run_id"], layers[name], test_len

    def embed(self, x):
        table = self._table("embed")
        return x if table is None else x + self._rows(table, x.shape[1], 0)

    def logits(self, layer: int, content: Content) -> torch.Tensor:
        q, k = content.raw_q, content.raw_k
        about, place = self._layer(layer)
        near = self._turned(q, k, about, place)
        products = near[0] @ near[1].transpose(-1, -2)
        for zone in range(1, about.get("zones", 0) + 1):
            far = self._turned(q, k, about, f"{place}_zone{zone}")
            zones = self._rows(self._rows(self._table(f"{place}_zone"), q.shape[2], 1), q.shape[2], 2)
            products = torch.where(zones == zone, far[0] @ far[1].transpose(-1, -2), products)
        return products * about["factor"] / math.sqrt(q.shape[-1])

    def _turned(self, q, k, about: dict, place: str) -> list:
        turned = []
        for x, name in ((q, "query"), (k, "key")):
            cos, matrix = self._table(f"{place}_{name}_cos"), self._table(f"{place}_{name}_matrix")
            if cos is not None:
                cos = self._rows(cos, x.shape[2], 1)
                sin = self._rows(self._table(f"{place}_{name}_sin"), x.shape[2], 1)
                if about["pairs"] == "polar":
                    length = functional.softplus(x)
                    x = torch.cat([length * cos, length * sin], -1)
                else:
                    x = rotate(x, cos, sin, about["pairs"] == "neighbours")
            elif matrix is not None:
                matrix = self._rows(matrix, x.shape[2], 1)
                x = torch.einsum("bhle,hlef->bhlf", x, matrix.expand(x.shape[1], -1, -1, -1))
            turned.append(x)
        return turned

    def logits_bias(self, layer: int, length: int) -> Optional[torch.Tensor]:
        bias = self._table(f"{self._layer(layer)[1]}_bias")
        if bias is None:
            return None
        bias = self._rows(bias, length, 1)
        if bias.dim() == 3:
            return self._rows(bias, length, 2)
        at = torch.arange(length, device=bias.device)
        return bias[:, (at[:, None] - at[None, :]).clamp(min=0)]

    def _layer(self, layer: int) -> tuple:
        layer = self.layers[layer].get("same_as", layer)
        return self.layers[layer], f"layers_{layer}"

    def _table(self, name: str):
        return self._buffers.get(f"table_{name}")

    def _rows(self, table, length: int, dim: int):
        if length > table.shape[dim]:
            raise TableError(
                f"{length} tokens, but the tables have {table.shape[dim]}: load with a longer test_len"
            )
        if self.whole and length < table.shape[dim]:
            raise TableError(
                f"{length} tokens, but the positions are those of rows of {table.shape[dim]}: give "
                "test_len = ..."
            )
        return table.narrow(dim, 0, length)


def rotate(
    x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, neighbours: bool
) -> torch.Tensor:
    """Rotates pairs of dimensions of x `[rows, heads, tokens, head_dim]` by angles `[heads or 1,
    tokens, pairs]`; dimensions past them stay."""
    pairs = cos.shape[-1]
    rotated, rest = x[..., : 2 * pairs], x[..., 2 * pairs :]
    if neighbours:
        a, b = rotated[..., 0::2], rotated[..., 1::2]
        rotated = torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2)
    else:
        a, b = rotated[..., :pairs], rotated[..., pairs:]
        rotated = torch.cat([a * cos - b * sin, b * cos + a * sin], -1)
    return torch.cat([rotated, rest], -1)
