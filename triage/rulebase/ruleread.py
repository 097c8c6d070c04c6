"""The language of rule files: sound YAML nodes come in, a `Rule` or a `Proof` goes out, problems stay with the reader.

Called by `rulefile`. docs/rules.md says the same for people, rules/schema.json for editors.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from triage.model import AS_SET, Outcome, Phase, Severity, Verify
from triage.rulebase.anchors import SHORTEST, needed
from triage.rulebase.releases import Specifier, release_key
from triage.rulebase.rule import (
    EDITABLE,
    FLAG,
    PLACEHOLDER,
    Clause,
    EditText,
    FirstWhere,
    FlagCondition,
    FramePattern,
    KnownBad,
    Pattern,
    Proof,
    RemedyText,
    Rule,
    Sample,
    printable,
)
from triage.rulebase.rulenode import Node, Reader

KINDS = (*EDITABLE, "upgrade", "downgrade", "install", "system", "model", "hardware", "request", "advice")
_FLAG, _ENV, _UNIT = FLAG, r"[A-Za-z_][A-Za-z0-9_]*", r"(Unit|Service)\.[A-Z][A-Za-z]+"
# op -> (remedy kind, spelling of the name, value: required, forbidden, number or optional)
OPS = {
    "set-flag": ("flag", _FLAG, "optional"),
    "remove-flag": ("flag", _FLAG, "forbidden"),
    "cap-flag": ("flag", _FLAG, "number"),
    "scale-flag": ("flag", _FLAG, "number"),
    "step-flag": ("flag", _FLAG, "number"),
    "search-flag": ("flag", _FLAG, "forbidden"),
    "set-env": ("env", _ENV, "required"),
    "unset-env": ("env", _ENV, "forbidden"),
    "set-unit": ("unit", _UNIT, "required"),
}
_WORD = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_RULE = (
    [
        "title",
        "cause",
        "severity",
        "confidence",
        "rank",
        "match",
        "remedies",
        "references",
        "applies",
        "fixed_in",
        "stable",
        "false_positives",
        "verify",
    ],
    ["title", "cause", "severity", "match"],
)
_CLAUSE = ["exception", "message", "frame", "at", "lines", "phase", "outcome", "unit", "flags", "unless", "anchors"]
_CONDITION = ["flag", "above", "below", "is", "present", "or_unknown"]
_REMEDY = ["id", "kind", "title", "cost", "confirmed", "edits", "versions", "requires", "conflicts", "when", "forks"]
_REMEDY += ["known_bad", "speed", "first_where"]
_SAMPLE = ["name", "why", "log", "first", "captures", "also"]
_ALSO = ["instead_of", "say"]
# How a remedy is proved: key -> smallest and largest value.
_VERIFY = {
    "ready_timeout": (1, 7200),
    "soak": (0, 2000),
    "rate": (0.01, 50),
    "timeout": (1, 3600),
    "window": (0, 604_800),
    "min_speed": (0, 1),
}


def read_rule(r: Reader, node: Node, path: Path, digest: str) -> Rule:
    """One rule. What is wrong is in `r.problems`; the value is then not to be used."""
    if not _WORD.fullmatch(path.stem):
        r.wrong(node, f"the file's name '{printable(path.stem)}' is the rule's id: use a-z, 0-9, '.', '_' and '-' only")
    keys = r.mapping(node, *_RULE, what="a rule") if r.sound(node) else {}
    match = keys.get("match")
    clauses = tuple(_clause(r, item) for item in r.items(match))
    remedies = tuple(_remedy(r, item) for item in r.items(keys.get("remedies")))
    confidence = r.number(keys.get("confidence"), 0, 1)
    rule = Rule(
        id=path.stem,
        area=path.parent.name,
        file=str(path),
        digest=digest,
        title=r.text(keys.get("title"), 120),
        cause=r.text(keys.get("cause")),
        severity=r.choice(keys.get("severity"), Severity) or Severity.ERROR,
        confidence=0.8 if confidence is None else confidence,
        rank=int(r.number(keys.get("rank"), -10, 10) or 0),
        clauses=clauses,
        remedies=remedies,
        references=r.texts(keys.get("references")),
        applies=_specifier(r, keys.get("applies")),
        fixed_in=_release(r, keys.get("fixed_in")),
        stable=bool(r.boolean(keys.get("stable"))),
        false_positives=r.texts(keys.get("false_positives")),
        verify=_verify(r, keys["verify"]) if "verify" in keys else AS_SET,
    )
    _placeholders(r, keys, rule)
    _ids(r, keys.get("remedies"), remedies)
    return rule


def read_proof(r: Reader, node: Node) -> Proof:
    keys = r.mapping(node, ("samples", "near_misses"), what="a proof") if r.sound(node) else {}
    samples = tuple(_sample(r, item, "name") for item in r.items(keys.get("samples")))
    return Proof(samples, tuple(_sample(r, item, "why") for item in r.items(keys.get("near_misses"))))


def _clause(r: Reader, node: Node) -> Clause:
    keys = r.mapping(node, _CLAUSE, what="a match")
    unit = r.mapping(keys["unit"], ("result", "code", "status"), what="unit") if "unit" in keys else {}
    clause = replace(
        _common(r, node, keys),
        result=r.texts(unit.get("result")),
        code=r.texts(unit.get("code")),
        status=r.texts(unit.get("status")),
        unless=tuple(_condition_clause(r, item) for item in r.items(keys.get("unless"))),
    )
    anchors = r.texts(keys.get("anchors"))
    for item, anchor in zip(r.items(keys.get("anchors")), anchors, strict=True):
        if len(anchor) < SHORTEST:
            r.wrong(item, f"'{anchor}' stands in every log: an anchor has at least {SHORTEST} characters")
    anchors = anchors or _derived(clause)
    if not anchors and keys:
        r.wrong(
            node,
            f"nothing in this match is a literal of {SHORTEST} characters that every crash it means must hold:"
            " add an exception, a wording or `anchors`",
        )
    return replace(clause, anchors=anchors)


def _condition_clause(r: Reader, node: Node) -> Clause:
    """A clause below `unless`: the same language, but it needs no anchor of its own."""
    keys = r.mapping(node, [k for k in _CLAUSE if k not in ("unless", "anchors", "unit")], what="unless")
    return _common(r, node, keys)


def _common(r: Reader, node: Node, keys: dict[str, Node]) -> Clause:
    """What a clause of either kind can say."""
    return Clause(
        mark=r.mark(node),
        exceptions=r.texts(keys.get("exception")),
        messages=_patterns(r, keys.get("message")),
        frames=tuple(_frame(r, item) for item in r.items(keys.get("frame"))),
        places=tuple(_frame(r, item) for item in r.items(keys.get("at"))),
        lines=_patterns(r, keys.get("lines")),
        phases=r.choices(keys.get("phase"), Phase),
        outcomes=r.choices(keys.get("outcome"), Outcome),
        flags=_conditions(r, keys.get("flags")),
    )


def _derived(clause: Clause) -> tuple[str, ...]:
    """The most telling group of literals of which one has to stand in the crash's text."""
    groups: list[tuple[str, ...]] = [clause.exceptions, clause.result, clause.status]
    for patterns in (clause.messages, clause.lines):
        if all(pattern.needs for pattern in patterns):
            groups.append(tuple(dict.fromkeys(need for pattern in patterns for need in pattern.needs)))
    for frames in (clause.places, clause.frames):
        groups.append(tuple(max(re.split(r"[*?\[\]:]", f"{f.file}:{f.function}"), key=len) for f in frames))
    sound = [group for group in groups if group and min(map(len, group)) >= SHORTEST]
    return max(sound, key=lambda group: min(map(len, group)), default=())


