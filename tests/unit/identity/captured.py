"""Kernels made of source text, and what is captured of them."""

from __future__ import annotations

import textwrap
import types

from quernel.identity import CapturedCode, capture


class Device:
    """What `@qn.func` makes, as far as identity knows it."""

    def __init__(self, function: types.FunctionType) -> None:
        self.__quernel_function__ = function


class DeclaredDevice(Device):
    def __init__(self, function: types.FunctionType, declared: object) -> None:
        super().__init__(function)
        self.declared = declared

    def __quernel_identity__(self) -> object:
        return self.declared


def module_of(source: str, **names: object) -> types.ModuleType:
    """A module made of source text, with `Device` and the given names at hand."""
    module = types.ModuleType("kernels")
    vars(module).update({"func": Device, **names})
    exec(compile(textwrap.dedent(source), "kernels.py", "exec"), vars(module))
    return module


def module_with(**attributes: object) -> types.ModuleType:
    module = types.ModuleType("constants")
    vars(module).update(attributes)
    return module


class Parent:
    INHERITED = 1
    HIDDEN = 1


def captured(source: str, **names: object) -> CapturedCode:
    return capture(module_of(source, **names).k)


def differing(left: CapturedCode, right: CapturedCode) -> set[str]:
    return {name for (name, a), (_, b) in zip(left.parts, right.parts, strict=True) if a != b}


PLAIN = """
def k(x, y):
    y[0] = x[0] + 1
"""
