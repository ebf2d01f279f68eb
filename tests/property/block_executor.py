"""Runs modules block by block: threads as generators that meet at barriers, or segments one after the other.

Scalars of the types that the semantics know, arrays of one element type as dictionaries. An access out of bounds and a
thread that misses a barrier are errors of the module, unless the run is asked to let the thread end.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Generator, Iterable, Mapping

import attrs
from tests.property.ir_operations import operation

from quernel.dtypes import ArrayType, DType, i64
from quernel.ir import semantics
from quernel.ir.nodes import (
    Alloc,
    Assert,
    Assign,
    Atomic,
    AtomicOp,
    Barrier,
    BinaryOp,
    Break,
    Call,
    Continue,
    Expr,
    For,
    Function,
    If,
    IndexKind,
    Kernel,
    Load,
    Local,
    Loop,
    Module,
    Param,
    Place,
    Print,
    Return,
    Shape,
    Space,
    Stmt,
    Store,
    ThreadIndex,
)
from quernel.ir.segments import (
    BlockBreak,
    BlockContinue,
    BlockFor,
    BlockIf,
    BlockLoop,
    BlockReturn,
    Region,
    Segment,
    SegmentedKernel,
)
from quernel.ir.semantics import Value

_ATOMICS = {AtomicOp.ADD: BinaryOp.ADD, AtomicOp.MAX: BinaryOp.MAX}


class OutOfFuelError(Exception):
    """The kernel runs too long."""


class MisstepError(AssertionError):
    """The kernel does what it must not: an access out of bounds, a missed barrier, a local without a value."""


class ViolationError(Exception):
    """A thread's access is out of bounds, or its assertion fails, in a run where that ends the thread."""


@attrs.define
class Array:
    """An array and its elements."""

    shape: tuple[int, ...]
    dtype: DType
    cells: dict[tuple[int, ...], Value] = attrs.field(factory=dict)


@attrs.define
class Machine:
    """A launch: its arguments, and what it has done."""

    module: Module
    arrays: dict[str, Array]
    scalars: Mapping[str, Value]
    grid: tuple[int, ...] = (2,)
    ends_threads: bool = False
    fuel: int = 200_000
    violations: list[tuple[int, tuple[int, ...], tuple[Value, ...]]] = attrs.field(factory=list)
    """Site, thread and values of each violation, in the order in which they happened."""
    missed: set[tuple[int, ...]] = attrs.field(factory=set)
    """Threads that a violation ended, in a run where it does."""

    def run(self) -> None:
        """Every block, threads meeting at barriers."""
        for block_id in itertools.product(*map(range, self.grid)):
            shared = _allocated(self.module.kernel, Space.SHARED)
            threads = [_Thread(self, block_id, local_id, shared) for local_id in _local_ids(self.module.kernel)]
            _run_together([thread.kernel() for thread in threads], strict=not self.ends_threads)

    def run_segmented(self, kernel: SegmentedKernel) -> None:
        """Every block, segment by segment."""
        self.module = kernel.module
        for block_id in itertools.product(*map(range, self.grid)):
            _Block(self, kernel, block_id).run()

    def burn(self) -> None:
        """Counts a step."""
        self.fuel -= 1
        if self.fuel < 0:
            raise OutOfFuelError


def _local_ids(kernel: Kernel) -> Iterable[tuple[int, ...]]:
    return itertools.product(*map(range, kernel.block))


def _allocated(owner: Kernel | Function, space: Space) -> dict[str, Array]:
    return {
        stmt.name: Array(stmt.shape, stmt.element)
        for stmt in owner.body
        if isinstance(stmt, Alloc) and stmt.space is space and isinstance(stmt.element, DType)
    }


def _run_together(threads: list[Generator[int, None, None]], *, strict: bool) -> None:
    """Each thread up to its next barrier, in turn. Threads that end early may be missed only if not `strict`."""
    running = list(threads)
    while running:
        arrived = [(next(thread, None), thread) for thread in running]
        places = {place for place, _ in arrived}
        if len(places - {None}) > 1 or (strict and len(places) > 1):
            raise MisstepError(f"threads part at barriers: {places}")
        running = [thread for place, thread in arrived if place is not None]


class _LeaveError(Exception):
    def __init__(self, how: type[Stmt], values: tuple[Value, ...] = ()) -> None:
        self.how = how
        self.values = values


@attrs.define
class _Frame:
    """A call: its owner's names."""

    arrays: dict[str, Array]
    scalars: dict[str, Value]
    locals: dict[str, Value] = attrs.field(factory=dict)


Running = Generator[int, None, None]