def _patterns(r: Reader, node: Node | None) -> tuple[Pattern, ...]:
    """Compiling them all would cost each one-shot command 100 ms: the book does it on first use, `rulecheck` always."""
    return tuple(Pattern(text, r.mark(item), needed(text)) for item in r.items(node) if (text := r.text(item)))


def _frame(r: Reader, node: Node) -> FramePattern:
    """`file.py` or `file.py:function`, both globs; the file may stand in its folders (`srt/models/*.py`)."""
    file, _, function = r.text(node).partition(":")
    if file.startswith("/"):
        r.wrong(node, "a frame is named by its file and at most the folders above it: drop the leading '/'")
    return FramePattern(file, function or "*")


def _conditions(r: Reader, node: Node | None) -> tuple[FlagCondition, ...]:
    found = []
    for item in r.items(node):
        keys = r.mapping(item, _CONDITION, ("flag",), what="a condition on flags")
        names = r.texts(keys.get("flag"))
        for name_node, name in zip(r.items(keys.get("flag")), names, strict=True):
            if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
                r.wrong(name_node, "a condition names flags as server_args does: words with underscores, no dashes")
        condition = FlagCondition(
            names=names,
            above=r.number(keys.get("above")),
            below=r.number(keys.get("below")),
            equals=tuple(str(r.scalar(value)) for value in r.items(keys.get("is"))),
            present=r.boolean(keys.get("present")),
            or_unknown=bool(r.boolean(keys.get("or_unknown"))),
        )
        if keys and not {"above", "below", "is", "present"} & keys.keys():
            r.wrong(item, "a condition on flags compares nothing: add above, below, is or present")
        found.append(condition)
    return tuple(found)


