"""Secrets do not leave the log, and what was masked once stays as it is."""

from __future__ import annotations

import pytest

from triage.masking import mask


@pytest.mark.parametrize(
    "text",
    [
        "ValueError: Authorization: Bearer abcdef123456",
        "ServerArgs(api_key='sk-123456789', host='x')",
        "--api-key sk-abcdefghijklmnop1234",
        "https://jo:hunter2@hub.example/x",
        "hf_ABCDEFGHIJKLMNOPQRST in the environment",
    ],
)
def test_masking_hides_and_masking_twice_changes_nothing(text: str) -> None:
    once = mask(text)
    assert once != text
    assert mask(once) == once
    for secret in ("abcdef123456", "sk-1", "sk-a", "hunter2", "hf_A"):
        assert secret not in once


@pytest.mark.parametrize(
    "text",
    [
        "argument --api-key: expected one argument",
        "--api-key lacks its value, or has one too many",
        "give --api-key a value in the unit",
        "correct --api-key in the unit",
    ],
)
def test_the_word_behind_a_flag_is_no_secret(text: str) -> None:
    assert mask(text) == text
    assert "hunter2" not in mask(f"{text}: --api-key hunter2")