class _Thread:
    """One thread of a block."""

    def __init__(
        self, machine: Machine, block_id: tuple[int, ...], local_id: tuple[int, ...], shared: dict[str, Array]
    ) -> None:
        self.machine = machine
        self.kernel_node = machine.module.kernel
        self.block_id = block_id
        self.local_id = local_id
        self.frame = _Frame({**machine.arrays, **shared}, dict(machine.scalars))
        self.functions = {function.name: function for function in machine.module.functions}

    @property
    def global_id(self) -> tuple[int, ...]:
        sizes = self.kernel_node.block
        return tuple(b * s + i for b, s, i in zip(self.block_id, sizes, self.local_id, strict=True))

    def kernel(self) -> Running:
        self.frame.arrays.update(_allocated(self.kernel_node, Space.PRIVATE))
        try:
            yield from self.body(self.kernel_node.body, self.frame)
        except _LeaveError:
            pass
        except ViolationError:
            self.machine.missed.add(self.global_id)

    def body(self, body: tuple[Stmt, ...], frame: _Frame) -> Running:
        for stmt in body:
            self.machine.burn()
            yield from self.statement(stmt, frame)

    def statement(self, stmt: Stmt, frame: _Frame) -> Running:
        match stmt:
            case Assign():
                frame.locals[stmt.name] = self.value(stmt.value, frame)
            case Store():
                value = self.value(stmt.value, frame)
                array, where = self.where(stmt.place, frame)
                array.cells[where] = value
            case Atomic():
                self.atomic(stmt, frame)
            case Barrier():
                yield id(stmt)
            case If():
                yield from self.body(stmt.then if self.value(stmt.condition, frame) else stmt.otherwise, frame)
            case For():
                start, stop, step = (int(self.value(bound, frame)) for bound in (stmt.start, stmt.stop, stmt.step))
                for trip in range(semantics.trip_count(start, stop, step)):
                    frame.locals[stmt.variable] = start + trip * step
                    if (yield from self.trip(stmt.body, frame)):
                        break
            case Loop():
                while not (yield from self.trip(stmt.body, frame)):
                    self.machine.burn()
            case Break() | Continue():
                raise _LeaveError(type(stmt))
            case Return():
                raise _LeaveError(Return, tuple(self.value(value, frame) for value in stmt.values))
            case Call():
                yield from self.call(stmt, frame)
            case Assert():
                if not self.value(stmt.condition, frame):
                    values = tuple(self.value(value, frame) for value in stmt.values)
                    self.machine.violations.append((stmt.site, self.global_id, values))
                    if self.machine.ends_threads:
                        raise ViolationError
            case Alloc() | Print():
                pass
            case _:
                raise AssertionError(stmt)

    def trip(self, body: tuple[Stmt, ...], frame: _Frame) -> Generator[int, None, bool]:
        try:
            yield from self.body(body, frame)
        except _LeaveError as left:
            if left.how is Return:
                raise
            return left.how is Break
        return False

    def call(self, stmt: Call, frame: _Frame) -> Running:
        callee = self.functions[stmt.function]
        inner = _Frame(_allocated(callee, Space.PRIVATE), {})
        for param, argument in zip(callee.params, stmt.arguments, strict=True):
            if isinstance(param.type, ArrayType):
                inner.arrays[param.name] = frame.arrays[argument.root.name]  # type: ignore[union-attr]
            else:
                inner.scalars[param.name] = self.value(argument, frame)  # type: ignore[arg-type]
        values: tuple[Value, ...] = ()
        try:
            yield from self.body(callee.body, inner)
        except _LeaveError as left:
            values = left.values
        for name, value in zip(stmt.results, values, strict=True):
            frame.locals[name] = value

    def atomic(self, stmt: Atomic, frame: _Frame) -> None:
        operands = [self.value(operand, frame) for operand in stmt.operands]
        array, where = self.where(stmt.place, frame)
        old = array.cells[where]
        array.cells[where] = semantics.binary(_ATOMICS[stmt.op], old, operands[0], array.dtype)
        if stmt.result is not None:
            frame.locals[stmt.result] = old

    def where(self, place: Place, frame: _Frame) -> tuple[Array, tuple[int, ...]]:
        array = frame.arrays[place.root.name]
        where = tuple(int(self.value(index, frame)) for index in place.indices)
        if not all(0 <= index < length for index, length in zip(where, array.shape, strict=True)):
            if not self.machine.ends_threads:
                raise MisstepError(f"{place.root.name}{where} is out of bounds")
            self.machine.violations.append((-1, self.global_id, (*where, *array.shape)))
            raise ViolationError
        return array, where

    def value(self, expr: Expr, frame: _Frame) -> Value:
        match expr:
            case Local():
                if expr.name not in frame.locals:
                    raise MisstepError(f"{expr.name} has no value")
                return frame.locals[expr.name]
            case Param():
                return frame.scalars[expr.name]
            case ThreadIndex():
                return self.index(expr)
            case Shape():
                return frame.arrays[expr.param].shape[expr.axis]
            case Load():
                array, where = self.where(expr.place, frame)
                if where not in array.cells:
                    raise MisstepError(f"{expr.place.root.name}{where} has no value")
                return array.cells[where]
            case _:
                return operation(expr, self.value, frame)

    def index(self, index: ThreadIndex) -> int:
        size, count = self.kernel_node.block[index.axis], self.machine.grid[index.axis]
        values = {
            IndexKind.GLOBAL_ID: self.global_id[index.axis],
            IndexKind.LOCAL_ID: self.local_id[index.axis],
            IndexKind.BLOCK_ID: self.block_id[index.axis],
            IndexKind.GLOBAL_DIM: size * count,
            IndexKind.BLOCK_DIM: size,
            IndexKind.GRID_DIM: count,
        }
        return values[index.kind]


