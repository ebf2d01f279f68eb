"""IR to LLVM IR text: the entry point, and the slots that it reads.

Every kernel has one calling convention: `void quernel_entry(ptr cells, ptr geometry, i64 first, i64 end)`.
`cells` holds 8 bytes for each slot of the header, the value in the low ones. `geometry` holds nine i64: blocks, then
points or threads, then first `global_id`, each along up to three axes in array order. The entry point runs the points
`first` to `end` of an `over` launch, counted in array order, or those blocks of a grid.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from quernel.capabilities import TargetInfo
from quernel.compiler.artifacts import Slot, SlotKind
from quernel.dtypes import ArrayType
from quernel.geometry import MAX_NDIM, LaunchForm
from quernel.ir.nodes import Kernel, Module, Parameter
from quernel.ir.segments import Segment as ThreadSegment
from quernel.ir.segments import SegmentedKernel
from quernel_cpu.emission.arithmetic import Arithmetic
from quernel_cpu.emission.arrays import ArrayOperands
from quernel_cpu.emission.bodies import emit_function
from quernel_cpu.emission.coarsening import chosen_step
from quernel_cpu.emission.forms import spmd_form
from quernel_cpu.emission.functions import DeviceFunction, device_functions, passes_private_arrays
from quernel_cpu.emission.independence import array_stored_last
from quernel_cpu.emission.loops import count_up
from quernel_cpu.emission.regions import BarrierSegments
from quernel_cpu.emission.segments import Launch, LoopSegments, Segment, SegmentEmitter
from quernel_cpu.emission.spmd import SpmdSegments
from quernel_cpu.emission.text import Code, Unit
from quernel_cpu.emission.values import scalar
from quernel_cpu.targets import enabled_features
from quernel_cpu.types import CpuVariant
from quernel_cpu.vectormath import vector_functions

__all__ = ["ENTRY", "LoweredText", "lower_call", "lower_module"]

ENTRY = "quernel_entry"
"""Name of every entry point; equal kernels under different names are equal objects."""

_SIGNATURE = (
    f"void @{ENTRY}(ptr noalias readonly %cells, ptr noalias readonly %geometry, i64 %first, i64 %end) "
    "nounwind alignstack(64)"
)


@attrs.frozen
class LoweredText:
    """LLVM IR of a kernel.

    Attributes:
        text: the module.
        is_vector_code: whether lanes are vectors in it already, so that LLVM need not look for any.
    """

    text: str
    is_vector_code: bool


def lower_module(module: Module, target: TargetInfo, variant: CpuVariant, slots: tuple[Slot, ...]) -> LoweredText:
    """The LLVM IR of a validated module, whose entry point receives `slots`."""
    form = spmd_form(module) if target.detail("emitter") == "spmd" else None
    if form is None:
        return LoweredText(_lower_scalar(module, target, variant, slots), is_vector_code=False)
    return LoweredText(_lower_spmd(form, target, variant, slots), is_vector_code=True)


def _lower_spmd(form: SegmentedKernel, target: TargetInfo, variant: CpuVariant, slots: tuple[Slot, ...]) -> str:
    kernel = form.module.kernel
    features = enabled_features(target)
    unit, code = Unit(features, lambda name: vector_functions(target, features, name)), Code()
    marks = {param.name: "" for param in kernel.params}
    scalars, arrays = _load_parameters(unit, code, kernel.params, slots, variant, marks)
    own = Segment(
        kernel=kernel,
        body=form.regions[0].body if form.regions and isinstance(form.regions[0], ThreadSegment) else (),
        launch=_load_launch(code, kernel.ndim),
        scalars=scalars,
        arrays=arrays,
        functions={},
    )
    step = chosen_step(form, target)
    masks_always = target.detail("vector_bytes") == "64"
    spmd = SpmdSegments(unit, code, step, fast_math=kernel.options.fast_math, masks_always=masks_always)
    emitter = spmd if kernel.form is LaunchForm.OVER else BarrierSegments(unit, code, spmd, form)
    attributes = _vector_attributes(target, fast_math=kernel.options.fast_math)
    _emit_entry(unit, code, own, emitter, attributes)
    return str(unit)


def _vector_attributes(target: TargetInfo, *, fast_math: bool) -> str:
    """What LLVM must know of code in vectors of 64 bytes: to use them, and that their estimates have 14 digits."""
    if target.detail("vector_bytes") != "64":
        return ""
    return ' "prefer-vector-width"="512"' + (' "reciprocal-estimates"="vec-sqrtf:0"' if fast_math else "")


def _lower_scalar(module: Module, target: TargetInfo, variant: CpuVariant, slots: tuple[Slot, ...]) -> str:
    fast_math = module.kernel.options.fast_math
    functions = device_functions(module)
    unit, mark = _lower_kernel(module.kernel, functions, target, variant, slots)
    # A function that may be handed a thread's own array cannot say that its accesses never meet another thread's.
    function_mark = "" if passes_private_arrays(module) else mark
    for function in functions.values():
        emit_function(unit, function, functions, function_mark, fast_math=fast_math)
    return str(unit)


def lower_call(
    kernel: Kernel, callee: DeviceFunction, target: TargetInfo, variant: CpuVariant, slots: tuple[Slot, ...]
) -> str:
    """The LLVM IR of a kernel whose body calls `callee`, which another module defines."""
    unit, _ = _lower_kernel(kernel, {callee.function.name: callee}, target, variant, slots)
    unit.add_function(callee.declaration())
    return str(unit)


def _lower_kernel(
    kernel: Kernel,
    functions: dict[str, DeviceFunction],
    target: TargetInfo,
    variant: CpuVariant,
    slots: tuple[Slot, ...],
) -> tuple[Unit, str]:
    """A unit with the entry point, and the mark of accesses that have no dependences between threads."""
    features = enabled_features(target)
    unit = Unit(features, lambda name: vector_functions(target, features, name))
    code = Code()
    group = unit.metadata("")
    mark = f", !llvm.access.group {group}"
    marks = _array_marks(unit, kernel, functions, mark)
    scalars, arrays = _load_parameters(unit, code, kernel.params, slots, variant, marks)
    segment = Segment(
        kernel=kernel,
        body=kernel.body,
        launch=_load_launch(code, kernel.ndim),
        scalars=scalars,
        arrays=arrays,
        functions=functions,
    )
    _emit_entry(unit, code, segment, LoopSegments(unit, code, group))
    return unit, mark


def _array_marks(unit: Unit, kernel: Kernel, functions: dict[str, DeviceFunction], mark: str) -> dict[str, str]:
    """What accesses to each array parameter carry."""
    names = [param.name for param in kernel.params if isinstance(param.type, ArrayType)]
    stored = array_stored_last(kernel.body, functions)
    if stored is None:
        return dict.fromkeys(names, mark)
    domain = unit.metadata("self")
    scopes = unit.metadata(unit.metadata(f"self, {domain}"))
    return {name: f"{mark}, !{'alias.scope' if name == stored else 'noalias'} {scopes}" for name in names}


def _load_parameters(
    unit: Unit,
    code: Code,
    params: tuple[Parameter, ...],
    slots: tuple[Slot, ...],
    variant: CpuVariant,
    marks: dict[str, str],
) -> tuple[dict[str, str], dict[str, ArrayOperands]]:
    """The scalar parameters and the arrays that the slots hold, read once at the start of the entry point."""
    arithmetic = Arithmetic(unit, code, fast_math=False)
    scalars: dict[str, str] = {}
    pointers: dict[int, str] = {}
    shapes: dict[int, dict[int, str]] = {}
    strides: dict[int, dict[int, str]] = {}
    for number, slot in enumerate(slots):
        cell = code.value(f"getelementptr inbounds i64, ptr %cells, i64 {number}")
        match slot.kind:
            case SlotKind.POINTER:
                pointers[slot.param] = code.value(f"load ptr, ptr {cell}, align 8")
            case SlotKind.SHAPE:
                shapes.setdefault(slot.param, {})[slot.axis] = code.value(f"load i64, ptr {cell}, align 8")
            case SlotKind.STRIDE:
                strides.setdefault(slot.param, {})[slot.axis] = code.value(f"load i64, ptr {cell}, align 8")
            case SlotKind.SCALAR:
                scalars[params[slot.param].name] = arithmetic.load(slot.dtype, cell, "")
            case SlotKind.EXTENT | SlotKind.START | SlotKind.GRID:
                pass  # The geometry holds these.
    arrays = {}
    for number, param in enumerate(params):
        if isinstance(param.type, ArrayType):
            own_strides = strides.get(number, {})
            if variant.contiguous and param.type.ndim:
                own_strides[param.type.ndim - 1] = "1"
            arrays[param.name] = ArrayOperands(
                element=scalar(param.type.element),
                pointer=pointers.get(number, "null"),
                shape=shapes.get(number, {}),
                strides=own_strides,
                metadata=marks[param.name],
            )
    return scalars, arrays


def _load_launch(code: Code, ndim: int) -> Launch:
    """The geometry, read once at the start of the entry point."""

    def row(number: int) -> tuple[str, ...]:
        operands = []
        for axis in range(ndim):
            offset = number * MAX_NDIM + axis
            address = code.value(f"getelementptr inbounds i64, ptr %geometry, i64 {offset}")
            operands.append(code.value(f"load i64, ptr {address}, align 8"))
        return tuple(operands)

    return Launch(grid=row(0), extent=row(1), start=row(2))


def _emit_entry(unit: Unit, code: Code, segment: Segment, segments: SegmentEmitter, attributes: str = "") -> None:
    """Adds the entry point, which runs the segment for every point or block that it is given."""
    if segment.kernel.form is LaunchForm.OVER:
        segments.emit_points(segment, "%first", "%end")
    else:
        count_up(code, "%first", "%end", _with_block_id(code, segment, segments.emit_block))
    code.end("ret void")
    unit.add_function(code.function(_SIGNATURE + attributes))


def _with_block_id(
    code: Code, segment: Segment, emit_block: Callable[[Segment, tuple[str, ...]], None]
) -> Callable[[str], None]:
    """The body of the loop over blocks, which takes a block's number apart into its place in the grid."""

    def body(number: str) -> None:
        block_id: list[str] = []
        rest = number
        for axis in reversed(range(1, segment.kernel.ndim)):
            along = segment.launch.grid[axis]
            quotient = code.value(f"udiv i64 {rest}, {along}")
            block_id.insert(0, code.value(f"sub i64 {rest}, {code.value(f'mul i64 {quotient}, {along}')}"))
            rest = quotient
        emit_block(segment, (rest, *block_id))

    return body
