"""How kernels are made: from a function of Python, or from a ready-made source."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import Any, overload

from quernel.api.kernels import UNSET, Kernel, normalized
from quernel.errors import KernelTypeError, LaunchError
from quernel.options import KernelOptions, refuse_unknown_settings, switch
from quernel.runtime.definitions import ForeignOrigin, FunctionOrigin
from quernel.runtime.launchables import Launchable
from quernel.runtime.parameters import Parameters

__all__ = ["kernel", "source_kernel"]


@overload
def kernel(function: Callable[..., Any], /) -> Kernel: ...
@overload
def kernel(
    *,
    block: int | tuple[int, ...] | None = None,
    checked: bool = ...,
    fast_math: bool = False,
    debug: bool = False,
    contract: bool = True,
) -> Callable[[Callable[..., Any]], Kernel]: ...
def kernel(
    function: Callable[..., Any] | None = None,
    /,
    *,
    block: int | tuple[int, ...] | None = None,
    checked: bool = UNSET,
    fast_math: bool = False,
    debug: bool = False,
    contract: bool = True,
    **unknown: Any,
) -> Kernel | Callable[[Callable[..., Any]], Kernel]:
    """Makes a function a kernel: `@qn.kernel`, or `@qn.kernel(block=, checked=, fast_math=, debug=, contract=)`.

    Nothing is compiled yet. What the settings mean is said at `Kernel.options`.

    Raises:
        KernelTypeError: it is no function written with `def`, an annotation is no parameter type, or there is no such
            setting or value of one.
        KernelSyntaxError: it takes `*args` or `**kwargs`.
    """
    switches = {"checked": checked, "fast_math": fast_math, "debug": debug, "contract": contract}
    settings = {"block": block, **switches}
    try:
        if unknown:
            refuse_unknown_settings("@qn.kernel", unknown, tuple(settings))
        is_checked = None if switches.pop("checked") is UNSET else switch("checked", checked)
        options = KernelOptions(**{name: switch(name, given) for name, given in switches.items()})
        shape = normalized(block)
    except (KernelTypeError, LaunchError) as error:
        from quernel.runtime.launch_sites import as_raised_by_the_call

        raise as_raised_by_the_call(error, 1) from error.__cause__
    plain = {"block": None, "checked": UNSET, "fast_math": False, "debug": False, "contract": True}

    def make(given: Callable[..., Any], scope: Mapping[str, Any]) -> Kernel:
        if not isinstance(given, FunctionType) or given.__name__ == "<lambda>":
            raise KernelTypeError(
                f"@qn.kernel got {given!r}, which is not a function written with def",
                fix="write a function with def, and put @qn.kernel above it as the only decorator",
            )
        launchable = Launchable(
            FunctionOrigin(given), Parameters(given, scope), options, block=shape, checked=is_checked
        )
        made = Kernel(launchable, given)
        made._settings = {name: value for name, value in settings.items() if value != plain[name]}
        return made

    if function is not None:
        return make(function, _scope(function))
    return lambda given: make(given, _scope(given))


def _scope(function: Callable[..., Any]) -> Mapping[str, Any]:
    """The names that the definer of a kernel sees; wanted only for annotations that are strings."""
    annotated = getattr(function, "__annotate__", None) is not None  # evaluated later, from Python 3.14 on
    if annotated or any(isinstance(given, str) for given in getattr(function, "__annotations__", {}).values()):
        return sys._getframe(2).f_locals
    return {}


def source_kernel(
    language: str, text: str, *, entry: str, params: Mapping[str, Any], writes: Sequence[str] = ()
) -> Kernel:
    """A ready-made source as a kernel, launched as any other.

    Args:
        language: what it is written in, for example `llvm-ir`; a backend says which it takes.
        text: the source.
        entry: the name of the function to call.
        params: name and annotation of each parameter, in order. An array with element type and rank, such as
            `qn.Array1[qn.f32]`, is passed as a pointer, its lengths and its strides; one without rank,
            `qn.Array[qn.f32]`, as a pointer alone, and must be C-contiguous.
        writes: the names of the array parameters that it writes.

    Raises:
        KernelTypeError: a parameter has no exact type, or `writes` names none of the arrays.
    """
    from quernel.compiler.definition import ForeignSource
    from quernel.dtypes import ArrayType, ScalarType

    for what, given in (("language", language), ("text", text), ("entry", entry)):
        if not isinstance(given, str):
            raise KernelTypeError(f"{what} of a source kernel is a {type(given).__name__}, not text", fix="pass a str")
    if not isinstance(params, Mapping):
        raise KernelTypeError(
            f"params of source kernel {entry} is a {type(params).__name__}, not a mapping",
            fix='pass the annotations by name: params={"x": qn.Array1[qn.f32]}',
        )
    parameters = Parameters.declare(entry, params)
    for spec in parameters.specs:
        declared = spec.declared
        if not isinstance(declared, ScalarType | ArrayType) or (
            isinstance(declared, ArrayType) and declared.element is None
        ):
            raise KernelTypeError(
                f"parameter {spec.name!r} of source kernel {entry} has no exact type",
                fix="give a scalar type or an array with element type, such as qn.f32 or qn.Array1[qn.f32]",
            )
    arrays = [spec.name for spec in parameters.specs if isinstance(spec.declared, ArrayType)]
    for name in writes:
        if name not in arrays:
            raise KernelTypeError(f"source kernel {entry} has no array parameter {name!r}", fix=f"its arrays: {arrays}")
    source = ForeignSource(language, text, entry, tuple(writes))
    pointers = [
        spec.name for spec in parameters.specs if isinstance(spec.declared, ArrayType) and spec.declared.ndim is None
    ]
    return Kernel(Launchable(ForeignOrigin(source, pointers), parameters, KernelOptions()))
