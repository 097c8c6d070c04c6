"""Which of SGLang's boolean variables decides whether a function runs. `build.py` writes it to switches.json.

In: folders that hold an unpacked `sglang/`, older releases first. Out, of each: `reached`: name of a function ->
variables with the value they have wherever it is called (by one that is called nowhere else, if need be), of those
that are worth turning; `worded`: two words that follow each other in a variable's name and seldom in a function's ->
variables with the value they have unless set. Source is parsed, never run.
"""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

Guards = frozenset[tuple[str, bool]]
NONE: Guards = frozenset()

_VARIABLE = re.compile(r"(?:SGLANG|SGL)_[A-Z0-9_]+")
# What they switch is no part of serving: tests, logs, measures, what a machine has.
_ASIDE = re.compile(
    r"_(?:TEST|TESTS|CI|LOG|DEBUG|SIMULATE|TRACE|PROFILE|CANARY|BENCHMARK|IS|MODELSCOPE|CRASH|CHECK|"
    r"DETERMINISTIC)(?:_|$)"
)
_CLIENTS = re.compile(r"/(?:test|tests|bench\w*|lang|entrypoints/openai|function_call|parser|debug_utils|configs)/")
_TELLING = re.compile(r"(?=.{11})_*[a-zA-Z0-9]+_\w+")
# No part of what a variable switches.
_PLAIN = frozenset(
    [
        *("sglang", "sgl", "opt", "use", "enable", "disable", "force", "skip", "allow"),
        *("experimental", "fused", "fuse", "torch", "native"),
    ]
)
# Two words of which one is such a word say little.
_COMMON = frozenset(
    [
        *("in", "of", "out", "no", "cuda", "graph", "kernel", "model", "config", "cache", "moe", "attn", "attention"),
        *("batch", "stream", "fusion", "experts"),
        # models and generations of GPUs: what is named after them is not one thing
        *("dpsk", "dsv4", "dsv41", "v4", "inkling", "minimax", "qwen", "qwen4", "qwen35", "m3", "k3", "dsa", "nsa"),
        *("dspark", "spark", "hopper", "gfx1250"),
    ]
)
# Two such words together are no name of one thing.
_KINDS = frozenset(
    [
        *(
            "fp8",
            "fp4",
            "nvfp4",
            "mxfp4",
            "bf16",
            "int8",
            "gemm",
            "prefill",
            "decode",
            "extend",
            "verify",
            "mla",
            "jit",
        ),
        *("triton", "aiter", "deepgemm", "flashinfer", "paged", "asm", "topk", "norm", "quant", "npu", "rocm", "hip"),
        *("dsv4", "m3", "minimax", "qwen", "dspark", "shared", "custom", "overlap", "moe", "indexer", "index"),
    ]
)
_KERNELS = re.compile(r"sglang/(?:srt/(?:layers|models)|kernels|jit_kernel|srt/kernels)/")
_DECLARING = re.compile(r"srt/(?:environ|server_args)\.py|srt/arg_groups/")
_FALLBACK = re.compile(r"_(?:TORCH|NATIVE|DISABLE|SKIP)(?:_|$)")
_SELDOM = 8  # functions of a release whose names hold both words
_SHARE = 4  # telling words of a variable's name, of which two are half
_ROUNDS = 6
_HOMES = 2  # a name that is defined more often is anybody's


def document(folders: list[Path]) -> dict[str, dict[str, list[list[str]]]]:
    """Of a name in several releases the last one counts."""
    reached: dict[str, list[list[str]]] = {}
    worded: dict[str, list[list[str]]] = {}
    for folder in folders:
        texts = {
            path.relative_to(folder).as_posix(): path.read_bytes()
            for path in sorted((folder / "sglang").rglob("*.py"))
            if not _CLIENTS.search(path.as_posix()) and "multimodal_gen" not in path.parts
        }
        trees = [ast.parse(text) for text in texts.values()]
        defaults = dict(pair for tree in trees for pair in _defaults(tree))
        elsewhere = {
            name
            for path, text in texts.items()
            if not _KERNELS.match(path) and not _DECLARING.search(path)
            for name in _VARIABLE.findall(text.decode())
        }
        reader = _Reader(trees, frozenset(defaults))
        for name in reader.names():
            reached.pop(name, None)
            worth = [
                [variable, "1" if value else "0"]
                for variable, value in sorted(reader.guards(name))
                if value or defaults[variable] or _FALLBACK.search(variable)  # what is off may be no finished part
            ]
            if worth:
                reached[name] = worth
        worded |= _worded({name: value for name, value in defaults.items() if name not in elsewhere}, reader.defined)
    return {"reached": dict(sorted(reached.items())), "worded": dict(sorted(worded.items()))}


def _defaults(tree: ast.Module) -> Iterator[tuple[str, bool]]:
    """Boolean variables and what they are unless set, as far as the source says it plainly."""
    for node in ast.walk(tree):
        name, value = _declared(node) or (None, None)
        if name and isinstance(value, bool) and _VARIABLE.fullmatch(name) and not _ASIDE.search(name):
            yield name, value


def _declared(node: ast.AST) -> tuple[str, object] | None:
    """NAME = EnvBool(True), get_bool_env_var("NAME", "true")."""
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and isinstance(node.targets[0], ast.Name):
        call = node.value
        if isinstance(call.func, ast.Name) and call.func.id == "EnvBool" and call.args:
            return node.targets[0].id, call.args[0].value if isinstance(call.args[0], ast.Constant) else None
    if not isinstance(node, ast.Call) or isinstance(node.func, ast.Attribute) or (name := _asked(node)) is None:
        return None
    given = [*node.args[1:], *(word.value for word in node.keywords)]
    if given and not isinstance(given[0], ast.Constant):
        return None
    return name, bool(given) and str(given[0].value).lower() in ("true", "1")  # type: ignore[attr-defined]