def _remedy(r: Reader, node: Node) -> RemedyText:
    keys = r.mapping(node, _REMEDY, ("id", "kind", "title", "cost", "confirmed"), what="a remedy")
    kind = r.text(keys.get("kind"))
    known = "kind" not in keys or r.one_of(keys["kind"], kind, KINDS)
    when = r.mapping(keys["when"], ("phase", "outcome", "flags", "release"), what="when") if "when" in keys else {}
    edits = tuple(_edit(r, item, kind) for item in r.items(keys.get("edits")))
    versions = _requirement(r, keys.get("versions"))
    if keys and known and kind in EDITABLE and not edits:
        r.wrong(node, f"a remedy of kind {kind} has to say its edits: add them, or make it an advice")
    if keys and known and kind not in EDITABLE and edits:
        r.wrong(node, f"a remedy of kind {kind} edits nothing: drop the edits or change the kind")
    if keys and kind in ("upgrade", "downgrade") and not versions:
        r.wrong(node, f"an {kind} has to say which releases: add versions: 'sglang>=0.5.13'")
    return RemedyText(
        id=r.text(keys.get("id")),
        kind=kind,
        title=r.text(keys.get("title"), 160),
        cost=r.text(keys.get("cost"), 400),
        confirmed=bool(r.boolean(keys.get("confirmed"))),
        mark=r.mark(node),
        edits=edits,
        versions=versions,
        requires=_names(r, keys.get("requires")),
        conflicts=_names(r, keys.get("conflicts")),
        known_bad=tuple(_known_bad(r, item) for item in r.items(keys.get("known_bad"))),
        phases=r.choices(when.get("phase"), Phase),
        outcomes=r.choices(when.get("outcome"), Outcome),
        flags=_conditions(r, when.get("flags")),
        release=_specifier(r, when.get("release")),
        forks=r.texts(keys.get("forks")),
        speed=r.number(keys.get("speed"), 0, 1),
        first_where=_first_where(r, keys["first_where"]) if "first_where" in keys else None,
    )


def _first_where(r: Reader, node: Node) -> FirstWhere:
    keys = r.mapping(node, ("frame", "flags"), what="first_where")
    if not keys:
        r.wrong(node, "first_where says not where: add frame or flags; what is always first stands first")
    frames = tuple(_frame(r, item) for item in r.items(keys.get("frame")))
    return FirstWhere(frames, _conditions(r, keys.get("flags")))


