"""Violations and prints: calls of small functions that write records into the launch's diagnostics buffer."""

from __future__ import annotations

from quernel import diagnostics
from quernel.dtypes import DType
from quernel.geometry import MAX_NDIM
from quernel_cpu.emission.text import Code, Unit
from quernel_cpu.emission.values import register_type

__all__ = ["FirstViolation", "cell", "emit_print", "emit_violation", "violation_seen"]


def cell(code: Code, dtype: DType, value: str) -> str:
    """A scalar as a record keeps it, an `i64`."""
    llvm = register_type(dtype)
    if dtype.is_float:
        wide = value if llvm == "double" else code.value(f"fpext {llvm} {value} to double")
        return code.value(f"bitcast double {wide} to i64")
    if llvm == "i64":
        return value
    return code.value(f"{'sext' if dtype.is_signed else 'zext'} {llvm} {value} to i64")


def emit_violation(
    unit: Unit, code: Code, buffer: str, site: int, global_id: tuple[str, ...], cells: tuple[str, ...]
) -> None:
    """Claims the launch's violation record, and fills it if no thread did before."""
    name = f"q.violation{len(cells)}"
    symbol = unit.define(name, lambda: _violation(name, len(cells)))
    code.do(f"call void {symbol}({_arguments(buffer, site, global_id, cells)})")


def emit_print(
    unit: Unit, code: Code, buffer: str, site: int, global_id: tuple[str, ...], cells: tuple[str, ...]
) -> None:
    """Appends a record of the printed values, or counts it lost."""
    name = f"q.print{len(cells)}"
    symbol = unit.define(name, lambda: _print(name, len(cells)))
    head = diagnostics.print_head(site, len(cells))
    code.do(f"call void {symbol}({_arguments(buffer, head, global_id, cells)})")


_RECORD_CELLS = diagnostics.VALUES + diagnostics.MAX_VALUES - diagnostics.SITE


class FirstViolation:
    """The violation of the first thread, in array order, of those that run together; claimed when they are done.

    It lies in the frame: the thread's number among them, then what a record holds from `diagnostics.SITE` on. A thread
    that violates twice keeps the first one, as it does nothing more after it.
    """

    def __init__(self, code: Code) -> None:
        """Makes room, and says that there is none yet."""
        self._code = code
        self._kept = code.allocate(f"[{1 + _RECORD_CELLS} x i64]", 8)
        code.do(f"store i64 -1, ptr {self._kept}, align 8")

    def keep(self, unit: Unit, thread: str, site: int, global_id: tuple[str, ...], cells: tuple[str, ...]) -> None:
        """Keeps a thread's violation if no earlier thread has one."""
        name = f"q.first{len(cells)}"
        symbol = unit.define(name, lambda: _first(name, len(cells)))
        self._code.do(f"call void {symbol}(i64 {thread}, {_arguments(self._kept, site, global_id, cells)})")

    def claim(self, unit: Unit, buffer: str) -> None:
        """Claims the launch's violation record for it, if there is one."""
        code = self._code
        symbol = unit.define("q.claim", _claim)
        found, done = code.label("found"), code.label("none.found")
        number = code.value(f"load i64, ptr {self._kept}, align 8")
        code.branch_if(code.value(f"icmp ne i64 {number}, -1"), found, done)
        code.place(found)
        code.do(f"call void {symbol}(ptr {buffer}, ptr {self._kept})")
        code.place(done)


def violation_seen(code: Code, buffer: str) -> str:
    """Whether a thread of the launch has claimed the violation record, as an `i1`."""
    address = _at(code, buffer, diagnostics.CLAIM)
    claim = code.value(f"load atomic i32, ptr {address} monotonic, align 4")
    return code.value(f"icmp ne i32 {claim}, 0")


def _arguments(buffer: str, first: int, global_id: tuple[str, ...], cells: tuple[str, ...]) -> str:
    ids = (*("0",) * (MAX_NDIM - len(global_id)), *global_id)
    return ", ".join([f"ptr {buffer}", *(f"i64 {value}" for value in (str(first), *ids, *cells))])


def _at(code: Code, buffer: str, position: int) -> str:
    return code.value(f"getelementptr inbounds i64, ptr {buffer}, i64 {position}")


def _parameters(count: int) -> str:
    return ", ".join(["ptr %buffer", "i64 %first", *(f"i64 %x{number}" for number in range(MAX_NDIM + count))])


def _store(code: Code, address: str, position: int, value: str) -> None:
    code.do(f"store i64 {value}, ptr {_at(code, address, position)}, align 8")


