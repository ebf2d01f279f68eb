"""Frozen classes as `attrs.frozen` makes them, for the modules that a warm start imports.

attrs writes source for the methods of each class and compiles it, which takes 0.2 to 0.5 ms a class; the forty classes
of a warm start and attrs itself took a tenth of it. Here methods are functions that look at the class's fields, and a
class takes a twentieth of that. Type checkers see `attrs.frozen` and `attrs.field`, and attrs takes the classes for its
own: `attrs.evolve`, `attrs.asdict`, `attrs.fields` and subclasses made by `attrs.frozen` work, as a class learns what
attrs wants to know of it when attrs asks.

Only what those modules use is there; a parameter that is not is refused by Python.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, NoReturn, final

__all__ = ["compared_fields", "evolve", "field", "field_names", "frozen"]

_FIELDS = "__quernel_fields__"
_NOTHING: Any = type("_Nothing", (), {"__repr__": lambda self: "nothing"})()


@final
class _Field:
    """One field: its name, and what `field` was given."""

    __slots__ = ("default", "eq", "kw_only", "name", "repr", "type", "validator")

    def __init__(self, default: Any, validator: Callable[..., Any] | None, *, eq: bool, repr: bool) -> None:  # noqa: A002
        self.default = default
        self.validator = validator
        self.eq = eq
        self.repr = repr
        self.name = ""
        self.type: Any = None
        self.kw_only = False


def _field(
    *,
    default: Any = _NOTHING,
    validator: Callable[[Any, Any, Any], Any] | None = None,
    eq: bool = True,
    repr: bool = True,  # noqa: A002 — the name that attrs gives it
) -> Any:
    """A field of a frozen class that is more than its annotation and its default."""
    return _Field(default, validator, eq=eq, repr=repr)


def _frozen(
    maybe_cls: type | None = None,
    *,
    kw_only: bool = False,
    eq: bool = True,
    repr: bool = True,  # noqa: A002 — the name that attrs gives it
) -> Any:
    """The class with slots for its annotated names, and methods to make, compare, hash, show and pickle instances.

    Methods that the class has itself stay. A method that names `super()` or `__class__` is not for here.
    """

    def decorated(cls: type) -> type:
        return _made(cls, kw_only=kw_only, eq=eq, shows=repr)

    return decorated if maybe_cls is None else decorated(maybe_cls)


def _evolve(value: Any, /, **changes: Any) -> Any:
    """The same value with other values of some fields, as `attrs.evolve` makes it."""
    for found in _fields_of(type(value)) or ():
        if found.name not in changes:
            changes[found.name] = getattr(value, found.name)
    return type(value)(**changes)


if TYPE_CHECKING:
    from attrs import evolve, field, frozen
else:
    evolve, field, frozen = _evolve, _field, _frozen


def compared_fields(cls: type) -> tuple[str, ...] | None:
    """The names of the fields by which instances of a class of this module, or of attrs, compare; else `None`."""
    fields = _fields_of(cls)
    return None if fields is None else tuple([found.name for found in fields if found.eq])


def field_names(cls: type) -> tuple[str, ...]:
    """The names of all fields of such a class, in order."""
    return tuple([found.name for found in _fields_of(cls) or ()])


def _fields_of(cls: type) -> tuple[Any, ...] | None:
    """The fields of a class, ours or attrs' own."""
    for owner in cls.__mro__:
        told: Any = owner.__dict__.get("__attrs_attrs__")
        if told is not None:
            fields: tuple[Any, ...] = owner.__dict__[_FIELDS] if isinstance(told, _ToldToAttrs) else told
            return fields
    return None


def _made(cls: type, *, kw_only: bool, eq: bool, shows: bool) -> type:
    own = _own_fields(cls, kw_only=kw_only)
    inherited: tuple[_Field, ...] = getattr(cls, _FIELDS, ())
    fields = (*(found for found in inherited if found.name not in own), *own.values())
    names = [found.name for found in fields]
    members = {name: value for name, value in vars(cls).items() if name not in own and name not in _OF_INSTANCES}
    members["__qualname__"] = cls.__qualname__
    members["__slots__"] = (*(name for name in own if name not in {found.name for found in inherited}), *_weak(cls))
    members[_FIELDS] = fields
    members["__match_args__"] = tuple([found.name for found in fields if not found.kw_only])
    members["__setattr__"] = members["__delattr__"] = _refuse
    members["__attrs_attrs__"] = _ToldToAttrs()
    members["__signature__"] = _Signature()
    state = dict(_state(tuple(names)))
    if eq and "__eq__" not in members:
        state |= _comparisons(tuple([found.name for found in fields if found.eq]))
    if shows:
        state["__repr__"] = _shown(tuple([found.name for found in fields if found.repr]))
    made: Any = type(cls)(cls.__name__, cls.__bases__, {**state, **members})
    if "__init__" not in members:
        made.__init__ = _initializer(made, fields)
    return made  # type: ignore[no-any-return]  # it is what a metaclass gave


_OF_INSTANCES = ("__dict__", "__weakref__")


def _weak(cls: type) -> tuple[str, ...]:
    """The slot that lets instances be referred to weakly, unless a base has it."""
    return () if any(base.__weakrefoffset__ for base in cls.__bases__) else ("__weakref__",)


