"""Quick launches: a function written for arguments of known kinds, which does what the general path would do for them.

The general path (`launchers`) is the reference. Once it has launched a kernel twice with arguments of the same kinds, a
function is written that compares what it looks up with what it found: each argument's kind, the values that the kernel
captured, the environment, the variables, the device. Where all is as it was, it packs the arguments and calls the
backend; where anything differs it leaves the launch to the general path, arguments untouched.

A comparison may also fail by raising (`_MISSES`). What else is raised meanwhile, by a signal's handler say, is raised
on: comparing runs no Python code of others as long as the arguments are of the classes that the function was written
for, so that an error from such code is none of the comparison's.
"""

from __future__ import annotations

import ctypes
import enum
import os
import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from types import CodeType
from typing import TYPE_CHECKING, Any, Final, assert_never, final

import numpy as np

from quernel import settings
from quernel.compiler.arguments import bf16_bits
from quernel.compiler.artifacts import Slot, SlotKind
from quernel.dtypes import bf16
from quernel.errors import LaunchError
from quernel.runtime.argument_reading import read_arguments
from quernel.runtime.argument_types import alignment_of
from quernel.runtime.arrays import DeviceArray
from quernel.runtime.directory import directory, used_device
from quernel.runtime.interceptors import standing
from quernel.runtime.launchers import Launcher
from quernel.runtime.layouts import ALIGNED16, CONTIGUOUS, INDEX32, MANY
from quernel.runtime.parameters import MISSING
from quernel.store import generation

if TYPE_CHECKING:
    from quernel.geometry import Geometry
    from quernel.runtime.devices import Device
    from quernel.runtime.launchables import Launchable
    from quernel.runtime.operations import Operand, ReadingLaunch, ShapedLaunch
    from quernel.runtime.parameters import Parameters
    from quernel.runtime.ready import Ready

__all__ = ["Placing", "QuickLaunch", "QuickPlan", "plan_for"]

QuickLaunch = tuple["QuickPlan", Callable[..., Any] | None, Callable[[Any], None]]
"""A plan, what takes the arguments, and what launches.

By the plan, what takes them gives cells to write, or reads and launches itself; `None`: they are passed as bytes.
"""

_PREFIX: Final = "_q_"
"""Begins all names in a written function; parameters have numbers."""
_NOTHING: Final = ctypes.c_char * 0
_PLAIN: Final = (int, str, bool)
_MAX_PLANS: Final = 16
_MISSES: Final = (
    AttributeError,
    BufferError,
    IndexError,
    KeyError,
    OverflowError,
    TypeError,
    ValueError,
    struct.error,
)
"""What comparing and packing raise for arguments and captured values that are not as they were."""


class Placing(enum.Enum):
    """What said on which device a launch runs."""

    ARRAYS = enum.auto()
    LAUNCHER = enum.auto()
    DIRECTORY = enum.auto()
    """The current device, or the host's, as neither launcher nor arrays said anything."""


def _directed_by() -> tuple[object, ...]:
    """What the directory's answer depends on, as identities."""
    variables = settings.launch_variables()
    named = None if variables is None else variables[0].get(variables[4])
    return used_device(), directory._default, named


