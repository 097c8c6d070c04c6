"""As much of JSON Schema as rules/schema.json uses: an editor's view of a rule file, without another library.

A keyword it does not know fails, so that the schema cannot grow past what is tested.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
    "null": type(None),
}
NOTES = {"$schema", "$defs", "title", "description"}


def faults(schema: dict[str, Any], value: Any, top: dict[str, Any], at: str = "$") -> Iterator[str]:
    """What is wrong with the value, each with its place; `top` is the document that `$ref` points into."""
    for word, wanted in schema.items():
        if word == "$ref":
            yield from faults(top["$defs"][wanted.removeprefix("#/$defs/")], value, top, at)
        elif word == "anyOf":
            if all(any(faults(one, value, top, at)) for one in wanted):
                yield f"{at}: fits none of {len(wanted)} forms"
        elif word == "if":
            yield from faults(schema["else" if any(faults(wanted, value, top)) else "then"], value, top, at)
        elif word == "properties":
            for key in wanted.keys() & (value.keys() if isinstance(value, dict) else set()):
                yield from faults(wanted[key], value[key], top, f"{at}.{key}")
        elif word == "additionalProperties":
            for key in value.keys() - schema.get("properties", {}).keys() if isinstance(value, dict) else ():
                if wanted is False:
                    yield f"{at}: {key} is unknown"
                else:
                    yield from faults(wanted, value[key], top, f"{at}.{key}")
        elif word == "items":
            for number, item in enumerate(value if isinstance(value, list) else ()):
                yield from faults(wanted, item, top, f"{at}[{number}]")
        elif word not in NOTES | {"then", "else"} and not _holds(word, wanted, value):
            yield f"{at}: {word} {wanted} does not hold"


def _holds(word: str, wanted: Any, value: Any) -> bool:
    if word == "type":
        return any(_is(value, name) for name in ([wanted] if isinstance(wanted, str) else wanted))
    if word == "enum":
        return value in wanted
    if word == "required":
        return not isinstance(value, dict) or set(wanted) <= value.keys()
    if word == "pattern":
        return not isinstance(value, str) or re.search(wanted, value) is not None
    size = len(value) if isinstance(value, str | list | dict) else value
    if word in ("minimum", "minLength", "minItems", "minProperties"):
        return _measured(word, value) is False or size >= wanted
    if word in ("maximum", "maxLength"):
        return _measured(word, value) is False or size <= wanted
    raise AssertionError(f"rules/schema.json uses {word}: teach it to this file")


def _measured(word: str, value: Any) -> bool:
    """Is the keyword about a value of this type at all?"""
    return _is(
        value,
        {"Length": "string", "Items": "array", "Properties": "object"}.get(re.sub("^m(in|ax)", "", word), "number"),
    )


def _is(value: Any, name: str) -> bool:
    return isinstance(value, TYPES[name]) and (name == "boolean" or not isinstance(value, bool))
