"""Classes of `quernel.values` are held against the same ones made by attrs."""

from __future__ import annotations

import copy
import inspect
import pickle
import subprocess
import sys
import weakref
from collections.abc import Callable
from typing import Any, ClassVar, Generic, TypeVar

import attrs
import pytest

from quernel import values
from quernel.compiler.aligned import AlignedVariant
from quernel.compiler.artifacts import Artifact, ArtifactHeader, ArtifactId
from quernel.identity import BuildId, IrKey, KernelId
from quernel.identity.ids import encode_variant

T = TypeVar("T")

# Read at run time, so that type checkers do not hold the two for one.
makers: dict[str, Any] = {"ours": vars(values), "attrs": vars(attrs)}


def plain(maker: Any) -> Any:
    @maker["frozen"]
    class Plain:
        """Two fields with a default."""

        a: int
        b: tuple[int, ...] = ()
        limit: ClassVar[int] = 7

        @property
        def double(self) -> int:
            return 2 * self.a

    return Plain


def choosy(maker: Any) -> Any:
    def checked(owner: object, given: Any, value: object) -> None:
        if value == 0:
            raise ValueError(f"{given.name} of {type(owner).__name__} is zero")

    @maker["frozen"](kw_only=True)
    class Choosy:
        a: int = maker["field"](validator=checked)
        b: int = maker["field"](default=2, eq=False)
        c: int = maker["field"](default=3, repr=False)

    return Choosy


def child(maker: Any) -> Any:
    @maker["frozen"]
    class Child(plain(maker)):  # type: ignore[misc]  # made by a function
        c: str = "c"

    return Child


def empty(maker: Any) -> Any:
    @maker["frozen"]
    class Empty:
        pass

    return Empty


def generic(maker: Any) -> Any:
    @maker["frozen"]
    class Holds(Generic[T]):
        held: T

    return Holds


def by_identity(maker: Any) -> Any:
    @maker["frozen"](eq=False, repr=False)
    class Thing:
        a: int

    return Thing


CALLS: dict[Callable[[Any], Any], list[tuple[tuple[Any, ...], dict[str, Any]]]] = {
    plain: [
        ((1,), {}),
        ((1, (2,)), {}),
        ((), {"b": (3,), "a": 4}),
        ((1,), {"b": (2,)}),
        ((), {}),
        ((1, 2, 3), {}),
        ((1,), {"a": 1}),
        ((1,), {"z": 1}),
    ],
    choosy: [
        ((), {"a": 1}),
        ((), {"a": 1, "b": 5}),
        ((), {"a": 1, "c": 9}),
        ((), {"a": 0}),
        ((1,), {}),
        ((), {"b": 1}),
    ],
    child: [((1, (), "x"), {}), ((1,), {}), ((), {"a": 2, "c": "y"}), ((), {"c": "y"}), ((1, 2, 3, 4), {})],
    empty: [((), {}), ((1,), {})],
    generic: [((1,), {}), (("1",), {}), ((), {})],
    by_identity: [((1,), {}), ((1,), {}), ((), {"a": 1})],
}


def made(cls: Any, call: tuple[tuple[Any, ...], dict[str, Any]]) -> Any:
    """An instance, or the type of what making one raises."""
    try:
        return cls(*call[0], **call[1])
    except Exception as error:
        return type(error)


def rows(make: Callable[[Any], Any], maker: Any) -> list[Any]:
    """What a class's instances do, in values that do not depend on who made the class."""
    cls = make(maker)
    instances = [made(cls, call) for call in CALLS[make]]
    seen: list[Any] = [cls.__name__, cls.__doc__, cls.__match_args__, str(inspect.signature(cls)), cls.__hash__ is None]
    for one in instances:
        if isinstance(one, type):
            seen.append(one)
            continue
        fields = {field.name: getattr(one, field.name) for field in attrs.fields(cls)}
        seen += [fields, attrs.asdict(one), [one == other for other in instances], one != 1]
        seen.append([hash(one) == hash(other) for other in instances if not isinstance(other, type)])
        seen += ["repr" if make is by_identity else repr(one), hasattr(one, "__dict__"), weakref.ref(one)() is one]
        seen += [attrs.asdict(copied(one)) for copied in (copy.copy, copy.deepcopy)]
        for name in (*fields, "unknown"):
            for change in (
                lambda one=one, name=name: setattr(one, name, 1),
                lambda one=one, name=name: delattr(one, name),
            ):
                with pytest.raises(attrs.exceptions.FrozenInstanceError):
                    change()
        for name in fields:
            seen.append(attrs.asdict(attrs.evolve(one, **{name: 9})))
            seen.append(attrs.asdict(maker["evolve"](one, **{name: 9})))
    return seen