@final
class QuickPlan:
    """A written function, and for which launchers it is.

    Attributes:
        ready: what it launches.
        function: the launcher's `__call__`. It launches by `self._quick`, what `shape` gave, if that is this plan's.
        block: the block of the launches that it is for.
        facts: those of their geometries.
        placing: what says that they are on this device.
        has_stream: whether it is for launchers with a stream of their own.
        launcher_type: the type of the launchers that use it.
    """

    __slots__ = (
        "_operands",
        "_waits",
        "_writes_cells",
        "block",
        "facts",
        "function",
        "has_stream",
        "launcher_type",
        "placing",
        "ready",
    )

    def __init__(
        self,
        ready: Ready,
        function: Callable[..., None],
        block: tuple[int, ...],
        facts: int,
        placing: Placing,
        *,
        has_stream: bool,
        waits: bool,
        writes_cells: bool,
        operands: tuple[Operand, ...] | None,
    ) -> None:
        self.ready = ready
        self.function = function
        self.block = block
        self.facts = facts
        self.placing = placing
        self.has_stream = has_stream
        self._waits = waits
        self._writes_cells = writes_cells
        self._operands = operands
        self.launcher_type: Any = None

    def is_placed_for(self, device: Device | None) -> bool:
        """Whether a launcher that names this device, or none, launches where the plan does."""
        match self.placing:
            case Placing.ARRAYS:
                return device is None or device is self.ready.device
            case Placing.LAUNCHER:
                return device is self.ready.device
            case Placing.DIRECTORY:
                return device is None
            case _:
                assert_never(self.placing)

    def shape(self, geometry: Geometry, stream: Any) -> QuickLaunch:
        """What launches in that shape: this plan, what gives memory for the arguments, and what takes them.

        Raises:
            QuernelError: the device does not take it.
        """
        ready = self.ready
        ready.check(geometry)
        operations = ready.device.operations
        if self._writes_cells:
            given = operations.prepare_cells(ready.loaded, ready.header, geometry, stream)
            assert given is not None
            return self, *given
        if self._operands is not None:
            read = _reading(ready, geometry, stream, self._operands, self.facts)
            if read is None:
                ready.plans.clear()
                raise LaunchError("the backend has stopped to read arguments itself")
            return self, *read
        run = operations.prepare_shape(ready.run, ready.loaded, ready.header, geometry, stream)
        if not self._waits:
            return self, None, run
        synchronize = operations.synchronize

        def run_and_wait(arguments: bytes) -> None:
            run(arguments)
            synchronize(stream)

        return self, None, run_and_wait


def plan_for(launcher: Launcher, ready: Ready, args: tuple[Any, ...]) -> QuickPlan | None:
    """The plan for launches like one that was just made on the general path, or `None` where there can be none.

    Plans are kept with what they launch.
    """
    kernel = launcher._kernel
    if kernel.interpret or ready.is_checked is not kernel.options.checked:
        return None
    placing = Placing.LAUNCHER if launcher._device is not None else Placing.DIRECTORY
    if any(value.__class__ is DeviceArray for value in args):
        placing = Placing.ARRAYS
    has_stream = launcher._stream is not None
    key = (placing, launcher._facts, has_stream, *(_directed_by() if placing is Placing.DIRECTORY else ()))
    try:
        return ready.plans[key]
    except KeyError:
        if len(ready.plans) >= _MAX_PLANS:
            ready.plans.clear()
        plan = ready.plans[key] = _made(launcher, ready, args, placing)
        return plan


