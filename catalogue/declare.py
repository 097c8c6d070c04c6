"""What one unpacked SGLang release declares: run as a child process by `build.py`, prints one JSON document.

In: the folder that holds `sglang/`. Out: its flags as argparse knows them, the flags and environment variables that a
reading of its source finds. It EXECUTES the modules that declare flags, with a stub in place of everything else (torch,
the server itself), so it belongs to the building machine alone; triage never runs it.
"""

from __future__ import annotations

import argparse
import ast
import importlib.abc
import importlib.machinery
import json
import re
import sys
import types
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

# Declaring modules, loaded for real where the release has them. All else of sglang is stubbed.
REAL = re.compile(
    r"sglang(\.srt(\.(server_args|environ|arg_groups(\..+)?|model_executor(\.cuda_graph_config)?|parser"
    r"(\.reasoning_parser_names)?|function_call(\.parser_names)?))?)?"
)
DECLARING = ("server_args.py", "arg_groups")
VARIABLE = re.compile(r"(?:SGLANG|SGL)_[A-Z0-9_]+")


class _Meta(type):
    """A stub class: any attribute is a stub too, and it can be called, iterated, compared and combined."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _stub(name)

    def __iter__(cls) -> Iterator[Any]:
        return iter(())

    def __or__(cls, other: Any) -> Any:
        return Any

    __ror__ = __or__

    def __add__(cls, other: Any) -> Any:
        return other

    __radd__ = __add__

    def __len__(cls) -> int:
        return 0

    def __contains__(cls, item: object) -> bool:
        return False

    def __bool__(cls) -> bool:
        return False


def _stub(name: str) -> Any:
    if re.match(r"(is|has|get_bool|supports|use)_", name):
        return lambda *a, **k: False
    if name == "BaseModel" or name[:1].isupper() or name.startswith("_"):
        return _Meta(name, (), {"__init__": lambda self, *a, **k: None})
    return _Meta(name, (), {"__new__": lambda cls, *a, **k: _decorated(a)})


def _decorated(arguments: Sequence[Any]) -> Any:
    """A stub called with one function or class is a decorator; else its result is a stub again."""
    if len(arguments) == 1 and isinstance(arguments[0], type | types.FunctionType):
        return arguments[0]
    return _Result()


class _Result:
    """What a stub returns: empty, and a stub whatever is done with it."""

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return _decorated(arguments)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _stub(name)

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __add__(self, other: Any) -> Any:
        return other

    __radd__ = __add__

    def __bool__(self) -> bool:
        return False


class _StubModule(types.ModuleType):
    __path__: ClassVar[list[str]] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _stub(name)


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Comes first: real are the standard library, msgspec, and the release's declaring modules."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def find_spec(self, name: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        top = name.partition(".")[0]
        if top in sys.stdlib_module_names or top in ("msgspec", "typing_extensions"):
            return None
        if top == "sglang" and REAL.fullmatch(name):
            base = self.folder / name.replace(".", "/")
            if base.with_suffix(".py").is_file():
                return importlib.machinery.ModuleSpec(name, _source(base.with_suffix(".py"), name))
            if name in ("sglang", "sglang.srt") or not (base / "__init__.py").is_file():
                spec = importlib.machinery.ModuleSpec(name, self, is_package=True)
                return spec if base.is_dir() else importlib.machinery.ModuleSpec(name, self, is_package=True)
            spec = importlib.machinery.ModuleSpec(name, _source(base / "__init__.py", name), is_package=True)
            spec.submodule_search_locations = [str(base)]
            return spec
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _StubModule(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        return None


def _source(path: Path, name: str) -> importlib.machinery.SourceFileLoader:
    return importlib.machinery.SourceFileLoader(name, str(path))


def flags(folder: Path) -> dict[str, dict[str, Any]]:
    """Spelling -> what argparse knows of it."""
    sys.meta_path.insert(0, _Finder(folder))
    from sglang.srt.server_args import ServerArgs  # type: ignore[import-not-found]

    parser = argparse.ArgumentParser(prog="launch_server", add_help=False)
    ServerArgs.add_cli_args(parser)
    found: dict[str, dict[str, Any]] = {}
    for action in parser._actions:
        for spelling in action.option_strings:
            if spelling.startswith("--"):
                found[spelling] = _flag(action)
    return found


def _flag(action: argparse.Action) -> dict[str, Any]:
    kind, help_text = type(action).__name__, action.help or ""
    old = kind.startswith("Deprecated") or re.search(r"(?i)\bdeprecated\b", help_text[:200]) is not None
    takes = "nothing" if action.nargs == 0 else "list" if action.nargs in ("*", "+") else "value"
    declared: dict[str, Any] = {"dest": action.dest, "takes": takes}
    type_ = getattr(action.type, "__name__", None)
    if takes != "nothing" and type_ in ("int", "float"):
        declared["type"] = type_
    if action.choices and all(isinstance(choice, str | int | float) for choice in action.choices):
        declared["choices"] = [str(choice) for choice in action.choices]
    if isinstance(action.default, str | int | float | bool) and action.default is not False:
        declared["default"] = action.default
    if old:
        declared["deprecated"] = True
        new = getattr(action, "new_flag", None)
        if isinstance(new, str):
            declared["use"] = new
        if isinstance(getattr(action, "const_value", None), str):
            declared["as"] = action.const_value  # type: ignore[attr-defined]
    return declared


def read_flags(folder: Path) -> set[str]:
    """Flags as the source spells them in add_argument calls, without running it: the second witness."""
    found: set[str] = set()
    for path in _files(folder / "sglang/srt"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument":
                found |= {a.value for a in node.args if isinstance(a, ast.Constant) and str(a.value).startswith("--")}
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                found |= _field(node)
    return found


def _field(node: ast.AnnAssign) -> set[str]:
    """The flag of a field `name: A[type, Arg(...)]` or `A[type, "help"]`."""
    note = node.annotation
    if not (isinstance(note, ast.Subscript) and isinstance(note.value, ast.Name) and note.value.id == "A"):
        return set()
    assert isinstance(node.target, ast.Name)
    names = {"cli_name": None, "no_cli": None}
    for call in ast.walk(note):
        if isinstance(call, ast.Call):
            if getattr(call.func, "id", "") == "Derived":
                return set()
            names |= {k.arg: k.value.value for k in call.keywords if k.arg and isinstance(k.value, ast.Constant)}
    if names.get("no_cli"):
        return set()
    return {str(names.get("cli_name") or "--" + node.target.id.replace("_", "-"))}


def variables(folder: Path) -> set[str]:
    """SGLang's own environment variables: declared in environ.py, or named in a string anywhere else."""
    found: set[str] = set()
    environ = folder / "sglang/srt/environ.py"
    if environ.is_file():
        for node in ast.walk(ast.parse(environ.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and VARIABLE.fullmatch(node.id):
                found.add(node.id)
    quoted = re.compile(r"[\"'](" + VARIABLE.pattern + r")[\"']")
    for path in (folder / "sglang").rglob("*.py"):
        found.update(quoted.findall(path.read_text(encoding="utf-8", errors="replace")))
    return found


def _files(srt: Path) -> Iterator[Path]:
    for name in DECLARING:
        path = srt / name
        if path.is_dir():
            yield from sorted(path.rglob("*.py"))
        elif path.is_file():
            yield path


if __name__ == "__main__":
    release = Path(sys.argv[1])
    read, seen = read_flags(release), variables(release)
    json.dump({"flags": flags(release), "read": sorted(read), "variables": sorted(seen)}, sys.stdout)