def _own_fields(cls: type, *, kw_only: bool) -> dict[str, _Field]:
    found: dict[str, _Field] = {}
    for name, annotation in cls.__annotations__.items():
        if str(annotation).startswith(("ClassVar", "typing.ClassVar")):
            continue
        given = cls.__dict__.get(name, _NOTHING)
        one = given if isinstance(given, _Field) else _Field(given, None, eq=True, repr=True)
        one.name, one.type, one.kw_only = name, annotation, kw_only
        found[name] = one
    return found


# --- methods ----------------------------------------------------------------------------------------------------------


def _initializer(cls: type, fields: tuple[_Field, ...]) -> Callable[..., None]:
    """The `__init__` of a class. Slots are set past the class's own refusal."""
    puts = [getattr(cls, found.name).__set__ for found in fields]
    checked = [(found, found.validator) for found in fields if found.validator is not None]
    defaults = tuple([found.default for found in fields])
    most = -1 if any(found.kw_only for found in fields) else len(fields)
    least = max([number for number, found in enumerate(fields, 1) if found.default is _NOTHING], default=0)

    def initialize(self: Any, /, *given: Any, **named: Any) -> None:
        if named or not least <= len(given) <= most:
            given = _arguments(cls.__name__, fields, given, named)
        elif len(given) < most:
            given += defaults[len(given) :]
        for put, value in zip(puts, given, strict=True):
            put(self, value)
        for one, check in checked:
            check(self, one, getattr(self, one.name))

    return initialize


def _arguments(
    owner: str, fields: tuple[_Field, ...], given: tuple[Any, ...], named: dict[str, Any]
) -> tuple[Any, ...]:
    """One value per field.

    Raises:
        TypeError: one is missing, unknown or given twice.
    """
    positional = [found.name for found in fields if not found.kw_only]
    if len(given) > len(positional):
        raise TypeError(f"{owner}.__init__() takes {len(positional)} positional arguments, and {len(given)} were given")
    values: dict[str, Any] = dict(zip(positional, given, strict=False))
    for name in named:
        if name in values:
            raise TypeError(f"{owner}.__init__() got multiple values for argument {name!r}")
    values |= named
    made = tuple([values.pop(found.name, found.default) for found in fields])
    if values:
        raise TypeError(f"{owner}.__init__() got an unexpected keyword argument {next(iter(values))!r}")
    missing = [found.name for found, value in zip(fields, made, strict=True) if value is _NOTHING]
    if missing:
        raise TypeError(f"{owner}.__init__() is missing the arguments {', '.join(map(repr, missing))}")
    return made


def _comparisons(names: tuple[str, ...]) -> Mapping[str, Any]:
    values: Callable[[object], object] = attrgetter(*names) if names else _none

    def compare(self: object, other: object) -> Any:
        return values(self) == values(other) if self.__class__ is other.__class__ else NotImplemented

    def hash_of(self: object) -> int:
        return hash(values(self))

    return {"__eq__": compare, "__hash__": hash_of}


def _none(value: object) -> object:
    return None


def _shown(names: tuple[str, ...]) -> Callable[[Any], str]:
    @recursive_repr("...")
    def show(self: Any) -> str:
        name_of_class = type(self).__qualname__.rsplit(">.", 1)[-1]
        return f"{name_of_class}({', '.join([f'{name}={getattr(self, name)!r}' for name in names])})"

    return show


def _state(names: tuple[str, ...]) -> Mapping[str, Any]:
    """What pickles, copies and replaces. Whatever was pickled was an instance, so it is not checked anew."""

    def state_of(self: Any) -> dict[str, Any]:
        return {name: getattr(self, name) for name in names}

    def restore(self: Any, state: Mapping[str, Any]) -> None:
        for name, value in state.items():
            object.__setattr__(self, name, value)

    return {"__getstate__": state_of, "__setstate__": restore, "__replace__": _evolve}


def _refuse(self: object, name: str, value: object = None) -> NoReturn:
    from attrs.exceptions import FrozenInstanceError

    raise FrozenInstanceError


# --- what attrs and `inspect` are told --------------------------------------------------------------------------------


class _OfClass:
    """An attribute of one class, not of its subclasses, that is worked out when somebody asks."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._owner = owner


class _ToldToAttrs(_OfClass):
    """`__attrs_attrs__`. attrs keeps to itself what it has of a base, so subclasses are told of that base's."""

    def __get__(self, instance: object, owner: type) -> Any:
        told: Any = _twin(self._owner).__attrs_attrs__
        self._owner.__attrs_attrs__ = told  # type: ignore[attr-defined]
        return told


class _Signature(_OfClass):
    """`__signature__`, which `help` shows."""

    def __get__(self, instance: object, owner: type) -> Any:
        if instance is not None or owner is not self._owner:
            raise AttributeError("__signature__")
        import inspect

        return inspect.signature(_twin(owner))


def _twin(cls: type) -> Any:
    """A class of attrs with the same fields."""
    import attrs

    fields: tuple[_Field, ...] = getattr(cls, _FIELDS)
    return attrs.make_class(
        cls.__name__,
        {
            found.name: attrs.field(
                default=attrs.NOTHING if found.default is _NOTHING else found.default,
                validator=found.validator,
                eq=found.eq,
                repr=found.repr,
                kw_only=found.kw_only,
                type=found.type,
            )
            for found in fields
        },
        frozen=True,
    )
