"""The code of native launches, in LLVM IR: one function that reads the arguments of any launch and calls its kernel.

It is a `METH_FASTCALL` function of CPython. Its `self` is a `bytes` object, a record that says what the arguments have
to be and what becomes of them: so one function serves every kernel, and is compiled once for a machine. It looks at
nothing but the types, dtypes, flags, lengths and addresses of its arguments, allocates nothing, calls no Python and
leaves no exception; whatever is not as the record says makes it give `None`, with nothing done.

What it calls of CPython it finds in the record too, so that the code needs no linking.
"""

from __future__ import annotations

import struct
from typing import Final

from quernel.runtime.layouts import MANY

__all__ = [
    "ARRAY",
    "BOOL",
    "CELL_WORDS",
    "CONSTANT",
    "FLOAT",
    "FLOAT_OF_INT",
    "HEAD_WORDS",
    "INT",
    "LAUNCH",
    "MAX_CELLS",
    "MAX_OPERANDS",
    "OPERAND_WORDS",
    "SHAPE",
    "STATE",
    "STRIDE",
    "VALUE",
    "launch_ir",
]

LAUNCH: Final = "quernel_launch"
"""`PyObject *launch(PyObject *self, PyObject *const *arguments, Py_ssize_t count)`.

It gives `True` if it has launched; the cells as `bytes`, to be launched by whoever called, if none is left to be
made here or the workers belong to another launch;
`None` if an argument is not as the record says."""

MAX_OPERANDS: Final = 32
MAX_CELLS: Final = 96

HEAD_WORDS: Final = 13
"""A record begins with 64-bit words: number of arguments, number of cells, entry point, address of the geometry, number
of items, address of the state (`STATE`), `None`, `True`, `Py_IncRef`,
`PyLong_AsLongLongAndOverflow`, `PyBytes_FromStringAndSize`, what the arrays' addresses together have to be (0: not all
at multiples of 16, 1: all, 2: anything), a spare one. Then its operands, then its cells."""

STATE: Final = struct.Struct("<qQQQqq")
"""Writable memory: how many launches are still to be made here, and what shares each among workers, or 0: `RUN` of
`native_pool`, the pool, its shares, items of a piece, number of workers. Those that sleep are not woken."""

OPERAND_WORDS: Final = 8
"""A kind, the type, and by kind: dtype, rank, flags that are looked at, their values, and bits that addresses lack; or
least, greatest and the bits of the cell; or the greatest magnitude (of f64: NaN) and whether the cell is an f32."""
ARRAY, INT, FLOAT, FLOAT_OF_INT, BOOL = range(5)

CELL_WORDS: Final = 3
"""A kind, the operand's number, the axis; or a kind and the cell itself."""
VALUE, SHAPE, STRIDE, CONSTANT = range(4)

_BYTES_HEAD = 32
_TYPE = 8
_FLOAT_VALUE = 16
_DATA, _NDIM, _DIMENSIONS, _DTYPE, _FLAGS = 16, 24, 32, 56, 64


