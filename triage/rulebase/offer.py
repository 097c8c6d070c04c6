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

from triage.model import Crash, Edit, Remedy
from triage.never import NEVER_FLAGS, NEVER_VARIABLES
from triage.rulebase.catalogue import catalogue
from triage.rulebase.checks import failed_part, named, named_part, switch_off
from triage.rulebase.choices import named_package, other_kernels
from triage.rulebase.elsewhere import Elsewhere, elsewhere
from triage.rulebase.evidence import leads
from triage.rulebase.lastgood import way_back
from triage.rulebase.options import NOT_SET, flag_holds, given, so_already, switched_on, value_of, within, words
from triage.rulebase.peers import followed
from triage.rulebase.pins import asked, outside
from triage.rulebase.releases import covers, release_key
from triage.rulebase.rule import EDITABLE, FLAG, PLACEHOLDER, EditText, KnownBad, RemedyText
from triage.rulebase.spelling import known_in, makes_worse, spelled
from triage.rulebase.switches import switches

_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]{1,60}")
_PINNED = re.compile(r"\bthis sglang(?:'s \w+)? (?:pins|asks for)")
_RUN = re.compile(r"(?P<open> \()?(?P<run>(?:\{[a-z][a-z0-9_]*\})+)(?P<close>\))?")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")


def offer(ladder: tuple[RemedyText, ...], crash: Crash, captures: Mapping[str, str]) -> tuple[Remedy, ...]:
    """The rungs, those that fit first. A captured `flag` that no release has brings the `known_name` that was meant, a
    captured `field` of `server_args=` with its `value` the `setting`, the flag that gives it; the flags in force bring
    `switched_on`, those of them that choose another path through the code, the root's own words `checked`, its files
    `part`, or, with none, the class that it names, which alone brings `named_part`, the package outside SGLang that it
    failed in `outside`, the ranks that never came to a collective `missing` (`silent` only where they are known); what
    the log itself guesses, `meant`, may be captured. A rung that is called after what the log does not tell is left
    out, but where its edit needs that; one that `leads` goes before the others.
    The variables that decide whether the code which failed runs are rungs of any rule, behind its first
    (before it, where that is a release on a guess).
    Where the flags differ from the unit's last good run, the way back is a rung too. Where the cause lies elsewhere, a
    rung that says so goes before all, and of the others only those fit that look at the machine. What other servers
    have to follow is left to people, without its edits."""
    if flag := captures.get("flag"):
        captures = {**captures, "known_name": catalogue().meant(flag, crash.context.sglang_version) or ""}
    if field := captures.get("field"):
        setting = catalogue().setting(field, captures.get("value", ""), crash.context.sglang_version)
        captures = {**captures, "setting": setting or ""}
    captures = {"meant": "", **captures, "switched_on": switched_on(crash.context.flags), "missing": _missing(crash)}
    captures["silent"] = ", ".join(crash.suspects)
    titles = "".join(text.title for text in ladder)
    if "{checked}" in titles:
        captures["checked"] = ", ".join(_in_force(name, crash) for name in named(crash))
    if "{part}" in titles:
        captures["part"] = failed_part(crash)
    if "{named_part}" in titles:
        captures["named_part"] = named_part(crash)
    if "{off}" in titles:
        captures["off"] = switch_off(crash)
    if "{other_kernels}" in titles:
        flag_, value = other_kernels(crash) or ("", "")
        captures |= {"other_kernels": f"{flag_} {value}".strip(), "other_flag": flag_, "other_value": value}
    if "{named_package}" in titles:
        captures["named_package"] = named_package(crash)
    if "{outside}" in titles:
        captures["outside"] = outside(crash)
    said = (text for text in ladder if _has_name(text, captures))
    remedies = [_remedy(text, crash, captures) for text in sorted(said, key=lambda text: not leads(text, crash))]
    remedies = _once(remedies)
    remedies = _onward(_with_switches(remedies, crash), crash.context.sglang_version)
    if found := way_back(crash, (edit for remedy in remedies for edit in remedy.edits)):
        back = replace(found[0], title=by_hand(clean(found[0].title)[:200]))
        remedies = [back, *remedies] if found[1] else [*remedies, back]
    if (other := elsewhere(crash)) is not None:
        remedies = [_first(other), *(_unfit(remedy, other.why) for remedy in remedies)]
    return tuple(sorted(remedies, key=lambda one: one.blocked_by is not None))