def _known_bad(r: Reader, node: Node) -> KnownBad:
    keys = r.mapping(node, ("why", "release", "flags"), ("why",), what="known_bad")
    if keys and not {"release", "flags"} & keys.keys():
        r.wrong(node, "known_bad says not where: add release or flags; a rung that is bad everywhere is none")
    return KnownBad(r.text(keys.get("why"), 200), _specifier(r, keys.get("release")), _conditions(r, keys.get("flags")))


def _verify(r: Reader, node: Node) -> Verify:
    keys = r.mapping(node, _VERIFY, what="verify")
    numbers = {name: r.number(value, *_VERIFY[name]) for name, value in keys.items()}
    soak = numbers.pop("soak", None)
    return Verify(soak=None if soak is None else int(soak), **numbers)


def _names(r: Reader, node: Node | None) -> tuple[str, ...]:
    names = r.texts(node)
    for item, name in zip(r.items(node), names, strict=True):
        if not re.fullmatch(_FLAG, name):
            r.wrong(item, f"'{name}' is no flag: write it as on the command line, with its dashes")
    return names


def _edit(r: Reader, node: Node, kind: str) -> EditText:
    keys = r.mapping(node, ("op", "name", "value", "floor", "ceiling"), ("op", "name"), what="an edit")
    op, names = r.text(keys.get("op")), r.texts(keys.get("name"))
    value = r.scalar(keys.get("value"))
    if "op" in keys and r.one_of(keys["op"], op, OPS):
        of_kind, spelling, wanted = OPS[op]
        if kind in EDITABLE and of_kind != kind:
            r.wrong(keys["op"], f"{op} belongs to a remedy of kind {of_kind}, this one is {kind}: change one of them")
        for item, name in zip(r.items(keys.get("name")), names, strict=True):
            captured = op.endswith(("-flag", "-env")) and PLACEHOLDER.fullmatch(name)
            if name and not captured and not re.fullmatch(spelling, name):
                r.wrong(item, f"'{name}' is no name for {op}: write it like {_LIKE[of_kind]}")
        if len(names) > 1 and op not in ("cap-flag", "scale-flag", "step-flag", "search-flag", "remove-flag"):
            r.wrong(keys["name"], f"{op} takes one name: several spellings make sense only where one has to be there")
        number = isinstance(value, int | float) or (isinstance(value, str) and PLACEHOLDER.fullmatch(value))
        if wanted == "forbidden" and "value" in keys:
            r.wrong(keys["value"], f"{op} takes no value: drop it")
        elif wanted == "required" and value is None:
            r.wrong(node, f"{op} needs a value: add it")
        elif wanted == "number" and not number:
            r.wrong(node, f"{op} needs a number as its value: add it")
        if op.startswith("set-") and "floor" in keys and "ceiling" in keys:
            r.wrong(keys["ceiling"], f"{op} goes one way: keep floor (it only raises) or ceiling (it only lowers)")
    return EditText(op, names, r.mark(node), value, r.number(keys.get("floor")), r.number(keys.get("ceiling")))


_LIKE = {"flag": "--mem-fraction-static", "env": "SGLANG_USE_AITER", "unit": "Service.LimitNOFILE"}


def _specifier(r: Reader, node: Node | None) -> str | None:
    text = r.text(node)
    if node is not None and text:
        specifier = Specifier.parse(text)
        if specifier is None:
            r.wrong(node, f"'{text}' is no range of releases: write it like '>=0.5.0,<0.5.14'")
        elif not specifier.possible:
            r.wrong(node, f"no release is within '{text}': correct one of its ends")
    return text or None


def _release(r: Reader, node: Node | None) -> str | None:
    text = r.text(node)
    if node is not None and text and release_key(text) is None:
        r.wrong(node, f"'{text}' is no release number: write it like '0.5.15'")
    return text or None


