"""The program `longreach`: where it is, and Python values as it reads them."""

import json
import math
import os
import pathlib
import re
import shutil
import sys
from typing import Any, Optional

NO_PROGRAM = "no program `longreach` on PATH: pip install longreach, or set LONGREACH"


def find_program() -> Optional[str]:
    """The path of the program: $LONGREACH, beside this Python, or on PATH."""
    # An environment may be used without being activated: its programs lie beside its Python.
    beside = os.path.dirname(sys.executable)
    found = os.environ.get("LONGREACH") or shutil.which("longreach", path=beside)
    found = found or shutil.which("longreach")
    return str(pathlib.Path(found).resolve()) if found else None


def toml(value: Any) -> str:
    """A value as TOML in one line. None leaves a key out."""
    if hasattr(value, "tolist"):  # a number or an array of numpy or torch
        value = value.tolist()
    if isinstance(value, dict):
        inside = (f"{_key(key)} = {toml(each)}" for key, each in value.items() if each is not None)
        return "{ " + ", ".join(inside) + " }"
    if isinstance(value, (list, tuple, range)):
        return "[" + ", ".join(map(toml, value)) + "]"
    if isinstance(value, os.PathLike):
        return _text(os.fspath(value))
    if not isinstance(value, (bool, int, float, str)):
        raise TypeError(f"{value!r} is no value of a config: a number, a text, a list, a dictionary")
    if isinstance(value, str):
        return _text(value)
    # TOML writes infinities and NaN as Python does.
    return str(value) if isinstance(value, float) and not math.isfinite(value) else json.dumps(value)


def _text(text: str) -> str:
    """As JSON, but TOML has no pairs of surrogates and escapes DEL."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _key(key: str) -> str:
    return key if re.fullmatch("[A-Za-z0-9_-]+", key) else _text(key)
