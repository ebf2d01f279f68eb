"""Each copy of a check that inlining makes knows the calls that led to it, in the modules and texts of backends."""

from __future__ import annotations

import logging
import re

import pytest

import quernel as qn
from quernel.compiler.artifacts import ArtifactId
from quernel.compiler.recording import CompilationRecording
from quernel.ir.sites import Site, num_sites, sites
from quernel.locations import Location, call_chain, called_at


@qn.func
def inner(x, i):
    return x[i]


@qn.func
def outer(x, i):
    return inner(x, i) + 1


@qn.kernel(checked=True)
def calling(x: qn.Array1[qn.i32], y: qn.Array1[qn.i32]):
    i = qn.global_id()
    y[i] = outer(x, i + 1)
    y[i] += inner(x, i + 2)


@qn.kernel(checked=False)
def unchecked(x: qn.Array1[qn.i32], y: qn.Array1[qn.i32]):
    i = qn.global_id()
    y[i] = outer(x, i + 1)


def callers(site: Site) -> list[str]:
    return [line.partition(": ")[2] for line in call_chain(site.loc)]


def found_sites() -> tuple[Site, ...]:
    return sites(calling.options(device="reference").specialize().definition.expand())


def test_each_inlined_copy_of_a_check_knows_the_calls_that_led_to_it() -> None:
    found = found_sites()
    assert sorted(map(callers, found)) == [
        [],
        [],
        [],
        ["return inner(x, i) + 1", "y[i] = outer(x, i + 1)"],
        ["y[i] += inner(x, i + 2)"],
    ]
    lines = {site.loc.line for site in found if callers(site)}
    assert lines == {inner.__wrapped__.__code__.co_firstlineno + 2}


def test_a_launch_that_is_not_checked_has_no_sites_at_all() -> None:
    assert num_sites(unchecked.options(device="reference").specialize().definition.expand()) == 0


def test_the_text_for_cuda_names_each_copy_by_a_number_of_its_own_and_no_lines() -> None:
    compilers = pytest.importorskip("quernel_cuda.compiler", reason="needs quernel-cuda")
    targets = pytest.importorskip("quernel_cuda.targets", reason="needs quernel-cuda")
    definition = calling.options(device="reference").specialize().definition
    compiler = compilers.CudaCompiler(targets.named_target("sm_90"))
    variant = compiler.default_variant(definition.specialization.signature)
    id = ArtifactId(definition.id, variant)  # noqa: A001 — the design's name
    text = compiler.source(compiler.lower(definition, id, CompilationRecording(), logging.getLogger(__name__)))
    assert [int(number) for number in re.findall(r"qn_violation\d\(diagnostics, (\d+)ULL", text)] == [0, 1, 2, 3, 4]
    assert callers(found_sites()[0]) == ["return inner(x, i) + 1", "y[i] = outer(x, i + 1)"]
    assert callers(found_sites()[3]) == ["y[i] += inner(x, i + 2)"]
    assert "called" not in text


def test_locations_are_equal_wherever_they_were_called_from() -> None:
    here, there, far = Location("a.py", 3, 4), Location("a.py", 9), Location("a.py", 20)
    once = called_at(here, there)
    assert once == here
    assert hash(once) == hash(here)
    twice = called_at(once, far)
    assert call_chain(twice) == ("called from a.py:9:1", "called from a.py:20:1")
    assert call_chain(here) == call_chain(None) == ()
