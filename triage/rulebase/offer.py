"""The remedies a rule offers for one crash: the ladder comes in, `Remedy` values with captures filled in go out.

Called by `rulebook`. What fits stays in the rule's order (cheapest first), what does not goes behind it with the
reason. Where the log tells the release, flags are spelled as that release has them. It does not look at the unit:
which of several spellings it uses, and with what value, is for planning to see.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import NamedTuple

from triage.model import Crash, Edit, Remedy
from triage.never import NEVER_FLAGS, NEVER_VARIABLES
from triage.rulebase.catalogue import Vocabulary, catalogue
from triage.rulebase.releases import covers, release_key
from triage.rulebase.rule import EDITABLE, FLAG, PLACEHOLDER, EditText, FlagCondition, KnownBad, RemedyText

_SEVERAL = ("cap-flag", "scale-flag", "step-flag", "search-flag", "remove-flag")  # these may list several spellings
_TAKING = ("remove-flag", "unset-env")
_NOT_SET = frozenset({"", "None", "False", "[]"})
_NAMED = 4
_NOT_ON = frozenset({"", "None", "False", "[]", "none", "auto", "0", "1"})
_OPTIONS = (  # what a server runs as well without, the rarest first
    "enable_beta_spec",
    "enable_linear_replayssm_spec",
    "enable_two_batch_overlap",
    "enable_single_batch_overlap",
    "enable_pdmux",
    "enable_symm_mem",
    "enable_torch_symm_mem",
    "enable_mscclpp",
    "enable_piecewise_cuda_graph",
    "enable_torch_compile",
    "enable_mixed_chunk",
    "enable_flashinfer_allreduce_fusion",
    "enable_eplb",
    "enable_lmcache",
    "enable_prefill_context_parallel",
    "enable_nsa_prefill_context_parallel",
    "enable_dp_lm_head",
    "enable_hierarchical_cache",
    "speculative_algorithm",
    "moe_a2a_backend",
    "enable_deepep_moe",
    "enable_dp_attention",
    "pp_size",
    "kv_cache_dtype",
    "cpu_offload_gb",
)
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]{1,60}")
_NUMBER = re.compile(r"\d+(\.\d+)?")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")


def offer(ladder: tuple[RemedyText, ...], crash: Crash, captures: Mapping[str, str]) -> tuple[Remedy, ...]:
    """All rungs, those that fit first. A captured `flag` that no release has brings the `known_name` that was meant, a
    captured `field` of `server_args=` with its `value` the `setting`, the flag that gives it; the flags in force bring
    `switched_on`, those of them that choose another path through the code."""
    if flag := captures.get("flag"):
        captures = {**captures, "known_name": catalogue().meant(flag, crash.context.sglang_version) or ""}
    if field := captures.get("field"):
        setting = catalogue().setting(field, captures.get("value", ""), crash.context.sglang_version)
        captures = {**captures, "setting": setting or ""}
    captures = {**captures, "switched_on": _switched_on(crash.context.flags)}
    remedies = [_remedy(text, crash, captures) for text in ladder]
    return tuple(sorted(_onward(remedies, crash.context.sglang_version), key=lambda one: one.blocked_by is not None))


def _switched_on(flags: Mapping[str, str]) -> str:
    """The options in force that are tested least together, as one writes them; at most four, '' where none is told."""
    named = []
    for name in _OPTIONS:
        value = flags.get(name, "")
        if value.strip("'\"") not in _NOT_ON:
            named.append(f"--{name.replace('_', '-')}")
    return ", ".join(named[:_NAMED])


def _onward(remedies: list[Remedy], release: str | None) -> list[Remedy]:
    """Where the release that was to mend it is installed and nothing else says upgrade: the way on, as a guess.

    The crash is of the rule's kind and came all the same, so it is another case of it, or the mend was lost again."""
    if release is None or any(_moves_sglang(remedy) and remedy.blocked_by is None for remedy in remedies):
        return remedies
    for at, remedy in enumerate(remedies):
        if _moves_sglang(remedy) and remedy.versions and _is_among(release, remedy.versions):
            title = (
                f"Move to a newer sglang release than {release}, which has that mend already (none is known to help)"
            )
            onward = replace(
                remedy,
                id=f"{remedy.id}-still",
                title=by_hand(title),
                confirmed=False,
                versions=f"sglang>{release}",
                blocked_by=None,
            )
            return [*remedies[:at], onward, *remedies[at:]]
    return remedies


def _moves_sglang(remedy: Remedy) -> bool:
    return remedy.kind == "upgrade" and re.match(r"sglang\b", remedy.versions or "") is not None


