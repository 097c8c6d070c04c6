"""`frozen`: what `@dataclass(frozen=True, slots=True)` says, for a fifth of its price at import.

A scan defines some hundred such classes before it reads its first line, and the standard decorator compiles seven
methods for each (0.8 ms a class, a tenth of a whole scan). Here `__init__` alone is compiled; equality, hash and repr
are closures over the fields, as fast as the compiled ones. That nothing is assigned to after it was made holds mypy
(`frozen_default`), and no check at run time, which also makes an instance in a third of the time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type[T]) -> type[T]:
    """A dataclass with slots whose instances equal those of the same class with equal fields, and hash alike
    (`field(compare=False)`: but for those). `dataclasses.replace`, `fields`, `asdict` and `pickle` know it as one."""
    made = dataclass(init=True, repr=False, eq=False, slots=True)(cls)
    names = tuple(each.name for each in fields(made) if each.compare)  # type: ignore[arg-type]
    key: Callable[[T], object] = attrgetter(*names) if names else lambda self: ()

    def __eq__(self: T, other: object) -> bool:
        return key(self) == key(other) if other.__class__ is self.__class__ else NotImplemented

    def __hash__(self: T) -> int:
        return hash(key(self))

    def __repr__(self: T) -> str:
        shown = ", ".join(f"{each.name}={getattr(self, each.name)!r}" for each in fields(self) if each.repr)  # type: ignore[arg-type]
        return f"{type(self).__qualname__}({shown})"

    for method in (__eq__, __hash__, __repr__):
        if method.__name__ not in cls.__dict__:
            setattr(made, method.__name__, method)
    return made
