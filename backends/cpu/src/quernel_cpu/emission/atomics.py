"""Atomic operations, relaxed: single instructions where the processor or LLVM has them, else compare-and-swap loops.

Memory of one block belongs to one worker thread, so an atomic there is a plain read and write.
"""

from __future__ import annotations

from quernel.dtypes import DType
from quernel.ir.nodes import AtomicOp, BinaryOp, CompareOp
from quernel_cpu.emission.arithmetic import Arithmetic
from quernel_cpu.emission.text import Code
from quernel_cpu.emission.values import memory_type

__all__ = ["emit_atomic", "emit_plain_atomic"]

_BINARY = {
    AtomicOp.ADD: BinaryOp.ADD,
    AtomicOp.SUB: BinaryOp.SUB,
    AtomicOp.MIN: BinaryOp.MIN,
    AtomicOp.MAX: BinaryOp.MAX,
    AtomicOp.AND: BinaryOp.AND,
    AtomicOp.OR: BinaryOp.OR,
    AtomicOp.XOR: BinaryOp.XOR,
}
_INSTRUCTION = {
    AtomicOp.ADD: "add",
    AtomicOp.SUB: "sub",
    AtomicOp.AND: "and",
    AtomicOp.OR: "or",
    AtomicOp.XOR: "xor",
    AtomicOp.EXCHANGE: "xchg",
}


def emit_atomic(
    code: Code, arithmetic: Arithmetic, op: AtomicOp, dtype: DType, address: str, operands: tuple[str, ...]
) -> str:
    """The atomic operation on the scalar at `address`; the old value."""
    instruction = _instruction(op, dtype)
    llvm = memory_type(dtype)
    if instruction is not None:
        return code.value(
            f"atomicrmw {instruction} ptr {address}, {llvm} {operands[0]} monotonic, align {dtype.bits // 8}"
        )
    if op is AtomicOp.COMPARE_EXCHANGE and dtype.is_integer:
        expected, desired = operands
        pair = code.value(
            f"cmpxchg ptr {address}, {llvm} {expected}, {llvm} {desired} monotonic monotonic, align {dtype.bits // 8}"
        )
        return code.value(f"extractvalue {{ {llvm}, i1 }} {pair}, 0")
    return _swap_loop(code, arithmetic, op, dtype, address, operands)


def emit_plain_atomic(
    code: Code, arithmetic: Arithmetic, op: AtomicOp, dtype: DType, address: str, operands: tuple[str, ...]
) -> str:
    """The same on memory that no other worker sees."""
    old = arithmetic.load(dtype, address, "")
    arithmetic.store(dtype, address, _new_value(code, arithmetic, op, dtype, old, operands), "")
    return old


def _instruction(op: AtomicOp, dtype: DType) -> str | None:
    """What LLVM calls the operation, where its meaning is the language's."""
    if op in (AtomicOp.ADD, AtomicOp.SUB) and dtype.is_float:
        return f"f{op.value}"
    if op in (AtomicOp.MIN, AtomicOp.MAX):
        # LLVM's minimum of floats prefers numbers to NaNs; the language's keeps whichever stands first.
        return None if dtype.is_float else op.value if dtype.is_signed else f"u{op.value}"
    return _INSTRUCTION.get(op)


def _new_value(
    code: Code, arithmetic: Arithmetic, op: AtomicOp, dtype: DType, old: str, operands: tuple[str, ...]
) -> str:
    """What the operation leaves behind."""
    if op is AtomicOp.EXCHANGE:
        return operands[0]
    if op is AtomicOp.COMPARE_EXCHANGE:
        expected, desired = operands
        llvm = memory_type(dtype)
        is_expected = arithmetic.compare(CompareOp.EQ, dtype, old, expected)
        return code.value(f"select i1 {is_expected}, {llvm} {desired}, {llvm} {old}")
    return arithmetic.binary(_BINARY[op], dtype, old, operands[0])


def _swap_loop(
    code: Code, arithmetic: Arithmetic, op: AtomicOp, dtype: DType, address: str, operands: tuple[str, ...]
) -> str:
    """Tries until nobody else came in between. A float is compared by its bits there, and by its value by the user."""
    bits_type = f"i{dtype.bits}"
    slot = code.allocate(bits_type)
    head, done = code.label("swap"), code.label("swap.end")
    first = code.value(f"load atomic {bits_type}, ptr {address} monotonic, align {dtype.bits // 8}")
    code.do(f"store {bits_type} {first}, ptr {slot}")
    code.place(head)
    seen = code.value(f"load {bits_type}, ptr {slot}")
    old = arithmetic.from_bits(dtype, seen)
    new = arithmetic.to_bits(dtype, _new_value(code, arithmetic, op, dtype, old, operands))
    pair = code.value(
        f"cmpxchg weak ptr {address}, {bits_type} {seen}, {bits_type} {new} monotonic monotonic, "
        f"align {dtype.bits // 8}"
    )
    now = code.value(f"extractvalue {{ {bits_type}, i1 }} {pair}, 0")
    code.do(f"store {bits_type} {now}, ptr {slot}")
    code.branch_if(code.value(f"extractvalue {{ {bits_type}, i1 }} {pair}, 1"), done, head)
    code.place(done)
    return old