def launch_ir() -> str:
    """The module's text, for 64-bit CPython with its lock and the layout of NumPy's arrays since 1.0."""

    def word(name: str, number: int, base: str = "%record") -> str:
        return f"  {name}.at = getelementptr i64, ptr {base}, i64 {number}\n  {name} = load i64, ptr {name}.at"

    def pointer(name: str, number: int, base: str = "%record") -> str:
        return f"  {name}.at = getelementptr i64, ptr {base}, i64 {number}\n  {name} = load ptr, ptr {name}.at"

    def member(name: str, offset: int, kind: str, base: str = "%object") -> str:
        return f"  {name}.at = getelementptr i8, ptr {base}, i64 {offset}\n  {name} = load {kind}, ptr {name}.at"

    return f"""define ptr @{LAUNCH}(ptr %self, ptr %arguments, i64 %given) {{
entry:
  %values = alloca [{MAX_OPERANDS} x i64], align 16
  %cells = alloca [{MAX_CELLS} x i64], align 16
  %overflow = alloca i32
  %record = getelementptr i8, ptr %self, i64 {_BYTES_HEAD}
{word("%count", 0)}
{word("%num.cells", 1)}
{pointer("%none", 6)}
{pointer("%increment", 8)}
{pointer("%as.integer", 9)}
{word("%placing", 11)}
  %operands = getelementptr i64, ptr %record, i64 {HEAD_WORDS}
  %is.complete = icmp eq i64 %given, %count
  br i1 %is.complete, label %operand, label %refuse

operand:
  %i = phi i64 [ 0, %entry ], [ %i.next, %read ]
  %together = phi i64 [ 0, %entry ], [ %together.next, %read ]
  %is.read = icmp eq i64 %i, %count
  br i1 %is.read, label %place, label %look
look:
  %offset = mul i64 %i, {OPERAND_WORDS}
  %operand.at = getelementptr i64, ptr %operands, i64 %offset
{word("%kind", 0, "%operand.at")}
{pointer("%wanted", 1, "%operand.at")}
{word("%first", 2, "%operand.at")}
{word("%second", 3, "%operand.at")}
{word("%third", 4, "%operand.at")}
  %object.at = getelementptr ptr, ptr %arguments, i64 %i
  %object = load ptr, ptr %object.at
{member("%type", _TYPE, "ptr")}
  %is.typed = icmp eq ptr %type, %wanted
  br i1 %is.typed, label %choose, label %refuse
choose:
  switch i64 %kind, label %refuse [
    i64 {ARRAY}, label %array
    i64 {INT}, label %integer
    i64 {FLOAT}, label %float
    i64 {FLOAT_OF_INT}, label %integer
    i64 {BOOL}, label %bool
  ]

array:
{member("%dtype", _DTYPE, "i64")}
{member("%ndim.given", _NDIM, "i32")}
{member("%flags.given", _FLAGS, "i32")}
{member("%address", _DATA, "i64")}
{member("%lengths", _DIMENSIONS, "ptr")}
{word("%flags.wanted", 5, "%operand.at")}
{word("%lacking", 6, "%operand.at")}
  %ndim = zext i32 %ndim.given to i64
  %flags.all = zext i32 %flags.given to i64
  %flags = and i64 %flags.all, %third
  %odd = and i64 %address, %lacking
  %is.dtype = icmp eq i64 %dtype, %first
  %is.ndim = icmp eq i64 %ndim, %second
  %is.flagged = icmp eq i64 %flags, %flags.wanted
  %is.aligned = icmp eq i64 %odd, 0
  %is.kind = and i1 %is.dtype, %is.ndim
  %is.laid = and i1 %is.flagged, %is.aligned
  %is.array = and i1 %is.kind, %is.laid
  br i1 %is.array, label %axis, label %refuse
axis:
  %axis.number = phi i64 [ 0, %array ], [ %axis.next, %longer ]
  %size = phi i64 [ 1, %array ], [ %size.next, %longer ]
  %is.sized = icmp eq i64 %axis.number, %ndim
  br i1 %is.sized, label %sized, label %length
length:
  %length.at = getelementptr i64, ptr %lengths, i64 %axis.number
  %length.here = load i64, ptr %length.at
  %is.short = icmp ult i64 %length.here, {MANY}
  br i1 %is.short, label %product, label %refuse
product:
  %size.next = mul i64 %size, %length.here
  %axis.next = add i64 %axis.number, 1
  %is.few = icmp ult i64 %size.next, {MANY}
  br i1 %is.few, label %longer, label %refuse
longer:
  br label %axis
sized:
  %is.filled = icmp ne i64 %size, 0
  %together.more = or i64 %together, %address
  br i1 %is.filled, label %read, label %refuse

integer:
  store i32 0, ptr %overflow
  %number = call i64 %as.integer(ptr %object, ptr %overflow)
  %overflown = load i32, ptr %overflow
  %is.small = icmp eq i32 %overflown, 0
  br i1 %is.small, label %small, label %refuse
small:
  %is.integer = icmp eq i64 %kind, {INT}
  br i1 %is.integer, label %bounded, label %convert
bounded:
  %is.above = icmp sge i64 %number, %first
  %is.below = icmp sle i64 %number, %second
  %is.between = and i1 %is.above, %is.below
  %bits = and i64 %number, %third
  br i1 %is.between, label %read, label %refuse
convert:
  %converted = sitofp i64 %number to double
  br label %rounded
float:
{member("%real", _FLOAT_VALUE, "double")}
  br label %rounded
rounded:
  %double = phi double [ %converted, %convert ], [ %real, %float ]
  %largest = bitcast i64 %first to double
  %magnitude = call double @llvm.fabs.f64(double %double)
  %is.wide = fcmp uno double %largest, %largest
  %is.finite = fcmp ole double %magnitude, %largest
  %is.fitting = or i1 %is.wide, %is.finite
  br i1 %is.fitting, label %narrow, label %refuse
narrow:
  %double.bits = bitcast double %double to i64
  %single = fptrunc double %double to float
  %single.bits = bitcast float %single to i32
  %single.cell = zext i32 %single.bits to i64
  %is.single = icmp ne i64 %second, 0
  %float.cell = select i1 %is.single, i64 %single.cell, i64 %double.bits
  br label %read

bool:
{pointer("%yes", 7)}
  %is.yes = icmp eq ptr %object, %yes
  %truth = zext i1 %is.yes to i64
  br label %read

read:
  %value = phi i64 [ %address, %sized ], [ %bits, %bounded ], [ %float.cell, %narrow ], [ %truth, %bool ]
  %together.next = phi i64 [ %together.more, %sized ], [ %together, %bounded ], [ %together, %narrow ],
                           [ %together, %bool ]
  %value.at = getelementptr i64, ptr %values, i64 %i
  store i64 %value, ptr %value.at
  %i.next = add i64 %i, 1
  br label %operand

place:
  %low = and i64 %together, 15
  %is.even = icmp eq i64 %low, 0
  %evenness = zext i1 %is.even to i64
  %is.placed = icmp eq i64 %evenness, %placing
  %is.any = icmp eq i64 %placing, 2
  %is.right = or i1 %is.placed, %is.any
  %cells.offset = mul i64 %count, {OPERAND_WORDS}
  %table = getelementptr i64, ptr %operands, i64 %cells.offset
  br i1 %is.right, label %cell, label %refuse

cell:
  %j = phi i64 [ 0, %place ], [ %j.next, %written ]
  %is.packed = icmp eq i64 %j, %num.cells
  br i1 %is.packed, label %packed, label %write
write:
  %entry.offset = mul i64 %j, {CELL_WORDS}
  %entry.at = getelementptr i64, ptr %table, i64 %entry.offset
{word("%field", 0, "%entry.at")}
{word("%source", 1, "%entry.at")}
{word("%of.axis", 2, "%entry.at")}
  %is.value = icmp eq i64 %field, {VALUE}
  br i1 %is.value, label %take, label %others
others:
  %is.constant = icmp eq i64 %field, {CONSTANT}
  br i1 %is.constant, label %written, label %measure
take:
  %taken.at = getelementptr i64, ptr %values, i64 %source
  %taken = load i64, ptr %taken.at
  br label %written
measure:
  %array.at = getelementptr ptr, ptr %arguments, i64 %source
  %array.object = load ptr, ptr %array.at
{member("%extents", _DIMENSIONS, "ptr", "%array.object")}
{member("%rank.given", _NDIM, "i32", "%array.object")}
  %rank = zext i32 %rank.given to i64
  %extent.at = getelementptr i64, ptr %extents, i64 %of.axis
  %extent = load i64, ptr %extent.at
  %is.shape = icmp eq i64 %field, {SHAPE}
  br i1 %is.shape, label %written, label %step
step:
  %later = phi i64 [ %of.axis, %measure ], [ %later.next, %multiply ]
  %stride = phi i64 [ 1, %measure ], [ %stride.next, %multiply ]
  %later.next = add i64 %later, 1
  %is.last = icmp eq i64 %later.next, %rank
  br i1 %is.last, label %written, label %multiply
multiply:
  %later.at = getelementptr i64, ptr %extents, i64 %later.next
  %later.length = load i64, ptr %later.at
  %stride.next = mul i64 %stride, %later.length
  br label %step
written:
  %content = phi i64 [ %taken, %take ], [ %source, %others ], [ %extent, %measure ], [ %stride, %step ]
  %cell.at = getelementptr i64, ptr %cells, i64 %j
  store i64 %content, ptr %cell.at
  %j.next = add i64 %j, 1
  br label %cell

packed:
{pointer("%counter", 5)}
{pointer("%kernel", 2)}
{pointer("%geometry", 3)}
{word("%items", 4)}
{pointer("%run", 1, "%counter")}
  %left = load i64, ptr %counter
  %is.here = icmp sgt i64 %left, 0
  br i1 %is.here, label %launch, label %hand
launch:
  %less = sub i64 %left, 1
  store i64 %less, ptr %counter
  %is.alone = icmp eq ptr %run, null
  br i1 %is.alone, label %alone, label %shared
alone:
  call void %kernel(ptr %cells, ptr %geometry, i64 0, i64 %items)
  br label %done
shared:
{pointer("%pool", 2, "%counter")}
{pointer("%shares", 3, "%counter")}
{word("%piece", 4, "%counter")}
{word("%workers", 5, "%counter")}
  %workers.given = trunc i64 %workers to i32
  %ran = call i32 %run(ptr %pool, ptr %kernel, ptr %cells, ptr %geometry, i64 0, ptr %shares, i64 0, i64 %items,
      i64 %piece, i32 %workers.given, i32 0)
  %has.run = icmp ne i32 %ran, 0
  br i1 %has.run, label %done, label %hand
done:
{pointer("%true", 7)}
  call void %increment(ptr %true)
  ret ptr %true
hand:
{pointer("%make.bytes", 10)}
  %num.bytes = shl i64 %num.cells, 3
  %made = call ptr %make.bytes(ptr %cells, i64 %num.bytes)
  ret ptr %made
refuse:
  call void %increment(ptr %none)
  ret ptr %none
}}

declare double @llvm.fabs.f64(double)
"""
