"""What counts as an answer: words do, nothing and noise do not."""

import json
from typing import Any

import pytest

from triage.actions.questions import CHAT, COUNT, EMBEDDINGS, READY, SPEED, garbage, question, read


def body(text: str | None, **more: Any) -> bytes:
    message = {"content": text, **more}
    return json.dumps({"choices": [{"message": message}], "usage": {"completion_tokens": 64}}).encode()


@pytest.mark.parametrize(
    "text", ["ready", " Ready.", "1", "no", "eight nine ten", "はい、準備ができました", "ha ha ha"]
)
def test_words_are_no_garbage(text: str) -> None:
    assert garbage(text) == ""


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "empty"),
        (" \n\t", "empty"),
        ("!!!!!!!!!!!!!!!!", "over and over"),
        ("0.0.0.0.0.0.0.0.", "over and over"),
        ("the the the the the the the the the the the the", "over and over"),
        ("a\ufffd\ufffd\ufffdb", "no characters"),
    ],
)
def test_noise_is_garbage(text: str, why: str) -> None:
    assert why in garbage(text)


def test_the_known_answer_is_asked_for_only_when_it_was_given() -> None:
    assert not read(READY, body("Ready!")).unknown
    assert read(READY, body("I am a teapot")).unknown
    assert not read(READY, body("<think>The user wants me to")).unknown
    assert not read(READY, body(None, reasoning_content="Let me see what that")).unknown
    assert read(READY, body(None, reasoning_content="!!!!!!!!!!!!!!!!")).wrong


def test_a_timed_answer_may_repeat_itself_but_not_be_empty() -> None:
    assert not read(SPEED, body("Rhine Rhine " * 32)).wrong
    assert read(SPEED, body("Rhine Rhine " * 32)).tokens == 64
    assert read(SPEED, body("")).wrong


@pytest.mark.parametrize(("vector", "sound"), [([0.1, 0.2], True), ([0.0, 0.0], False), ([], False), (["x"], False)])
def test_an_embedding_is_numbers_that_say_something(vector: list[Any], sound: bool) -> None:
    raw = json.dumps({"data": [{"embedding": vector}]}).encode()
    assert (read(question(0, embedding=True), raw).wrong == "") is sound
    assert read(question(0, embedding=True), b'{"data": [{"embedding": [NaN, 1]}]}').wrong


def test_a_soak_is_mixed_and_the_same_every_time() -> None:
    asked = [question(number) for number in range(60)]
    assert asked == [question(number) for number in range(60)]
    assert {one.path for one in asked} == {CHAT, COUNT.path}
    bodies = [json.dumps(dict(one.body)) for one in asked]
    assert max(map(len, bodies)) > 5000
    assert min(map(len, bodies)) < 200
    assert any('temperature": 0.8' in one for one in bodies)
    assert question(0, embedding=True).path == EMBEDDINGS
