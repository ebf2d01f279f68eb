"""What a block keeps while its threads go from segment to segment, and where it lies.

Shared arrays, locals that outlive a segment and private arrays that do lie in scratch memory of the worker thread,
which runs one block at a time. What each thread keeps lies thread by thread within one scalar of it: neighbouring
threads find theirs side by side, as lanes of a vector want them. Locals on which the block agrees are slots of the
frame. Private arrays of threads that run together lie there too, element by element, where the frame is too small.
"""

from __future__ import annotations

import math

import attrs

from quernel.dtypes import DType, ValueType
from quernel.ir.nodes import Alloc, Kernel, LocalVariable, Space
from quernel.ir.segments import SegmentedKernel
from quernel_cpu.emission.arrays import ArrayOperands
from quernel_cpu.emission.bodies import own_array
from quernel_cpu.emission.expressions import Operands
from quernel_cpu.emission.leaves import leaves
from quernel_cpu.emission.text import Code
from quernel_cpu.emission.values import is_narrow, register_type

__all__ = ["NO_CELLS", "NO_SCRATCH", "Cells", "Scratch", "block_cells", "scratch_of", "spread_arrays"]

_ALIGNMENT = 64
_MOST_FRAME_BYTES = 16 << 10
"""Private arrays of the threads that run together, beyond which they lie in scratch memory: each copy of the code has
them in the frame, and stacks are small."""


@attrs.frozen
class Scratch:
    """The layout of a worker's scratch memory.

    Attributes:
        offsets: the place in bytes of each shared array, private array, and leaf of a local.
        shared_bytes: how much of it is the user's shared memory.
        num_bytes: all of it.
    """

    offsets: dict[tuple[str, int], int]
    shared_bytes: int
    num_bytes: int


NO_SCRATCH = Scratch({}, 0, 0)


