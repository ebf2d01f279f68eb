"""IR to LLVM IR text: the entry point, and the slots that it reads.

Every kernel has one calling convention: `void quernel_entry(ptr cells, ptr geometry, i64 first, i64 end)`.
`cells` holds 8 bytes for each slot of the header, the value in the low ones. `geometry` holds ten i64: blocks, then
points or threads, then first `global_id`, each along up to three axes in array order, then whether stores go past the
caches; where the kernel needs scratch memory, its address follows, which is the calling thread's alone. The entry point
runs the points `first` to `end` of an `over` launch, counted in array order, or those blocks of a grid; once a check
has failed in any thread, it returns at the next block or run of points.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from attrs import evolve

from quernel.capabilities import TargetInfo
from quernel.compiler.artifacts import Slot, SlotKind
from quernel.dtypes import ArrayType, DType
from quernel.geometry import MAX_NDIM, LaunchForm
from quernel.ir.nodes import Assert, Kernel, Module, Parameter
from quernel.ir.segments import SegmentedKernel
from quernel.ir.walk import walk_statements
from quernel_cpu import _toolchain
from quernel_cpu.emission.arithmetic import Arithmetic
from quernel_cpu.emission.arrays import ArrayOperands
from quernel_cpu.emission.bodies import emit_function
from quernel_cpu.emission.cells import NO_SCRATCH, Scratch, block_cells, spread_arrays
from quernel_cpu.emission.coarsening import Step
from quernel_cpu.emission.expressions import Operands
from quernel_cpu.emission.functions import DeviceFunction, device_functions, passes_own_arrays
from quernel_cpu.emission.independence import array_stored_last
from quernel_cpu.emission.lane_functions import LaneFunctions
from quernel_cpu.emission.loops import count_up
from quernel_cpu.emission.regions import RegionEmitter
from quernel_cpu.emission.reports import violation_seen
from quernel_cpu.emission.segments import Launch, LoopSegments, Segment, SegmentEmitter
from quernel_cpu.emission.spmd import SpmdSegments
from quernel_cpu.emission.streaming import Streaming, finish_streaming
from quernel_cpu.emission.text import Code, Unit
from quernel_cpu.targets import enabled_features
from quernel_cpu.types import CpuVariant
from quernel_cpu.vectormath import vector_functions

__all__ = ["ENTRY", "lower_call", "lower_module"]

ENTRY = "quernel_entry"
"""Name of every entry point; equal kernels under different names are equal objects."""

_SIGNATURE = (
    f"void @{ENTRY}(ptr noalias readonly %cells, ptr noalias readonly %geometry, i64 %first, i64 %end) "
    "nounwind alignstack(64)"
)


_POINTS_BETWEEN_CHECKS = 4096
"""How many points of a launch with checks run before it is asked whether one failed elsewhere."""


def lower_module(
    module: Module,
    target: TargetInfo,
    variant: CpuVariant,
    slots: tuple[Slot, ...],
    segmented: SegmentedKernel | None = None,
    *,
    scratch: Scratch = NO_SCRATCH,
    step: Step | None = None,
    streamed: str | None = None,
) -> str:
    """The LLVM IR of a validated module, whose entry point receives `slots`; `segmented` if its threads meet.

    `scratch`: where what is too large for the frame lies. `step`: the threads that run together, if threads are lanes
    of vectors and the module is in `spmd_form`. `streamed`: the array whose stores go past the caches in launches that
    ask for it.
    """
    module = module if segmented is None else segmented.module
    fast_math = module.kernel.options.fast_math
    functions = device_functions(module)
    unit, mark = _lower_kernel(
        module.kernel,
        functions,
        target,
        variant,
        slots,
        segmented,
        scratch=scratch,
        step=step,
        streamed=streamed,
    )
    if step is not None:
        return str(unit)
    # A function that may be handed memory of a thread or a block cannot say that threads never meet there.
    function_mark = "" if passes_own_arrays(module) else mark
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
    segmented: SegmentedKernel | None = None,
    *,
    scratch: Scratch = NO_SCRATCH,
    step: Step | None = None,
    streamed: str | None = None,
) -> tuple[Unit, str]:
    """A unit with the entry point, and the mark of accesses that have no dependences between threads."""
    features = enabled_features(target)

    def gathers() -> bool:
        machine = target.detail("triple"), target.detail("cpu"), target.detail("features")
        return "avx2" in features and _toolchain.gathers(*machine)

    unit = Unit(features, lambda name: vector_functions(target, features, name), gathers)
    code = Code()
    group = unit.metadata("")
    mark = f", !llvm.access.group {group}"
    marks = _array_marks(unit, kernel, functions, mark)
    scalars, arrays = _load_parameters(unit, code, kernel.params, slots, variant, marks)
    streaming = None
    if streamed is not None:
        streaming = _load_streaming(unit, code)
        arrays[streamed] = evolve(arrays[streamed], streaming=streaming)
    segment = Segment(
        kernel=kernel,
        body=kernel.body,
        launch=_load_launch(code, kernel.ndim),
        scalars=scalars,
        arrays=arrays,
        functions=functions,
        diagnostics=_load_diagnostics(code, slots),
    )
    memory = _load_scratch(code) if scratch.num_bytes else ""
    attributes = ""
    if step is None:
        segments_in: Callable[[Code], SegmentEmitter] = partial(_loop_segments, unit, group)
    else:
        segment = evolve(segment, spread=spread_arrays(code, kernel, segmented, scratch, memory))
        attributes = _vector_attributes(target, fast_math=kernel.options.fast_math)
        segments_in = _spmd_segments(unit, kernel, functions, step, target, attributes)

    done = code.label("stop")

    def items(segment: Segment) -> None:
        segments = segments_in(code)
        run_block: Callable[[tuple[str, ...]], None] = partial(segments.emit_block, segment)
        if segmented is not None:
            cells, shared = block_cells(code, segmented, scratch, memory, mark)
            segment = evolve(segment, arrays=segment.arrays | shared, cells=cells, private=segmented.private)
            run_block = RegionEmitter(unit, code, segments_in, segmented, segment).emit_block
        _emit_items(unit, code, segment, segments, run_block, done)

    strides = _last_strides(kernel.params, arrays) if step is not None else {}
    if strides:
        # Views of whole rows are common: where neighbours lie side by side after all, nothing is gathered.
        near, far = code.label("near"), code.label("far")
        code.branch_if(_all_one(code, list(strides.values())), near, far)
        code.place(near)
        items(evolve(segment, arrays=_with_near_elements(kernel.params, arrays, strides)))
        code.branch(done)
        code.place(far)
    items(segment)
    code.place(done)
    if streaming is not None:
        finish_streaming(unit, code, streaming)
    code.end("ret void")
    unit.add_function(code.function(_SIGNATURE + attributes))
    return unit, mark


def _loop_segments(unit: Unit, group: str, code: Code) -> SegmentEmitter:
    return LoopSegments(unit, code, group)


def _spmd_segments(
    unit: Unit,
    kernel: Kernel,
    functions: dict[str, DeviceFunction],
    step: Step,
    target: TargetInfo,
    attributes: str,
) -> Callable[[Code], SegmentEmitter]:
    """What runs threads as lanes, in the code of any function."""
    fast_math = kernel.options.fast_math
    lane_functions = LaneFunctions(unit, functions, step.width, fast_math=fast_math, attributes=attributes)
    # A mask costs next to nothing with AVX-512, but for elements of several scalars, each of which has to have it.
    masks_always = target.detail("vector_bytes") == "64" and not any(map(_has_several_scalars, kernel.params))

    def segments_in(code: Code) -> SegmentEmitter:
        return SpmdSegments(unit, code, step, lane_functions, fast_math=fast_math, masks_always=masks_always)

    return segments_in


def _last_strides(params: tuple[Parameter, ...], arrays: dict[str, ArrayOperands]) -> dict[str, str]:
    """The strides along the last axis that are only known at run time."""
    found = {param.name: arrays[param.name].strides.get(_last_axis(param), "") for param in params if _is_array(param)}
    return {name: stride for name, stride in found.items() if stride.startswith("%")}


def _has_several_scalars(param: Parameter) -> bool:
    return isinstance(param.type, ArrayType) and not isinstance(param.type.element, DType)


def _is_array(param: Parameter) -> bool:
    return isinstance(param.type, ArrayType)


def _last_axis(param: Parameter) -> int:
    assert isinstance(param.type, ArrayType)
    return (param.type.ndim or 0) - 1


def _all_one(code: Code, strides: list[str]) -> str:
    conditions = [code.value(f"icmp eq i64 {stride}, 1") for stride in strides]
    together = conditions[0]
    for condition in conditions[1:]:
        together = code.value(f"and i1 {together}, {condition}")
    return together


def _with_near_elements(
    params: tuple[Parameter, ...], arrays: dict[str, ArrayOperands], strides: dict[str, str]
) -> dict[str, ArrayOperands]:
    """The arrays with these last strides known to be 1."""
    near = {
        param.name: evolve(arrays[param.name], strides=arrays[param.name].strides | {_last_axis(param): "1"})
        for param in params
        if param.name in strides
    }
    return arrays | near


def _vector_attributes(target: TargetInfo, *, fast_math: bool) -> str:
    """What LLVM must know of code in vectors of 64 bytes: to use them, and that their estimates have 14 digits."""
    if target.detail("vector_bytes") != "64":
        return ""
    return ' "prefer-vector-width"="512"' + (' "reciprocal-estimates"="vec-sqrtf:0"' if fast_math else "")


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
) -> tuple[dict[str, Operands], dict[str, ArrayOperands]]:
    """The scalar parameters and the arrays that the slots hold, read once at the start of the entry point."""
    arithmetic = Arithmetic(unit, code, fast_math=False)
    scalars: dict[str, Operands] = {}
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
                scalars[params[slot.param].name] = (arithmetic.load(slot.dtype, cell, ""),)
            case SlotKind.EXTENT | SlotKind.START | SlotKind.GRID | SlotKind.DIAGNOSTICS:
                pass  # The geometry holds the first three; the last is no parameter's.
    arrays = {}
    for number, param in enumerate(params):
        if isinstance(param.type, ArrayType):
            own_strides = strides.get(number, {})
            assert param.type.element is not None
            if variant.contiguous and param.type.ndim:
                own_strides[param.type.ndim - 1] = "1"
            arrays[param.name] = ArrayOperands(
                element=param.type.element,
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


def _load_scratch(code: Code) -> str:
    """The address of the calling thread's scratch memory."""
    address = code.value(f"getelementptr inbounds i64, ptr %geometry, i64 {3 * MAX_NDIM + 1}")
    return code.value(f"load ptr, ptr {address}, align 8")


