"""What an encoding's class does, as a short hash: another code is another method.

The hash is of bytecode, which is what runs: a notebook or `python -c` may have no source, and a
file may have been edited since it was imported. Comments and places of lines do not count.
"""

import ctypes
import dis
import enum
import functools
import hashlib
import inspect
import types
from typing import Iterator, Optional

import torch

from .model import Encoding


def code_of(encoding: type) -> str:
    """A hash of the methods and values of a class and of its bases, of the functions, classes and
    values of their modules that they name, and of what they close over."""
    bases = encoding.__mro__[: encoding.__mro__.index(Encoding)]
    walk = _Walk({base.__module__ for base in bases})
    digest = hashlib.sha256("\n".join(walk.parts("", encoding)).encode())
    return digest.hexdigest()[:12]


def bytes_of(tensor: torch.Tensor) -> bytes:
    """The numbers of a tensor on the CPU. PyTorch comes without numpy, which would do this."""
    tensor = tensor.contiguous()
    return ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size())


# Functions, and what stands for them in C code.
BUILT_IN = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.MethodWrapperType,
    types.ClassMethodDescriptorType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
)


class _Walk:
    def __init__(self, modules: set):
        self.modules, self.seen = modules, set()

    def parts(self, name: str, thing) -> Iterator[str]:
        """Lines that change if the thing does. What is of other modules is told by its name."""
        text = _plain(thing)
        if text is not None:
            yield f"{name} = {text}"
            return
        if isinstance(thing, property):
            for each in (thing.fget, thing.fset):
                yield from self.parts(name, each)
            return
        thing = inspect.unwrap(getattr(thing, "__func__", thing))
        if isinstance(thing, types.ModuleType) or id(thing) in self.seen:
            return
        if not isinstance(thing, (type, *BUILT_IN)):
            self.seen.add(id(thing))
            yield from self._held(name, thing)
            return
        if getattr(thing, "__module__", None) not in self.modules:
            return
        self.seen.add(id(thing))
        if isinstance(thing, type):
            for base in thing.__mro__:
                if base.__module__ in self.modules:
                    for key, value in sorted(vars(base).items()):
                        if inspect.isroutine(value) or not key.startswith("__"):
                            yield from self.parts(f"{base.__qualname__}.{key}", value)
                else:
                    yield f"{name} is a {base.__qualname__}"
        elif isinstance(thing, types.FunctionType):
            yield f"{name}: {_code(thing.__code__)}"
            yield from self.parts(f"{name} defaults", thing.__defaults__)
            yield from self.parts(f"{name} defaults", thing.__kwdefaults__)
            cells = zip(thing.__code__.co_freevars, thing.__closure__ or ())
            read = {key: cell.cell_contents for key, cell in cells if cell != types.CellType()}
            read.update((key, thing.__globals__.get(key)) for key in _globals(thing.__code__))
            for key, value in sorted(read.items()):
                yield from self.parts(key, value)


    def _held(self, name: str, thing) -> Iterator[str]:
        """What an object holds: its items, what a partial function is made of, the attributes of an
        object of these modules. Of any other one its type alone counts."""
        yield f"{name} is a {type(thing).__qualname__}"
        if isinstance(thing, (enum.Enum, range, slice, torch.dtype, torch.device)):
            yield f"{name} = {thing!r}"
            return
        yield from self.parts(f"{name} type", type(thing))
        if isinstance(thing, (functools.partial, functools.partialmethod)):
            items = [("func", thing.func), ("args", thing.args), ("keywords", thing.keywords)]
        elif isinstance(thing, dict):
            items = sorted(thing.items(), key=lambda item: repr(item[0]))
        elif isinstance(thing, (list, tuple)):
            items = enumerate(thing)
        elif isinstance(thing, functools.cached_property):
            items = [("func", thing.func)]
        elif type(thing).__module__ in self.modules or isinstance(thing, types.SimpleNamespace):
            items = sorted(getattr(thing, "__dict__", {}).items())
        else:
            items = []
        for key, value in items:
            yield from self.parts(f"{name}.{key}", value)


def _globals(code: types.CodeType) -> set:
    names = {each.argval for each in dis.get_instructions(code) if each.opname == "LOAD_GLOBAL"}
    return names.union(*(_globals(each) for each in code.co_consts if isinstance(each, types.CodeType)))


def _code(code: types.CodeType) -> str:
    constants = [
        _code(each) if isinstance(each, types.CodeType) else _plain(each) for each in code.co_consts
    ]
    return f"{code.co_code.hex()} {constants} {code.co_names} {code.co_varnames}"


def _plain(value) -> Optional[str]:
    """A number, a text, a tensor, or a container of those; None for anything else."""
    if value is None or value is ... or isinstance(value, (bool, int, float, complex, str, bytes)):
        return repr(value)
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu()
        value = value.float() if value.dtype == torch.bfloat16 else value
        text = f"{value.dtype} {tuple(value.shape)}".replace("torch.", "")
        return f"{text} {hashlib.sha256(bytes_of(value)).hexdigest()}"
    if hasattr(value, "tobytes") and hasattr(value, "shape"):
        return f"{value.dtype} {value.shape} {hashlib.sha256(value.tobytes()).hexdigest()}"
    if isinstance(value, dict):
        value = [each for pair in value.items() for each in pair]
    elif not isinstance(value, (list, tuple, set, frozenset)):
        return None
    inside = [_plain(each) for each in value]
    if None in inside:
        return None
    return f"{type(value).__name__} {sorted(inside) if isinstance(value, (set, frozenset)) else inside}"