def _made(launcher: Launcher, ready: Ready, args: tuple[Any, ...], placing: Placing) -> QuickPlan | None:
    parameters, geometry = launcher._kernel.parameters, launcher._geometry
    specs = parameters.specs
    variables = settings.launch_variables()
    if (
        variables is None
        or parameters.num_positional != len(specs)
        or any(spec.is_compound or spec.vector is not None for spec in specs)
    ):
        return None
    facts = read_arguments(specs, args, launcher._facts)[2]
    operations = ready.device.operations
    writes_cells = operations.prepare_cells(ready.loaded, ready.header, geometry, launcher._handle) is not None
    writer = _Writer(ready, facts, launcher._kernel, writes_cells=writes_cells)
    if not writer.read(parameters, args):
        return None
    if not writes_cells:
        writer.leave_reading(facts, geometry, launcher._handle)
    raw, environ, checked, interpret, device = variables
    writer.put(
        MISSING=MISSING,
        MISSES=_MISSES,
        GENERAL=Launcher._general,
        PACK=ready.pack.pack_into if writes_cells else ready.pack.pack,
        STANDING=standing,
        GENERATION=generation,
        NUMBER=generation(),
        RAW=raw,
        OS=os,
        ENVIRON=environ,
        CHECKED=checked,
        INTERPRET=interpret,
        DEVICE=ready.device,
    )
    writer.guard(ready)
    if placing is Placing.DIRECTORY:
        used, default, named = _directed_by()
        writer.put(USED=used_device, USE=used, DIRECTORY=directory, DEFAULT=default, DEVICE_KEY=device, NAMED=named)
        writer.conditions += [
            "_q_USED() is _q_USE",
            "_q_DIRECTORY._default is _q_DEFAULT",
            "_q_RAW.get(_q_DEVICE_KEY) is _q_NAMED",
        ]
        chosen = directory.named()
        if chosen is None:
            chosen = directory.host()
            writer.conditions.append("_q_DIRECTORY._host is _q_DEVICE")
        if chosen is not ready.device:  # Somebody named another one meanwhile.
            return None
    if launcher._stream is not None:
        writer.conditions.append("not _q_self._stream._closed")
    function = writer.function(parameters)
    plan = QuickPlan(
        ready,
        function,
        geometry.block,
        launcher._facts,
        placing,
        has_stream=launcher._stream is not None,
        waits=ready.waits and writer.has_host_arrays,
        writes_cells=writes_cells,
        operands=writer.operands if writer.is_left else None,
    )
    function.__globals__[f"{_PREFIX}PLAN"] = plan
    return plan


def _reading(
    ready: Ready, geometry: Geometry, stream: Any, operands: tuple[Operand, ...], facts: int
) -> tuple[ReadingLaunch, ShapedLaunch] | None:
    """What reads the arguments and launches, where the backend does both."""
    aligned16 = bool(facts & ALIGNED16)
    prepare = ready.device.operations.prepare_reading
    return prepare(ready.loaded, ready.header, geometry, stream, operands, aligned16=aligned16)