def scratch_of(kernel: Kernel, segmented: SegmentedKernel | None, num_together: int = 0) -> Scratch:
    """The layout that a kernel needs: shared arrays first, then what each thread keeps, then large private arrays.

    `num_together`: how many threads run together as lanes; 0 for threads that run one by one.
    """
    offsets: dict[tuple[str, int], int] = {}
    end = 0

    def place(name: str, number: int, num_bytes: int) -> None:
        nonlocal end
        offsets[name, number] = end
        end += -(-num_bytes // _ALIGNMENT) * _ALIGNMENT

    for alloc in segmented.shared if segmented else ():
        place(alloc.name, 0, _num_bytes(alloc))
    shared_bytes = end
    num_threads = math.prod(kernel.block)
    for variable in segmented.carried if segmented else ():
        for number, leaf in enumerate(leaves(variable.type)):
            place(variable.name, number, num_threads * _cell_bytes(leaf.dtype))
    for alloc in segmented.carried_arrays if segmented else ():
        place(alloc.name, 0, num_threads * _num_bytes(alloc))
    in_frame = 0
    for alloc in sorted(_unkept_arrays(kernel, segmented), key=_num_bytes):
        num_bytes = num_together * _num_bytes(alloc)
        in_frame += num_bytes
        if in_frame > _MOST_FRAME_BYTES:
            place(alloc.name, 0, num_bytes)
    return Scratch(offsets, shared_bytes, end)


def _unkept_arrays(kernel: Kernel, segmented: SegmentedKernel | None) -> tuple[Alloc, ...]:
    """The private arrays that threads need while they run a segment only."""
    if segmented is not None:
        return segmented.private
    return tuple(stmt for stmt in kernel.body if isinstance(stmt, Alloc) and stmt.space is Space.PRIVATE)


def _num_bytes(alloc: Alloc) -> int:
    return math.prod(alloc.shape) * alloc.element.itemsize


@attrs.frozen
class Cells:
    """What outlives a segment, in the code of one entry point.

    Attributes:
        types: the types of the locals below.
        uniform: frame slots of the locals on which the block agrees, one for each leaf.
        carried: for each leaf of another local, the address of the first thread's.
        arrays: private arrays with the address of the first thread's element 0.
        num_threads: threads of the block.
        metadata: what accesses to them carry; each thread touches its own only.
    """

    types: dict[str, ValueType]
    uniform: dict[str, Operands]
    carried: dict[str, Operands]
    arrays: tuple[tuple[Alloc, str], ...]
    num_threads: int
    metadata: str

    def block_values(self, code: Code, name: str) -> Operands:
        """A local's value as the block sees it: the common one, or the first thread's."""
        if name in self.uniform:
            kept = zip(leaves(self.types[name]), self.uniform[name], strict=True)
            return tuple(code.value(f"load {register_type(leaf.dtype)}, ptr {slot}") for leaf, slot in kept)
        return self.thread_values(code, name, "0")

    def set_block_values(self, code: Code, name: str, values: Operands) -> None:
        """Gives a local on which the block agrees its next value."""
        for leaf, slot, value in zip(leaves(self.types[name]), self.uniform[name], values, strict=True):
            code.do(f"store {register_type(leaf.dtype)} {value}, ptr {slot}")

    def thread_values(self, code: Code, name: str, thread: str) -> Operands:
        """The value that the thread of that number keeps of a local."""
        values = []
        for leaf, first in zip(leaves(self.types[name]), self.carried[name], strict=True):
            llvm = _cell_type(leaf.dtype)
            address = code.value(f"getelementptr inbounds {llvm}, ptr {first}, i64 {thread}")
            value = code.value(f"load {llvm}, ptr {address}{self.metadata}")
            values.append(code.value(f"icmp ne i8 {value}, 0") if leaf.dtype.is_bool else value)
        return tuple(values)

    def set_thread_values(self, code: Code, name: str, thread: str, values: Operands) -> None:
        """Keeps a local's value for the thread of that number."""
        for leaf, first, value in zip(leaves(self.types[name]), self.carried[name], values, strict=True):
            llvm = _cell_type(leaf.dtype)
            address = code.value(f"getelementptr inbounds {llvm}, ptr {first}, i64 {thread}")
            kept = code.value(f"zext i1 {value} to i8") if leaf.dtype.is_bool else value
            code.do(f"store {llvm} {kept}, ptr {address}{self.metadata}")

    def thread_arrays(self, code: Code, thread: str) -> dict[str, ArrayOperands]:
        """The private arrays of the thread of that number."""
        found = {}
        for alloc, first in self.arrays:
            address = code.value(f"getelementptr inbounds [{alloc.element.itemsize} x i8], ptr {first}, i64 {thread}")
            found[alloc.name] = own_array(alloc, address, self.metadata, self.num_threads)[1]
        return found


NO_CELLS = Cells({}, {}, {}, (), 1, "")


def block_cells(
    code: Code, segmented: SegmentedKernel, scratch: Scratch, memory: str, metadata: str
) -> tuple[Cells, dict[str, ArrayOperands]]:
    """The cells, and the shared arrays, in scratch memory at the address `memory`."""

    def at(name: str, number: int = 0) -> str:
        return code.value(f"getelementptr inbounds i8, ptr {memory}, i64 {scratch.offsets[name, number]}")

    kept = (*segmented.uniform, *segmented.carried)
    cells = Cells(
        types={variable.name: variable.type for variable in kept},
        uniform={variable.name: _slots(code, variable) for variable in segmented.uniform},
        carried={
            variable.name: tuple(at(variable.name, number) for number in range(len(leaves(variable.type))))
            for variable in segmented.carried
        },
        arrays=tuple((alloc, at(alloc.name)) for alloc in segmented.carried_arrays),
        num_threads=math.prod(segmented.module.kernel.block),
        metadata=metadata,
    )
    return cells, {alloc.name: own_array(alloc, at(alloc.name), metadata)[1] for alloc in segmented.shared}


def spread_arrays(
    code: Code, kernel: Kernel, segmented: SegmentedKernel | None, scratch: Scratch, memory: str
) -> dict[str, str]:
    """The addresses of private arrays that are too large for the frame, of the threads that run together."""
    return {
        alloc.name: code.value(f"getelementptr inbounds i8, ptr {memory}, i64 {scratch.offsets[alloc.name, 0]}")
        for alloc in _unkept_arrays(kernel, segmented)
        if (alloc.name, 0) in scratch.offsets
    }


def _slots(code: Code, variable: LocalVariable) -> Operands:
    return tuple(code.allocate(register_type(leaf.dtype)) for leaf in leaves(variable.type))


def _cell_type(dtype: DType) -> str:
    return "i8" if dtype.is_bool else register_type(dtype)


def _cell_bytes(dtype: DType) -> int:
    return 4 if is_narrow(dtype) else dtype.itemsize
