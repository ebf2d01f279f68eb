"""Random kernels of exact operations: control flow, device functions, shared memory, barriers, atomics."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from hypothesis import strategies as st

import quernel as qn
from quernel.testing.fuzz.expressions import COMPUTED, FLOATS, NUMBERS, WIDE, Composite, ExpressionWriter, Scope
from quernel.testing.fuzz.programs import VIEWS, Program, element_bytes

__all__ = ["MOST_PRIVATE_BYTES", "PROLOGUE", "exact_programs"]

PROLOGUE: Final = """\
from typing import TypeVar

import attrs

T = TypeVar("T")


@attrs.frozen
class Pair:
    first: qn.f32
    second: qn.i64


@qn.func
def generic(x: T, y: T):
    return x - T(1) if x < y else y


@qn.func
def swapped(pair):
    return pair[1], pair[0]


@qn.func
def mixed(x, y):
    if x < y:
        return y - x
    return x + y * 3


@qn.func
def stepped(x, y):
    total = x
    for k in range(3):
        if total > y:
            break
        total = total + y
    return total


@qn.kernel
"""
MOST_PRIVATE_BYTES: Final = 16 << 10
"""What the private arrays of one kernel take together at most, for each thread.

Four pages, which is more than registers hold and than a stack may grow by unasked, so that compilers spill, and probe
the stack. It is less than devices refuse blocks for: Intel's runtime keeps the private memory of 17 threads on a stack
where it may have about 450 KiB with all other locals, and gives larger kernels blocks of one thread.
"""
_DECORATOR: Final = "@qn.kernel\n"
_ATOMICS: Final = ("add", "sub", "min", "max", "and_", "or_", "xor")


class KernelWriter(ExpressionWriter):
    """Writes one random kernel. In a kernel of blocks no thread returns early, so that all meet at every barrier."""

    def __init__(self, draw: Any, arrays: dict[str, Any], length: int, *, block: int, has_blocks: bool) -> None:
        super().__init__(draw, arrays, length)
        self.lines: list[str] = []
        self.block_size = block
        self.has_blocks = has_blocks
        self.private_bytes = MOST_PRIVATE_BYTES
        """What private arrays may still take."""

    def write(self, indent: int, text: str) -> None:
        """Adds a line."""
        self.lines.append("    " * indent + text)

    def block(self, indent: int, scope: Scope, depth: int, *, in_loop: bool) -> None:
        """One to three statements."""
        for _ in range(self.pick(1, 2, 3)):
            self.statement(indent, scope, depth, in_loop=in_loop)

    def statement(self, indent: int, scope: Scope, depth: int, *, in_loop: bool) -> None:
        """One statement; locals that it surely assigns join the scope."""
        forms = ["assign", "assign", "reassign", "store", "unpack", "atomic"]
        forms += ["whole", "rewhole", "store whole", "store part"] if self.composites else []
        if depth > 0:
            forms += ["if", "for", "while", "accumulate", "unroll", "ways"]
        if in_loop:
            forms += ["leave"] * 4
        form = self.pick(*forms)
        if form == "reassign" and not scope.locals:
            form = "assign"
        match form:
            case "assign":
                self._assign(indent, scope)
            case "reassign":
                self._reassign(indent, scope)
            case "unpack":
                self._unpack(indent, scope)
            case "store":
                self._store(indent, scope)
            case "atomic":
                self._atomic(indent, scope)
            case "whole" | "rewhole":
                self._whole(indent, scope, is_new=form == "whole" or not scope.wholes)
            case "store whole":
                name = self.pick("p0", "s0")
                self.write(indent, f"{name}[i] = {self.whole(self.composites[name], scope, 2)}")
            case "store part":
                self._store_part(indent, scope)
            case "leave":
                self.write(indent, f"if {self.condition(scope, 2)}:")
                self.write(indent + 1, self.pick("break", "continue", *(() if self.has_blocks else ("return",))))
            case "if":
                self._branch(indent, scope, depth, in_loop=in_loop)
            case "while":
                self._while(indent, scope, depth)
            case "for":
                self._for(indent, scope, depth)
            case "ways":
                self._ways(indent, scope)
            case "unroll":
                self._unrolled(indent, scope)
            case _:
                self._accumulation(indent, scope)

    def _assign(self, indent: int, scope: Scope) -> None:
        dtype = self.pick(*NUMBERS, qn.bool)
        name = f"v{next(self.names)}"
        self.write(indent, f"{name} = {self.of(dtype, scope, 2)}")
        scope.locals.append((name, dtype))

    def _unpack(self, indent: int, scope: Scope) -> None:
        pairs = [(f"v{next(self.names)}", self.pick(*NUMBERS)) for _ in range(2)]
        values = [self.of(dtype, scope, 2) for _, dtype in pairs]
        self.write(indent, f"{pairs[0][0]}, {pairs[1][0]} = {', '.join(values)}")
        scope.locals += pairs

    def _reassign(self, indent: int, scope: Scope) -> None:
        name, dtype = self.pick(*scope.locals)
        if dtype in COMPUTED and self.draw(st.booleans()):
            self.write(indent, f"{name} {self.pick('+', '-', '*', '//', '%')}= {self.operand(dtype, scope, 2)}")
        else:
            self.write(indent, f"{name} = {self.of(dtype, scope, 2)}")

    def _store(self, indent: int, scope: Scope) -> None:
        name = self.pick("out0", "out1")
        self.write(indent, f"{name}[i] = {self.of(self.arrays[name], scope, 2)}")

    def _whole(self, indent: int, scope: Scope, *, is_new: bool) -> None:
        """A local that is a vector or a struct."""
        if is_new:
            name, of = f"w{next(self.names)}_", self.composites[self.pick("p0", "s0")]
            self.write(indent, f"{name} = {self.whole(of, scope, 2)}")
            scope.wholes.append((name, of))
            return
        name, of = self.pick(*scope.wholes)
        self.write(indent, f"{name} = {self.whole(of, scope, 2)}")

    def _store_part(self, indent: int, scope: Scope) -> None:
        name = self.pick("p0", "s0")
        for dtype, part in self.composites[name].parts[: self.pick(1, 2, 3)]:
            self.write(indent, f"{name}[i]{part} = {self.of(dtype, scope, 2)}")

    def _atomic(self, indent: int, scope: Scope) -> None:
        """One kind of update of the cells, chosen once, so that the order of threads does not show."""
        index = f"{self.of(qn.i64, scope, 1)} % {self.length}"
        value = self.of(self.arrays["cells"], scope, 2)
        self.write(indent, f"qn.atomic.{self.operation}(cells, {index}, {value})")

    def _branch(self, indent: int, scope: Scope, depth: int, *, in_loop: bool) -> None:
        self.write(indent, f"if {self.condition(scope, 2)}:")
        self.block(indent + 1, scope.copy(), depth - 1, in_loop=in_loop)
        if self.draw(st.booleans()):
            self.write(indent, f"elif {self.condition(scope, 2)}:")
            self.block(indent + 1, scope.copy(), depth - 1, in_loop=in_loop)
        if self.draw(st.booleans()):
            self.write(indent, "else:")
            self.block(indent + 1, scope.copy(), depth - 1, in_loop=in_loop)

    def _while(self, indent: int, scope: Scope, depth: int) -> None:
        counter = f"w{next(self.names)}"
        self.write(indent, f"{counter} = qn.i64({self.pick(2, 4)})")
        self.write(indent, f"while {counter} > 0 and {self.condition(scope, 2)}:")
        self.write(indent + 1, f"{counter} -= 1")
        inner = scope.copy()
        inner.counters.append(counter)
        self.block(indent + 1, inner, depth - 1, in_loop=True)
        self._otherwise(indent, scope)

    def _for(self, indent: int, scope: Scope, depth: int) -> None:
        counter = f"j{next(self.names)}"
        bounds = self.pick("3", "2, 9, 3", "4, -3, -2", "i % 4", "i % 3, 5", "count % 4", "count % 3, 5")
        self.write(indent, f"for {counter} in range({bounds}):")
        inner = scope.copy()
        inner.counters.append(counter)
        self.block(indent + 1, inner, depth - 1, in_loop=True)
        self._otherwise(indent, scope)

    def _otherwise(self, indent: int, scope: Scope) -> None:
        """Perhaps the `else` of the loop above."""
        if self.pick(0, 1, 2, 3) == 0:
            self.write(indent, "else:")
            self.block(indent + 1, scope.copy(), 0, in_loop=False)

    def _unrolled(self, indent: int, scope: Scope) -> None:
        """A private array filled by an unrolled loop; its elements may be read afterwards."""
        name, counter, dtype = f"v{next(self.names)}", f"j{next(self.names)}", self.pick(*COMPUTED)
        self.write(indent, f"{name} = {self.of(dtype, scope, 1)}")
        self.write(indent, f"for {counter} in qn.unroll(range({self.pick('3', '1, 7, 2')})):")
        inner = scope.copy()
        inner.counters.append(counter)
        inner.locals.append((name, dtype))
        self.write(indent + 1, f"{name} = {self.of(dtype, inner, 2)}")
        scope.locals.append((name, dtype))

    def _accumulation(self, indent: int, scope: Scope) -> None:
        name, counter, dtype = f"v{next(self.names)}", f"j{next(self.names)}", self.pick(*COMPUTED)
        self.write(indent, f"{name} = {'0.0' if dtype in FLOATS else '0'}")
        self.write(indent, f"for {counter} in range(4):")
        inner = scope.copy()
        inner.counters.append(counter)
        self.write(indent + 1, f"{name} += {self.of(dtype, inner, 2)}")
        scope.locals.append((name, dtype))

    def _ways(self, indent: int, scope: Scope) -> None:
        """A loop in which each thread always goes one way, and finds on both what is alike in all threads."""
        name, counter, way = (f"{letter}{next(self.names)}" for letter in "vjv")
        dtype = self.pick(*COMPUTED)
        inner = Scope([(name, dtype)], [counter])
        self.write(indent, f"{way} = {self.condition(scope, 1)}")
        self.write(indent, f"{name} = qn.{dtype.name}(0)")
        self.write(indent, f"for {counter} in range({self.pick('count % 5', '4', 'count % 3 + 1')}):")
        self.write(indent + 1, f"if {way}:")
        self.write(indent + 2, f"{name} += {self._alike(dtype, inner)}")
        if self.draw(st.booleans()):
            self.write(indent + 1, "else:")
            self.write(indent + 2, f"{name} = {name} {self.pick('+', '-', '*')} {self._alike(dtype, inner)}")
        scope.locals += [(way, qn.bool), (name, dtype)]

    def _alike(self, dtype: Any, scope: Scope) -> str:
        """A value that no thread's number is in: of the loop's counter, which the scope has, and of parameters."""
        counter = self.pick(*scope.counters)
        named = [name for name, type_ in self.elements.items() if type_ is dtype and not name.startswith("out")]
        forms = [f"{name}[{counter} % {self.length}]" for name in named]
        return str(self.pick(*forms, *forms, f"qn.{dtype.name}({counter} + 1)", f"qn.{dtype.name}(count)"))

    # --- the whole kernel ---------------------------------------------------------------------------------------------

    def kernel(self) -> None:
        """The kernel `k`, from its first line to its last."""
        self.operation = self.pick(*_ATOMICS)
        composites = (f"{name}: qn.Array1[{of.made}]" for name, of in self.composites.items() if name[0] == "p")
        structs = (name for name in self.composites if name[0] == "s")
        self.write(0, f"def k({', '.join((*self.arrays, *composites, *structs))}, count: int, ratio: float):")
        self.write(1, "i = qn.global_id()")
        scope = Scope([], ["i"])
        if self.pick(0, 1, 2) == 0:
            self._private(scope)
        if self.composites and self.pick(0, 1):
            self._private_wholes(scope)
        if self.has_blocks:
            self._together(scope)
        else:
            self.block(1, scope, 2, in_loop=False)
        for name in ("out0", "out1"):
            self.write(1, f"{name}[i] = {self.of(self.arrays[name], scope, 3)}")

    def _private(self, scope: Scope) -> None:
        """An array of the thread's own, filled in a loop."""
        name, counter, dtype = f"own{next(self.names)}", f"j{next(self.names)}", self.pick(*NUMBERS)
        self.write(1, f"{name} = qn.private({self._private_length(5, 1500, dtype.name)}, qn.{dtype.name})")
        self.write(1, f"for {counter} in range(5):")
        inner = scope.copy()
        inner.counters.append(counter)
        self.write(2, f"{name}[{counter}] = {self.of(dtype, inner, 2)}")
        scope.readable.append((name, dtype, 5, ""))

    def _private_wholes(self, scope: Scope) -> None:
        """An array of vectors or structs of the thread's own, filled in a loop."""
        name, counter, of = f"own{next(self.names)}", f"j{next(self.names)}", self.composites[self.pick("p0", "s0")]
        self.write(1, f"{name} = qn.private({self._private_length(3, 700, of.described)}, {of.made})")
        self.write(1, f"for {counter} in range(3):")
        inner = scope.copy()
        inner.counters.append(counter)
        self.write(2, f"{name}[{counter}] = {self.whole(of, inner, 2)}")
        scope.readable += [(name, dtype, 3, part) for dtype, part in of.parts]

    def _private_length(self, few: int, many: int, described: str) -> int:
        """How many elements a private array has: few, or now and then many, as far as there is room."""
        num_bytes = element_bytes(described.removeprefix("packed "))  # It is packed in the arguments' memory alone.
        length = min(int(self.pick(few, few, many)), self.private_bytes // num_bytes)
        self.private_bytes -= length * num_bytes
        return length

    def _together(self, scope: Scope) -> None:
        """Phases between barriers: each thread writes its own cell of a tile, and later reads any."""
        self.write(1, "t = qn.local_id()")
        scope.counters.append("t")
        tiles = [(f"tile{n}", self.pick(*NUMBERS, qn.bool)) for n in range(self.pick(1, 2))]
        for name, dtype in tiles:
            self.write(1, f"{name} = qn.shared({self.block_size}, qn.{dtype.name})")
        for name, dtype in tiles:
            self.write(1, f"{name}[t] = {self.of(dtype, scope, 2)}")
        if self.composites and self.pick(0, 1):
            name, of = "tiles", self.composites[self.pick("p0", "s0")]
            self.write(1, f"{name} = qn.shared({self.block_size}, {of.made})")
            self.write(1, f"{name}[t] = {self.whole(of, scope, 2)}")
            self.write(1, "qn.barrier()")
            scope.readable += [(name, dtype, self.block_size, part) for dtype, part in of.parts]
        for _ in range(self.pick(1, 2)):
            self._phase(1, scope, tiles, is_nested=False)

    def _phase(self, indent: int, scope: Scope, tiles: list[tuple[str, Any]], *, is_nested: bool) -> None:
        form = self.pick("plain", "plain", "for", "if") if not is_nested else "plain"
        if form == "for":
            counter = f"r{next(self.names)}"
            self.write(indent, f"for {counter} in range({self.pick('2', '3', 'count % 3')}):")
            inner = scope.copy()
            inner.counters.append(counter)
            self._phase(indent + 1, inner, tiles, is_nested=True)
        elif form == "if":
            self.write(indent, f"if count {self.pick('>', '<', '!=')} {self.pick('50', '3', 'qn.block_id() * 40')}:")
            self._phase(indent + 1, scope.copy(), tiles, is_nested=True)
        else:
            self.write(indent, "qn.barrier()")
            reading = scope.copy()
            reading.readable += [(name, dtype, self.block_size, "") for name, dtype in tiles]
            self.block(indent, reading, 1, in_loop=False)
            if self.pick(0, 1):
                self._collective(indent, reading)
            name, dtype = f"v{next(self.names)}", tiles[0][1]
            self.write(indent, f"{name} = {self.of(dtype, reading, 2)}")
            self.write(indent, "qn.barrier()")
            scope.locals += [pair for pair in (*reading.locals, (name, dtype)) if pair not in scope.locals]
            scope.wholes += [pair for pair in reading.wholes if pair not in scope.wholes]
            self.write(indent, f"{tiles[0][0]}[t] = {name}")

    def _collective(self, indent: int, scope: Scope) -> None:
        """A reduction or scan of the block, of integers or truths, whose order does not show."""
        name, dtype = f"v{next(self.names)}", self.pick(*WIDE, qn.bool)
        operation = self.pick("any", "all") if dtype is qn.bool else self.pick("sum", "min", "max", "scan")
        self.write(indent, f"{name} = qn.block.{operation}({self.of(dtype, scope, 2)})")
        scope.locals.append((name, dtype))


@st.composite
def exact_programs(draw: Any) -> Program:
    """A random program of exact operations."""
    has_blocks = draw(st.integers(0, 2)) == 0
    if has_blocks:
        block, grid = draw(st.sampled_from((1, 4, 7, 16))), draw(st.integers(1, 3))
        length = block * grid
    else:
        # The long ones fill several vectors, and do not end with one.
        length = draw(st.sampled_from((*range(1, 25), *range(1, 25), 64, 70, 131, 140)))
        block, grid = draw(st.sampled_from((1, 4, 16, 256))), 0
    arrays = {name: draw(st.sampled_from((qn.bool, *NUMBERS))) for name in ("a", "b", "c")}
    arrays |= {name: draw(st.sampled_from((qn.bool, *NUMBERS))) for name in ("out0", "out1")}
    arrays["cells"] = draw(st.sampled_from(WIDE))
    writer = KernelWriter(draw, arrays, length, block=block, has_blocks=has_blocks)
    record = ""
    if draw(st.booleans()):
        vectors = _vectors(draw)
        record, structs = _structs(draw)
        writer.composites = {"p0": vectors, "p1": vectors, "s0": structs, "s1": structs}
    writer.kernel()
    described = {name: dtype.name for name, dtype in arrays.items()}
    described |= {name: of.described for name, of in writer.composites.items()}
    views = {name: draw(st.sampled_from(tuple(VIEWS))) for name in described}
    text = PROLOGUE.removesuffix(_DECORATOR) + record + _DECORATOR + "\n".join(writer.lines) + "\n"
    seed = draw(st.integers(0, np.iinfo(np.uint32).max))
    listed = tuple((name, of, views[name]) for name, of in described.items())
    contract, checked = draw(st.booleans()), draw(st.integers(0, 3)) == 0
    return Program(text, listed, length, block, grid, contract, int(seed), checked=checked)


def _vectors(draw: Any) -> Composite:
    dtype, length = draw(st.sampled_from((*NUMBERS, qn.bool))), draw(st.sampled_from((2, 4)))
    parts = tuple((dtype, part) for part in (".x", ".y", ".z", ".w")[:length])
    return Composite(f"{dtype.name}*{length}", f"qn.vec(qn.{dtype.name}, {length})", parts, (dtype,) * length)


def _structs(draw: Any) -> tuple[str, Composite]:
    """A class of a few fields, one of them perhaps a vector, and its type; in memory it may be packed."""
    fields = {
        name: _vectors(draw) if draw(st.integers(0, 3)) == 0 else draw(st.sampled_from((*NUMBERS, qn.bool)))
        for name in ("first", "second", "third", "fourth", "fifth")[: draw(st.integers(1, 5))]
    }
    lines, words, parts = ["@attrs.frozen", "class Record:"], [], list[tuple[Any, str]]()
    for name, of in fields.items():
        if isinstance(of, Composite):
            lines.append(f"    {name}: {of.made}")
            words.append(f"{name}:{of.described}")
            parts += [(dtype, f".{name}{part}") for dtype, part in of.parts]
        else:
            lines.append(f"    {name}: qn.{of.name}")
            words.append(f"{name}:{of.name}")
            parts.append((of, f".{name}"))
    described = ("packed " if draw(st.booleans()) else "") + " ".join(words)
    return "\n".join(lines) + "\n\n\n", Composite(described, "Record", tuple(parts), tuple(fields.values()))
