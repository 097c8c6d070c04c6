"""The one file triage writes for a unit: its text, its mode, its diff, with secrets masked where people look.

In: the unit as it is and the actions in force. Out: text. Called by `remedy` (to show) and by `apply` (root renders
the same again and compares digests), so that both sides cannot differ. Pure. The text is rendered whole from all
actions, never patched; an empty text means that the file goes.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime

from triage import masking
from triage.actionmodel import ActionResult, ActionState, Owner, Request, Unit, UnitFile
from triage.frozen import frozen
from triage.model import Edit, Refused
from triage.units.edits import Change, DoesNotFit, Draft, apply_edits, draft
from triage.units.flags import long_name
from triage.units.launch import find
from triage.units.unitfile import (
    DROP_IN,
    Command,
    digest,
    drop_in_path,
    effective,
    own_drop_in,
    quote,
    systemctl_of,
    unit_digest,
)

_SECRET = r"(?:key|token|secret|passw(?:or)?d|passphrase|credentials?)"  # noqa: S105
# As abbreviated as SGLang takes them.
_CUT = r"--(?:api(?:[-_]k?e?)?|admi(?:n(?:[-_]a?p?i?(?:[-_]k?e?)?)?)?|ssl[-_]keyfile[-_]p?a?s?s?w?o?r?)"
_SECRET_FLAG = re.compile(rf"--[\w-]*{_SECRET}|{_CUT}")
_SECRET_NAME = re.compile(rf"[A-Za-z_]\w*?{_SECRET}|{_SECRET}|(?:[A-Za-z_]\w*?_)?pass", re.I)
_PUT_IN = r"\$+\((?:[^()]|\([^()]*\))*\)"  # what a shell puts in, blanks and all
_WORD = rf"""(?:{_PUT_IN}|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s"'])+"""
_SECRET_WORD = re.compile(rf"((?:^|[\s\"'])(?:{_SECRET_FLAG.pattern})(?:=|[ \t]+))(?!\\$){_WORD}", re.M)
_SECRET_ASSIGNMENT = re.compile(
    rf"""(["'])({_SECRET_NAME.pattern})=(?:[^"'\\]|\\.)*\1|()\b({_SECRET_NAME.pattern})={_WORD}""", re.I
)
MASK = "****"
NOT_SET, SET = "not set", "set"
STANDS = "stands"  # measured of an action whose taking back failed: the drop-in on the disk still holds it


@frozen
class InForce:
    """What the file has to say of one action: its name in comments and the edits it stands for."""

    action: str
    incident: int
    rule: str
    remedy: str
    time: int
    edits: tuple[Edit, ...]


@frozen
class Standing:
    """What root's results say of one unit: the actions in force, in order, and the file they came to."""

    actions: tuple[InForce, ...] = ()
    digest: str = ""  # of the drop-in as triage left it; '' where it left none
    made_folder: bool = False  # the .d folder is triage's own and goes with the file
    files: str = ""  # files_digest of what the file was rendered from; '' where that is not known


@frozen
class Rendered:
    text: str  # '' : no file
    draft: Draft
    changes: tuple[Change, ...]  # of the new action alone
    fitted: tuple[Edit, ...]
    unfit: tuple[str, ...]  # why edits of the new action were left out
    notes: tuple[str, ...]


def render(unit: Unit, in_force: tuple[InForce, ...], new: InForce | None = None, *, root: str = "") -> Rendered:
    """The file for these actions, the new one last. Raises DoesNotFit where the new one would change nothing."""
    state = draft(effective(unit))
    notes: list[str] = []
    for action in in_force:
        # An older action whose edit a hand-made change has made needless stays on the list and changes nothing.
        state, _, reasons = apply_edits(state, action.edits)
        notes += [f"{action.action} has no effect any more: {reason}" for reason in reasons]
    done = len(state.changes)
    fitted: tuple[Edit, ...] = ()
    unfit: tuple[str, ...] = ()
    if new is not None:
        state, fitted, unfit = apply_edits(state, new.edits)
        if not fitted:
            raise DoesNotFit("; ".join(unfit) or f"{new.remedy} has no edit to make")
    actions = (*in_force, *((new,) if new else ()))
    text = _text(state, actions, root) if actions else ""
    return Rendered(text, state, state.changes[done:], fitted, unfit, tuple(notes))


def standing(results: Iterable[ActionResult], unit: str, root: str = "", owner: int | None = None) -> Standing:
    """Folded from the results, oldest first, so that one file a result settles everything at once."""
    actions: dict[str, InForce] = {}
    state = Standing()
    place = (unit, root, owner)
    ours = [
        item for item in results if (item.request.unit, item.request.root, item.request.owner) == place and item.ended
    ]
    for result in sorted(ours, key=lambda item: (int(item.kept.get("sequence", "0")), item.started)):
        request = result.request
        if request.kind == "apply" and result.state in (ActionState.VERIFIED, ActionState.UNVERIFIED):
            actions[request.action] = in_force(request)
        elif request.kind == "apply" and result.state is ActionState.ROLLBACK_FAILED and result.measured.get(STANDS):
            # Its edits are in the file still. Should the file hold more than them, that was somebody's hand.
            actions[request.action] = in_force(request)
            result = replace(result, digest=request.result_digest)
        elif request.kind == "apply" and result.state is ActionState.UNDONE:
            pass  # in force for a while; the rollback that took it back comes later in this list
        elif request.kind != "apply" and result.state is ActionState.UNDONE:
            actions.pop(request.target or "", None)
        else:
            continue
        if result.kept.get("by_hand"):
            actions.clear()
        made = bool(result.digest) and (state.made_folder or result.kept.get("made_folder") == "1")
        state = Standing(tuple(actions.values()), result.digest, made, result.kept.get("files_digest", ""))
    return state


def in_force(request: Request) -> InForce:
    return InForce(request.action, request.incident, request.rule, request.remedy, request.time, request.edits)


def files_digest(unit: Unit) -> str:
    """Of all files of the unit but triage's own."""
    return unit_digest(replace(unit, files=tuple(file for file in unit.files if not own_drop_in(file.path))))


def outdated(unit: Unit, known: Standing) -> str:
    """In words that the unit's other files changed since the drop-in was rendered from them; '' where they did not."""
    if not known.actions or known.files in ("", files_digest(unit)):
        return ""
    names = " and ".join(action.action for action in known.actions)
    return (
        f"other files of {unit.name} changed since {names}: what {DROP_IN} sets, such as the whole ExecStart=, is from "
        f"before and wins; undo {names} (triage rollback) and apply anew to take the change in"
    )


def check_own_file(unit: Unit, known: Standing, root: str = "") -> None:
    """Raise Refused where the file is not as triage left it, or would not have the last word."""
    present = ""
    for file in unit.files:
        name = file.path.rsplit("/", 1)[-1]
        if own_drop_in(file.path):
            present = digest(file.text)
        elif file.path.endswith(".conf") and name > DROP_IN:
            raise Refused(
                f"{file.path} sorts after {DROP_IN} and would have the last word: rename it, say to 50-{name}"
            )
    path = drop_in_path(unit.name, unit.owner)
    names = " and ".join(action.action for action in known.actions)
    if present == known.digest:
        return
    if not present:
        raise Refused(f"{path} was removed by hand while {names} stood in it: settle that with triage rollback")
    if not known.digest:
        raise Refused(f"{path} is there, but no action of triage put it there: move it away first")
    # Not `systemctl revert`: that would take the operator's own override.conf with it.
    away = f"rm {root}{path}" + ("" if root else f" && {systemctl_of(unit.owner)} daemon-reload")
    away = f"runuser -u {unit.owner.name} -- {away}" if unit.owner else away
    runs = "" if root else f"; {unit.name} runs on the loaded command until it is restarted"
    raise Refused(
        f"{path} was changed by hand since {names}: save its text elsewhere if it is wanted, then {away} "
        f"&& triage rollback {known.actions[0].action}{f' --root {root}' if root else ''}{runs}"
    )


def still_runs(unit: str, root: str = "", owner: Owner | None = None) -> str:
    """What to add where a drop-in is gone and nothing was restarted."""
    if root:
        return ""
    mend = f"{systemctl_of(owner)} daemon-reload && {systemctl_of(owner)} restart {unit}"
    return f"; a server that was not restarted since still runs with it: {mend}"


def with_drop_in(unit: Unit, text: str) -> Unit:
    """The unit as it is once that text lies there; '' : once the file is gone."""
    others = tuple(file for file in unit.files if not own_drop_in(file.path))
    path = drop_in_path(unit.name, unit.owner)
    return replace(unit, files=(*others, UnitFile(path, text)) if text else others)


def own_text(unit: Unit) -> str:
    """Of triage's own file in the unit; '' where there is none."""
    return next((file.text for file in unit.files if own_drop_in(file.path)), "")


def mode(unit: Unit) -> int:
    """No more open than any file of the unit: a unit that is 0600 for its API key keeps it to itself."""
    bits = 0o644
    for file in unit.files:
        if not own_drop_in(file.path):
            bits &= file.mode
    return bits | 0o600


def may_read(unit: Unit) -> tuple[str, ...]:
    """Who besides its owner may read all of the unit's files, where one of them is not for all (`UnitFile.readers`)."""
    closed = [file for file in unit.files if not own_drop_in(file.path) and not file.mode & 0o004]
    common = set.intersection(*(set(file.readers) for file in closed)) if closed else set()
    return tuple(sorted(common))


def _text(state: Draft, actions: tuple[InForce, ...], root: str) -> str:
    lines = ["# Written by triage, whole, from the actions below. Changed by hand, it is left alone from then on."]
    for action in actions:
        day = datetime.fromtimestamp(action.time / 1_000_000, UTC).date().isoformat()
        undo = f"triage rollback {action.action}" + (f" --root {root}" if root else "")
        lines += [
            f"# {action.action}, {day}: incident {action.incident}, rule {action.rule}, remedy {action.remedy}.",
            f"#   undo: {undo}",
        ]
    sections: dict[str, list[str]] = {}
    for name, value in state.settings.items():
        section, _, key = name.partition(".")
        sections.setdefault(section, []).append(f"{key}={value.replace('%', '%%')}")
    service = sections.setdefault("Service", [])
    if state.command_changed:
        lines.append("# ExecStart= is the whole command: later changes of it in other files have no effect.")
        service.append("ExecStart=")
        service += [f"ExecStart={command_text(command)}" for command in state.commands]
    for name, assigned in state.environment.items():
        if assigned is None:
            service.append(f"UnsetEnvironment={name}")
        else:
            service.append(f"Environment={quote(f'{name}={assigned}', variables=False)}")
    for section, content in sections.items():
        if content:
            lines += [f"[{section}]", *content]
    return "\n".join(lines) + "\n"


def command_text(command: Command) -> str:
    """The command on one line a flag. Words that nobody edited are written as they stood in the source."""
    try:
        launch = find((command,))
    except Refused:
        launch = None
    if launch is None or launch.script is not None:
        return " ".join(item.raw for item in command.words)
    start = launch.start
    lines = [" ".join(item.raw for item in command.words[:start])]
    for item in command.words[start:]:
        if long_name(item.text) or item.splitting or not item.text:
            lines.append(item.raw)
        else:
            lines[-1] += f" {item.raw}"
    return " \\\n    ".join(lines)


# ---------------------------------------------------------------- for the eye


def diff(before: str, after: str, path: str, argv_before: tuple[str, ...], argv_after: tuple[str, ...]) -> str:
    """Unified diff of the file, then the effective command before and after as comments; secrets masked."""
    lines = list(
        difflib.unified_diff(
            before.splitlines(keepends=True),
            after.splitlines(keepends=True),
            path if before else "/dev/null",
            path if after else "/dev/null",
        )
    )
    text = "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)
    if argv_before != argv_after:
        text += f"# before: {' '.join(mask_argv(argv_before))}\n# after:  {' '.join(mask_argv(argv_after))}\n"
    return mask(text)


def mask(text: str) -> str:
    """A text with the values of keys, tokens and passwords replaced. For screens and records, never for the file."""
    text = _SECRET_ASSIGNMENT.sub(_masked, _SECRET_WORD.sub(rf"\g<1>{MASK}", text))
    return masking.URL.sub(rf"\g<scheme>{MASK}@", masking.SHAPES.sub(MASK, text))


def _masked(found: re.Match[str]) -> str:
    quoted = found[1] or ""
    return f"{quoted}{found[2] or found[4]}={MASK}{quoted}"


def mask_argv(argv: tuple[str, ...]) -> tuple[str, ...]:
    out: list[str] = []
    hide = False
    for item in argv:
        name, equals, _ = item.partition("=")
        if hide:
            out.append(MASK)
        elif equals and (_SECRET_FLAG.fullmatch(name) or _SECRET_NAME.fullmatch(name)):
            out.append(f"{name}={MASK}")
        else:
            out.append(mask(item))
        hide = not hide and _SECRET_FLAG.fullmatch(item) is not None
    return tuple(out)


def told(change: Change) -> str:
    """What became of a value, as it may be shown and is kept in the account of an action."""
    both = (mask_value(change.name, change.before), mask_value(change.name, change.after))
    return " -> ".join(NOT_SET if value is None else value or SET for value in both)


def mask_value(name: str, value: str | None) -> str | None:
    """A variable's or flag's value as it may be shown."""
    secret = _SECRET_FLAG.fullmatch(name) or _SECRET_NAME.fullmatch(name)
    return MASK if value and secret else value and mask(value)