class _BlockLeaveError(Exception):
    def __init__(self, how: type) -> None:
        self.how = how


class _Block:
    """A block that runs its regions; nothing but the listed cells passes from segment to segment."""

    def __init__(self, machine: Machine, kernel: SegmentedKernel, block_id: tuple[int, ...]) -> None:
        self.machine = machine
        self.kernel = kernel
        self.shared = {a.name: Array(a.shape, _dtype(a)) for a in kernel.shared}
        self.uniform: dict[str, Value] = {}
        ids = list(_local_ids(kernel.module.kernel))
        self.threads = [_Thread(machine, block_id, local_id, self.shared) for local_id in ids]
        self.cells: list[dict[str, Value]] = [{} for _ in ids]
        self.kept = [{a.name: Array(a.shape, _dtype(a)) for a in kernel.carried_arrays} for _ in ids]
        self.uniform_names = {local.name for local in kernel.uniform}
        self.known = self.uniform_names | {local.name for local in kernel.carried}

    def run(self) -> None:
        try:
            self.regions(self.kernel.regions)
        except _BlockLeaveError as left:
            if left.how is not BlockReturn:
                raise

    def regions(self, regions: tuple[Region, ...]) -> None:
        for region in regions:
            self.machine.burn()
            self.region(region)

    def region(self, region: Region) -> None:
        match region:
            case Segment():
                self.segment(region)
            case BlockIf():
                self.regions(region.then if self.value(region.condition) else region.otherwise)
            case BlockFor():
                start, stop, step = (int(self.value(bound)) for bound in (region.start, region.stop, region.step))
                for trip in range(semantics.trip_count(start, stop, step)):
                    assert region.variable in self.uniform_names
                    self.uniform[region.variable] = start + trip * step
                    if self.trip(region.body):
                        break
            case BlockLoop():
                while not self.trip(region.body):
                    self.machine.burn()
            case BlockBreak() | BlockContinue() | BlockReturn():
                raise _BlockLeaveError(type(region))

    def trip(self, body: tuple[Region, ...]) -> bool:
        try:
            self.regions(body)
        except _BlockLeaveError as left:
            if left.how is BlockReturn:
                raise
            return left.how is BlockBreak
        return False

    def value(self, expr: Expr) -> Value:
        return self.threads[-1].value(
            expr, _Frame({**self.machine.arrays, **self.shared}, dict(self.machine.scalars), self.uniform)
        )

    def segment(self, segment: Segment) -> None:
        assert self.known.issuperset((*segment.loads, *segment.stores))
        before = dict(self.uniform)
        for thread, cells, kept in zip(self.threads, self.cells, self.kept, strict=True):
            arrays = {a.name: Array(a.shape, _dtype(a)) for a in self.kernel.private}
            frame = _Frame({**self.machine.arrays, **self.shared, **kept, **arrays}, dict(self.machine.scalars))
            for name in segment.loads:
                source = before if name in self.uniform_names else cells
                if name in source:
                    frame.locals[name] = source[name]
            try:
                for _ in thread.body(segment.body, frame):
                    raise MisstepError("a barrier inside a segment")
            except _LeaveError as left:
                if left.how is Break:
                    raise
            for name in segment.stores:
                if name in frame.locals:
                    (self.uniform if name in self.uniform_names else cells)[name] = frame.locals[name]


def _dtype(alloc: Alloc) -> DType:
    assert isinstance(alloc.element, DType)
    return alloc.element


def arrays_of(module: Module, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Array]:
    """The kernel's array arguments with values that tell elements apart."""
    arrays = {}
    for parameter in module.kernel.params:
        if isinstance(parameter.type, ArrayType) and isinstance(parameter.type.element, DType):
            shape, dtype = shapes[parameter.name], parameter.type.element
            array = Array(shape, dtype)
            for number, where in enumerate(itertools.product(*map(range, shape))):
                array.cells[where] = semantics.cast(number * 7 % 11 - 3, i64, dtype)
            assert len(array.cells) == math.prod(shape)
            arrays[parameter.name] = array
    return arrays
