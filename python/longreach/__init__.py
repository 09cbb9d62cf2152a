"""Runs Longreach, and reads what it writes: scores, records, and trained models in PyTorch.

    import longreach

    frame = longreach.run("quickstart", seeds=[0, 1])      # trains; scores as a DataFrame
    frame.plot()                                           # in the colours of the report
    frame = longreach.frame("runs/quickstart")             # the scores of what has run
    records = longreach.records("runs/quickstart")         # a list of dictionaries
    rows = longreach.scores(records)                       # for pandas.DataFrame or polars.DataFrame
    model = longreach.load("runs/quickstart/0123456789abcdef")
    logits = model(torch.tensor([[72, 101, 108, 108, 111]]))   # [rows, tokens, vocab_size]

`records` and `scores` need nothing else, `run` needs the program, `run` and `frame` pandas, `plot`
matplotlib, `load` safetensors and torch. `longreach.bench` trains encodings that are written in
PyTorch.

    recorded.py     records and their scores
    frames.py       sweeps and scores in a notebook: run, frame, draw
    trained.py      load: the trained model of a run
    model.py        the model in PyTorch, a host for encodings
    encodings.py    encodings of the program in PyTorch
    tables.py       any other encoding by position, as tables of the program
    bench.py        trains an encoding that is written in PyTorch; checks.py, training.py, choice.py,
                    fingerprint.py and program.py are its parts
    call.py         finds and calls the program
"""

import importlib.metadata
from typing import TYPE_CHECKING, Any

from .recorded import Place, evaluations, method, methods, metrics, part, records, scores, test_len

if TYPE_CHECKING:
    from .frames import RunError, draw, frame, run
    from .trained import load

__all__ = [
    "Place", "RunError", "Unsupported", "draw", "evaluations", "frame", "load", "method", "methods",
    "metrics", "part", "records", "run", "scores", "test_len",
]  # fmt: skip


class Unsupported(ValueError):
    """A run that cannot be rebuilt in PyTorch."""


def __getattr__(name: str) -> Any:
    if name in ("RunError", "draw", "frame", "run"):
        from . import frames

        return getattr(frames, name)
    if name == "load":
        from .trained import load

        return load
    if name == "__version__":
        try:
            return importlib.metadata.version("longreach")
        except importlib.metadata.PackageNotFoundError:
            raise AttributeError("a copy of longreach that was not installed has no version") from None
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
