"""Attributes worked out at the first look."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

__all__ = ["kept"]

T = TypeVar("T")


class kept(Generic[T]):  # noqa: N801 — used as a decorator, as `property` is
    """A property that is worked out once for each object and then kept in its `__dict__`.

    Takes no lock, so two threads may both work it out. `functools.cached_property` takes one for all objects of a class
    up to Python 3.11, and a forked child finds it held for ever.
    """

    def __init__(self, work_out: Callable[[Any], T]) -> None:
        self._work_out = work_out
        self.__doc__ = work_out.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> kept[T]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object | None, owner: type) -> kept[T] | T:
        if instance is None:
            return self
        value: T = instance.__dict__.setdefault(self._name, self._work_out(instance))
        return value
