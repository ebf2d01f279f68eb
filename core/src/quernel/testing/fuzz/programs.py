"""Random programs as values: a kernel's text and how it is launched; kept as text files, run, and compared."""

from __future__ import annotations

import hashlib
import itertools
import json
import linecache
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import attrs
import numpy as np

import quernel as qn
from quernel.testing.launching import on

__all__ = ["VIEWS", "Program", "bits", "element_bytes", "kernel_of", "struct_fields", "values_of"]

VIEWS: Final[dict[str, Callable[[Any], Any]]] = {
    "whole": lambda base: base[: len(base) // 2],
    "shifted": lambda base: base[1 : len(base) // 2 + 1],
    "stepped": lambda base: base[::2],
    "reversed": lambda base: base[::-2],
}
"""Half of an array's elements, in one of the ways in which they can lie in memory."""

_numbers = itertools.count()


@attrs.frozen
class Program:
    """A random kernel `k` and its launch.

    Attributes:
        text: the source, device functions included.
        arrays: the array parameters in order, each with its element type and the name of its view. A type is the name
            of a scalar, one with a length as in `f32*4` for vectors, or fields as in `first:f32 second:i64*2` for
            structs, which are laid out as C lays them out, or packed after the word `packed`.
        length: elements per array.
        block: threads of a block.
        grid: blocks of the grid, or 0 for a launch with `over`.
        contract: whether products and sums are fused.
        seed: of the arrays' elements.
        function: the mathematical function that feeds `out` of an inexact kernel, or an empty string.
        checked: whether accesses are checked, where the device can; all of them are right.
    """

    text: str
    arrays: tuple[tuple[str, str, str], ...]
    length: int
    block: int
    grid: int
    contract: bool
    seed: int
    function: str = ""
    checked: bool = False

    def results(self, device: str, kernel: Any = None) -> dict[str, np.ndarray[Any, Any]]:
        """Every array after a launch on the device."""
        checked = self.checked and qn.device(device).target_info.capabilities.checked
        made = (kernel_of(self.text) if kernel is None else kernel).options(contract=self.contract, checked=checked)
        rng = np.random.default_rng(self.seed)
        arrays = {name: _elements_of(of, 2 * self.length, rng) for name, of, _ in self.arrays}
        lent = {name: VIEWS[view](arrays[name]) for name, _, view in self.arrays}
        numbers = {"count": int(rng.integers(0, 100)), "ratio": float(rng.normal(0, 3))}
        if self.grid:
            on(device, made)[self.grid, self.block](**lent, **numbers)
        else:
            on(device, made).over(self.length, block=self.block)(**lent, **numbers)
        return arrays

    def difference(self, backend: str) -> str:
        """Where the backend's results are not the interpreter's, bit for bit; an empty string if nowhere."""
        kernel = kernel_of(self.text)
        expected, actual = self.results("reference", kernel), self.results(backend, kernel)
        for name, wanted in expected.items():
            if not np.array_equal(bits(wanted), bits(actual[name])):
                return f"{name} is {actual[name]!r} on {backend} and {wanted!r} in the interpreter"
        return ""

    def save(self, folder: Path, failure: str) -> Path:
        """Keeps the program as a text file that `load` reads."""
        launch = {name: value for name, value in attrs.asdict(self).items() if name != "text"}
        digest = hashlib.sha256(self.text.encode()).hexdigest()[:12]
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"kernel_{digest}.txt"
        summary = " ".join(failure.split())[:300]
        path.write_text(f"# {json.dumps(launch)}\n# {summary}\n{self.text}", encoding="utf-8")
        return path

    @classmethod
    def load(cls, path: Path) -> Program:
        """The program of a file that `save` wrote."""
        first, _, text = path.read_text(encoding="utf-8").split("\n", 2)
        launch = json.loads(first.removeprefix("# "))
        launch["arrays"] = tuple(map(tuple, launch["arrays"]))
        return cls(text=text, **launch)


def kernel_of(text: str, **names: object) -> Any:
    """The kernel `k` of a source text, whose lines can be found as those of a notebook cell can."""
    name = f"<random kernel {next(_numbers)}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    namespace: dict[str, Any] = {"qn": qn, "math": math, "__name__": "random_kernels", **names}
    exec(compile(text, name, "exec", dont_inherit=True), namespace)
    return namespace["k"]


def values_of(dtype: Any, length: int, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """Edges and small numbers, more often than large ones."""
    if dtype.is_bool:
        return rng.integers(0, 2, length).astype(bool)
    if dtype.is_float:
        special = np.array([0.0, -0.0, 1.0, math.inf, -math.inf, math.nan, 1e-40, 6e-8, 3e38, 2.0**31, -(2.0**63)])
        chosen = np.where(rng.random(length) < 0.3, rng.choice(special, length), rng.normal(0, 50, length))
        with np.errstate(over="ignore"):
            return np.asarray(chosen).astype(dtype.numpy)
    edges = [0, 1, 2, dtype.max, dtype.min, dtype.max - 1]
    limit = min(dtype.max, 100)
    drawn = [
        edges[rng.integers(len(edges))] if rng.random() < 0.3 else int(rng.integers(max(dtype.min, -limit), limit))
        for _ in range(length)
    ]
    return np.array(drawn, dtype.numpy)


def _elements_of(described: str, length: int, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """Values of an element type as a program describes it; vectors as rows of a matrix."""
    if ":" not in described:
        name, _, count = described.partition("*")
        values = values_of(getattr(qn, name), length * int(count or 1), rng)
        return values.reshape(length, int(count)) if count else values
    fields = {name: _elements_of(of, length, rng) for name, of in struct_fields(described)}
    columns = [(name, column.dtype, column.shape[1:]) for name, column in fields.items()]
    made = np.zeros(length, np.dtype(columns, align=not described.startswith("packed ")))
    for name, column in fields.items():
        made[name] = column
    return made


def element_bytes(described: str) -> int:
    """The size of an element of a type as a program describes it."""
    return _elements_of(described, 1, np.random.default_rng(0)).nbytes


def struct_fields(described: str) -> list[tuple[str, str]]:
    """The names and the types of a struct's fields."""
    words = described.removeprefix("packed ").split()
    return [(name, of) for name, _, of in (word.partition(":") for word in words)]


def bits(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The array's bytes, NaNs all alike, of structs without what lies between the fields."""
    if array.dtype.names is not None:
        return np.concatenate([bits(array[name]).reshape(-1) for name in array.dtype.names])
    if array.dtype.kind not in "bui":
        array = np.where(np.isnan(array), np.array(np.nan, array.dtype), array)
    return np.ascontiguousarray(array).view(np.uint8)