def respelled(remedy: Remedy, release: str | None, book: Vocabulary | None = None) -> Remedy:
    """The remedy in the words of the server that is installed, or blocked with the reason. For planning.

    `book`: what that server says of itself; without it the catalogue answers for the release."""
    if (release is None and book is None) or not remedy.edits:
        return remedy
    if release and (why := next((why for where, why in remedy.known_bad if _known_in(where, release)), None)):
        return replace(remedy, blocked_by=remedy.blocked_by or _makes_worse(why, release))
    here = spelled(_parts(remedy), release or "of its own build", book)
    edits = tuple(edit for part in here.parts for edit in part)
    return replace(remedy, edits=edits, blocked_by=remedy.blocked_by or here.why)


def doubted(remedy: Remedy, release: str | None, book: Vocabulary | None = None) -> str:
    """In words that nobody can say whether that release takes the edits; '' where it is known."""
    return (spelled(_parts(remedy), release, book).doubt if release else None) or ""


def _parts(remedy: Remedy) -> list[list[Edit]]:
    parts: list[list[Edit]] = []
    for edit in remedy.edits:  # neighbours that say the same of different names are spellings of one change
        last = parts[-1][-1] if parts else None
        if last is not None and edit.op in _SEVERAL and replace(last, name=edit.name) == edit:
            parts[-1].append(edit)
        else:
            parts.append([edit])
    return parts


def fill(text: str, captures: Mapping[str, str]) -> str:
    """Captures put into a text; what the log did not say is an ellipsis."""
    return PLACEHOLDER.sub(lambda found: clean(captures.get(found[1], "…")), text)


def by_hand(title: str) -> str:
    """The title of a rung that triage cannot carry out says so, wherever it is told: page, terminal, alert, JSON."""
    if title.startswith("By hand"):
        return title
    plain = title[1:2].islower()  # `Install`, but not `CUDA`
    return f"By hand: {title[:1].lower() if plain else title[:1]}{title[1:]}"


def clean(text: str) -> str:
    """Text from a log on one line, without control characters."""
    return _CONTROL.sub(" ", text).strip()


def _remedy(text: RemedyText, crash: Crash, captures: Mapping[str, str]) -> Remedy:
    edits = [_edits(part, captures) for part in text.edits]
    blocked, title = _blocked(text, crash, captures), fill(text.title, captures)
    if release := crash.context.sglang_version:
        here = spelled(edits, release)
        edits, blocked = here.parts, blocked or here.why
        title += f" (here {', '.join(here.renamed)})" if here.renamed else f" ({here.doubt})" if here.doubt else ""
    return Remedy(
        id=text.id,
        kind=text.kind,
        title=title if text.kind in EDITABLE else by_hand(title),
        cost=fill(text.cost, captures),
        confirmed=text.confirmed,
        edits=tuple(edit for part in edits for edit in part if edit.name),  # '': the log did not tell it
        versions=fill(text.versions, captures) if text.versions else None,
        known_bad=tuple(
            (bad.release, bad.why) for bad in text.known_bad if bad.release and _holds(bad, crash.context.flags)
        ),
        applicable=text.kind in EDITABLE and blocked is None,
        blocked_by=blocked,
        speed=text.speed,
    )


def _edits(text: EditText, captures: Mapping[str, str]) -> list[Edit]:
    """One edit for each spelling: planning takes those the unit uses."""
    value = None if _bare(text, captures) else text.value
    if isinstance(value, str) and PLACEHOLDER.search(value):
        whole = PLACEHOLDER.fullmatch(value)
        value = fill(value, captures)
        if whole and re.fullmatch(r"-?\d+", value):
            value = int(value)
        elif whole and re.fullmatch(r"-?\d+\.\d+", value):
            value = float(value)
    return [Edit(text.op, fill(name, captures), value, text.floor, text.ceiling) for name in text.names]


def _bare(text: EditText, captures: Mapping[str, str]) -> bool:
    """Is the flag that the log named one without a value? Then what stands behind it in a sentence is none."""
    if text.op != "set-flag" or not PLACEHOLDER.search(text.names[0]):
        return False
    declared = catalogue().newest(fill(text.names[0], captures))
    return declared is not None and declared.takes == "nothing"


class Spelling(NamedTuple):
    """Edits in the words of a release."""

    parts: list[list[Edit]]
    renamed: tuple[str, ...] = ()  # new names that were put in
    why: str | None = None  # it cannot be done
    doubt: str | None = None  # whether it can is not known; the edits are as they were


def spelled(parts: list[list[Edit]], release: str, book: Vocabulary | None = None) -> Spelling:
    """The edits as this release spells its flags, or why it cannot be done, or that this is not known.

    A part lists the spellings of one change; one of them has to be there. What is to be taken away and is not there
    anyway is left out. A release that nobody catalogued is spoken for by the two around it where they agree.
    """
    book = book or catalogue()
    near = book.near(release) if parts else ()
    told = [_spelled(parts, one, release, book) for one in near]
    if not told:
        return Spelling(parts)
    if all(one == told[0] for one in told) or all(one.why for one in told):
        return told[0]
    return Spelling(parts, doubt=f"not known for sglang {release}: {' and '.join(near)} differ")


