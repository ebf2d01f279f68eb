"""Where a kernel's code comes from: a Python function, or a ready-made source in a backend's language."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import FunctionType
from typing import TYPE_CHECKING, Any, Protocol, final

from quernel.dtypes import ArrayType, ParameterType
from quernel.errors import CompilationError, QuernelError
from quernel.values import evolve, field_names

if TYPE_CHECKING:
    from quernel.compiler.definition import ForeignSource, KernelDefinition, Specialization
    from quernel.identity import CapturedCode, CapturedValues, KernelId
    from quernel.ir.nodes import Module

__all__ = ["ForeignOrigin", "FunctionOrigin", "Origin", "OutdatedKernelError"]


class OutdatedKernelError(CompilationError):
    """A kernel captures other values by now than those that its id was made of. Nothing is compiled or kept."""


class Origin(Protocol):
    """A kernel before it is specialized."""

    @property
    def name(self) -> str:
        """The user's name of the kernel."""
        ...

    def capture(self) -> CapturedCode:
        """Its content as of now."""
        ...

    def define(self, captured: CapturedCode, values: CapturedValues, made: Specialization) -> KernelDefinition:
        """The specialized kernel."""
        ...


@final
class FunctionOrigin:
    """A kernel written as a Python function."""

    def __init__(self, function: FunctionType) -> None:
        self.function = function
        self.name = function.__name__

    def capture(self) -> CapturedCode:
        """Its code and what it captured, as of now."""
        from quernel.identity import capture

        return capture(self.function)

    def define(self, captured: CapturedCode, values: CapturedValues, made: Specialization) -> KernelDefinition:
        """The specialized kernel; the frontend runs when its IR is asked for, and reads what `captured` has read."""
        from quernel.compiler.definition import KernelDefinition

        constants = dict(made.constants)

        def expand() -> tuple[Module, bool]:
            from quernel.lang import expand as expand_function

            try:
                expansion = expand_function(
                    self.function,
                    name=self.name,
                    parameter_types=dict(made.parameters),
                    constants=constants,
                    form=made.form,
                    block=made.block,
                    options=made.options,
                )
            except QuernelError:  # It may be about what the id does not stand for.
                self._check_unchanged(captured, values, constants)
                raise
            self._check_unchanged(captured, values, constants)
            return expansion

        return KernelDefinition(_id(self.name, captured, values, made), made, expand=expand)

    def _check_unchanged(self, captured: CapturedCode, values: CapturedValues, constants: Mapping[str, Any]) -> None:
        """Raises where the frontend may have read other values than those in the kernel's id.

        Raises:
            OutdatedKernelError: something that the kernel captures was assigned to since.
        """
        if captured.is_current() and values.guards.is_current():
            return
        from quernel.identity import capture_values

        # Other objects, as a property makes them anew at each access, may be equal all the same.
        if self.capture().digest == captured.digest and capture_values(constants).digest == values.digest:
            return
        raise OutdatedKernelError(
            f"a value that kernel {self.name} captures changed before the kernel was compiled",
            fix="launch it again, and assign to what it captures while nothing compiles it",
        )


@final
class ForeignOrigin:
    """A kernel given as a ready-made source."""

    def __init__(self, source: ForeignSource, pointers: Collection[str] = ()) -> None:
        """`pointers` names the arrays that are passed as their pointer alone, whatever their rank."""
        self.source = source
        self._pointers = frozenset(pointers)
        self.name = source.entry
        self._captured: CapturedCode | None = None

    def capture(self) -> CapturedCode:
        """Its text, which never changes."""
        if self._captured is None:
            from quernel.digests import sha256
            from quernel.identity import CapturedCode, Guards, encode

            source = self.source
            content = encode(("source kernel", source.language, source.text, source.entry, source.writes))
            digest = sha256(content).hexdigest()
            self._captured = CapturedCode((("code", digest),), Guards())
        return self._captured

    def define(self, captured: CapturedCode, values: CapturedValues, made: Specialization) -> KernelDefinition:
        """The source with the types of its parameters."""
        from quernel.compiler.definition import KernelDefinition

        made = evolve(made, parameters=tuple(self._passed(name, given) for name, given in made.parameters))
        return KernelDefinition(_id(self.name, captured, values, made), made, foreign=self.source)

    def _passed(self, name: str, given: ParameterType) -> tuple[str, ParameterType]:
        return name, ArrayType(given.element) if name in self._pointers and isinstance(given, ArrayType) else given


def _id(name: str, captured: CapturedCode, values: CapturedValues, made: Specialization) -> KernelId:
    from quernel.identity import kernel_id

    return kernel_id(
        captured,
        name=name,
        types=tuple((parameter, _encodable(given)) for parameter, given in made.parameters),
        constants=values,
        block=made.block,
        options=_encodable_options(made.options),
        form=made.form.value,
    )


def _encodable(given: ParameterType) -> tuple[object, ...]:
    if isinstance(given, ArrayType):
        return ("array", given.element, given.ndim)
    return ("scalar", given.dtype, given.weak)


def _encodable_options(options: Any) -> Mapping[str, object]:
    return {name: getattr(options, name) for name in field_names(type(options))}
