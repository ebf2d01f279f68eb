"""A kernel's parameters as its user declared them: names, annotations, defaults."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any, Final, TypeVar, final

import numpy as np

from quernel.dtypes import (
    Array,
    ArrayType,
    ConstAnnotation,
    DType,
    ScalarType,
    StructType,
    VectorType,
    bool_,
    dtype_of,
    f64,
    i64,
)
from quernel.errors import KernelSyntaxError, KernelTypeError
from quernel.locations import Location
from quernel.wording import counted, plural

__all__ = ["MISSING", "Declared", "Parameters", "Spec", "declared_type"]

_ARRAY_ANNOTATION: Final = type(Array)
_PLAIN: Final[dict[object, ScalarType]] = {
    float: ScalarType(f64, weak=True),
    int: ScalarType(i64, weak=True),
    bool: ScalarType(bool_),
}
_VARARGS, _VARKEYWORDS = 0x04, 0x08
_ALLOWED = "annotate it with float, int, bool, a type such as qn.f32, qn.Array[T], qn.Const[T], or not at all"

Declared = ScalarType | ArrayType | ConstAnnotation | StructType | type | TypeVar | None
"""What an annotation says. A class is a struct. `None` and a type variable, which is one type wherever it stands among
the parameters, leave it to the argument."""


class _Missing:
    def __repr__(self) -> str:
        return "no default"


MISSING: Final = _Missing()


@final
class Spec:
    """One parameter: its name, what its annotation says, and its default.

    Attributes:
        is_const: fixed when the kernel is compiled.
        vector: for an array of vectors, their type.
        is_special: one of the two, so that reading an argument has to look closer.
        is_compound: a struct or vector, which is passed part by part.
        variable: the type variable in its annotation.
    """

    __slots__ = ("declared", "default", "is_compound", "is_const", "is_special", "name", "variable", "vector")

    def __init__(self, name: str, declared: Declared, default: object = MISSING) -> None:
        self.name = name
        self.declared = declared
        self.default = default
        self.is_const = isinstance(declared, ConstAnnotation)
        element: object = declared.element if isinstance(declared, ArrayType) else None
        held = declared if element is None else element
        self.variable = held if isinstance(held, TypeVar) else None
        self.vector = element if isinstance(element, VectorType) else None
        self.is_special = self.is_const or self.vector is not None
        is_vector = isinstance(declared, ScalarType) and isinstance(declared.dtype, VectorType)
        self.is_compound = is_vector or isinstance(declared, StructType | type)

    def __repr__(self) -> str:
        return f"Spec({self.name}: {self.declared})"


def declared_type(name: str, annotation: Any) -> Declared:
    """What an annotation of the parameter `name` says.

    Raises:
        KernelTypeError: it is no annotation of the kernel language.
    """
    if isinstance(annotation, DType | VectorType):
        return ScalarType(annotation)
    if isinstance(annotation, ConstAnnotation | ScalarType | StructType | ArrayType | TypeVar):
        return annotation
    if isinstance(annotation, _ARRAY_ANNOTATION):
        return ArrayType(None, annotation.ndim)
    try:
        plain = _PLAIN.get(annotation)
    except TypeError:  # not hashable
        plain = None
    if plain is not None:
        return plain
    if isinstance(annotation, np.dtype) and annotation.names is not None:
        return _struct_of(annotation)
    if isinstance(annotation, type) and "__attrs_attrs__" in vars(annotation):
        return _frozen(name, annotation)
    if isinstance(annotation, type) and issubclass(annotation, np.generic):
        return ScalarType(dtype_of(annotation))
    shown = annotation.__name__ if isinstance(annotation, type) else repr(annotation)
    raise KernelTypeError(
        f"parameter {name!r} is annotated {shown}, which is no parameter type", fix=_meant(annotation)
    )


def _meant(annotation: Any) -> str:
    """What to write for an annotation that says nothing to a kernel."""
    origin = getattr(annotation, "__origin__", annotation)
    if origin in (np.ndarray, list, tuple):
        return "annotate it with qn.Array[T], such as qn.Array[qn.f32] or, of one axis, qn.Array1[qn.f32]"
    if hasattr(annotation, "__dataclass_fields__"):
        return f"make {annotation.__name__} a struct: @attrs.frozen in place of @dataclass"
    if annotation is complex:
        return "pass the real and the imaginary part, each a float"
    return _ALLOWED


def _struct_of(dtype: np.dtype[Any]) -> StructType:
    from quernel.structs import struct_of

    return struct_of(dtype)


def _frozen(name: str, cls: type) -> type:
    if cls.__hash__ is None:  # attrs takes the hash away from what may change
        raise KernelTypeError(
            f"parameter {name!r} is annotated {cls.__name__}, whose instances may change",
            fix="make the class a frozen one, with @attrs.frozen",
        )
    return cls


@final
class Parameters:
    """The parameters of a function, and how arguments are bound to them.

    Annotations that are strings are evaluated with the function's closure and globals and the names that its definer
    saw; where a name is not there yet, `resolve` tries again.

    Attributes:
        names: in order; `num_positional` of them may be given by position, `num_positional_only` only so.
    """

    def __init__(self, function: FunctionType, scope: Mapping[str, Any]) -> None:
        code = function.__code__
        where = Location(code.co_filename, code.co_firstlineno)
        if code.co_flags & (_VARARGS | _VARKEYWORDS):
            name = code.co_varnames[code.co_argcount + code.co_kwonlyargcount]
            raise KernelSyntaxError(
                f"kernel {function.__name__!r} takes *args or **kwargs",
                where=_place_of(function, name),
                fix="name every parameter",
            )
        self.function_name = function.__name__
        self.num_positional_only = code.co_posonlyargcount
        self.num_positional = code.co_argcount
        self.names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        self._index = {name: index for index, name in enumerate(self.names)}
        self._defaults = _defaults(function, self.names)
        self._function = function
        self._where = where
        self._scope = scope
        self._specs: tuple[Spec, ...] | None = None
        self._unresolved: NameError | None = None
        self._try()
        if self._unresolved is None:
            self._scope = {}
        else:  # only what the annotations may still want, so that the definer's frame is not kept
            self._scope = {name: scope[name] for name in _names_in(function) if name in scope}

    @classmethod
    def declare(cls, owner: str, declared: Mapping[str, Any]) -> Parameters:
        """Parameters given by name and annotation, all positional, without defaults."""
        self = cls.__new__(cls)
        self.function_name = owner
        self.num_positional_only = 0
        self.num_positional = len(declared)
        self.names = tuple(declared)
        self._index = {name: index for index, name in enumerate(self.names)}
        self._defaults = (MISSING,) * len(declared)
        self._specs = tuple(Spec(name, declared_type(name, annotation)) for name, annotation in declared.items())
        self._unresolved = None
        return self

    @property
    def defaults(self) -> tuple[object, ...]:
        """The parameters' defaults, `MISSING` where there is none."""
        return self._defaults

    @property
    def specs(self) -> tuple[Spec, ...]:
        """The parameters.

        Raises:
            KernelTypeError: an annotation names something that is still not there.
        """
        if self._specs is None:
            self._try()
            if self._specs is None:
                raise KernelTypeError(
                    f"an annotation of kernel {self.function_name!r} cannot be evaluated: {self._unresolved}",
                    where=self._where,
                    fix="define the name before the kernel is launched, or write the type itself",
                )
        return self._specs

    def _try(self) -> None:
        name = ""
        specs = []
        try:
            read = _annotations(self._function, self._scope)
            for name, default in zip(self.names, self._defaults, strict=True):
                annotation = read(name)
                declared = None if annotation is MISSING else declared_type(name, annotation)
                specs.append(Spec(name, declared, default))
        except NameError as error:
            self._unresolved = error
            return
        except KernelTypeError as error:
            raise KernelTypeError(error.what, where=_place_of(self._function, name), fix=error.fix) from None
        self._specs = tuple(specs)
        self._unresolved = None

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
        """The arguments in the parameters' order, defaults filled in, as a call of the function would have them.

        Raises:
            KernelTypeError: too many, missing, unknown or doubled arguments.
        """
        names = self.names
        if len(args) > self.num_positional:
            raise self._refused(
                f"takes {counted(self.num_positional, 'positional argument')} but "
                f"{len(args)} {plural(len(args), 'was')} given"
            )
        values = [*args, *self._defaults[len(args) :]]
        for name, value in kwargs.items():
            index = self._index.get(name)
            if index is None:
                raise self._refused(f"got an unexpected keyword argument {name!r}")
            if index < self.num_positional_only:
                raise self._refused(f"takes {name!r} by position only")
            if index < len(args):
                raise self._refused(f"got two values for {name!r}")
            values[index] = value
        missing = [repr(name) for name, value in zip(names, values, strict=True) if value is MISSING]
        if missing:
            raise self._refused(f"misses the {plural(len(missing), 'argument')} {', '.join(missing)}")
        return tuple(values)

    def unbind(self, values: tuple[Any, ...]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments in the parameters' order as a call would give them: by position where that is allowed."""
        num = self.num_positional
        return values[:num], dict(zip(self.names[num:], values[num:], strict=True))

    def index_of(self, name: str) -> int:
        """The position of a parameter.

        Raises:
            KernelTypeError: there is none of that name.
        """
        index = self._index.get(name)
        if index is None:
            raise self._refused(f"has no parameter {name!r}")
        return index

    def _refused(self, what: str) -> KernelTypeError:
        shown = ", ".join(
            name if default is MISSING else f"{name}={default!r}"
            for name, default in zip(self.names, self._defaults, strict=True)
        )
        fix = f"its parameters are ({shown})"
        if self.names[:1] in (("self",), ("cls",)):
            fix += f"; a kernel in a class is a function as any other, which gets no {self.names[0]} by itself"
        return KernelTypeError(f"kernel {self.function_name} {what}", fix=fix)


def _defaults(function: FunctionType, names: tuple[str, ...]) -> tuple[object, ...]:
    code = function.__code__
    given = function.__defaults__ or ()
    keywords = function.__kwdefaults__ or {}
    positional = [MISSING] * (code.co_argcount - len(given)) + list(given)
    return (*positional, *(keywords.get(name, MISSING) for name in names[code.co_argcount :]))


def _annotations(function: FunctionType, scope: Mapping[str, Any]) -> Callable[[str], Any]:
    """Reads the annotation of a parameter by name, one that is a string evaluated; `MISSING` where there is none.

    Reading raises `NameError` where a name is not there yet, and `KernelTypeError` for a string that says nothing.
    """
    found = function.__annotations__
    if not any(isinstance(annotation, str) for annotation in found.values()):
        return lambda name: found.get(name, MISSING)
    cells = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            cells[name] = cell.cell_contents
        except ValueError:  # not bound yet
            continue
    variables = {variable.__name__: variable for variable in getattr(function, "__type_params__", ())}
    names = {**vars(builtins), **function.__globals__, **scope, **cells, **variables}

    def read(name: str) -> Any:
        annotation = text = found.get(name, MISSING)
        try:
            while isinstance(annotation, str):  # twice for a string under `from __future__ import annotations`
                annotation = eval(annotation, names)
        except (NameError, KernelTypeError):
            raise
        except Exception as error:
            raise KernelTypeError(
                f"the annotation {text!r} of parameter {name!r} cannot be evaluated: {type(error).__name__}: {error}",
                fix=_ALLOWED,
            ) from None
        return annotation

    return read


def _place_of(function: FunctionType, name: str) -> Location:
    """Where a parameter is written, or where its function begins if the source cannot be read."""
    import ast

    from quernel.errors import QuernelError
    from quernel.lang.source import read_source

    code = function.__code__
    try:
        source = read_source(function)
    except QuernelError:
        return Location(code.co_filename, code.co_firstlineno)
    arguments = (node for node in ast.walk(source.definition.args) if isinstance(node, ast.arg))
    return next(source.location(node) for node in arguments if node.arg == name)


def _names_in(function: FunctionType) -> set[str]:
    try:
        annotations = function.__annotations__
    except NameError:
        return set()
    names: set[str] = set()
    for annotation in annotations.values():
        if isinstance(annotation, str):
            try:
                names.update(compile(annotation, "<annotation>", "eval").co_names)
            except (SyntaxError, ValueError):  # said when it is read
                continue
    return names
