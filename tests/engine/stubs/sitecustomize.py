"""Empty stand-ins for packages that SGLang imports and a text model on a CPU never calls.

Python loads a module of this name at its start, in SGLang's child processes too, if its folder is on
``PYTHONPATH``. A real installation of one of the packages goes first.
"""

from __future__ import annotations

import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

STOOD_IN = frozenset({"sgl_kernel", "torchvision"})


def _is_protocol(name: str) -> bool:
    """Python and libraries probe such names: a stand-in must not seem to have them."""
    return name.startswith("__") and name.endswith("__")


class _AnyType(type):
    """The type of :class:`_Anything`: every public attribute of it is that class again."""

    def __getattr__(cls, name: str) -> type:
        if _is_protocol(name):
            raise AttributeError(name)
        return _Anything

    def __or__(cls, other: object) -> type:
        return cls

    __ror__ = __or__


class _Anything(metaclass=_AnyType):
    """Stands where a class, a function, a decorator or a constant is expected."""

    def __init__(self, *_: object, **__: object) -> None:
        """Take what the real one would."""

    def __class_getitem__(cls, _: object) -> type:
        return cls

    def __getattr__(self, name: str) -> type:
        if _is_protocol(name):
            raise AttributeError(name)
        return _Anything

    def __call__(self, *positional: object, **named: object) -> object:
        is_decorating = len(positional) == 1 and callable(positional[0]) and not named
        return positional[0] if is_decorating else self


class _StandIn(ModuleType):
    """A package with any name in it."""

    __path__: Sequence[str] = ()
    __version__ = "0.0.0"

    def __getattr__(self, name: str) -> type:
        if _is_protocol(name):
            raise AttributeError(name)
        return _Anything


class _Finder(MetaPathFinder, Loader):
    """Found last, so only where nothing real was."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Stand in for the packages named above and everything in them."""
        del path, target
        if name.partition(".")[0] in STOOD_IN:
            return ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """An empty package."""
        return _StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing to run."""


sys.meta_path.append(_Finder())
