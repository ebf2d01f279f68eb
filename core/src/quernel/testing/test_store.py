"""What a target keeps: found again by whoever has the same target, and by nobody else, and never when it is damaged."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

import quernel as qn
from quernel.compiler.halves import ANY_LAUNCH
from quernel.identity import ir_key
from quernel.ir.digest import ir_digest
from quernel.store import Environment, environment
from quernel.testing.compiling import artifact_of, definition_of, digest_of, id_of
from quernel.testing.watching import Bench, opened_again

pytestmark = pytest.mark.quernel_needs("persistence")


@qn.kernel
def adds(x: qn.Array[qn.i32], by: qn.Const[int]):
    i = qn.global_id()
    x[i] += by


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Environment]:
    """An environment of its own, in whose folder nothing is yet."""
    with environment(tmp_path / "kept") as made:
        yield made


@pytest.fixture
def opened(quernel_device: Any, kept: Environment) -> Iterator[Any]:
    """The device opened for this test alone, its target in that environment."""
    with opened_again(quernel_device) as device:
        target = device.operations.target
        target.use_environment(kept, target.open_store(kept))
        yield device


def load(device: Any, kept: Environment, by: int) -> Bench:
    bench = Bench(device, kept)
    bench.load(definition_of(device, adds, by=by))
    return bench


def payloads(kept: Environment) -> tuple[str, list[tuple[int, bytes]]]:
    """The database of an environment, and its rows of payloads."""
    (file,) = Path(kept.path).rglob("cache.db")
    with sqlite3.connect(file) as database:
        return str(file), database.execute("select rowid, value from Cache where key like 'b/%'").fetchall()


def test_what_is_stored_is_found_under_its_id_and_no_other(opened: Any) -> None:
    target = opened.operations.target
    definition, other = (definition_of(opened, adds, by=by) for by in (1, 2))
    name, artifact = id_of(opened, definition), artifact_of(opened, definition)
    assert target.stored(name) is None
    target.load(name, artifact)
    assert target.store(name, artifact, None)
    assert digest_of(opened, target.stored(name)) == digest_of(opened, artifact)
    assert digest_of(opened, target.stored_meanwhile(name)) == digest_of(opened, artifact)
    assert target.stored(id_of(opened, other)) is None


def test_a_variant_of_its_own_is_an_artifact_of_its_own(opened: Any) -> None:
    target = opened.operations.target
    definition = definition_of(opened, adds, by=3)
    name = id_of(opened, definition)
    target.store(name, artifact_of(opened, definition), None)
    for facts in (ANY_LAUNCH, attrs.evolve(ANY_LAUNCH, aligned16=True, contiguous=True, index32=True)):
        other = target.variant(facts)
        assert (target.stored(attrs.evolve(name, variant=other)) is not None) == (other == name.variant)


def test_it_is_found_by_the_text_and_the_ir_it_was_stored_with(opened: Any) -> None:
    target = opened.operations.target
    definition = definition_of(opened, adds, by=4)
    name, artifact = id_of(opened, definition), artifact_of(opened, definition)
    key = ir_key(ir_digest(definition.expand()), name.variant, target.compiler.build_id)
    assert target.stored_for_ir(key) is None
    assert target.stored_for_source("the text") is None
    target.store(name, artifact, "the text", key)
    assert digest_of(opened, target.stored_for_ir(key)) == digest_of(opened, artifact)
    assert digest_of(opened, target.stored_for_source("the text")) == digest_of(opened, artifact)
    assert target.stored_for_source("another text") is None


def test_what_is_dropped_is_gone(opened: Any) -> None:
    target = opened.operations.target
    definition = definition_of(opened, adds, by=5)
    name = id_of(opened, definition)
    target.store(name, artifact_of(opened, definition), None)
    target.drop(name)
    assert target.stored(name) is None
    target.store(name, artifact_of(opened, definition), None)
    assert target.stored(name) is not None


def test_a_damaged_artifact_is_compiled_anew(quernel_device: Any, kept: Environment) -> None:
    with opened_again(quernel_device) as device:
        assert load(device, kept, 6).outcomes() == [("compiled", None)]
    file, rows = payloads(kept)
    assert rows
    with sqlite3.connect(file) as database:
        for row, value in rows:
            damaged = bytes([*value[:-1], value[-1] ^ 1])
            database.execute("update Cache set value = ? where rowid = ?", (damaged, row))
    database.close()
    with opened_again(quernel_device) as device:
        again = load(device, kept, 6)
    assert again.outcomes() == [("compiled", None)]
    assert again.calls.count("load") == 1
    with opened_again(quernel_device) as device:
        assert load(device, kept, 6).outcomes() == [("loaded", None)]


def test_an_artifact_of_another_fingerprint_is_not_taken(quernel_device: Any, kept: Environment) -> None:
    with opened_again(quernel_device) as device:
        load(device, kept, 7)
    with opened_again(quernel_device) as device:
        compiler = device.operations.target.compiler
        other = attrs.evolve(compiler.target_info, fingerprint="of-another-toolchain")
        object.__setattr__(compiler, "target_info", other)
        target = device.operations.target
        target.use_environment(kept, target.open_store(kept))
        definition = definition_of(device, adds, by=7)
        key = ir_key(ir_digest(definition.expand()), id_of(device, definition).variant, compiler.build_id)
        assert target.stored(id_of(device, definition)) is None
        assert target.stored_for_ir(key) is None


def test_an_artifact_of_another_build_is_not_taken(quernel_device: Any, kept: Environment) -> None:
    with opened_again(quernel_device) as device:
        load(device, kept, 8)
    with opened_again(quernel_device) as device:
        target = device.operations.target
        object.__setattr__(target.compiler, "build_id", type(target.compiler.build_id)("0" * 64))
        target.use_environment(kept, target.open_store(kept))
        assert target.stored(id_of(device, definition_of(device, adds, by=8))) is None


def test_an_environment_has_its_own(quernel_device: Any, kept: Environment, tmp_path: Path) -> None:
    with opened_again(quernel_device) as device:
        load(device, kept, 9)
        with environment(tmp_path / "another") as other:
            bench = Bench(device, other)
            bench.load(definition_of(device, adds, by=9))
            assert bench.outcomes() == [("compiled", None)]


def test_without_an_environment_nothing_is_stored(opened: Any) -> None:
    target = opened.operations.target
    target.use_environment(None, None)
    definition = definition_of(opened, adds, by=10)
    assert not target.persists
    assert target.store(id_of(opened, definition), artifact_of(opened, definition), None) is False
    assert target.stored(id_of(opened, definition)) is None


def test_processes_that_would_compile_the_same_wait_for_one_lock(opened: Any) -> None:
    target = opened.operations.target
    names = [target.lock_name(id_of(opened, definition_of(opened, adds, by=by))) for by in (11, 11, 12)]
    assert names[0] == names[1]
    assert names[0] is None or (names[0] != names[2] and re.fullmatch("[0-9a-f]+", names[0]))


def test_a_miss_is_explained_by_what_differs(quernel_device: Any, kept: Environment) -> None:
    with opened_again(quernel_device) as device:
        first = load(device, kept, 13)
        assert first.records[0].why_missed == ("new",)
        assert load(device, kept, 14).records[0].why_missed == ("values",)