def _spelled(parts: list[list[Edit]], release: str, said: str, book: Vocabulary) -> Spelling:
    """By the words of `release`; reasons name the one they are told for."""
    out: list[list[Edit]] = []
    renamed: list[str] = []
    nothing = None
    for part in parts:
        told = [_here(edit, release, said, book) for edit in part]
        kept = [edit for edit, _ in told if edit is not None]
        why = next((why for _, why in told if why), None)
        if kept:
            out.append(kept)
            renamed += [edit.name for edit in kept if edit not in part]
        elif part[0].op in _TAKING:
            nothing = nothing or why
        else:
            return Spelling(parts, why=why)
    return Spelling(out, tuple(renamed)) if out else Spelling(parts, why=nothing)


def _here(edit: Edit, release: str, said: str, book: Vocabulary) -> tuple[Edit | None, str | None]:
    """One edit in the words of one release, or why it has none."""
    if edit.op.endswith("-env"):
        ours = book.knows_variable(edit.name) and not book.variable(edit.name, release)
        return (None, f"sglang {said} knows no {edit.name} (it is in {book.span(edit.name)})") if ours else (edit, None)
    if not edit.op.endswith("-flag") or not book.knows(edit.name):
        return edit, None
    declared = book.flag(edit.name, release)
    if declared is None:
        new = book.successor(edit.name, release)
        if new is None:
            return None, f"sglang {said} has no {edit.name} (it is in {book.span(edit.name)})"
        name, value = new
        if value is not None and edit.op != "set-flag":
            return None, f"sglang {said} has no {edit.name} any more: {name} {value} stands for it"
        edit, declared = (
            replace(edit, name=name, value=edit.value if value is None else value),
            book.flag(name, release),
        )
    for wanted in _values(edit):
        if declared is not None and (why := declared.refusal(wanted)):
            return None, f"{edit.name} {why} in sglang {said}"
    return edit, None


def _values(edit: Edit) -> tuple[str | int | float | None, ...]:
    """What the flag may come to by this edit, as it would be written: 128.0 is 128."""
    given = (edit.value,) if edit.op in ("set-flag", "cap-flag") else ()
    values = (*given, *(bound for bound in (edit.floor, edit.ceiling) if bound is not None))
    return tuple(int(value) if isinstance(value, float) and value.is_integer() else value for value in values)


def _blocked(text: RemedyText, crash: Crash, captures: Mapping[str, str]) -> str | None:
    """Why it does not fit this crash. What the log does not tell blocks nothing."""
    flags, release = crash.context.flags, crash.context.sglang_version
    for bad in text.known_bad:
        if _holds(bad, flags) and (bad.release is None or (release and _known_in(bad.release, release))):
            return _makes_worse(bad.why, release if bad.release else None)
    if text.edits and all(why := _so_already(edit, flags) for edit in text.edits):
        return why
    for edit in text.edits:
        wanted = " ".join((*edit.names, "" if _bare(edit, captures) else str(edit.value)))
        for name in PLACEHOLDER.findall(wanted):
            if not captures.get(name):
                return f"the log does not tell the {name.replace('_', ' ')} that the edit needs"
        if edit.op == "set-flag" and (why := _within(edit, flags)):
            return why
        for name in edit.names:
            if PLACEHOLDER.search(name) and (why := _no_name(edit, fill(name, captures), flags, captures)):
                return why
    if untold := [n for n in PLACEHOLDER.findall(text.title) if not captures.get(n)]:
        return f"the log does not tell the {untold[0].replace('_', ' ')} that it is about"
    if text.phases and crash.phase not in text.phases:
        return f"it helps only in {' or '.join(text.phases)}, this one came in {crash.phase}"
    if text.outcomes and crash.outcome not in text.outcomes:
        return f"it helps only where the outcome is {' or '.join(text.outcomes)}, here it is {crash.outcome}"
    if text.release and release and not covers(text.release, release):
        return f"it is for sglang {text.release}, this is {release}"
    if release and text.kind in ("upgrade", "downgrade") and text.versions and _is_among(release, text.versions):
        return f"sglang {release} is {text.versions.split()[0].removeprefix('sglang')} already"
    for condition in text.flags:
        if any(name in flags for name in condition.names) and not flag_holds(condition, flags):
            return f"the server's {_words(condition)} says otherwise"
    for flag in text.requires:
        if flags and not _given(flag, flags):
            return f"the server does not run with {flag}"
    for flag in text.conflicts:
        if _given(flag, flags):
            return f"it does not go together with {flag}"
    return None


def _holds(bad: KnownBad, flags: Mapping[str, str]) -> bool:
    return all(flag_holds(condition, flags) for condition in bad.flags)