def _once(remedies: list[Remedy]) -> list[Remedy]:
    """Without a rung that does what one before it does: two ways to name a part may name the same."""
    done: set[tuple[Edit, ...]] = set()
    kept = []
    for remedy in remedies:
        if remedy.edits and remedy.edits in done:
            continue
        done.add(remedy.edits)
        kept.append(remedy)
    return kept


def _with_switches(remedies: list[Remedy], crash: Crash) -> list[Remedy]:
    """Behind what is confirmed, and behind the first rung, unless that is to move to some other version on a guess; a
    variable that the ladder has is left to it."""
    mentioned = " ".join((*(one.title for one in remedies), *(edit.name for one in remedies for edit in one.edits)))
    extra = [_remedy(text, crash, {}) for text in switches(crash) if text.edits[0].names[0] not in mentioned]
    guessed = bool(remedies) and remedies[0].kind in ("upgrade", "downgrade") and not remedies[0].confirmed
    at = next((at for at, one in enumerate(remedies) if not one.confirmed and (at or guessed)), len(remedies))
    return [*remedies[:at], *extra, *remedies[at:]]


def _in_force(name: str, crash: Crash) -> str:
    """A flag with its value in this server, where the log told one: which way to turn it is for the reader to see."""
    declared = catalogue().newest(name) if name.startswith("--") else None
    value = crash.context.flags.get(declared.dest, "") if declared and declared.takes != "nothing" else ""
    return f"{name} (now {clean(value)[:40]})" if value.strip("'\"") not in NOT_SET else name


def _missing(crash: Crash) -> str:
    return ", ".join(crash.suspects) or "the rank that does not report the time-out"


def _first(other: Elsewhere) -> Remedy:
    return Remedy(other.id, "advice", by_hand(other.title), "Nothing.", confirmed=False)


def _unfit(remedy: Remedy, why: str) -> Remedy:
    if remedy.kind == "system" or remedy.blocked_by is not None:
        return remedy
    return replace(remedy, blocked_by=why, applicable=False)


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


def fill(text: str, captures: Mapping[str, str]) -> str:
    """Captures put into a text. What the log did not say is nothing beside another capture, drops the brackets that
    hold nothing else, and is an ellipsis elsewhere."""
    return _RUN.sub(lambda found: _put(found, captures), text)


def _put(found: re.Match[str], captures: Mapping[str, str]) -> str:
    names = PLACEHOLDER.findall(found["run"])
    told = "".join(clean(captures.get(name, "")) for name in names)
    if not told and found["open"] and found["close"]:
        return ""
    if not told and not any(name in captures for name in names):
        told = "…"
    return f"{found['open'] or ''}{told}{found['close'] or ''}"


def by_hand(title: str, where: str = "", *, named: bool = False) -> str:
    """The title of a rung that triage cannot carry out says so, wherever it is told: page, terminal, alert, JSON.
    `named`: it begins with a name out of the log, which is left as it is."""
    if title.startswith("By hand"):
        return title
    word = title.split(" ", 1)[0]
    plain = not named and word[1:].islower()  # `Install`, but neither `CUDA` nor `DeepGEMM`
    return f"By hand{', ' if where else ''}{where}: {title[:1].lower() if plain else title[:1]}{title[1:]}"


def clean(text: str) -> str:
    """Text from a log on one line, without control characters."""
    return _CONTROL.sub(" ", text).strip()


def _has_name(text: RemedyText, captures: Mapping[str, str]) -> bool:
    """Whether all is known that it is called after. An edit's own value stays: the rung says what is missing."""
    needed = PLACEHOLDER.findall(" ".join(str(edit.value) for edit in text.edits))
    return all(
        captures.get(name) or (captures.get(name) is None and name in needed)
        for name in PLACEHOLDER.findall(text.title)
    )