@pytest.mark.parametrize("make", CALLS, ids=lambda make: make.__name__)
def test_classes_are_those_that_attrs_makes(make: Callable[[Any], Any]) -> None:
    assert rows(make, makers["ours"]) == rows(make, makers["attrs"])


@pytest.mark.parametrize("make", CALLS, ids=lambda make: make.__name__)
def test_attrs_is_told_of_the_fields(make: Callable[[Any], Any]) -> None:
    ours, theirs = make(makers["ours"]), make(makers["attrs"])
    assert attrs.has(ours)
    told = [
        (field.name, field.default, field.eq, field.repr, field.kw_only, field.type) for field in attrs.fields(ours)
    ]
    assert told == [
        (field.name, field.default, field.eq, field.repr, field.kw_only, field.type) for field in attrs.fields(theirs)
    ]
    assert values.field_names(ours) == values.field_names(theirs) == tuple(name for name, *_ in told)
    assert values.compared_fields(ours) == tuple(name for name, _, is_compared, *_ in told if is_compared)
    assert values.compared_fields(theirs) == values.compared_fields(ours)


def test_other_classes_have_no_fields() -> None:
    assert values.compared_fields(int) is None
    assert values.field_names(int) == ()


def test_a_class_of_attrs_takes_over_the_fields_of_ours() -> None:
    @attrs.frozen
    class Mine(Artifact):
        note: str = ""

    header = ArtifactHeader("entry", (), (), (1,))
    one = Mine(header, b"code", "note")
    assert (one.header, one.payload, one.note) == (header, b"code", "note")
    assert one == Mine(header, payload=b"code", note="note")
    assert one != Artifact(header, b"code")
    assert attrs.asdict(attrs.evolve(one, payload=b""), recurse=False) == {
        "header": header,
        "payload": b"",
        "note": "note",
    }
    assert values.compared_fields(Mine) == ("header", "payload", "note")

    @attrs.frozen
    class Wide(AlignedVariant):
        wide: bool = False

    assert values.compared_fields(Wide) == ("aligned16", "contiguous", "index32", "wide")
    assert encode_variant(Wide()) != encode_variant(Wide(wide=True))
    assert inspect.signature(Wide) == inspect.signature(attrs.make_class("Wide", {
        name: attrs.field(default=False, type="bool") for name in values.compared_fields(Wide) or ()
    }, frozen=True))  # fmt: skip


def test_a_plain_subclass_has_the_methods_of_its_base() -> None:
    class Key(IrKey):
        __slots__ = ()

    one = Key("a" * 64)
    assert values.compared_fields(Key) == ("digest",)
    assert (one, str(one)) == (Key("a" * 64), "a" * 64)
    assert one != IrKey("a" * 64)
    assert [field.name for field in attrs.fields(Key)] == ["digest"]
    assert "__attrs_attrs__" not in vars(Key)


@pytest.mark.parametrize(
    "value",
    [
        AlignedVariant(contiguous=True),
        ArtifactId(KernelId("k", "0" * 64, (("code", "1"),)), AlignedVariant()),
        IrKey("b" * 64),
        BuildId("c" * 64),
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_pickle(value: Any) -> None:
    back = pickle.loads(pickle.dumps(value))
    assert back == value
    assert repr(back) == repr(value)
    assert hash(back) == hash(value)


@pytest.mark.parametrize("maker", makers.values(), ids=makers)
def test_a_value_that_holds_itself_is_shown_once(maker: Any) -> None:
    @maker["frozen"]
    class Node:
        name: str
        others: object

    node = Node("a", None)
    object.__setattr__(node, "others", Node("b", node))
    assert repr(node) == "Node(name='a', others=Node(name='b', others=...))"


def test_copy_replaces_fields() -> None:
    value = plain(makers["ours"])(1, (2,))
    # `copy.replace` of Python 3.13 calls it.
    assert value.__replace__(b=(3,)) == type(value)(1, (3,))
    with pytest.raises(TypeError, match="'c'"):
        value.__replace__(c=1)


def test_attrs_is_loaded_when_somebody_asks_for_it() -> None:
    program = """
import sys
from quernel.compiler.artifacts import Slot, SlotKind
from quernel.values import compared_fields, evolve
slot = Slot(SlotKind.POINTER, 0)
assert evolve(slot, axis=1) != slot and compared_fields(Slot)[0] == "kind" and hash(slot) and repr(slot)
assert "attr" not in sys.modules
import attrs
assert attrs.evolve(slot, axis=1) == evolve(slot, axis=1)
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
