"""Everything outside its arguments that a kernel depends on: code, device functions, captured values.

The walk takes every name of the code wherever it is found, as a global or as an attribute of whatever module or class
it has met. So it may see too much, never too little; which attribute belongs to which object is not worked out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import EnumMeta
from types import (
    BuiltinFunctionType,
    CellType,
    ClassMethodDescriptorType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any, ClassVar, TypeAlias, cast, final

from quernel.digests import sha256
from quernel.errors import QuernelError
from quernel.identity.bytecode import Lookups, lookups
from quernel.identity.encoding import Encoder, frame, text_frame, type_name
from quernel.identity.guards import Guards
from quernel.values import frozen

__all__ = ["CapturedCode", "CapturedValues", "capture", "capture_values", "code_digest"]

_Scope: TypeAlias = Mapping[str, Any]
_MISSING = object()
_KNOWN_DESCRIPTORS = (
    FunctionType,
    staticmethod,
    classmethod,
    property,
    ClassMethodDescriptorType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    WrapperDescriptorType,
)
_IMMUTABLE_TYPE = 1 << 8
"""Set in the flags of a class whose attributes cannot be assigned: nothing to guard there."""


@frozen(eq=False)
class CapturedCode:
    """A function's content as loaded: one digest of all of it, one of each part, and the guards of what was read.

    `parts` are the full digests of `code`, `functions` (the device functions reached) and `constants` (what they
    and the kernel captured). `is_current()`, on the launch path, says whether a capture now would read the same
    objects; that somebody assigned to a function's `__code__` or defaults is not noticed.
    """

    parts: tuple[tuple[str, str], ...]
    guards: Guards

    @property
    def is_current(self) -> Callable[[], bool]:
        """Says whether a capture now would read the same objects."""
        return self.guards.is_current

    @property
    def digest(self) -> str:
        """The digest of all parts."""
        return sha256("".join([part for _, part in self.parts]).encode()).hexdigest()


@frozen(eq=False)
class CapturedValues:
    """Compile-time values, with the device functions among them: their digest and the guards of what those read."""

    digest: str
    guards: Guards


def capture(function: FunctionType) -> CapturedCode:
    """Reads what `function` is made of and depends on, now. Refuses nothing: that is for the lowering.

    A device function is an object whose attribute `__quernel_function__` is the plain function; if its class also
    has `__quernel_identity__`, that counts too (declared types, options).
    """
    walk = _Walk()
    walk.enter(function, function)
    walk.run()
    parts = (
        ("code", sha256(walk.code[0]).hexdigest()),
        ("functions", sha256(b"".join(walk.code[1:]) + b"".join(walk.references)).hexdigest()),
        ("constants", sha256(b"".join(walk.constants)).hexdigest()),
    )
    return CapturedCode(parts, walk.guards())


def capture_values(values: Mapping[str, object]) -> CapturedValues:
    """Reads compile-time values by name, and what the device functions among them are made of and depend on."""
    walk = _Walk()
    named = b"".join([text_frame(b"s", name) + walk.body(values[name]) for name in sorted(values)])
    walk.run()
    pieces = (named, *(b"".join(part) for part in (walk.code, walk.references, walk.constants)))
    digest = sha256(b"".join([frame(b"b", piece) for piece in pieces])).hexdigest()
    return CapturedValues(digest, walk.guards())


def code_digest(code: CodeType) -> str:
    """The digest of a code object alone: equal for equal meaning, wherever in whatever file it stands."""
    return sha256(Encoder().body(code)).hexdigest()


@final
class _Walk(Encoder):
    """Encodes functions and what they capture, in the order of their names; each function and class once, by number."""

    # Lists and dicts may change without any guard noticing, so they are opaque here.
    writers: ClassVar = {kind: write for kind, write in Encoder.writers.items() if kind not in (list, dict)}

    def __init__(self) -> None:
        self.code: list[bytes] = []
        self.references: list[bytes] = []
        self.constants: list[bytes] = []
        self._numbers: dict[int, int] = {}
        self._entered: list[tuple[object, FunctionType]] = []
        self._owners: dict[int, tuple[ModuleType | type, str]] = {}
        self._classes: dict[int, tuple[int, type]] = {}
        self._name = ""
        self._reads: dict[tuple[int, str], tuple[_Scope, str, object]] = {}
        self._absences: dict[int, tuple[_Scope, set[str]]] = {}
        self._cells: list[tuple[CellType, object]] = []
        self._empty_cells: list[CellType] = []
        self._attributes: list[tuple[object, str, object]] = []

    def guards(self) -> Guards:
        """What was read, as guards."""
        return Guards(
            reads=self._reads.values(),
            absences=[(scope, frozenset(names)) for scope, names in self._absences.values()],
            cells=self._cells,
            empty_cells=self._empty_cells,
            attributes=self._attributes,
        )

    def enter(self, owner: object, function: FunctionType) -> int:
        """The number of a function, which is walked later if it is new: so cycles end, and depth has no limit."""
        number = self._numbers.get(id(owner))
        if number is None:
            number = self._numbers[id(owner)] = len(self._entered)
            self._entered.append((owner, function))
        return number

    def run(self) -> None:
        """Walks every function entered, and those that this enters."""
        for owner, function in self._entered:  # grows while it is walked
            self._walk_function(owner, function)

    def other(self, value: object) -> bytes:
        """Device functions by number, modules and classes by name; these are looked into afterwards."""
        if isinstance(value, ModuleType):
            return self._module(value)
        if isinstance(value, type):
            return self._class(value)
        function = _attribute_of(value, "__quernel_function__")
        if isinstance(function, FunctionType):
            return b"R" + self.enter(value, function).to_bytes(4, "little")
        if isinstance(value, staticmethod):
            return self.body(value.__func__)
        return super().other(value)

    def opaque(self, value: object) -> bytes:
        """The type's name, and a function's own: two of them under one alias must not look the same."""
        names = (_attribute_of(value, "__module__"), _attribute_of(value, "__qualname__"))
        own = names[1] if isinstance(names[1], str) else _attribute_of(value, "__name__")
        named = text_frame(b"s", f"{names[0]}.{own}") if isinstance(own, str) else b"N"
        return super().opaque(value) + named

    def _module(self, value: ModuleType) -> bytes:
        self._owners.setdefault(id(value), (value, self._name))
        return text_frame(b"M", str(value.__dict__.get("__name__")))

    def _class(self, value: type) -> bytes:
        self._owners.setdefault(id(value), (value, self._name))
        named = text_frame(b"C", type_name(value))
        known = self._classes.get(id(value))
        if known is not None:  # A class may mention itself among its fields.
            return named + b"#" + known[0].to_bytes(4, "little")
        self._classes[id(value)] = (len(self._classes), value)
        return named + self._fields(value)

    def _fields(self, value: type) -> bytes:
        """The fields of a class that a kernel may take as a struct, with their types."""
        if "__attrs_attrs__" not in vars(value):
            return b""
        from quernel.structs import fields_of

        try:
            fields = fields_of(value)
        except QuernelError:  # No struct of the language; a kernel that calls it is refused.
            return b""
        return self.sequence(b"d", [part for field in fields for part in field])

    def _builtin_function(self, value: BuiltinFunctionType) -> bytes:
        return text_frame(b"B", f"{value.__module__}.{value.__qualname__}")

    def unordered(self) -> Encoder:
        """An encoder that numbers nothing: the order of a set's elements is not the same in every process."""
        return Encoder()

    def _walk_function(self, declared: object, function: FunctionType) -> None:
        code = function.__code__
        self.code.append(self.body(code))
        boundary = b"|" + len(self.code).to_bytes(4, "little")
        self.references.append(boundary)
        self.constants.append(boundary)
        self._owners = {}
        if declared is not function:
            self._take_declaration(declared, function)
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            self._take_cell(name, cell)
        looked_up = lookups(code)
        # Every function has `__builtins__` since Python 3.10; not all type stubs say so.
        self._take_globals(looked_up, function.__globals__, cast(Any, function).__builtins__)
        looked_into = 0
        while looked_into < len(self._owners):  # grows: a module's attribute may be a module
            owner, reached_by = list(self._owners.values())[looked_into]
            self._take_attributes(b"a" + looked_into.to_bytes(4, "little"), owner, reached_by, looked_up)
            looked_into += 1

    def _take_declaration(self, device_function: object, function: FunctionType) -> None:
        """What a device function has beside its code: default values, and what its own class declares."""
        identity = getattr(type(device_function), "__quernel_identity__", None)
        self.code[-1] += b"-" if identity is None else self.body(identity(device_function))
        for index, value in enumerate(function.__defaults__ or ()):
            self._put(b"d" + index.to_bytes(4, "little"), "", value)
        keyword_defaults = function.__kwdefaults__ or {}
        for name in sorted(keyword_defaults):
            self._put(b"k", name, keyword_defaults[name])

    def _take_cell(self, name: str, cell: CellType) -> None:
        try:
            value = cell.cell_contents
        except ValueError:
            self._empty_cells.append(cell)
            return
        self._cells.append((cell, value))
        self._put(b"c", name, value)

    def _take_globals(self, looked_up: Lookups, variables: _Scope, builtins: _Scope) -> None:
        for name in looked_up.names:
            value = variables.get(name, _MISSING)
            if value is not _MISSING:
                self._put(b"g", name, self._read(variables, name, value))
                continue
            value = builtins.get(name, _MISSING)
            if name in looked_up.as_globals:
                self._lack(variables, name)
                if value is _MISSING:
                    self._lack(builtins, name)
            if value is not _MISSING:
                self._put(b"b", name, self._read(builtins, name, value))

    def _take_attributes(self, kind: bytes, owner: ModuleType | type, reached_by: str, looked_up: Lookups) -> None:
        scopes = _scopes_of_module(owner) if isinstance(owner, ModuleType) else _scopes_of_class(owner)
        for name in looked_up.names:
            is_read = name in looked_up.as_attributes
            if name == reached_by and not is_read:
                continue
            for scope, is_fixed in scopes:
                value = scope.get(name, _MISSING)
                if value is not _MISSING:
                    if not is_fixed:
                        self._read(scope, name, value)
                    if isinstance(owner, type) and _computes(value):
                        self._take_made_attribute(kind, owner, name)
                    else:
                        self._put(kind, name, value)
                    break
                if is_read and not is_fixed:
                    self._lack(scope, name)
            else:
                if is_read:
                    self._take_made_attribute(kind, owner, name)

    def _take_made_attribute(self, kind: bytes, owner: ModuleType | type, name: str) -> None:
        """An attribute that is not simply there: made by a module's `__getattr__`, a metaclass or a descriptor."""
        if isinstance(owner, ModuleType) and "__getattr__" not in owner.__dict__:
            return
        value = _attribute_of(owner, name, _MISSING)
        if value is _MISSING:
            return
        scope = owner.__dict__
        if scope.get(name, _MISSING) is value:  # kept by the module: from now on an ordinary one
            if id(scope) in self._absences:
                self._absences[id(scope)][1].discard(name)
            self._read(scope, name, value)
        else:
            self._attributes.append((owner, name, value))
        self._put(kind, name, value)

    def _read(self, scope: _Scope, name: str, value: object) -> object:
        self._reads.setdefault((id(scope), name), (scope, name, value))
        return value

    def _lack(self, scope: _Scope, name: str) -> None:
        self._absences.setdefault(id(scope), (scope, set()))[1].add(name)

    def _put(self, kind: bytes, name: str, value: object) -> None:
        self._name = name
        encoded = self.body(value)
        entries = self.references if encoded[:1] == b"R" else self.constants
        entries += (kind, text_frame(b"s", name), encoded)


_Walk.writers.update(
    {
        ModuleType: _Walk._module,
        type: _Walk._class,
        EnumMeta: _Walk._class,
        BuiltinFunctionType: _Walk._builtin_function,
    }
)


def _scopes_of_module(module: ModuleType) -> tuple[tuple[_Scope, bool], ...]:
    return ((module.__dict__, False),)


def _scopes_of_class(cls: type) -> tuple[tuple[_Scope, bool], ...]:
    """Where a class's attributes are found, in order, each with whether nobody can assign there.

    They are read there, not through the class: a method bound anew at each access is never the same object.
    """
    return tuple([(vars(base), bool(base.__flags__ & _IMMUTABLE_TYPE)) for base in cls.__mro__])


def _computes(value: object) -> bool:
    """Whether a class's attribute is a descriptor of a stranger's making, whose value is what it computes."""
    return hasattr(type(value), "__get__") and not isinstance(value, _KNOWN_DESCRIPTORS)


def _attribute_of(value: object, name: str, default: object = None) -> object:
    """`getattr` on a stranger, whose own `__getattr__` may raise whatever it likes: then it has no such attribute."""
    try:
        return getattr(value, name, default)
    except Exception:
        return default