def _remedy(text: RemedyText, crash: Crash, captures: Mapping[str, str]) -> Remedy:
    edits = [_edits(part, captures) for part in text.edits]
    blocked, title = _blocked(text, crash, captures), fill(text.title, captures)
    if release := crash.context.sglang_version:
        here = spelled(edits, release)
        edits, blocked = here.parts, blocked or here.why
        title += f" (here {', '.join(here.renamed)})" if here.renamed else f" ({here.doubt})" if here.doubt else ""
    versions = fill(text.versions, captures) if text.versions else None
    if versions and text.kind == "install" and _PINNED.search(title) and (pins := asked(versions, release)):
        title, versions = f"{title} ({release} asks for {', '.join(pins)})", " ".join(pins)
    found = tuple(edit for part in edits for edit in part if edit.name)  # '': the log did not tell it
    told = any(PLACEHOLDER.search(str(edit.value)) for edit in text.edits)
    where = followed(found, crash.context.flags, told=told)
    kind, found = ("advice", ()) if where else (text.kind, found)  # no edits: it cannot be had by its name either
    return Remedy(
        id=text.id,
        kind=kind,
        title=title if kind in EDITABLE else by_hand(title, where or "", named=text.title.startswith("{")),
        cost=fill(text.cost, captures),
        confirmed=text.confirmed,
        edits=found,
        versions=versions,
        known_bad=tuple(
            (bad.release, bad.why) for bad in text.known_bad if bad.release and _holds(bad, crash.context.flags)
        ),
        applicable=kind in EDITABLE and blocked is None,
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


def _blocked(text: RemedyText, crash: Crash, captures: Mapping[str, str]) -> str | None:
    """Why it does not fit this crash. What the log does not tell blocks nothing."""
    flags, release = crash.context.flags, crash.context.sglang_version
    for bad in text.known_bad:
        if _holds(bad, flags) and (bad.release is None or (release and known_in(bad.release, release))):
            return makes_worse(bad.why, release if bad.release else None)
    if text.edits and all(why := so_already(edit, flags) for edit in text.edits):
        return why
    for edit in text.edits:
        wanted = " ".join((*edit.names, "" if _bare(edit, captures) else str(edit.value)))
        for name in PLACEHOLDER.findall(wanted):
            if not captures.get(name):
                return f"the log does not tell the {name.replace('_', ' ')} that the edit needs"
        if edit.op == "set-flag" and (why := within(edit, flags)):
            return why
        for name in edit.names:
            if PLACEHOLDER.search(name) and (why := _no_name(edit, fill(name, captures), flags, captures)):
                return why
    if text.phases and crash.phase not in text.phases:
        return f"it helps only in {' or '.join(text.phases)}, this one came in {crash.phase}"
    if text.outcomes and crash.outcome not in text.outcomes:
        return f"it helps only where the outcome is {' or '.join(text.outcomes)}, here it is {crash.outcome}"
    if text.release and release and not covers(text.release, release):
        return f"it is for sglang {text.release}, this is {release}"
    if release and text.kind in ("upgrade", "downgrade") and text.versions and _is_among(release, text.versions):
        return f"sglang {release} is {text.versions.split()[0].removeprefix('sglang')} already"
    for condition in text.flags:
        if any(value_of(name, flags) is not None for name in condition.names) and not flag_holds(condition, flags):
            return f"the server's {words(condition)} says otherwise"
    for flag in text.requires:
        if flags and not given(flag, flags):
            return f"the server does not run with {flag}"
    for flag in text.conflicts:
        if given(flag, flags):
            return f"it does not go together with {flag}"
    return None


def _holds(bad: KnownBad, flags: Mapping[str, str]) -> bool:
    return all(flag_holds(condition, flags) for condition in bad.flags)


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
    elif declared is not None and flags.get(declared.dest, "?") in NOT_SET:
        return f"the server does not run with {name}"
    return None


def _is_among(release: str, versions: str) -> bool:
    """Is this a release that `sglang>=0.5.13` means?"""
    ranges = [part.removeprefix("sglang") for part in versions.split() if re.match(r"sglang[<>=!~]", part)]
    return any(release_key(release) is not None and covers(part, release) for part in ranges)
