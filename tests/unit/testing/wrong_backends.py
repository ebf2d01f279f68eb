"""Backends that are right but for one fault each, made of the interpreter; and what is said of all faults.

The kit must see each fault, in the part that is about it and nowhere else. `FAULTS` says which parts those are.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Callable
from typing import Any, Final

import attrs

from quernel.capabilities import TargetInfo
from quernel.dtypes import DType, bf16, f16
from quernel.errors import ValidationError
from quernel.geometry import LaunchForm
from quernel.ir.nodes import (
    Assert,
    Atomic,
    AtomicOp,
    Barrier,
    Binary,
    BinaryOp,
    Const,
    Expr,
    Fma,
    Math,
    MathFunction,
    Module,
    Shape,
    Stmt,
    Subgroup,
    SubgroupOp,
    VecGet,
)
from quernel.ir.walk import map_bodies, map_expressions, map_statements
from quernel.reference.compiler import ReferenceCompiler
from quernel.reference.device import ReferenceDevice
from quernel.reference.plugin import ReferenceBackend
from quernel.runtime.operations import Backend, DeviceInfo, Memory
from quernel.testing.bounds import BOUNDS

QUERNEL_PLUGIN_API: Final = 1


RANDOM: Final = frozenset({"random_kernels"})
STORES: Final = "wrong_stores"


@attrs.frozen
class Fault:
    """What is wrong with a backend.

    Attributes:
        part: the part of the kit that must fail.
        seen_by: the test of that part that must fail.
        compiles: what becomes of a kernel's IR before it is lowered.
        touches: further parts that use what is wrong, and may fail too.
        module: where the backend is made.
    """

    part: str
    seen_by: str
    compiles: Callable[[Module], Module] | None = None
    touches: frozenset[str] = frozenset()
    module: str = "wrong_backends"


# --- kernels that are compiled wrongly --------------------------------------------------------------------------------


def of_expressions(rewrite: Callable[[Expr], Expr]) -> Callable[[Module], Module]:
    return lambda module: map_expressions(module, rewrite)


def of_statements(rewrite: Callable[[Stmt], Any]) -> Callable[[Module], Module]:
    return lambda module: map_bodies(module, lambda body: map_statements(body, rewrite))


def fuses_nothing(expr: Expr) -> Expr:
    """Rounds a product before it adds."""
    if not isinstance(expr, Fma):
        return expr
    product = Binary(op=BinaryOp.MUL, left=expr.a, right=expr.b, loc=expr.loc)
    return Binary(op=BinaryOp.ADD, left=product, right=expr.c, loc=expr.loc)


def is_off_by_a_thousandth(expr: Expr) -> Expr:
    if isinstance(expr, Math) and expr.function in BOUNDS and isinstance(expr.type, DType):
        more = Const(value=1.001, type=expr.type, loc=expr.loc)
        return Binary(op=BinaryOp.MUL, left=expr, right=more, loc=expr.loc)
    return expr


def rounds_down(expr: Expr) -> Expr:
    is_rint = isinstance(expr, Math) and expr.function is MathFunction.RINT
    return attrs.evolve(expr, function=MathFunction.FLOOR) if is_rint else expr


def subtracts_small_floats(expr: Expr) -> Expr:
    is_sum = isinstance(expr, Binary) and expr.op is BinaryOp.ADD and expr.left.type in (f16, bf16)
    return attrs.evolve(expr, op=BinaryOp.SUB) if is_sum else expr


def takes_the_wrong_component(expr: Expr) -> Expr:
    return attrs.evolve(expr, index=expr.index ^ 1) if isinstance(expr, VecGet) else expr


def takes_the_first_length(expr: Expr) -> Expr:
    return attrs.evolve(expr, axis=0) if isinstance(expr, Shape) else expr


def loses_bits(stmt: Stmt) -> Stmt:
    return attrs.evolve(stmt, op=AtomicOp.OR) if isinstance(stmt, Atomic) and stmt.op is AtomicOp.XOR else stmt


def waits_for_nobody(stmt: Stmt) -> Any:
    return () if isinstance(stmt, Barrier) else stmt


def sums_instead_of_scanning(stmt: Stmt) -> Stmt:
    is_scan = isinstance(stmt, Subgroup) and stmt.op is SubgroupOp.SCAN
    return attrs.evolve(stmt, op=SubgroupOp.SUM) if is_scan else stmt


def asserts_nothing(stmt: Stmt) -> Any:
    return () if isinstance(stmt, Assert) and stmt.array is None else stmt


FAULTS: Final[dict[str, Fault]] = {
    "fuses-nothing": Fault("arithmetic", "test_fma_is_fused_always", of_expressions(fuses_nothing), RANDOM),
    "off-by-a-thousandth": Fault(
        "math_functions",
        "test_functions_of_one_operand_keep_their_bound",
        of_expressions(is_off_by_a_thousandth),
        RANDOM | {"cases", "arithmetic"},
    ),
    "rounds-down": Fault(
        "conversions",
        "test_rounding_of_the_package_keeps_the_type_and_the_sign_of_zero",
        of_expressions(rounds_down),
        RANDOM | {"cases", "math_functions"},
    ),
    "subtracts-small-floats": Fault(
        "small_floats",
        "test_arithmetic_computes_in_f32_and_rounds_after_each_operation",
        of_expressions(subtracts_small_floats),
        RANDOM | {"together", "errors", "composites", "subgroups"},
    ),
    "wrong-component": Fault(
        "composites", "test_vectors_compute_component_by_component", of_expressions(takes_the_wrong_component), RANDOM
    ),
    "first-length": Fault(
        "statements",
        "test_shapes_are_those_of_the_argument",
        of_expressions(takes_the_first_length),
        RANDOM | {"cases", "together", "composites", "checked"},
    ),
    "loses-bits": Fault("atomics", "test_an_atomic_operation_takes_in_every_thread", of_statements(loses_bits), RANDOM),
    "no-barriers": Fault(
        "together",
        "test_a_prefix_sum_in_shared_memory",
        of_statements(waits_for_nobody),
        RANDOM | {"checked", "atomics", "composites"},
    ),
    "sums-for-scans": Fault(
        "subgroups",
        "test_a_scan_gives_each_lane_the_sum_up_to_itself",
        of_statements(sums_instead_of_scanning),
        RANDOM | {"together"},
    ),
    "no-assertions": Fault(
        "checked", "test_an_assertion_that_fails_raises_with_its_text_and_line", of_statements(asserts_nothing)
    ),
    "unknown-kind": Fault("discovery", "test_its_devices_are_known_without_opening_one"),
    "unstable-variant": Fault("identity", "test_names_are_the_same_in_every_process"),
    "differs-each-time": Fault("compiling", "test_the_compiler_makes_the_same_each_time"),
    "numbers-its-artifacts": Fault(
        "compiling", "test_where_bytes_differ_each_time_there_is_a_text_to_find_equal_kernels_by"
    ),
    "unnamed-language": Fault("errors", "test_a_source_in_a_language_that_it_does_not_speak_is_refused"),
    "misplaced-memory": Fault("arrays", "test_memory_starts_where_kernels_may_read_it_in_one_piece"),
    "keeps-memory": Fault("arrays", "test_memory_that_nobody_holds_is_given_back"),
    "time-runs-back": Fault("streams", "test_events_tell_the_time_between_them"),
    "runs-past-the-edge": Fault("launches", "test_every_point_of_a_volume_runs_once"),
    "one-argument-buffer": Fault("threads", "test_threads_launch_one_kernel_with_arguments_of_their_own"),
    "forks-badly": Fault("closing", "test_a_forked_child_goes_on_or_is_told_that_it_cannot"),
    "stores-first": Fault("loading", "test_nothing_is_kept_before_it_is_loaded", module=STORES),
    "takes-any-fingerprint": Fault("store", "test_an_artifact_of_another_fingerprint_is_not_taken", module=STORES),
    "forgets-at-the-end": Fault("persistence", "test_the_second_process_loads_all_and_compiles_nothing", module=STORES),
}


class Compiler(ReferenceCompiler):
    """The interpreter's, with the fault of its name."""

    def __init__(self, target_info: TargetInfo) -> None:
        super().__init__(target_info)
        self.fault = target_info.backend.removeprefix("wrong-")

    def default_variant(self, signature: Any) -> Any:
        return OwnVariant(os.getpid()) if self.fault == "unstable-variant" else super().default_variant(signature)

    @property
    def is_reproducible(self) -> bool:  # type: ignore[override]  # a fact of the fault here
        return self.fault != "numbers-its-artifacts"

    def lower(self, kernel: Any, *given: Any) -> Any:
        if kernel.foreign is not None and self.fault == "unnamed-language":
            raise ValidationError("a kernel cannot be lowered")
        rewrite = FAULTS[self.fault].compiles
        if rewrite is not None and kernel.foreign is None:
            kernel = Rewritten(kernel, rewrite)
        return super().lower(kernel, *given)

    def finalize(self, key: Any, lowered: Any) -> Any:
        artifact = super().finalize(key, lowered)
        if self.fault == "differs-each-time":
            return attrs.evolve(artifact, payload=artifact.payload + str(next(_numbers)).encode())
        return artifact


