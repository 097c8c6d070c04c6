"""The values compare and the error tree carries the exit codes of contracts.md."""

from triage import model


def test_a_file_line_and_a_journal_line_have_stable_positions() -> None:
    assert model.Line("x", n=3).position == "n3"
    assert model.Line("x", n=3, time=5).position == "n3t5"
    assert model.Line("x", time=5).position == "t5"


def test_exit_codes_are_those_of_the_contract() -> None:
    tree = [
        e for e in model.TriageError.__subclasses__() if e.__module__ == "triage.model"
    ]  # rooms may have their own below
    codes = {e.__name__: e.exit_code for e in tree}
    assert codes == {
        "InputError": 2,
        "Refused": 3,
        "VerificationFailed": 4,
        "RollbackFailed": 5,
        "Unreachable": 6,
        "NotPermitted": 7,
    }
    assert model.TriageError.exit_code == 70