_NO_PACKAGE = frozenset(
    ("newest", "newer", "latest", "stable", "nightly", "main", "master", "current", "any", "or", "and")
)


def _requirement(r: Reader, node: Node | None) -> str | None:
    """`sglang>=0.5.13`, several separated by blanks; placeholders are allowed."""
    text = r.text(node, 200)
    for part in PLACEHOLDER.sub("1", text).split():
        name = re.match(r"[A-Za-z0-9._-]+", part)
        specifier = Specifier.parse(part[name.end() :]) if name else None
        if node is not None and (name is None or (part != name[0] and specifier is None)):
            r.wrong(node, f"'{part}' is no package and range: write it like 'sglang>=0.5.13'")
        elif node is not None and part.lower() in _NO_PACKAGE:
            r.wrong(node, f"'{part}' is no package: the name of one alone means any newer release of it")
        elif node is not None and specifier is not None and not specifier.possible:
            r.wrong(node, f"no release is within '{part}': correct one of its ends")
    return text or None


def _sample(r: Reader, node: Node, label: str) -> Sample:
    keys = r.mapping(node, _SAMPLE, (label, "log"), what="a sample" if label == "name" else "a near-miss")
    log = r.text(keys.get("log"), 200_000)
    captures = keys.get("captures")
    pairs = captures.value if captures is not None and captures.id == "mapping" else []
    if captures is not None and captures.id != "mapping":
        r.wrong(captures, "captures have to be a mapping (name: value): write them so")
    return Sample(
        name=r.text(keys.get(label), 200),
        log=log + "\n",
        mark=r.mark(node),
        first=r.text(keys.get("first")) or None,
        captures=tuple((str(name.value), r.text(value)) for name, value in pairs),
        also=tuple(pair for item in r.items(keys.get("also")) for pair in _also(r, item, log)),
    )


def _also(r: Reader, node: Node, log: str) -> list[tuple[str, str]]:
    """Other words for something that stands in the log."""
    keys = r.mapping(node, _ALSO, _ALSO, what="other words")
    old = r.text(keys.get("instead_of"))
    if old and old not in log:
        r.wrong(keys["instead_of"], "this does not stand in the log: write the part of it that is worded otherwise")
    return [(old, new) for new in r.texts(keys.get("say"))]


def _placeholders(r: Reader, keys: dict[str, Node], rule: Rule) -> None:
    """A `{name}` in a text has to be captured by some pattern."""
    known = {
        name for clause in rule.clauses for pattern in (*clause.messages, *clause.lines) for name in pattern.captures
    }
    known |= {"known_name"} if "flag" in known else set()
    known |= {"setting"} if "field" in known else set()
    known |= {"switched_on", "checked", "part", "named_part", "off", "outside", "missing", "silent"}
    known |= {"other_kernels", "other_flag", "other_value", "named_package"}
    stack = [keys[k] for k in ("title", "cause", "remedies") if k in keys]
    while stack:
        node = stack.pop()
        if node.id == "mapping":
            stack += [value for _, value in node.value]
        elif node.id == "sequence":
            stack += node.value
        else:
            for name in PLACEHOLDER.findall(str(node.value)):
                if name not in known:
                    r.wrong(node, f"{{{name}}} is captured by no pattern of `match`: add (?P<{name}>...) there")


def _ids(r: Reader, node: Node | None, remedies: tuple[RemedyText, ...]) -> None:
    seen: set[str] = set()
    for item, remedy in zip(r.items(node), remedies, strict=True):
        if remedy.id and not _WORD.fullmatch(remedy.id):
            r.wrong(item, f"the remedy's id '{remedy.id}' is not plain: use a-z, 0-9, '.', '_' and '-' only")
        if remedy.id in seen:
            r.wrong(item, f"the remedy '{remedy.id}' is there twice: rename one")
        seen.add(remedy.id)
