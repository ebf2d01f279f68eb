"""Whatever IR is valid becomes a text that a real compiler takes."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import HealthCheck, given, settings
from tests.property.ir_strategies import modules

from quernel.codegen.generate import generate
from quernel.codegen.pointers import Pointers
from quernel.codegen.validation import validate_kernel
from quernel.compiler.arguments import argument_slots
from quernel.errors import QuernelError, ValidationError
from quernel.geometry import LaunchForm
from quernel.ir.nodes import Assert, Atomic, Module, Print, Stmt, Subgroup
from quernel.ir.passes.inline import inline
from quernel.ir.walk import Body, map_bodies, map_statements
from quernel_opencl import _toolchain
from quernel_opencl.lowering import OPENCL_C
from quernel_opencl.targets import device_key, target_of


def found_devices() -> list[_toolchain.FoundDevice]:
    try:
        return list(_toolchain.find_devices()[0])
    except QuernelError:
        return []


def supported(module: Module) -> Module:
    """The module without what no OpenCL target has yet, for a block of one thread."""

    def kept(stmt: Stmt) -> Stmt | tuple[Stmt, ...]:
        is_small = isinstance(stmt, Atomic) and stmt.place.type.itemsize < 4
        return () if is_small or isinstance(stmt, Print | Assert | Subgroup) else stmt

    def kept_in(body: Body) -> Body:
        return map_statements(body, kept)

    module = map_bodies(module, kept_in)
    options = attrs.evolve(module.kernel.options, checked=False)
    kernel = attrs.evolve(module.kernel, block=(1,) * module.kernel.ndim, options=options)
    return inline(attrs.evolve(module, kernel=kernel))


@pytest.mark.skipif(not found_devices(), reason="needs an OpenCL compiler, e.g. pip install quernel-opencl[intel]")
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(module=modules())
def test_every_valid_module_compiles(module: Module) -> None:
    found = found_devices()[0]
    target = target_of(found)
    made = supported(module)
    edges = range(made.kernel.ndim) if made.kernel.form is LaunchForm.OVER else ()
    try:
        validate_kernel(made, OPENCL_C, target)
        slots = argument_slots(made, extents=edges)
    except ValidationError:
        return  # by-value vectors and subgroup indices: refused by name, which other tests hold
    for pointers in Pointers:
        generated = generate(made, OPENCL_C, slots, pointers=pointers)
        assert generated.text.isascii()
        assert len(generated.lines) == generated.text.count("\n")
        _toolchain.build_binary(device_key(target), generated.text, ("-D QUERNEL_ENTRY=k",))
