"""Loads and stores of all threads: how addresses differ from lane to lane decides what they become.

* The same address in every lane: one scalar access.
* One element further from lane to lane: a vector access, with a mask where lanes are off.
* A small constant distance: vector loads of all that lies between, and a shuffle.
* Anything else: a gather or scatter.

The first lane may be off, and its address out of bounds: so no address says `inbounds`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

from quernel.dtypes import DType, i64
from quernel_cpu.emission.arrays import ArrayOperands
from quernel_cpu.emission.lane_values import LaneArithmetic, Value, index_sum, uniform
from quernel_cpu.emission.shapes import Lanes, Layout
from quernel_cpu.emission.streaming import LINE_BYTES, SHORTEST_BYTES, Streaming
from quernel_cpu.emission.text import Code, Unit
from quernel_cpu.emission.values import constant_of, memory_type, register_type, splat, type_suffix, wide

__all__ = ["LaneMemory", "Offset", "PrivateArray"]

_SHORTEST_GATHERED = 4
"""Bytes of the shortest elements that processors gather."""
_MOST_IN_LINE = 8
"""So many gathers under masks that processors do not do are a load for each lane in line; more take LLVM too long."""
_MOST_SHUFFLED_STRIDE = 4
"""Up to this distance, wide loads and shuffles are faster than a gather."""


@attrs.frozen
class Offset:
    """The element that each thread means, counted from an array's element zero.

    Attributes:
        base: the part that all lanes of a row have in common.
        stride: the constant distance from lane to lane beside `vector`.
        vector: what differs otherwise, or `None`.
    """

    base: Value
    stride: int
    vector: Value | None

    @property
    def is_uniform(self) -> bool:
        """Whether all lanes of a row mean one element."""
        return self.vector is None and self.stride == 0

    @property
    def rows(self) -> bool:
        """Whether rows differ."""
        return self.base.layout.rows or (self.vector is not None and self.vector.layout.rows)


@attrs.frozen
class PrivateArray:
    """An array of each thread, interleaved: element 0 of all threads, then element 1, and so on.

    Attributes:
        array: that of the first thread, its elements far enough apart for those of the others.
        own: where the array of each row's first thread begins; the other lanes follow.
    """

    array: ArrayOperands
    own: Value


class LaneMemory:
    """Writes accesses into the code of one function."""

    def __init__(self, unit: Unit, code: Code, lanes: LaneArithmetic, alignment: int = 0) -> None:
        """`alignment`: of scalars that are not aligned to their size, whose offsets count bytes."""
        self._unit = unit
        self._code = code
        self._lanes = lanes
        self._own_alignment = alignment
        self.width = lanes.width
        self._spare = ""
        self._slots: dict[str, str] = {}
        self._num_gathers = 0
        self.may_fill = True
        """Whether every lane may be on at once; not so in the copy of a body for when some are off."""

    # --- offsets ------------------------------------------------------------------------------------------------------

    def offset(self, array: ArrayOperands, indices: Sequence[Value]) -> Offset:
        """Where an element of an argument, or of shared memory, lies."""
        whole = Offset(uniform("0"), 0, None)
        for axis, index in enumerate(indices):
            if index.layout.is_uniform and index.parts == ("0",):
                continue
            whole = self._added(whole, self._scaled(index, array.strides[axis]))
        return whole

    def private_offset(self, private: PrivateArray, indices: Sequence[Value]) -> Offset:
        """Where a thread's element of its own array lies."""
        return self._added(Offset(private.own, 1, None), self.offset(private.array, indices))

    def in_units(self, offset: Offset, factor: int, first: int) -> Offset:
        """The offset of unit `first` in an element of `factor` units, where `offset` counts such elements."""
        vector = offset.vector
        if vector is not None and factor != 1:
            wanted, factors = wide("i64", self.width), splat("i64", str(factor), self.width)
            parts = tuple(self._code.value(f"mul {wanted} {part}, {factors}") for part in vector.parts)
            vector = Value(vector.layout, parts)
        base = self._lanes.product(offset.base, str(factor))
        return Offset(self._lanes.sum(base, uniform(str(first))), offset.stride * factor, vector)

    def _scaled(self, index: Value, stride: str) -> Offset:
        """An index times the distance of its axis."""
        lanes = self._lanes
        if index.is_vector:
            factor = self._splat(stride)
            if stride == "1":
                return Offset(uniform("0"), 0, index)
            vector = wide("i64", self.width)
            parts = tuple(self._code.value(f"mul {vector} {part}, {factor}") for part in index.parts)
            return Offset(uniform("0"), 0, Value(index.layout, parts))
        base = lanes.product(Value(Layout(rows=index.layout.rows), index.parts), stride)
        if index.layout.stride == 0:
            return Offset(base, 0, None)
        constant = constant_of(stride)
        if constant is not None:
            return Offset(base, index.layout.stride * constant, None)
        steps = self._steps(index.layout.stride)
        vector = wide("i64", self.width)
        distance = self._code.value(f"mul {vector} {steps}, {self._splat(stride)}")
        return Offset(base, 0, Value(Layout(Lanes.VECTOR), (distance,)))

    def _added(self, left: Offset, right: Offset) -> Offset:
        vector = left.vector if right.vector is None else right.vector
        if left.vector is not None and right.vector is not None:
            layout = Layout(Lanes.VECTOR, 0, left.vector.layout.rows or right.vector.layout.rows)
            vector = self._lanes.operate(layout, index_sum, (left.vector, i64), (right.vector, i64))
        return Offset(self._lanes.sum(left.base, right.base), left.stride + right.stride, vector)

    def _splat(self, operand: str) -> str:
        if operand.startswith("%"):
            return self._lanes.broadcast(operand, "i64")
        return splat("i64", operand, self.width)

    def _steps(self, stride: int) -> str:
        return self._lanes.steps("i64", stride)

    # --- loads --------------------------------------------------------------------------------------------------------

    def load(self, dtype: DType, pointer: str, offset: Offset, mask: Value | None) -> Value:
        """What each thread that is on reads; zero in the others, where that differs."""
        rows = self._lanes.rows_of(Layout(rows=offset.rows))
        if offset.is_uniform:
            parts = [self._load_one(dtype, pointer, offset, mask, row) for row in rows]
            return Value(Layout(rows=offset.rows), tuple(parts))
        # What rows have in common is read once, for every lane that is on in any of them.
        if mask is not None and mask.layout.rows and not offset.rows:
            mask = Value(Layout(Lanes.VECTOR), (self.any_row(mask),))
        parts = [self._load_row(dtype, pointer, offset, mask, row) for row in rows]
        return Value(Layout(Lanes.VECTOR, 0, offset.rows), tuple(parts))

    def any_row(self, mask: Value) -> str:
        """The lanes that are on in any row."""
        return self._folded("or", f"<{self.width} x i1>", list(mask.parts))

    def _load_one(self, dtype: DType, pointer: str, offset: Offset, mask: Value | None, row: int) -> str:
        address = self._address(dtype, pointer, offset.base.part(row))
        if mask is not None and mask.layout.rows and offset.rows:
            # The row may be off altogether, and its address anywhere.
            is_on = self._lanes.any_lane(mask.part(row))
            address = self._code.value(f"select i1 {is_on}, ptr {address}, ptr {self.spare_element()}")
        return self._lanes.scalar.load(dtype, address, "", self._own_alignment)

    def spare_element(self) -> str:
        """The address of an element that nobody reads for its value."""
        if not self._spare:
            self._spare = self._code.allocate("i64", 8)
        return self._spare

    def _load_row(self, dtype: DType, pointer: str, offset: Offset, mask: Value | None, row: int) -> str:
        address = self._address(dtype, pointer, offset.base.part(row))
        on = None if mask is None else mask.part(row)
        if offset.vector is None and offset.stride == 1:
            loaded = self._load_vector(dtype, address, on, self.width)
        elif offset.vector is None and offset.stride == -1:
            loaded = self._load_backwards(dtype, address, on)
        elif offset.vector is None and on is None and self._is_near(offset.stride):
            loaded = self._load_between(dtype, address, offset.stride)
        else:
            loaded = self._gather(dtype, address, self._distances(offset, row), on)
        return self._lanes.vector.from_memory(dtype, loaded)

    def _is_near(self, stride: int) -> bool:
        """Whether wide loads and shuffles read every element of this distance."""
        return 2 <= stride <= _MOST_SHUFFLED_STRIDE and not self._own_alignment

    def _load_vector(self, dtype: DType, address: str, on: str | None, width: int) -> str:
        vector, alignment = wide(memory_type(dtype), width), self._alignment(dtype)
        if on is None:
            return self._code.value(f"load {vector}, ptr {address}, align {alignment}")
        mask = f"<{width} x i1>"
        symbol = self._unit.declare(vector, f"llvm.masked.load.{type_suffix(vector)}.p0", "ptr", mask, vector)
        return self._code.value(
            f"call {vector} {symbol}(ptr align {alignment} {address}, {mask} {on}, {vector} zeroinitializer)"
        )

    def _load_backwards(self, dtype: DType, address: str, on: str | None) -> str:
        element = memory_type(dtype)
        lowest = self._code.value(f"getelementptr {element}, ptr {address}, i64 {1 - self.width}")
        on = None if on is None else self._reversed("i1", on)
        return self._reversed(element, self._load_vector(dtype, lowest, on, self.width))

    def _reversed(self, element: str, vector: str) -> str:
        return self._code.part(wide(element, self.width), vector, range(self.width - 1, -1, -1))

    def _load_between(self, dtype: DType, address: str, stride: int) -> str:
        """Every `stride`-th element, by loads that end with the last of them."""
        element, width = memory_type(dtype), self.width
        last_start = (width - 1) * stride + 1 - width
        pieces: list[str] = []
        starts = [*(piece * width for piece in range(stride - 1)), last_start]
        for start in starts:
            piece = self._code.value(f"getelementptr {element}, ptr {address}, i64 {start}")
            pieces.append(self._load_vector(dtype, piece, None, width))
        vector = wide(element, width)
        found, taken = pieces[0], [lane * stride if lane * stride < width else -1 for lane in range(width)]
        order = [lane if lane >= 0 else 0 for lane in taken]
        found = self._code.part(vector, found, order)
        for number, start in enumerate(starts[1:], start=1):
            upper = number * width
            picks = []
            for lane in range(width):
                position = lane * stride
                inside = upper <= position < upper + width
                picks.append(width + position - start if inside else lane)
            listed = ", ".join(f"i32 {pick}" for pick in picks)
            found = self._code.value(
                f"shufflevector {vector} {found}, {vector} {pieces[number]}, <{width} x i32> <{listed}>"
            )
        return found

    def _gather(self, dtype: DType, address: str, distances: str, on: str | None) -> str:
        vector = wide(memory_type(dtype), self.width)
        pointers = self._pointers(dtype, address, distances)
        if dtype.itemsize < _SHORTEST_GATHERED or "avx2" not in self._unit.features:
            return self._gather_in_line(dtype, pointers, on)
        if on is None or self._unit.gathers():
            return self._gather_all(dtype, pointers, on)
        self._num_gathers += 1
        by_lanes = self._gather_in_line if self._num_gathers <= _MOST_IN_LINE else self._gather_in_turn
        if not self.may_fill:
            return by_lanes(dtype, pointers, on)
        slot = self._code.allocate(vector)

        def keep(found: str) -> None:
            self._code.do(f"store {vector} {found}, ptr {slot}")

        self._where_all(
            on, lambda: keep(self._gather_all(dtype, pointers, None)), lambda: keep(by_lanes(dtype, pointers, on))
        )
        return self._code.value(f"load {vector}, ptr {slot}")

    def _gather_all(self, dtype: DType, pointers: str, on: str | None) -> str:
        """A gather as LLVM knows it; under a mask, two blocks for each lane where that is no instruction."""
        vector, lanes, mask = wide(memory_type(dtype), self.width), wide("ptr", self.width), f"<{self.width} x i1>"
        name = f"llvm.masked.gather.{type_suffix(vector)}.v{self.width}p0"
        symbol = self._unit.declare(vector, name, lanes, mask, vector)
        return self._code.value(
            f"call {vector} {symbol}({lanes} align {self._alignment(dtype)} {pointers}, "
            f"{mask} {on or splat('i1', 'true', self.width)}, {vector} zeroinitializer)"
        )

    def _gather_in_turn(self, dtype: DType, pointers: str, on: str) -> str:
        """A load for each lane that is on, in a loop, which is short."""
        code, element = self._code, memory_type(dtype)
        values, places = self._slot(wide(element, self.width)), self._slot(wide("ptr", self.width))
        code.do(f"store {wide(element, self.width)} zeroinitializer, ptr {values}")
        code.do(f"store {wide('ptr', self.width)} {pointers}, ptr {places}")

        def lane(number: str) -> None:
            place = code.value(f"load ptr, ptr {code.value(f'getelementptr ptr, ptr {places}, i64 {number}')}")
            value = code.value(f"load {element}, ptr {place}, align {self._alignment(dtype)}")
            code.do(
                f"store {element} {value}, ptr {code.value(f'getelementptr {element}, ptr {values}, i64 {number}')}"
            )

        self.each_lane(on, lane)
        return code.value(f"load {wide(element, self.width)}, ptr {values}")

    def _where_all(self, on: str, whole: Callable[[], None], some: Callable[[], None]) -> None:
        """Code for when every lane of a row is on, and for when some are off."""
        if_all, if_some, done = (self._code.label(hint) for hint in ("all", "some", "done"))
        bits = self._lanes.bits(on)
        self._code.branch_if(self._code.value(f"icmp eq i{self.width} {bits}, -1"), if_all, if_some)
        self._code.place(if_all)
        whole()
        self._code.branch(done)
        self._code.place(if_some)
        some()
        self._code.place(done)

    def _gather_in_line(self, dtype: DType, pointers: str, on: str | None) -> str:
        """A load for each lane, without a branch for those that are off, where no instruction gathers."""
        code, element, width = self._code, memory_type(dtype), self.width
        vector = wide(element, width)
        if on is not None:
            spare = self._lanes.broadcast(self.spare_element(), "ptr")
            pointers = self._lanes.vector.select(on, f"<{width} x ptr>", pointers, spare)
        loaded = "poison"
        for lane in range(width):
            address = code.value(f"extractelement <{width} x ptr> {pointers}, i64 {lane}")
            value = code.value(f"load {element}, ptr {address}, align {self._alignment(dtype)}")
            loaded = code.value(f"insertelement {vector} {loaded}, {element} {value}, i64 {lane}")
        if on is None:
            return loaded
        return code.value(f"select <{width} x i1> {on}, {vector} {loaded}, {vector} zeroinitializer")

    # --- stores -------------------------------------------------------------------------------------------------------

    def store(
        self,
        dtype: DType,
        pointer: str,
        offset: Offset,
        value: Value,
        mask: Value | None,
        streaming: Streaming | None = None,
    ) -> None:
        """Writes the value of each thread that is on; where several mean one element, the last one's."""
        if offset.is_uniform:
            self._store_one(dtype, pointer, offset, value, mask)
            return
        vectors = self._lanes.vectors(value, dtype)
        rows = offset.rows or vectors.layout.rows or (mask is not None and mask.layout.rows)
        numbers = self._lanes.rows_of(Layout(rows=rows))
        stored = [self._lanes.vector.to_memory(dtype, vectors.part(row)) for row in numbers]
        done = ""
        if streaming is not None and offset.vector is None and offset.stride == 1:
            addresses = [self._address(dtype, pointer, offset.base.part(row)) for row in numbers]
            done = self.stream(dtype, addresses, stored, mask, streaming)
        for row in numbers:
            self._store_row(dtype, pointer, offset, stored[row], None if mask is None else mask.part(row), row)
        if done:
            self._code.place(done)

    def stream(
        self, dtype: DType, addresses: list[str], stored: list[str], mask: Value | None, streaming: Streaming
    ) -> str:
        """Past the caches, if the launch wants that, every lane is on and all is aligned; else what is written next.

        Gives the label that follows both; nothing where vectors are too short.
        """
        code, vector = self._code, wide(memory_type(dtype), self.width)
        alignment = min(self.width * dtype.itemsize, LINE_BYTES)
        if alignment < SHORTEST_BYTES:
            return ""
        asked, past, ordinary, done = (code.label(hint) for hint in ("stream", "past", "ordinary", "stored"))
        code.branch_if(streaming.condition, asked, ordinary)
        code.place(asked)
        numbers = [code.value(f"ptrtoint ptr {address} to i64") for address in addresses]
        together = self._folded("or", "i64", numbers)
        low = code.value(f"and i64 {together}, {alignment - 1}")
        is_whole = code.value(f"icmp eq i64 {low}, 0")
        if mask is not None:
            bits = self._lanes.bits(self._folded("and", f"<{self.width} x i1>", list(mask.parts)))
            is_on = code.value(f"icmp eq i{self.width} {bits}, -1")
            is_whole = code.value(f"and i1 {is_whole}, {is_on}")
        code.branch_if(is_whole, past, ordinary)
        code.place(past)
        for address, value in zip(addresses, stored, strict=True):
            code.do(f"store {vector} {value}, ptr {address}, align {alignment}{streaming.mark}")
        code.branch(done)
        code.place(ordinary)
        return done

    def _folded(self, operator: str, llvm: str, parts: list[str]) -> str:
        together = parts[0]
        for part in parts[1:]:
            together = self._code.value(f"{operator} {llvm} {together}, {part}")
        return together

    def _store_row(self, dtype: DType, pointer: str, offset: Offset, stored: str, on: str | None, row: int) -> None:
        element, width, alignment = memory_type(dtype), self.width, self._alignment(dtype)
        address = self._address(dtype, pointer, offset.base.part(row))
        vector, mask = wide(element, width), f"<{width} x i1>"
        if offset.vector is None and offset.stride == -1:
            address = self._code.value(f"getelementptr {element}, ptr {address}, i64 {1 - width}")
            stored, on = self._reversed(element, stored), None if on is None else self._reversed("i1", on)
        if offset.vector is None and abs(offset.stride) == 1:
            if on is None:
                self._code.do(f"store {vector} {stored}, ptr {address}, align {alignment}")
                return
            symbol = self._unit.declare("void", f"llvm.masked.store.{type_suffix(vector)}.p0", vector, "ptr", mask)
            self._code.do(f"call void {symbol}({vector} {stored}, ptr align {alignment} {address}, {mask} {on})")
            return
        pointers = self._pointers(dtype, address, self._distances(offset, row))
        if on is None or "avx512vl" in self._unit.features:
            self._scatter_all(dtype, pointers, stored, on)
        elif self.may_fill:
            self._where_all(
                on,
                lambda: self._scatter_all(dtype, pointers, stored, None),
                lambda: self._scatter_in_turn(dtype, pointers, stored, on),
            )
        else:
            self._scatter_in_turn(dtype, pointers, stored, on)

    def _scatter_all(self, dtype: DType, pointers: str, stored: str, on: str | None) -> None:
        """A scatter as LLVM knows it; under a mask, two blocks for each lane where that is no instruction."""
        vector, lanes, mask = wide(memory_type(dtype), self.width), wide("ptr", self.width), f"<{self.width} x i1>"
        name = f"llvm.masked.scatter.{type_suffix(vector)}.v{self.width}p0"
        symbol = self._unit.declare("void", name, vector, lanes, mask)
        self._code.do(
            f"call void {symbol}({vector} {stored}, {lanes} align {self._alignment(dtype)} {pointers}, "
            f"{mask} {on or splat('i1', 'true', self.width)})"
        )

    def _scatter_in_turn(self, dtype: DType, pointers: str, stored: str, on: str) -> None:
        """A store for each lane that is on, first to last."""
        code, element = self._code, memory_type(dtype)
        values, places = self._slot(wide(element, self.width)), self._slot(wide("ptr", self.width))
        code.do(f"store {wide(element, self.width)} {stored}, ptr {values}")
        code.do(f"store {wide('ptr', self.width)} {pointers}, ptr {places}")

        def lane(number: str) -> None:
            place = code.value(f"load ptr, ptr {code.value(f'getelementptr ptr, ptr {places}, i64 {number}')}")
            value = code.value(f"getelementptr {element}, ptr {values}, i64 {number}")
            value = code.value(f"load {element}, ptr {value}")
            code.do(f"store {element} {value}, ptr {place}, align {self._alignment(dtype)}")

        self.each_lane(on, lane)

    def _slot(self, vector: str) -> str:
        if vector not in self._slots:
            self._slots[vector] = self._code.allocate(vector)
        return self._slots[vector]

    def _store_one(self, dtype: DType, pointer: str, offset: Offset, value: Value, mask: Value | None) -> None:
        """One element for each row, or for all."""
        rows = offset.rows or value.layout.rows or (mask is not None and mask.layout.rows)
        for row in self._lanes.rows_of(Layout(rows=rows)):
            address = self._address(dtype, pointer, offset.base.part(row))
            on = None if mask is None else mask.part(row)
            done = ""
            if on is not None:
                # A row may be off altogether, and its address anywhere.
                inside, done = self._code.label("on"), self._code.label("on.end")
                self._code.branch_if(self._lanes.any_lane(on), inside, done)
                self._code.place(inside)
            self._lanes.scalar.store(dtype, address, self._last(value, dtype, row, on), "", self._own_alignment)
            if done:
                self._code.place(done)

    def _last(self, value: Value, dtype: DType, row: int, on: str | None) -> str:
        """The value of a row's last lane that is on."""
        if value.layout.lanes is Lanes.UNIFORM:
            return value.part(row)
        vector = wide(register_type(dtype), self.width)
        lane = str(self.width - 1) if on is None else self.last_lane(on)
        operand = self._lanes.vectors(value, dtype).part(row)
        return self._code.value(f"extractelement {vector} {operand}, i64 {lane}")

    def last_lane(self, on: str) -> str:
        """The number of the last lane that is on, of which there is one."""
        llvm = f"i{self.width}"
        leading = self._unit.declare(llvm, f"llvm.ctlz.{llvm}", llvm, "i1")
        zeros = self._code.value(f"call {llvm} {leading}({llvm} {self._lanes.bits(on)}, i1 true)")
        lane = self._code.value(f"sub {llvm} {self.width - 1}, {zeros}")
        if self.width == 64:
            return lane
        return self._code.value(f"{'zext' if self.width < 64 else 'trunc'} {llvm} {lane} to i64")

    def first_lane(self, on: str) -> str:
        """The number of the first lane that is on, of which there is one."""
        return self._lowest(self._lanes.bits(on))

    def _lowest(self, bits: str) -> str:
        llvm = f"i{self.width}"
        trailing = self._unit.declare(llvm, f"llvm.cttz.{llvm}", llvm, "i1")
        lane = self._code.value(f"call {llvm} {trailing}({llvm} {bits}, i1 true)")
        if self.width == 64:
            return lane
        return self._code.value(f"{'zext' if self.width < 64 else 'trunc'} {llvm} {lane} to i64")

    def each_lane(self, on: str | None, body: Callable[[str], None]) -> None:
        """A loop over the lanes of a row that are on, first to last; `body` gets the lane's number, an i64."""
        code, bits = self._code, f"i{self._lanes.width}"
        left = code.allocate(bits)
        code.do(f"store {bits} {'-1' if on is None else self._lanes.bits(on)}, ptr {left}")
        head, inside, done = code.label("lanes"), code.label("lane"), code.label("lanes.end")
        code.place(head)
        rest = code.value(f"load {bits}, ptr {left}")
        code.branch_if(code.value(f"icmp ne {bits} {rest}, 0"), inside, done)
        code.place(inside)
        without = code.value(f"and {bits} {rest}, {code.value(f'sub {bits} {rest}, 1')}")
        code.do(f"store {bits} {without}, ptr {left}")
        body(self._lowest(rest))
        code.branch(head)
        code.place(done)

    # --- addresses ----------------------------------------------------------------------------------------------------

    def _address(self, dtype: DType, pointer: str, base: str) -> str:
        if base == "0":
            return pointer
        return self._code.value(f"getelementptr {self._counted(dtype)}, ptr {pointer}, i64 {base}")

    def _counted(self, dtype: DType) -> str:
        """The LLVM type that offsets count."""
        return "i8" if self._own_alignment else memory_type(dtype)

    def _alignment(self, dtype: DType) -> int:
        return self._own_alignment or dtype.alignment

    def row_address(self, dtype: DType, pointer: str, offset: Offset, row: int) -> str:
        """The address that all lanes of a row mean."""
        return self._address(dtype, pointer, offset.base.part(row))

    def addresses(self, dtype: DType, pointer: str, offset: Offset, row: int) -> str:
        """The address that each lane of a row means, as a vector of pointers."""
        address = self._address(dtype, pointer, offset.base.part(row))
        return self._pointers(dtype, address, self._distances(offset, row))

    def _pointers(self, dtype: DType, address: str, distances: str) -> str:
        counted = self._counted(dtype)
        return self._code.value(f"getelementptr {counted}, ptr {address}, <{self.width} x i64> {distances}")

    def _distances(self, offset: Offset, row: int) -> str:
        steps = self._steps(offset.stride) if offset.stride else ""
        if offset.vector is None:
            return steps or splat("i64", "0", self.width)
        part = offset.vector.part(row)
        return self._code.value(f"add <{self.width} x i64> {part}, {steps}") if steps else part