def _first(name: str, count: int) -> str:
    code = Code()
    earlier, done = code.label("earlier"), code.label("done")
    kept = code.value("load i64, ptr %buffer, align 8")
    code.branch_if(code.value(f"icmp ult i64 %thread, {kept}"), earlier, done)
    code.place(earlier)
    code.do("store i64 %thread, ptr %buffer, align 8")
    _store(code, "%buffer", 1, "%first")
    for axis in range(MAX_NDIM):
        _store(code, "%buffer", 1 + diagnostics.GLOBAL_IDS - diagnostics.SITE + axis, f"%x{axis}")
    _store(code, "%buffer", 1 + diagnostics.NUM_VALUES - diagnostics.SITE, str(count))
    for number in range(count):
        _store(code, "%buffer", 1 + diagnostics.VALUES - diagnostics.SITE + number, f"%x{MAX_NDIM + number}")
    code.place(done)
    code.end("ret void")
    return code.function(f"internal void @{name}(i64 %thread, {_parameters(count)}) cold noinline nounwind")


def _claim() -> str:
    code = Code()
    claimed, done = code.label("claimed"), code.label("done")
    _take_claim(code, claimed, done)
    for number in range(_RECORD_CELLS):
        value = code.value(f"load i64, ptr {_at(code, '%kept', 1 + number)}, align 8")
        _store(code, "%buffer", diagnostics.SITE + number, value)
    code.place(done)
    code.end("ret void")
    return code.function("internal void @q.claim(ptr %buffer, ptr %kept) cold noinline nounwind")


def _take_claim(code: Code, claimed: str, done: str) -> None:
    pair = code.value(
        f"cmpxchg ptr {_at(code, '%buffer', diagnostics.CLAIM)}, i32 0, i32 1 monotonic monotonic, align 4"
    )
    code.branch_if(code.value(f"extractvalue {{ i32, i1 }} {pair}, 1"), claimed, done)
    code.place(claimed)


def _violation(name: str, count: int) -> str:
    code = Code()
    claimed, done = code.label("claimed"), code.label("done")
    _take_claim(code, claimed, done)
    _store(code, "%buffer", diagnostics.SITE, "%first")
    for axis in range(MAX_NDIM):
        _store(code, "%buffer", diagnostics.GLOBAL_IDS + axis, f"%x{axis}")
    _store(code, "%buffer", diagnostics.NUM_VALUES, str(count))
    for number in range(count):
        _store(code, "%buffer", diagnostics.VALUES + number, f"%x{MAX_NDIM + number}")
    code.place(done)
    code.end("ret void")
    return code.function(f"internal void @{name}({_parameters(count)}) cold noinline nounwind")


def _print(name: str, count: int) -> str:
    code = Code()
    size = diagnostics.RECORD_CELLS + count
    cursor, lost = (_at(code, "%buffer", at) for at in (diagnostics.PRINT_CURSOR, diagnostics.LOST))
    room, fits, full, done = (code.label(hint) for hint in ("room", "fits", "full", "done"))
    capacity = code.value(f"load i64, ptr {_at(code, '%buffer', diagnostics.CAPACITY)}, align 8")
    # Where the buffer is full already nothing is added, so that the cursor never wraps.
    before = code.value(f"load atomic i32, ptr {cursor} monotonic, align 4")
    is_room = code.value(f"icmp ule i64 {code.value(f'zext i32 {before} to i64')}, {capacity}")
    code.branch_if(is_room, room, full)
    code.place(room)
    taken = code.value(f"atomicrmw add ptr {cursor}, i32 {size} monotonic, align 4")
    start = code.value(f"zext i32 {taken} to i64")
    end = code.value(f"add i64 {start}, {size}")
    code.branch_if(code.value(f"icmp ule i64 {end}, {capacity}"), fits, full)
    code.place(fits)
    position = code.value(f"add i64 {start}, {diagnostics.PRINT_RECORDS}")
    record = code.value(f"getelementptr inbounds i64, ptr %buffer, i64 {position}")
    _store(code, record, 0, "%first")
    for number in range(MAX_NDIM + count):
        _store(code, record, 1 + number, f"%x{number}")
    code.branch(done)
    code.place(full)
    code.do(f"atomicrmw add ptr {lost}, i32 1 monotonic, align 4")
    code.place(done)
    code.end("ret void")
    return code.function(f"internal void @{name}({_parameters(count)}) noinline nounwind")
