"""The program `longreach`: where it is, and Python values as it reads them."""

import json
import math
import os
import pathlib
import re
import shutil
import subprocess
import sys
from typing import Any


class NoProgram(RuntimeError):
    """There is no program, or it cannot be run."""


def find_program() -> str:
    """The path of the program: $LONGREACH, beside this Python, or on PATH."""
    # An environment may be used without being activated: its programs lie beside its Python.
    beside = os.path.dirname(sys.executable)
    set_to = os.environ.get("LONGREACH")
    found = set_to or shutil.which("longreach", path=beside) or shutil.which("longreach")
    if not found:
        raise NoProgram("no program `longreach` on PATH: pip install longreach, or set LONGREACH")
    path = str(pathlib.Path(found).resolve())
    name = f"LONGREACH = {path}" if set_to else path
    try:
        said = subprocess.run([path, "--version"], capture_output=True).stdout
    except OSError as error:
        raise NoProgram(f"{name}: {error.strerror}") from error
    if not said.startswith(b"longreach "):
        raise NoProgram(f"{name} is not the program `longreach`")
    return path


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
        raise TypeError(f"{value!r} is not a value of a config: a number, a text, a list, a dictionary")
    if isinstance(value, str):
        return _text(value)
    # TOML writes infinities and NaN as Python does.
    return str(value) if isinstance(value, float) and not math.isfinite(value) else json.dumps(value)


def _text(text: str) -> str:
    """As JSON, but TOML has no pairs of surrogates and escapes DEL."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _key(key: str) -> str:
    return key if re.fullmatch("[A-Za-z0-9_-]+", key) else _text(key)