class _Writer:
    """Collects the conditions of a function, the cells that it packs, and the objects that its names stand for."""

    def __init__(self, ready: Ready, facts: int, kernel: Launchable, *, writes_cells: bool) -> None:
        self._is_checked_said = kernel.checked is not None
        self._is_interpret_said = kernel.interpret is not None
        self.conditions: list[str] = []
        self.operands: tuple[Operand, ...] = ()
        self.is_left = False
        """Whether the backend reads the arguments."""
        self._argument_conditions: list[str] = []
        """Those that a backend which reads the arguments sees to."""
        self.objects: dict[str, Any] = {"__builtins__": {"float": float, "type": type}}
        self._ready = ready
        self._facts = facts
        self._writes_cells = writes_cells
        self._names: list[str] = []
        self._classes: list[str] = []
        """Conditions that hold where the arguments are of the classes of those that were there."""
        self._passed: list[int] = []
        self._host: dict[int, int] = {}
        """Ranks of the NumPy arrays, by the parameter's number."""
        self._on_device: set[int] = set()
        self._alignments: list[str] = []

    def put(self, **objects: Any) -> None:
        """Gives objects their names in the function."""
        self.objects.update({_PREFIX + name: value for name, value in objects.items()})

    def read(self, parameters: Parameters, args: Sequence[Any]) -> bool:
        """Takes in the parameters with arguments like those to come; whether that can be done."""
        specs = parameters.specs
        if not specs:
            return False
        self._names = [f"{_PREFIX}{place}" for place in range(len(specs))]
        number = 0
        for place, (spec, value) in enumerate(zip(specs, args, strict=True)):
            self.put(**{f"CLASS{place}": type(value)})
            self._classes.append(f"type({self._names[place]}) is _q_CLASS{place}")
            if spec.is_const:
                self._constant(place, value)
                continue
            self._passed.append(place)
            if isinstance(value, DeviceArray):
                self.put(**{f"K{place}": value.launch_kind})
                self.conditions.append(f"{self._names[place]}.launch_kind is _q_K{place}")
                self.operands += ((int, None, 0),)
                self._on_device.add(place)
            elif isinstance(value, np.ndarray):
                if type(value) is not np.ndarray or not self._host_array(place, value):
                    return False
                self.operands += ((np.ndarray, value.dtype, value.ndim),)
            elif type(value) is np.void or "__attrs_attrs__" in type(value).__dict__:
                return False
            else:
                self._scalar(place, value, number)
                self.operands += ((type(value), None, 0),)
            number += 1
        return True

    def leave_reading(self, facts: int, geometry: Geometry, stream: Any) -> None:
        """Leaves the reading of the arguments to the backend, if it does that."""
        self.is_left = _reading(self._ready, geometry, stream, self.operands, facts) is not None

    def guard(self, ready: Ready) -> None:
        """Adds what the kernel captured."""
        for index, guards in enumerate(ready.guards):
            if guards.empty_cells or guards.attributes:
                self.put(**{f"CURRENT{index}": guards.is_current})
                self.conditions.append(f"_q_CURRENT{index}()")
                continue
            for number, (mapping, name, value) in enumerate(guards.reads):
                self.put(**{f"G{index}_{number}": mapping, f"N{index}_{number}": name, f"V{index}_{number}": value})
                self.conditions.append(f"_q_G{index}_{number}[_q_N{index}_{number}] is _q_V{index}_{number}")
            for number, (cell, value) in enumerate(guards.cells):
                self.put(**{f"C{index}_{number}": cell, f"W{index}_{number}": value})
                self.conditions.append(f"_q_C{index}_{number}.cell_contents is _q_W{index}_{number}")
            for number, (mapping, names) in enumerate(guards.absences):
                if names:
                    self.put(**{f"U{index}_{number}": mapping.keys().isdisjoint, f"S{index}_{number}": names})
                    self.conditions.append(f"_q_U{index}_{number}(_q_S{index}_{number})")

    @property
    def has_host_arrays(self) -> bool:
        """Whether NumPy arrays are among the arguments."""
        return bool(self._host)

    def function(self, parameters: Parameters) -> Callable[..., None]:
        """The function."""
        self.put(**{f"D{place}": default for place, default in enumerate(parameters.defaults)})
        exec(_compiled(self._text(parameters)), self.objects)
        function: Callable[..., None] = self.objects["__call__"]
        return function

    def _text(self, parameters: Parameters) -> str:
        conditions = [
            "_q_plan is _q_PLAN",
            *self.conditions,
            *(() if self.is_left else self._argument_conditions),
            "not _q_STANDING",
            "not _q_DEVICE.is_closed",
            "_q_GENERATION() == _q_NUMBER",
            *(() if self._is_checked_said else ("_q_CHECKED not in _q_RAW",)),
            *(() if self._is_interpret_said else ("_q_INTERPRET not in _q_RAW",)),
            "_q_OS.environ is _q_ENVIRON",
        ]
        given = "".join(f"{name}, " for name in self._names)
        taken = "".join(f"{name}=_q_MISSING, " for name in self._names)
        return "\n".join(
            [
                *self._head(parameters, taken, given),
                *(self._launched_by_backend(conditions, given) if self.is_left else self._launched(conditions, given)),
            ]
        )

    def _head(self, parameters: Parameters, taken: str, given: str) -> list[str]:
        """The lines that give every parameter its argument."""
        return [
            # By position only: Python's own words for a doubled or unknown keyword are not ours.
            f"def __call__(_q_self, {taken}/, *_q_rest, **_q_named):",
            "    _q_arguments = None",
            "    if _q_rest or _q_named:",
            *(
                f"        if {self._names[place]} is _q_MISSING and {name!r} in _q_named: "
                f"{self._names[place]} = _q_named.pop({name!r})"
                for place, name in enumerate(parameters.names)
                if place >= parameters.num_positional_only
            ),
            f"        if _q_rest or _q_named: return _q_GENERAL(_q_self, ({given}), _q_rest, _q_named)",
            *(
                f"    if {self._names[place]} is _q_MISSING: {self._names[place]} = _q_D{place}"
                for place, default in enumerate(parameters.defaults)
                if default is not MISSING
            ),
        ]

    def _launched_by_backend(self, conditions: list[str], given: str) -> list[str]:
        """The lines that launch where the backend reads the arguments. What it does is never done twice."""
        arguments = ", ".join(
            f"{self._names[place]}{'.address' if place in self._on_device else ''}" for place in self._passed
        )
        return [
            "    _q_read = None",
            "    try:",
            "        _q_plan, _q_take, _q_run = _q_self._quick",
            f"        if {' and '.join(conditions)}: _q_read = _q_take",
            *self._missed(),
            "        _q_read = None",
            f"    if _q_read is not None: _q_arguments = _q_read({arguments})",
            "    if _q_arguments is True: return",
            "    if _q_arguments is None:",
            f"        return _q_GENERAL(_q_self, ({given}), (), {{}})",
            "    _q_run(_q_arguments)",
        ]

    def _launched(self, conditions: list[str], given: str) -> list[str]:
        """The lines that read the arguments and launch."""
        lines = [
            "    try:",
            "        _q_plan, _q_take, _q_run = _q_self._quick",
            f"        if {' and '.join(conditions)}:",
        ]
        indent = " " * 12
        if self._host:
            for place, ndim in self._host.items():
                name = self._names[place]
                lengths = "".join(f"_q_n{place}_{axis}, " for axis in range(ndim))
                lines.append(f"{indent}{lengths}= {name}.shape")
                lines.append(f"{indent}_q_a{place} = _q_ADDRESS(_q_FROM({name}))")
            lines.append(f"{indent}if {' and '.join(self._host_conditions())}:")
            indent += "    "
        slots = self._ready.header.slots
        cells = ", ".join(self._cell(slot) for slot in slots)
        if self._writes_cells:
            lines += [f"{indent}_q_cells = _q_take()", *self._written(slots, cells, indent)]
            lines.append(f"{indent}_q_arguments = _q_cells")
        else:
            lines.append(f"{indent}_q_arguments = _q_PACK({cells})")
        lines += [
            *self._missed(),
            "        _q_arguments = None",
            "    if _q_arguments is None:",
            f"        return _q_GENERAL(_q_self, ({given}), (), {{}})",
            "    _q_run(_q_arguments)",
        ]
        return lines

    def _written(self, slots: Sequence[Slot], cells: str, indent: str) -> list[str]:
        """The lines that write cells which do not hold the very same values already.

        Most launches differ from the one before in few values or none, and looking takes a fourth of writing's time.
        """
        if not slots:
            return []
        if self._host:  # What is worked out from a NumPy array is a new object each time.
            return [
                f"{indent}_q_cells.held = ({'None, ' * len(slots)})",
                f"{indent}_q_PACK(_q_cells.buffer, 0, {cells})",
            ]
        held = "".join(f"_q_h{number}, " for number in range(len(slots)))
        values = [self._value(slot) for slot in slots]
        is_held = " and ".join(f"_q_h{number} is {value}" for number, value in enumerate(values))
        return [
            f"{indent}{held}= _q_cells.held",
            f"{indent}if not ({is_held}):",
            f"{indent}    _q_PACK(_q_cells.buffer, 0, {cells})",
            f"{indent}    _q_cells.held = ({', '.join(values)},)",
        ]

    def _missed(self) -> list[str]:
        """The lines that catch what a comparison raises, and what it does not raise pass on."""
        return [
            "    except _q_MISSES as _q_error:",
            f"        if _q_error.__traceback__.tb_next is not None and {' and '.join(self._classes)}: raise",
        ]

    def _constant(self, place: int, value: Any) -> None:
        name = self._names[place]
        self.put(**{f"K{place}": value})
        if type(value) in _PLAIN:
            self.put(**{f"T{place}": type(value)})
            self.conditions.append(f"{name}.__class__ is _q_T{place} and {name} == _q_K{place}")
        else:
            self.conditions.append(f"{name} is _q_K{place}")

    def _scalar(self, place: int, value: Any, number: int) -> None:
        name = self._names[place]
        self.put(**{f"K{place}": type(value)})
        self._argument_conditions.append(f"{name}.__class__ is _q_K{place}")
        for index, least, greatest in self._ready.bounded:
            if index == number:
                self.put(**{f"L{place}": least, f"H{place}": greatest})
                self._argument_conditions.append(f"_q_L{place} <= {name} <= _q_H{place}")
        for index, largest in self._ready.narrow:
            # Packing f16 and f32 itself refuses what would become infinite.
            if index == number and self._ready.header.params[index].dtype == bf16.name:
                self.put(**{f"F{place}": largest})
                number_of = name if type(value) is float else f"float({name})"
                self._argument_conditions.append(f"-_q_F{place} <= {number_of} <= _q_F{place}")

    def _host_array(self, place: int, value: np.ndarray[Any, Any]) -> bool:
        """Takes in a NumPy array. Asking for its bytes shows that it is writable and contiguous."""
        if not (self._facts & CONTIGUOUS and self._facts & INDEX32 and value.ndim):
            return False
        name = self._names[place]
        self._host[place] = value.ndim
        self.put(ARRAY=np.ndarray, ADDRESS=ctypes.addressof, FROM=_NOTHING.from_buffer, MANY=MANY)
        self.put(**{f"K{place}": value.dtype})
        self._argument_conditions.append(f"{name}.__class__ is _q_ARRAY and {name}.dtype is _q_K{place}")
        if value.dtype.names is not None:  # They can be changed in place, and the kernel knows the fields by them.
            self.put(**{f"N{place}": value.dtype.names})
            self._argument_conditions.append(f"_q_K{place}.names is _q_N{place}")
        alignment = alignment_of(value.dtype)
        if (not self._facts & ALIGNED16 and alignment > 1) or alignment > 16:
            self._alignments.append(f"not _q_a{place} % {alignment:d}")
        return True

    def _host_conditions(self) -> list[str]:
        conditions = []
        for place, ndim in self._host.items():
            size = f"_q_n{place}_0" if ndim == 1 else f"{self._names[place]}.size"
            conditions.append(f"0 < {size} < _q_MANY")
        together = " | ".join(f"_q_a{place}" for place in self._host)
        conditions.append(f"{'not ' if self._facts & ALIGNED16 else ''}({together}) & 15")
        return conditions + self._alignments

    def _cell(self, slot: Slot) -> str:
        """The expression for what is packed for a slot."""
        value = self._value(slot)
        if slot.kind is not SlotKind.SCALAR or slot.dtype is not bf16:
            return value
        self.put(BF16=bf16_bits)
        return f"_q_BF16({value})"

    def _value(self, slot: Slot) -> str:
        """The expression for a slot's value."""
        axis = f"{slot.axis:d}"
        match slot.kind:
            case SlotKind.EXTENT | SlotKind.START | SlotKind.GRID:
                return f"_q_self._geometry.{slot.kind.value}[{axis}]"
            case SlotKind.SCALAR:
                return self._names[self._passed[slot.param]]
        place = self._passed[slot.param]
        name = self._names[place]
        if place not in self._host:
            member = {SlotKind.POINTER: "address", SlotKind.SHAPE: "shape", SlotKind.STRIDE: "steps"}[slot.kind]
            return f"{name}.{member}" if slot.kind is SlotKind.POINTER else f"{name}.{member}[{axis}]"
        match slot.kind:
            case SlotKind.POINTER:
                return f"_q_a{place}"
            case SlotKind.SHAPE:
                return f"_q_n{place}_{axis}"
            case _:
                following = [f"_q_n{place}_{later}" for later in range(slot.axis + 1, self._host[place])]
                return " * ".join(following) or "1"


@lru_cache(maxsize=512)
def _compiled(text: str) -> CodeType:
    """The code of a function; kernels of the same form share it."""
    return compile(text, "<quernel launch>", "exec")
