"""The number of axes that a kernel's launch has, as its source says it: by how it takes the thread's index apart."""

from __future__ import annotations

import ast
import types
from collections.abc import Iterator, Mapping
from typing import Any

from quernel import intrinsics
from quernel.dtypes import ArrayType, ParameterType
from quernel.intrinsics import DeviceFunction
from quernel.lang.names import find_name
from quernel.lang.source import read_source

__all__ = ["AXES", "launch_rank"]

AXES = frozenset(
    {
        intrinsics.global_id,
        intrinsics.local_id,
        intrinsics.block_id,
        intrinsics.global_dim,
        intrinsics.block_dim,
        intrinsics.grid_dim,
    }
)
"""What gives one value per axis of the launch."""


def launch_rank(function: types.FunctionType, parameters: Mapping[str, ParameterType]) -> int:
    """How many axes a launch of the kernel has, 1 to 3, where its parameters have these types.

    `i, j = qn.global_id()` says it, and so does the index of an array; `qn.global_id(1)` says that there are at least
    two. What the device functions say that it reaches counts too. A kernel that says nothing runs along one axis.

    Raises:
        KernelSyntaxError: a source cannot be read.
    """
    exact: list[int] = []
    least = [1]
    seen: set[types.FunctionType] = set()
    pending = [function]
    while pending:
        current = pending.pop(0)
        if current in seen:
            continue
        seen.add(current)
        body = _Body(current, parameters if current is function else {})
        exact += body.exact
        least += body.least
        pending += body.functions
    return min(exact[0] if exact else max(least), 3)


class _Body:
    """What one function says: ranks that it needs, ranks that it needs at least, and the functions that it reaches."""

    def __init__(self, function: types.FunctionType, parameters: Mapping[str, ParameterType]) -> None:
        self._function = function
        self._parameters = parameters
        self._locals = set(function.__code__.co_varnames)
        self.functions: list[types.FunctionType] = []
        self.exact: list[int] = []
        self.least: list[int] = []
        nodes = list(ast.walk(read_source(function).definition))
        self._whole = {name for node in nodes for name in self._named_whole(node)}
        """The locals that hold the index of a thread as a whole."""
        for node in nodes:
            self._read(node)

    def _named_whole(self, node: ast.AST) -> Iterator[str]:
        if isinstance(node, ast.Assign) and self._is_index(node.value):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))

    def _read(self, node: ast.AST) -> None:
        match node:
            case ast.Assign(targets=targets, value=value) if self._is_whole(value):
                counts = [len(target.elts) for target in targets if isinstance(target, ast.Tuple | ast.List)]
                self.exact += [count for count in counts if 1 < count <= 3]
            case ast.Subscript(value=value, slice=index) if self._is_whole(value):
                self.least.append(max(2, self._at_least(index)))
            case ast.Subscript(value=owner, slice=index) if self._is_whole(index):
                type_ = self._parameters.get(ast.unparse(owner))
                if isinstance(type_, ArrayType) and type_.ndim is not None:
                    self.exact.append(type_.ndim)
            case ast.Call(func=called, args=args, keywords=keywords):
                meaning = self._meaning(called)
                if _is_axes(meaning):
                    axes = [*args, *(keyword.value for keyword in keywords if keyword.arg == "axis")]
                    self.least += [self._at_least(axis) for axis in axes]
                elif isinstance(meaning, DeviceFunction):
                    self.functions.append(meaning.__quernel_function__)

    def _is_whole(self, node: ast.expr) -> bool:
        return self._is_index(node) or (isinstance(node, ast.Name) and node.id in self._whole)

    def _is_index(self, node: ast.expr) -> bool:
        """Whether it is a call such as `qn.global_id()`, of all axes."""
        is_bare = isinstance(node, ast.Call) and not node.args and not node.keywords
        return is_bare and _is_axes(self._meaning(node.func))  # type: ignore[attr-defined]  # a Call, as is_bare says

    def _at_least(self, axis: ast.expr) -> int:
        """How many axes there are where `axis` is one of them."""
        try:
            number = ast.literal_eval(axis)
        except ValueError:
            number = self._meaning(axis)
        if type(number) is not int:
            return 1
        return number + 1 if number >= 0 else -number

    def _meaning(self, node: ast.expr) -> Any:
        """The object that a name, or an attribute of one, stands for outside the function's locals."""
        if isinstance(node, ast.Attribute):
            owner = self._meaning(node.value)
            return None if owner is None else getattr(owner, node.attr, None)
        if isinstance(node, ast.Name) and node.id not in self._locals:
            return find_name(self._function, node.id)[1]
        return None


def _is_axes(meaning: object) -> bool:
    return isinstance(meaning, intrinsics.Intrinsic) and meaning in AXES
