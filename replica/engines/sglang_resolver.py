"""Run by the interpreter of the engine, as a file: SGLang's own parser, resolution and checks.

Standard input holds a JSON list of questions: ``argv``, the words behind ``sglang serve``, and ``gpu``, the
facts to resolve for, or null for the machine as it is; all of them have a GPU or none. The file named as the
first argument then holds the answers: ``version``, ``stage`` (``import``, ``parse``, ``resolve``, ``check`` or
``accepted``), ``error``, ``asked`` and ``resolved``: fields by name. Nothing is loaded and no GPU is touched.
Uses the standard library and SGLang alone, and imports nothing of this project.
"""

# mypy: disable-error-code="explicit-override"
# The engine's interpreter may be one that has no typing.override.

from __future__ import annotations

import contextlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import io
import json
import sys
import tempfile
import types
from pathlib import Path
from typing import Any, Final

ABSENT: Final = ("torchvision", "sgl_kernel")
"""Imported by SGLang at its start, not used for its arguments, and missing without a GPU."""
YES: Final = (
    "is_cuda",
    "is_sm100_supported",
    "is_sm100_or_sm110_supported",
    "is_blackwell_supported",
    "is_flashinfer_available",
)
NO: Final = (
    "is_hip",
    "is_mps",
    "is_musa",
    "is_npu",
    "is_sm110_supported",
    "is_sm120_supported",
    "is_sm90_supported",
    "is_xpu",
)


class _Anything(type):
    """A class of which every public attribute is such a class again."""

    def __getattr__(cls, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return _StandIn

    def __or__(cls, _other: object) -> Any:  # noqa: ANN401  (stands in for a union)
        return cls

    def __ror__(cls, _other: object) -> Any:  # noqa: ANN401
        return cls


class _StandIn(metaclass=_Anything):
    """Can be called, subscripted, inherited from, and decorate a function without changing it."""

    def __init__(self, *_values: object, **_named: object) -> None:
        """Take anything."""

    def __class_getitem__(cls, _item: object) -> type:
        return cls

    def __call__(self, *values: object, **named: object) -> object:
        """What is decorated, else itself."""
        if len(values) == 1 and callable(values[0]) and not named:
            return values[0]
        return self

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return _StandIn


class _StandInModule(types.ModuleType):
    """A module that has whatever is asked of it."""

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return _StandIn


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Asked last of all: it finds the absent packages only where no real one is installed."""

    def find_spec(
        self, fullname: str, _path: object = None, _target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        """A stand-in for an absent package or a module of it."""
        if fullname.partition(".")[0] not in ABSENT:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        """An empty one."""
        module = _StandInModule(spec.name)
        module.__path__ = []
        module.__dict__["__version__"] = "0.0.0"
        return module

    def exec_module(self, _module: types.ModuleType) -> None:
        """There is nothing to run."""


def stand_in(folder: Path) -> None:
    """Put stand-ins where packages are absent; libraries read one's version from its metadata."""
    if importlib.util.find_spec("torchvision") is None:
        about = folder / "torchvision-0.28.0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(
            "Metadata-Version: 2.1\nName: torchvision\nVersion: 0.28.0\n"
        )
        sys.path.append(str(folder))
    sys.meta_path.append(_Finder())


def pretend(gpu: dict[str, Any]) -> None:
    """Let SGLang's probes of the hardware answer for ``gpu``; before its arguments are imported.

    They read it at each call, so that one process can answer for several kinds.
    """
    common: Any = importlib.import_module("sglang.srt.utils.common")
    for names, answer in ((YES, True), (NO, False)):
        for name in names:
            setattr(common, name, lambda *_, answer=answer, **__: answer)
    common.get_device = lambda *_, **__: "cuda"
    common.get_device_sm = lambda *_, **__: 10 * gpu["capability"][0] + gpu["capability"][1]
    common.get_device_capability = lambda *_, **__: tuple(gpu["capability"])
    graphs: Any = importlib.import_module("sglang.srt.model_executor.cuda_graph_config")
    graphs.default_prefill_backend = lambda: graphs.Backend.BREAKABLE
    memory: Any = importlib.import_module("sglang.srt.arg_groups.memory_hook")
    memory.get_device_memory_capacity = lambda *_, **__: float(gpu["memory_mib"])


def plain(value: object) -> object:
    """A field's value as JSON can hold it."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    return str(value)


def fields_of(arguments: object, view: object) -> dict[str, Any]:
    """All public fields, and the decode and prefill graphs, whose settings are nested."""
    names: tuple[str, ...] = getattr(type(arguments), "__struct_fields__", ())
    found = {name: plain(getattr(view, name, None)) for name in names if name[0] != "_"}
    graphs = getattr(view, "cuda_graph_config", None)
    found.pop("cuda_graph_config", None)
    for phase in ("decode", "prefill"):
        graph = getattr(graphs, phase, None)
        if graph is not None:
            backend = getattr(graph.backend, "value", graph.backend)
            found[f"cuda_graph_{phase}_backend"] = plain(backend)
            found[f"cuda_graph_{phase}_max_bs"] = plain(graph.max_bs)
    return found


def answered(argv: list[str]) -> dict[str, Any]:
    """What SGLang says to one command line."""
    answer: dict[str, Any] = {"stage": "import", "version": None, "error": None}
    said = io.StringIO()
    try:
        answer["version"] = importlib.import_module("importlib.metadata").version("sglang")
        server = importlib.import_module("sglang.srt.server_args")
        overrides = importlib.import_module("sglang.srt.arg_groups.overrides")
        answer["stage"] = "parse"
        with contextlib.redirect_stderr(said):
            arguments = server.prepare_server_args(argv)
        answer["asked"] = fields_of(arguments, arguments)
        answer["stage"] = "resolve"
        arguments.resolve_once()
        answer["stage"] = "check"
        arguments.check_server_args()
        answer["resolved"] = fields_of(arguments, overrides.resolving_view(arguments))
        answer["stage"] = "accepted"
    except SystemExit:
        answer["error"] = said.getvalue().strip().rpartition("error: ")[2] or "the parser gave up"
    except Exception as failure:  # noqa: BLE001  (whatever it is, it is the answer)
        answer["error"] = f"{type(failure).__name__}: {failure}"
    return answer


def main() -> None:
    """Answer the questions."""
    questions = json.load(sys.stdin)
    gpu: dict[str, Any] = {}
    answers = []
    with tempfile.TemporaryDirectory() as folder:
        stand_in(Path(folder))
        if any(question["gpu"] for question in questions):
            pretend(gpu)
        for question in questions:
            gpu.update(question["gpu"] or {})
            answers.append(answered(question["argv"]))
    Path(sys.argv[1]).write_text(json.dumps(answers))


if __name__ == "__main__":
    main()
