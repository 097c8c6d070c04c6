"""What a server is asked to prove that it works, and what counts as an answer.

In: the number of a request. Out: `Question`s of mixed shapes, and a verdict on what came back. Used by `probe` (root's
first proof) and by the soak that follows it. Pure, and harmless to whoever pays for the tokens: all are short.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from triage.frozen import frozen

CHAT, COMPLETIONS, EMBEDDINGS = "/v1/chat/completions", "/v1/completions", "/v1/embeddings"
SPEED_TOKENS = 64
_THINKING = "<think>"
_WORDS = (
    "river",
    "stone",
    "lantern",
    "orchard",
    "copper",
    "meadow",
    "harbour",
    "violet",
    "thunder",
    "needle",
    "candle",
)


@frozen
class Question:
    path: str
    body: Mapping[str, Any]  # without the model
    known: str = ""  # the answer has to hold it, unless the server is still thinking
    timed: bool = False  # always the same number of tokens: its speed can be compared


@frozen
class Reply:
    """What a server said with status 200. `wrong`: why it is no answer, '' where it is one."""

    said: str
    wrong: str = ""
    unknown: bool = False  # proper words, but not the answer that is known
    tokens: int = 0


def _chat(text: str, tokens: int, **more: Any) -> Mapping[str, Any]:
    return {"messages": [{"role": "user", "content": text}], "max_tokens": tokens, "stream": False, **more}


def _completion(text: str, tokens: int, **more: Any) -> Mapping[str, Any]:
    return {"prompt": text, "max_tokens": tokens, "stream": False, **more}


READY = Question(CHAT, _chat("Reply with the single word: ready", 32, temperature=0), "ready")
# For a model without a chat template, or one that does not do as it is told.
COUNT = Question(COMPLETIONS, _completion("one two three four five six seven", 16, temperature=0), "eight")
SPEED = Question(
    COMPLETIONS,
    _completion("A list of a hundred rivers of the world:", SPEED_TOKENS, temperature=0, ignore_eos=True),
    timed=True,
)


def question(number: int, embedding: bool = False) -> Question:
    """Request `number` (from 0) of a soak: short and long prompts, cached and new ones, greedy and sampled."""
    if embedding:
        return Question(EMBEDDINGS, {"input": _filler(number, 3 + number % 200)})
    match number % 6:
        case 0:
            return READY
        case 1:
            return COUNT
        case 2:
            return SPEED
        case 3:
            return Question(CHAT, _chat("Name three rivers and the seas they reach.", 64, temperature=0.8, top_p=0.95))
        case 4:
            return Question(COMPLETIONS, _completion(_filler(number, 1200), 16, temperature=0))
        case _:  # the same beginning every time: the prefix cache answers for it
            text = f"{_filler(0, 400)} {_filler(number, 20)}"
            return Question(COMPLETIONS, _completion(text, 32, temperature=0.8))


def _filler(seed: int, words: int) -> str:
    return " ".join(_WORDS[(seed * 7 + at * at + at // 3) % len(_WORDS)] for at in range(words))


def read(asked: Question, body: bytes) -> Reply:
    """Raises ValueError, KeyError, TypeError or IndexError where the answer has not the shape of one."""
    content = json.loads(body)
    if asked.path == EMBEDDINGS:
        vector = content["data"][0]["embedding"]
        sound = bool(vector) and all(isinstance(x, int | float) and x == x for x in vector) and any(vector)
        return Reply(f"an embedding of {len(vector)} numbers", "" if sound else "the embedding is empty or no numbers")
    choice = content["choices"][0]
    message = choice.get("message") or {}
    said, thought = _text(message.get("content"), choice.get("text")), _text(message.get("reasoning_content"))
    tokens = int((content.get("usage") or {}).get("completion_tokens") or 0)
    whole = said.strip() or thought.strip()
    wrong = "" if asked.timed and whole else garbage(whole)
    finished = bool(said.strip()) and _THINKING not in said
    unknown = bool(asked.known) and finished and asked.known not in said.lower()
    return Reply(whole, wrong, unknown, tokens)


def _text(*parts: object) -> str:
    return "".join(part for part in parts if isinstance(part, str))


def garbage(text: str) -> str:
    """Why this is no text that a sound model writes, '' where it may be one.

    Broken kernels write one token for ever (mostly `!`, token 0) or bytes that are no characters."""
    solid = "".join(text.split())
    if not solid:
        return "the server answered 200 with an empty text"
    words = text.split()
    same = (len(solid) >= 8 and len(set(solid)) <= 2) or (len(words) >= 12 and len(set(words)) <= 2)
    if same:
        return f"the answer is garbage: {solid[:20]!r} over and over"
    if solid.count("\ufffd") * 3 > len(solid):
        return "the answer is garbage: bytes that are no characters"
    return ""