def _known_in(ranges: str, release: str) -> bool:
    """A build that nobody can place is not said to be among them."""
    return release_key(release) is not None and covers(ranges, release)


def _makes_worse(why: str, release: str | None) -> str:
    return f"it is known to make it worse {f'in sglang {release}' if release else 'here'}: {why}"


def _no_name(edit: EditText, name: str, flags: Mapping[str, str], captures: Mapping[str, str]) -> str | None:
    """Why a name that a log told is none to act upon: a log is anybody's text, the catalogue is not."""
    book = catalogue()
    if edit.op.endswith("-env"):
        if any(fnmatchcase(name, glob) for glob in NEVER_VARIABLES):
            return f"{name} is never changed by triage, whatever the policy says"
        known = _VARIABLE.fullmatch(name) and book.knows_variable(name)
        return None if known else f"no release of sglang has the variable {name}"
    if not re.fullmatch(FLAG, name):
        return f"{name!r} is no flag"
    declared = book.newest(name)
    if {name, *(["--" + declared.dest.replace("_", "-")] if declared else [])} & NEVER_FLAGS:
        return f"{name} is never changed by triage, whatever the policy says"
    if edit.op == "set-flag":
        if declared is None:
            return f"no release of sglang has {name}"
        if edit.value is None and declared.takes != "nothing":
            return f"{name} takes a value, which the log does not tell"
        value = fill(str(edit.value), captures)
        if declared.takes != "nothing" and not book.takes(name, value):
            return f"{name} takes no {value}"
    elif declared is not None and flags.get(declared.dest, "?") in _NOT_SET:
        return f"the server does not run with {name}"
    return None


def _is_among(release: str, versions: str) -> bool:
    """Is this a release that `sglang>=0.5.13` means?"""
    ranges = [part.removeprefix("sglang") for part in versions.split() if re.match(r"sglang[<>=!~]", part)]
    return any(release_key(release) is not None and covers(part, release) for part in ranges)


def _so_already(edit: EditText, flags: Mapping[str, str]) -> str | None:
    """Why an edit would change nothing, by what the server said of its flags."""
    told = [(n, flags[_dest(n)]) for n in edit.names if _dest(n) in flags]
    if not edit.op.endswith("-flag") or not told:
        return None
    name, value = told[0]
    if edit.op == "remove-flag":
        return f"the server runs without {name} already" if all(v in _NOT_SET for _, v in told) else None
    if edit.op == "set-flag" and edit.floor is None and edit.ceiling is None:
        wanted = "True" if edit.value is None else str(edit.value)
        same = value.strip("'\"").lower() == wanted.lower()
        return f"the server runs with {name}{'' if edit.value is None else f' {value}'} already" if same else None
    if edit.op in ("step-flag", "scale-flag") and isinstance(edit.value, int | float) and _NUMBER.fullmatch(value):
        down = edit.value < (0 if edit.op == "step-flag" else 1)
        bound = edit.floor if down else edit.ceiling
        if bound is not None and (float(value) <= bound if down else float(value) >= bound):
            return f"{name} is {value} already, and {bound:g} is as far as this goes"
    return None


def _dest(name: str) -> str:
    """The name of a flag among the server's own arguments."""
    return name.removeprefix("--").replace("-", "_")


def _within(edit: EditText, flags: Mapping[str, str]) -> str | None:
    """Why a value that goes one way only is left alone, by what the server said of its flags; -1 is 'without one'."""
    value = flags.get(_dest(edit.names[0]), "")
    if not _NUMBER.fullmatch(value):
        return None
    low = edit.floor is not None and float(value) >= edit.floor
    high = edit.ceiling is not None and float(value) <= edit.ceiling
    return f"the server runs with {edit.names[0]} {value} already" if low or high else None


def flag_holds(condition: FlagCondition, flags: Mapping[str, str]) -> bool:
    """Does one of the condition's flags fulfil it?"""
    known = [flags[name] for name in condition.names if name in flags]
    return any(_fulfils(condition, value) for value in known) if known else condition.or_unknown


def _fulfils(condition: FlagCondition, value: str) -> bool:
    if condition.present is not None and condition.present == (value in _NOT_SET):
        return False
    if condition.equals and value.strip("'\"").lower() not in {wanted.lower() for wanted in condition.equals}:
        return False
    if condition.above is None and condition.below is None:
        return True
    try:
        number = float(value)
    except ValueError:
        return False
    above = condition.above is None or number > condition.above
    return above and (condition.below is None or number < condition.below)


def _given(flag: str, flags: Mapping[str, str]) -> bool:
    return flags.get(_dest(flag), "") not in _NOT_SET


def _words(condition: FlagCondition) -> str:
    return " or ".join("--" + name.replace("_", "-") for name in condition.names)