def _load_streaming(unit: Unit, code: Code) -> Streaming:
    address = code.value(f"getelementptr inbounds i64, ptr %geometry, i64 {3 * MAX_NDIM}")
    streams = code.value(f"load i64, ptr {address}, align 8")
    return Streaming(code.value(f"icmp ne i64 {streams}, 0"), f", !nontemporal {unit.metadata('i32 1')}")


def _load_diagnostics(code: Code, slots: tuple[Slot, ...]) -> str:
    """The address of the diagnostics buffer, where the launch has one."""
    for number, slot in enumerate(slots):
        if slot.kind is SlotKind.DIAGNOSTICS:
            cell = code.value(f"getelementptr inbounds i64, ptr %cells, i64 {number}")
            return code.value(f"load ptr, ptr {cell}, align 8")
    return "null"


def _emit_items(
    unit: Unit,
    code: Code,
    segment: Segment,
    segments: SegmentEmitter,
    run_block: Callable[[tuple[str, ...]], None],
    done: str,
) -> None:
    """Runs every point or block that the entry point is given."""
    kernel = segment.kernel
    is_checked = any(isinstance(stmt, Assert) for stmt in walk_statements(kernel.body))
    if kernel.form is LaunchForm.OVER and not is_checked:
        segments.emit_points(segment, "%first", "%end")
    elif kernel.form is LaunchForm.OVER:
        _emit_runs_of_points(unit, code, segment, segments, done)
    else:

        def block(number: str) -> None:
            if is_checked:
                _stop_after_violation(code, segment, done)
            run_block(_block_id(code, segment, number))

        count_up(code, "%first", "%end", block)


