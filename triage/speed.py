"""Is a server as fast as it was? Its own decode lines before and after a change, and one request timed on either side.

In: `Pace`s and two numbers. Out: a `Comparison` with a sentence. Called by `prover`. Pure. Lines are compared at equal
numbers of running requests only: a server with much to do decodes each of them more slowly, and that is no fault.
"""

from __future__ import annotations

from triage.frozen import frozen
from triage.model import Pace

ENOUGH = 3  # lines at one load


@frozen
class Comparison:
    """`share` of the speed before, `accepted` share of the accepted length; None where nothing can be compared."""

    share: float | None
    accepted: float | None
    text: str
    speeds: tuple[float, float] | None = None  # before and after, tokens/s


def compare(
    before: tuple[Pace, ...], after: tuple[Pace, ...], timed_before: float = 0.0, timed_after: float = 0.0
) -> Comparison:
    """`timed_*`: tokens/s of single requests, 0 where there was none; they decide only where the lines cannot."""
    pairs = _pairs(before, after)
    share, speeds = _shares([(old.speed, new.speed, min(old.samples, new.samples)) for old, new in pairs])
    how = "by its own lines"
    if share is None and timed_before > 0 and timed_after > 0 and not _crowded(after):
        share, speeds, how = timed_after / timed_before, (timed_before, timed_after), "for one request"
    drafted = [pair for pair in pairs if pair[1].accepted > 0]  # else it drafts no more, as a rung may want it
    accepted, lengths = _shares([(old.accepted, new.accepted, min(old.samples, new.samples)) for old, new in drafted])
    parts = []
    if share is not None and speeds is not None:
        parts.append(f"{share:.2f} of the speed before ({speeds[0]:.1f} -> {speeds[1]:.1f} tokens/s {how})")
    if accepted is not None and lengths is not None:
        parts.append(f"drafts accepted {lengths[0]:.2f} -> {lengths[1]:.2f}")
    return Comparison(share, accepted, "; ".join(parts) or "no speed is known to compare with", speeds)


def enough(before: tuple[Pace, ...], after: tuple[Pace, ...]) -> bool:
    """Whether the lines alone can tell."""
    return bool(_pairs(before, after))


def _pairs(before: tuple[Pace, ...], after: tuple[Pace, ...]) -> list[tuple[Pace, Pace]]:
    known = {one.running: one for one in before if one.samples >= ENOUGH}
    return [(known[one.running], one) for one in after if one.samples >= ENOUGH and one.running in known]


def _shares(values: list[tuple[float, float, int]]) -> tuple[float | None, tuple[float, float] | None]:
    """The mean share, loads that were seen more often counting more; and the values at the load seen most."""
    sound = [value for value in values if value[0] > 0]
    if not sound:
        return None, None
    weight = sum(samples for _, _, samples in sound)
    share = sum(new / old * samples for old, new, samples in sound) / weight
    old, new, _ = max(sound, key=lambda value: value[2])
    return share, (old, new)


def _crowded(after: tuple[Pace, ...]) -> bool:
    """Others asked at the same time: a single request says nothing then."""
    alone = sum(one.samples for one in after if one.running <= 1)
    return sum(one.samples for one in after) > 2 * alone
