"""Rule files -> rules: folders of YAML come in, `Rules` or all errors of all files go out.

Called by `rulebook` and `rulecheck`. It compiles no regex and looks at no log. The first document of a file is the
rule, the second its proof (samples and near-misses), which is read only on request so that a one-shot command does not
pay for it. Only plain YAML is taken: no tags, no anchors, no duplicate keys, no huge files. The checks are written by
hand over PyYAML's nodes because those know their line and column; no model library does.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import cast

import yaml

from triage.frozen import frozen
from triage.model import InputError
from triage.rulebase.rule import Mark, Proof, Rule, Rules, printable
from triage.rulebase.rulenode import Node, Reader
from triage.rulebase.ruleread import read_proof, read_rule
from triage.shipped import rule_folders as rule_folders

MAX_BYTES = 256 * 1024
_LOADER: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@frozen
class Problem:
    mark: Mark
    text: str

    def __str__(self) -> str:
        return f"{self.mark}: {self.text}"


class RuleErrors(InputError):
    """Everything that is wrong with the rule files, not only the first; `sound`: the rules without the faulty files."""

    def __init__(self, problems: Sequence[Problem], sound: Rules) -> None:
        self.problems = tuple(problems)
        self.sound = sound
        super().__init__("\n".join(map(str, self.problems)))


def load_rules(folders: Iterable[Path]) -> Rules:
    """All rules below the folders. A later folder's rule replaces one of the same id; its empty file masks it.

    Raises RuleErrors with every problem of every file.
    """
    found: dict[str, Rule | None] = {}
    problems: list[Problem] = []
    for folder in folders:
        here: dict[str, Path] = {}
        for path in rule_files(folder, problems):
            if other := here.get(path.stem):
                taken = f"the id '{printable(path.stem)}' is taken by {printable(str(other))}"
                problems.append(_problem(path, f"{taken}: rename one of the files"))
                continue
            here[path.stem] = path
            rule, bad = load_rule(path)
            problems += bad
            if not bad:
                found[path.stem] = rule
    rules = tuple(rule for _, rule in sorted(found.items()) if rule is not None)
    read = Rules(rules, tuple(sorted(name for name, rule in found.items() if rule is None)))
    if problems:
        raise RuleErrors(sorted(_once(problems), key=lambda p: (p.mark.path, p.mark.line, p.mark.column)), read)
    return read


def _once(problems: Iterable[Problem]) -> Iterable[Problem]:
    """A file that is named and lies in a folder that is named is read twice; its faults are told once."""
    told: dict[tuple[str, int, int, str], Problem] = {}
    for one in problems:
        told.setdefault((os.path.realpath(one.mark.path), one.mark.line, one.mark.column, one.text), one)
    return told.values()


def rule_files(folder: Path, problems: list[Problem] | None = None) -> list[Path]:
    """The rule files below a folder in a stable order; a single file is itself. A missing folder has none."""
    found = [] if problems is None else problems
    unread: list[OSError] = []
    walk = os.walk(folder, onerror=unread.append)
    below = sorted(Path(at, name) for at, folders, names in walk for name in (*folders, *names))
    paths = []
    for path in [folder] if folder.is_file() else below:
        if path.suffix == ".yaml" and path.is_file():
            paths.append(path)
        elif path.suffix == ".yml":
            found.append(_problem(path, "rule files end in .yaml: rename it"))
        elif path.suffix == ".yaml" and not path.is_dir():
            found.append(_problem(path, "is no file that could be read: remove it, or mend the link"))
    for error in unread:
        if not isinstance(error, FileNotFoundError | NotADirectoryError):
            found.append(_problem(Path(error.filename), f"cannot be read ({error.strerror}): mend its owner or mode"))
    return paths


def load_rule(path: Path) -> tuple[Rule | None, list[Problem]]:
    """The rule of one file and what is wrong with it. An empty file is None without a problem: it masks."""
    text, problems = _read(path)
    if text is None:
        return None, problems
    documents, problems = _documents(path, text, 1)
    if problems or not documents:
        return None, problems
    reader = Reader(str(path))
    rule = read_rule(reader, documents[0], path, hashlib.sha256(text.encode()).hexdigest())
    found = [Problem(mark, text) for mark, text in reader.problems]
    return (None, found) if found else (rule, [])


def load_proof(path: Path) -> tuple[Proof, list[Problem]]:
    """The samples and near-misses of one rule file."""
    text, problems = _read(path)
    documents, more = _documents(path, text or "", 3)
    problems += more
    if len(documents) > 2:
        third = documents[2].start_mark
        mark = Mark(str(path), third.line + 1, third.column + 1)
        problems.append(Problem(mark, "a rule file holds two documents, the rule and its proof: drop the rest"))
    if problems or len(documents) < 2:
        return Proof((), ()), problems
    if isinstance(documents[1], yaml.ScalarNode) and documents[1].value == "":
        at = documents[1].start_mark
        said = "nothing stands behind the '---': write `samples:` there, whole little logs that the rule has to win"
        return Proof((), ()), [Problem(Mark(str(path), at.line + 1, at.column + 1), said)]
    reader = Reader(str(path))
    proof = read_proof(reader, documents[1])
    return proof, [Problem(mark, text) for mark, text in reader.problems]


def _read(path: Path) -> tuple[str | None, list[Problem]]:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        return None, [_problem(path, f"cannot be read ({error.strerror}): mend its owner or mode")]
    if len(data) > MAX_BYTES:
        return None, [_problem(path, f"larger than {MAX_BYTES // 1024} KiB: a rule is one mechanism, split it")]
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        column = error.start - data.rfind(b"\n", 0, error.start)
        return None, [Problem(Mark(str(path), line, column), "not UTF-8: save the file as UTF-8")]
    return text, []


def _documents(path: Path, text: str, limit: int) -> tuple[list[Node], list[Problem]]:
    """The first `limit` documents as nodes; the parser does not go on behind them."""
    documents: list[Node] = []
    try:
        loader = _LOADER(text)
        try:
            while len(documents) < limit and loader.check_node():
                node = loader.get_node()
                if not documents and isinstance(node, yaml.ScalarNode) and node.value == "":
                    return [], []  # only `---`: as empty as an empty file
                documents.append(cast(Node, node))
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        at = error.problem_mark or error.context_mark
        mark = Mark(str(path), at.line + 1, at.column + 1) if at else Mark(str(path), 1, 1)
        what = ", ".join(filter(None, (error.context, error.problem)))
        return [], [Problem(mark, f"not valid YAML ({what}): mend the syntax here")]
    except (yaml.YAMLError, RecursionError, UnboundLocalError) as error:  # the last one: PyYAML on deep nesting
        return [], [_problem(path, f"not valid YAML ({str(error).splitlines()[0]}): mend the syntax")]
    return documents, []


def _problem(path: Path, text: str) -> Problem:
    return Problem(Mark(str(path), 1, 1), text)