def _emit_runs_of_points(unit: Unit, code: Code, segment: Segment, segments: SegmentEmitter, done: str) -> None:
    count = code.value("sub nsw i64 %end, %first")
    rounded = code.value(f"add nsw i64 {count}, {_POINTS_BETWEEN_CHECKS - 1}")
    num_runs = code.value(f"udiv i64 {rounded}, {_POINTS_BETWEEN_CHECKS}")
    smaller = unit.declare("i64", "llvm.smin.i64", "i64", "i64")

    def run(number: str) -> None:
        _stop_after_violation(code, segment, done)
        first = code.value(f"add nsw i64 %first, {code.value(f'mul nsw i64 {number}, {_POINTS_BETWEEN_CHECKS}')}")
        full = code.value(f"add nsw i64 {first}, {_POINTS_BETWEEN_CHECKS}")
        segments.emit_points(segment, first, code.value(f"call i64 {smaller}(i64 {full}, i64 %end)"))

    count_up(code, "0", num_runs, run)


def _stop_after_violation(code: Code, segment: Segment, done: str) -> None:
    going_on = code.label("go.on")
    code.branch_if(violation_seen(code, segment.diagnostics), done, going_on)
    code.place(going_on)


def _block_id(code: Code, segment: Segment, number: str) -> tuple[str, ...]:
    """A block's number taken apart into its place in the grid."""
    block_id: list[str] = []
    rest = number
    for axis in reversed(range(1, segment.kernel.ndim)):
        along = segment.launch.grid[axis]
        quotient = code.value(f"udiv i64 {rest}, {along}")
        block_id.insert(0, code.value(f"sub i64 {rest}, {code.value(f'mul i64 {quotient}, {along}')}"))
        rest = quotient
    return (rest, *block_id)
