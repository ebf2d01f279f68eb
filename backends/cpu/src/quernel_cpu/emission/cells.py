"""What outlives a segment of a block: locals, one cell a block or one a thread, and arrays."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from quernel.dtypes import DType
from quernel.ir.nodes import Alloc
from quernel.ir.segments import Segment, SegmentedKernel
from quernel_cpu.emission.arrays import ArrayOperands
from quernel_cpu.emission.lane_bodies import LaneBody
from quernel_cpu.emission.lane_memory import LaneMemory, Offset, PrivateArray
from quernel_cpu.emission.lane_values import LaneArithmetic, Value, uniform
from quernel_cpu.emission.shapes import UNIFORM, Lanes, Layout
from quernel_cpu.emission.text import Code, Unit
from quernel_cpu.emission.values import memory_type, register_type, scalar, wide, zero

__all__ = ["Cells", "ThreadPlace"]


@attrs.frozen
class ThreadPlace:
    """Which threads of a block run together.

    Attributes:
        lanes: their arithmetic.
        first: the number of the first one within the block.
        row_length: how much further the next row's first one is.
        mask: the lanes that are threads of the block; `None` for all.
    """

    lanes: LaneArithmetic
    first: str
    row_length: int
    mask: Value | None


class Cells:
    """The memory of one block in the frame of the function that runs it: one for each worker, reused block by block."""

    def __init__(self, unit: Unit, code: Code, kernel: SegmentedKernel, num_threads: int) -> None:
        self._unit = unit
        self._code = code
        self._num_threads = num_threads
        self._uniform = {local.name: scalar(local.type) for local in kernel.uniform}
        self._carried = {local.name: scalar(local.type) for local in kernel.carried}
        self._slots = {name: code.allocate(register_type(dtype)) for name, dtype in self._uniform.items()}
        self._next = {name: code.allocate(register_type(dtype)) for name, dtype in self._uniform.items()}
        self._memory = {
            name: code.allocate(f"[{num_threads} x {memory_type(dtype)}]", 64) for name, dtype in self._carried.items()
        }
        self.shared: Mapping[str, ArrayOperands] = {alloc.name: self._shared(alloc) for alloc in kernel.shared}
        self._kept = {alloc.name: self._thread_array(alloc) for alloc in kernel.carried_arrays}

    def _shared(self, alloc: Alloc) -> ArrayOperands:
        element = scalar(alloc.element)
        num_elements, strides = 1, {}
        for axis in reversed(range(len(alloc.shape))):
            strides[axis] = str(num_elements)
            num_elements *= alloc.shape[axis]
        pointer = self._code.allocate(f"[{num_elements} x {memory_type(element)}]", 64)
        shape = {axis: str(length) for axis, length in enumerate(alloc.shape)}
        return ArrayOperands(element, pointer, shape, strides)

    def _thread_array(self, alloc: Alloc) -> tuple[DType, str, dict[int, int]]:
        element = scalar(alloc.element)
        num_elements, strides = self._num_threads, {}
        for axis in reversed(range(len(alloc.shape))):
            strides[axis] = num_elements
            num_elements *= alloc.shape[axis]
        return element, self._code.allocate(f"[{num_elements} x {memory_type(element)}]", 64), strides

    # --- the block's own locals ---------------------------------------------------------------------------------------

    def reset(self) -> None:
        """A new block begins: its locals are zero."""
        for name, dtype in self._uniform.items():
            self._code.do(f"store {register_type(dtype)} {zero(dtype)}, ptr {self._slots[name]}")
        # A thread's cells are written before they are read.

    def read(self, name: str) -> str:
        """A local that the block agrees on."""
        return self._code.value(f"load {register_type(self._uniform[name])}, ptr {self._slots[name]}")

    def write(self, name: str, value: str) -> None:
        """Sets a local that the block agrees on."""
        self._code.do(f"store {register_type(self._uniform[name])} {value}, ptr {self._slots[name]}")

    def begin(self, segment: Segment) -> None:
        """A segment begins: its threads start from the block's values, whatever threads before them made of those."""
        for name in segment.stores:
            if name in self._uniform:
                llvm = register_type(self._uniform[name])
                self._code.do(f"store {llvm} {self.read(name)}, ptr {self._next[name]}")

    def end(self, segment: Segment) -> None:
        """All threads have run the segment: what they agree on becomes the block's value."""
        for name in segment.stores:
            if name in self._uniform:
                llvm = register_type(self._uniform[name])
                self.write(name, self._code.value(f"load {llvm}, ptr {self._next[name]}"))

    # --- threads ------------------------------------------------------------------------------------------------------

    def layouts(self, segment: Segment) -> dict[str, Layout]:
        """How the locals that outlive a segment lie in it."""
        names = {*segment.loads, *segment.stores}
        return {name: UNIFORM if name in self._uniform else Layout(Lanes.VECTOR, 0, True) for name in names}

    def arrays(self, place: ThreadPlace) -> dict[str, PrivateArray]:
        """The private arrays that outlive segments."""
        own = self._own(place)
        return {name: PrivateArray(*array, own) for name, array in self._kept.items()}

    def take(self, segment: Segment, place: ThreadPlace) -> dict[str, Value]:
        """What the threads take over from earlier segments."""
        taken: dict[str, Value] = {}
        memory = LaneMemory(self._unit, self._code, place.lanes)
        for name in {**dict.fromkeys(segment.loads), **dict.fromkeys(segment.stores)}:
            if name in self._uniform:
                taken[name] = uniform(self.read(name))
            else:
                taken[name] = memory.load(self._carried[name], self._memory[name], self._offset(place), place.mask)
        return taken

    def give(self, segment: Segment, place: ThreadPlace, body: LaneBody) -> None:
        """Hands on what later segments read."""
        memory = LaneMemory(self._unit, self._code, place.lanes)
        for name in segment.stores:
            value = body.local(name)
            if name in self._uniform:
                self._agree(name, value, place)
            else:
                memory.store(self._carried[name], self._memory[name], self._offset(place), value, place.mask)

    def _agree(self, name: str, value: Value, place: ThreadPlace) -> None:
        """Notes the new value of a local that the block agrees on, from a lane that has assigned it."""
        dtype = self._uniform[name]
        llvm, code, lanes = register_type(dtype), self._code, place.lanes
        if value.layout.is_uniform:
            code.do(f"store {llvm} {value.parts[0]}, ptr {self._next[name]}")
            return
        # Threads that have ended kept the value from before, so whatever differs from it is the new one.
        before = uniform(self.read(name))
        for row in range(lanes.rows if value.layout.rows else 1):
            old = lanes.vector.to_bits(dtype, lanes.vectors(before, dtype).part(0))
            part = lanes.vectors(value, dtype).part(row)
            integers = wide(f"i{dtype.bits}", lanes.width)
            differs = code.value(f"icmp ne {integers} {lanes.vector.to_bits(dtype, part)}, {old}")
            if place.mask is not None:
                differs = code.value(f"and <{lanes.width} x i1> {differs}, {place.mask.part(0)}")
            changed, same = code.label("changed"), code.label("same")
            code.branch_if(lanes.any_lane(differs), changed, same)
            code.place(changed)
            lane = LaneMemory(self._unit, code, lanes).last_lane(differs)
            new = code.value(f"extractelement {wide(llvm, lanes.width)} {part}, i64 {lane}")
            code.do(f"store {llvm} {new}, ptr {self._next[name]}")
            code.place(same)

    def _own(self, place: ThreadPlace) -> Value:
        if place.lanes.rows == 1:
            return uniform(place.first)
        parts = (
            self._code.value(f"add i64 {place.first}, {row * place.row_length}") for row in range(place.lanes.rows)
        )
        return Value(Layout(rows=True), tuple(parts))

    def _offset(self, place: ThreadPlace) -> Offset:
        return Offset(self._own(place), 1, None)
