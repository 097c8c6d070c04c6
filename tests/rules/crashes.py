"""Crashes made by hand, for tests that are about rules and not about reading logs."""

from __future__ import annotations

from pathlib import Path

from triage.model import Context, Crash, Failure, Frame, Line, Link, Outcome, Phase, Role, UnitEnd
from triage.rulebase.rule import Rules
from triage.rulebase.rulebook import Rulebook
from triage.rulebase.rulefile import load_rules


def link(exception: str, message: str = "", *frames: str) -> Link:
    """Frames as `file.py:function`, outermost first; the last one names the place."""
    made = tuple(Frame("/opt/llm/sglang/" + text.split(":")[0], text.split(":")[1], 7) for text in frames)
    return Link(exception, message, made[-1] if made else None, made)


def crash(
    *chain: Link,
    phase: Phase = Phase.SERVING,
    outcome: Outcome = Outcome.FATAL,
    lines: tuple[str, ...] = (),
    flags: dict[str, str] | None = None,
    release: str | None = None,
    end: UnitEnd | None = None,
) -> Crash:
    texts = tuple(Line(text, n=number) for number, text in enumerate(lines, 1))
    root = Failure(Role.ROOT, chain, texts)
    context = Context(phase=phase, sglang_version=release, flags=flags or {})
    return Crash("id", "n1", phase, outcome, root, (root,), (), texts, context=context, end=end)


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / "site" / f"{name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def rule(match: str, more: str = "") -> str:
    return f"title: A rule\ncause: For a test.\nseverity: error\nmatch: {match}\n{more}"


def book(folder: Path) -> Rulebook:
    return Rulebook(load(folder).rules)


def load(folder: Path) -> Rules:
    return load_rules([folder])