class Rewritten:
    """A definition whose IR is another's, rewritten."""

    def __init__(self, kernel: Any, rewrite: Callable[[Module], Module]) -> None:
        self.kernel = kernel
        self.rewrite = rewrite

    def __getattr__(self, name: str) -> Any:
        return getattr(self.kernel, name)

    def expand(self) -> Module:
        return self.rewrite(self.kernel.expand())


_numbers = itertools.count()


@attrs.frozen
class OwnVariant:
    """A variant that every process has for itself."""

    process: int


class Device(ReferenceDevice):
    """The interpreter's, with the fault of its name."""

    def __init__(self, info: DeviceInfo, compiler: Compiler) -> None:
        super().__init__(info, compiler)
        self.fault = compiler.fault
        self.arguments = b""
        self.kept: list[Any] = []
        self.process = os.getpid()
        self.survives_fork = self.fault == "forks-badly"
        if self.fault == "unstable-variant":
            target: Any = self.target
            target.variant = compiler.default_variant

    def allocate(self, nbytes: int) -> Memory:
        if self.fault != "misplaced-memory":
            return super().allocate(nbytes)
        memory = super().allocate(nbytes + 8)
        return Memory(memory.address + 8, nbytes, memory.handle[8:])

    def free(self, memory: Memory) -> None:
        if self.fault == "keeps-memory":
            self.kept.append(memory.handle)
        super().free(memory)

    def elapsed_ns(self, start: Any, end: Any) -> int:
        elapsed_ns = super().elapsed_ns(start, end)
        return -elapsed_ns if self.fault == "time-runs-back" else elapsed_ns

    def launch(self, loaded: Any, header: Any, geometry: Any, arguments: bytes, stream: Any) -> None:
        if self.fault == "forks-badly" and os.getpid() != self.process:
            raise RuntimeError("this process has no interpreter")
        if self.fault == "runs-past-the-edge" and geometry.form is LaunchForm.OVER and geometry.ndim == 3:
            geometry = attrs.evolve(geometry, extent=(*geometry.extent[:2], geometry.extent[2] + 1))
        if self.fault == "one-argument-buffer":
            self.arguments = arguments
            if threading.active_count() > 2:
                time.sleep(0.0005)
            arguments = self.arguments
        super().launch(loaded, header, geometry, arguments, stream)


class WrongBackend(ReferenceBackend):
    """The interpreter under the name of a fault."""

    def __init__(self, fault: str) -> None:
        self.fault = fault
        self.name = f"wrong-{fault}"

    def devices(self) -> tuple[DeviceInfo, ...]:
        kind = "toaster" if self.fault == "unknown-kind" else "cpu"
        return tuple(attrs.evolve(info, backend=self.name, kind=kind) for info in super().devices())

    def target_info(self, target: str) -> TargetInfo:
        return attrs.evolve(super().target_info(target), backend=self.name)

    def compiler(self, target: TargetInfo) -> Compiler:
        return Compiler(target)

    def open(self, info: DeviceInfo) -> Device:
        return Device(info, self.compiler(self.target_info("")))


def backend_of(fault: str) -> Backend:
    return WrongBackend(fault)
