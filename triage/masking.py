"""Secrets in log text: which names hold them, and a text without them.

In comes any text or name, out goes the text with `[masked]` in the secrets' places. Called where something leaves
triage (documents, titles, reports) and where flags are read. It errs on the side of masking; it must not need to know
the secret.
"""

from __future__ import annotations

import re

MASK = "[masked]"

_NAME = re.compile(
    r"api_?key|(?:^|_)key$|passw(?:or)?d|secret|credential|(?:^|_)(?:auth|access|bearer|hf|hub|session|bootstrap)_?token|"
    r"(?:^|_)token$|authorization|cookie",
    re.IGNORECASE,
)
_TEXT = re.compile(
    r"(?P<head>(?:\b|_|--)(?:api[_-]?key|admin[_-]?api[_-]?key|passw(?:or)?d|ssl[_-]keyfile[_-]password|secret(?:[_-]\w+)?|"
    r"access[_-]?token|auth[_-]?token|hf[_-]?token|hub[_-]?token|bearer|authorization|x-api-key|cookie)"
    r"(?:['\"]?\s*[=:]\s*|\s+)(?:bearer\s+|basic\s+)?)"
    r"(?P<value>'[^'\n]*'?|\"[^\"\n]*\"?|[^\s,;)}\]'\"]+)",
    re.IGNORECASE,
)
SHAPES = re.compile(
    r"\b(?:sk-[A-Za-z0-9_-]{16,}|hf_[A-Za-z0-9]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]*)"
)
URL = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]{1,20}://)[^\s/@:]{1,200}:[^\s/@]{1,200}@")
# No secrets, but the next word of a sentence: argparse's ('argument --api-key: expected one argument') and the rules'.
_SENTENCE = "is was not and or required missing invalid of to expected lacks a an its in for from with"
_WORDS = frozenset(("None", "True", "False", *re.findall(r"\w+", _SENTENCE)))
_MARKS = ("key", "pass", "secret", "token", "bearer", "authorization", "cookie", "sk-", "hf_", "://", "gh", "eyj")


def is_secret(name: str) -> bool:
    """Whether a setting's name says that its value is nobody's business."""
    return bool(_NAME.search(name))


def mask(text: str) -> str:
    """The text without keys, passwords and tokens."""
    low = text.lower()
    if not any(mark in low for mark in _MARKS):
        return text
    text = _TEXT.sub(_hide, text)
    text = SHAPES.sub(MASK, text)
    return URL.sub(rf"\g<scheme>{MASK}@", text)


def _hide(match: re.Match[str]) -> str:
    value = match["value"]
    bare = value.strip("'\"")
    if bare in _WORDS or not bare or MASK.startswith(bare):  # masked before: masking twice changes nothing
        return match[0]
    quote = value[0] if value[0] in "'\"" else ""
    return f"{match['head']}{quote}{MASK}{quote}"
