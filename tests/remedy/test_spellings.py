"""What root's side takes for spellings of one flag is what SGLang's releases declare as such."""

from collections import defaultdict

from triage.rulebase.catalogue import catalogue
from triage.units.flags import SPELLINGS, long_name


def aliases() -> set[frozenset[str]]:
    """Names of one release for the same field, none of them called outdated or the opposite."""
    book, found = catalogue(), set()
    for release in book.releases:
        fields: dict[str, set[str]] = defaultdict(set)
        for name in book._flags:
            declared = book.flag(name, release)
            if declared and book._shape(name, book.releases.index(release)) and not declared.deprecated:
                fields[declared.dest].add(name)
        found |= {frozenset(names) for names in fields.values() if len(names) > 1}
    return {names for names in found if not any(name.startswith("--no-") for name in names)}


OTHERWISE = {
    "--cuda-graph-prefill-max-context",
    "--context-bucket",
    "--smg-http-sidecar-port",
    "--grpc-http-sidecar-port",
}
OTHERWISE |= {"--speculative-draft-window-size", "--speculative-dflash-draft-window-size"}


def test_every_alias_of_the_catalogue_is_known() -> None:
    missing = {names for names in aliases() if len({long_name(name) for name in names}) > 1}
    assert {name for names in missing for name in names} <= OTHERWISE


def test_every_known_alias_is_in_the_catalogue() -> None:
    book = catalogue()
    for long, *shorts in SPELLINGS:
        for short in shorts:
            both = [r for r in book.releases if book.flag(long, r) and book.flag(short, r)]
            assert both, short
            assert all(book.flag(long, r).dest == book.flag(short, r).dest for r in both), short  # type: ignore[union-attr]