def _asked(node: ast.AST) -> str | None:
    """The variable whose truth this call tells: envs.NAME.get(), get_bool_env_var("NAME")."""
    if not isinstance(node, ast.Call):
        return None
    func = node.func
    if isinstance(func, ast.Attribute) and func.attr == "get" and isinstance(func.value, ast.Attribute):
        return func.value.attr
    named = func.id if isinstance(func, ast.Name) else func.attr if isinstance(func, ast.Attribute) else ""
    first = node.args[0] if node.args else None
    if named == "get_bool_env_var" and isinstance(first, ast.Constant) and isinstance(first.value, str):
        return first.value
    return None


class _Reader:
    """One release: who calls what, under which conditions."""

    def __init__(self, trees: list[ast.Module], known: frozenset[str]) -> None:
        self._known = known
        self._aliases: dict[str, str] = {}
        self._calls: dict[str, set[tuple[str, Guards]]] = defaultdict(set)  # name -> (caller, guards)
        self.defined: Counter[str] = Counter()
        self._solved: dict[str, Guards] = {}
        for tree in trees:
            self._aliases = dict(self._alias(tree))
            self._block(tree.body, "", NONE)
        for _ in range(_ROUNDS):
            self._solved = {name: self._common(name) for name in self._calls}

    def names(self) -> list[str]:
        return [name for name in self._calls if _TELLING.fullmatch(name) and not name.startswith("__")]

    def guards(self, name: str) -> Guards:
        return self._solved[name] if 0 < self.defined[name] <= _HOMES else NONE

    def _common(self, name: str) -> Guards:
        sites = [guards | self._solved.get(caller, NONE) for caller, guards in self._calls[name] if caller != name]
        return frozenset.intersection(*sites) if sites else NONE

    def _alias(self, tree: ast.Module) -> Iterator[tuple[str, str]]:
        """Names of this file that hold a variable's value."""
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and (name := _asked(node.value)) in self._known and len(node.targets) == 1:
                target = node.targets[0]
                if isinstance(target, ast.Name | ast.Attribute):
                    yield target.id if isinstance(target, ast.Name) else target.attr, name

    def _implied(self, test: ast.expr, outcome: bool) -> Guards:
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            return self._implied(test.operand, not outcome)
        if isinstance(test, ast.BoolOp):
            every = isinstance(test.op, ast.And) == outcome
            return frozenset().union(*(self._implied(one, outcome) for one in test.values)) if every else NONE
        name = _asked(test) or self._aliases.get(
            test.id if isinstance(test, ast.Name) else test.attr if isinstance(test, ast.Attribute) else ""
        )
        return frozenset([(name, outcome)]) if name in self._known else NONE

    def _block(self, body: list[ast.stmt], caller: str, guards: Guards) -> None:
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                self.defined[node.name] += 1
                self._expressions([*node.decorator_list, node.args], caller, guards)
                self._block(node.body, node.name, NONE)
            elif isinstance(node, ast.If):
                self._expressions([node.test], caller, guards)
                self._block(node.body, caller, guards | self._implied(node.test, True))
                self._block(node.orelse, caller, guards | self._implied(node.test, False))
                if node.body and isinstance(node.body[-1], ast.Return | ast.Raise | ast.Continue) and not node.orelse:
                    guards |= self._implied(node.test, False)
            else:
                blocks = [value for _, value in ast.iter_fields(node) if isinstance(value, list)]
                nested = [block for block in blocks if block and isinstance(block[0], ast.stmt)]
                handlers = [one.body for block in blocks for one in block if isinstance(one, ast.ExceptHandler)]
                cases = [one.body for block in blocks for one in block if isinstance(one, ast.match_case)]
                for block in (*nested, *handlers, *cases):
                    self._block(block, caller, guards)
                inner = {id(one) for block in nested for one in block}
                self._expressions([one for one in ast.iter_child_nodes(node) if id(one) not in inner], caller, guards)

    def _expressions(self, nodes: list[ast.AST], caller: str, guards: Guards) -> None:
        """Each name that is called, or told to others, here."""
        waiting = [(node, guards) for node in nodes]
        while waiting:
            node, under = waiting.pop()
            if isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case):
                continue
            if isinstance(node, ast.IfExp):
                waiting.append((node.test, under))
                waiting.append((node.body, under | self._implied(node.test, True)))
                waiting.append((node.orelse, under | self._implied(node.test, False)))
                continue
            name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
            if name and isinstance(getattr(node, "ctx", None), ast.Load):
                self._calls[name].add((caller, under))
            waiting += [(child, under) for child in ast.iter_child_nodes(node)]


def _worded(defaults: dict[str, bool], functions: Counter[str]) -> dict[str, list[list[str]]]:
    often: Counter[str] = Counter()
    for name, many in functions.items():
        often.update(dict.fromkeys(_pairs(name.lower().strip("_").split("_")), many))
    out: dict[str, list[list[str]]] = defaultdict(list)
    for name, value in sorted(defaults.items()):
        if not value and not _FALLBACK.search(name):
            continue  # it is off; whoever set it knows
        words = [word for word in name.lower().split("_") if word not in _PLAIN]
        for pair in dict.fromkeys(_pairs(words)):
            two = set(pair.split("_"))
            if often[pair] <= _SELDOM and not _COMMON & two and not two <= _KINDS and len(words) <= _SHARE:
                out[pair].append([name, "1" if value else "0"])
    return {pair: found for pair, found in out.items() if len(found) <= 2}


def _pairs(words: list[str]) -> list[str]:
    return [f"{a}_{b}" for a, b in pairwise(words) if not (a.isdigit() and b.isdigit())]
