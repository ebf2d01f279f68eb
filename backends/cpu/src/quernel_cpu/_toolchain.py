"""LLVM, through llvmlite: the only module that imports it, and only when a function here is called.

Text goes in, object code comes out, and object code becomes callable. Every compilation has its own LLVM context, and
every thread its own target machines, because LLVM's are not safe to share.
"""

from __future__ import annotations

import ctypes
import itertools
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from quernel.errors import CompilationError, DeviceError
from quernel.forks import around

__all__ = [
    "Library",
    "assembly",
    "compile_ir",
    "gathers",
    "host",
    "load_object",
    "load_symbols",
    "merged_ir",
    "optimized_ir",
    "version",
]

_LARGE_IR_LINES = 1500
"""Beyond this much text the second level of optimisation replaces the third, which takes four times as long there."""
_HUGE_IR_LINES = 3000
"""Beyond this much in one function the vectorisers are off: their time grows with the square of a loop's length (16 s
at 15 000 lines, where the rest takes 0.8 s), and a loop that long waits for other things than arithmetic."""


@cache
def _llvm() -> Any:
    """`llvmlite.binding`, with the host's code generator ready."""
    import llvmlite.binding as llvm

    around(_rest, _go_on)
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm


def _rest() -> None:
    """Before a fork: waits until no thread is within LLVM, whose locks the child would otherwise find held for ever."""
    _linking.acquire()
    try:
        _llvmlite_lock().__enter__()
    except BaseException:
        _linking.release()
        raise


def _go_on() -> None:
    _llvmlite_lock().__exit__(None, None, None)
    _linking.release()


def _llvmlite_lock() -> Any:
    """llvmlite's own, which it takes for every call."""
    return sys.modules["llvmlite.binding.ffi"].lib._lock


@cache
def version() -> str:
    """LLVM's version."""
    return ".".join(str(part) for part in _llvm().llvm_version_info)


@cache
def host() -> tuple[str, str, str]:
    """The host's triple, LLVM's name for its processor, and its features as LLVM takes them."""
    llvm = _llvm()
    return llvm.get_process_triple(), llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()


# --- compiling --------------------------------------------------------------------------------------------------------


class _Machines(threading.local):
    """Target machines of one thread, by triple, processor and features."""

    def __init__(self) -> None:
        self.known: dict[tuple[str, str, str], Any] = {}


_machines = _Machines()


def _machine(triple: str, cpu: str, features: str) -> Any:
    found = _machines.known.get((triple, cpu, features))
    if found is None:
        target = _llvm().Target.from_triple(triple)
        found = target.create_target_machine(cpu, features, 3, reloc="pic", codemodel="small")
        _machines.known[triple, cpu, features] = found
    return found


@contextmanager
def _context() -> Iterator[Any]:
    """An LLVM context, which must outlive its modules: so both are closed in order, never left to the collector."""
    context = _llvm().create_context()
    try:
        yield context
    finally:
        context.close()


@contextmanager
def _parsed(text: str, context: Any) -> Iterator[Any]:
    module = None
    try:
        try:
            module = _llvm().parse_assembly(text, context)
            module.verify()
        except RuntimeError as error:
            raise CompilationError("LLVM refused the IR", chain=tuple(str(error).splitlines())) from None
        yield module
    finally:
        if module is not None:
            module.close()


@contextmanager
def _optimized(
    text: str, triple: str, cpu: str, features: str, *, is_vector_code: bool = False
) -> Iterator[tuple[Any, Any]]:
    """The optimised module, and the machine that emits its code."""
    llvm, machine = _llvm(), _machine(triple, cpu, features)
    with _context() as context, _parsed(text, context) as module:
        module.triple = triple
        module.data_layout = str(machine.target_data)
        num_lines = text.count("\n")
        is_huge = max(part.count("\n") for part in text.split("\ndefine ")) > _HUGE_IR_LINES
        level = 1 if is_huge else 2 if num_lines > _LARGE_IR_LINES or is_vector_code else 3
        vectorizes = not is_huge and not is_vector_code
        options = llvm.create_pipeline_tuning_options(speed_level=level)
        options.loop_vectorization = vectorizes
        options.slp_vectorization = vectorizes
        options.loop_interleaving = vectorizes
        options.loop_unrolling = not is_huge
        with llvm.create_pass_builder(machine, options) as builder, builder.getModulePassManager() as passes:
            passes.run(module, builder)
        yield module, machine


def compile_ir(text: str, triple: str, cpu: str, features: str, *, is_vector_code: bool = False) -> bytes:
    """Optimised object code of LLVM IR.

    Raises:
        CompilationError: LLVM refused the text; its message rides along whole.
    """
    with _optimized(text, triple, cpu, features, is_vector_code=is_vector_code) as (module, machine):
        return bytes(machine.emit_object(module))


def optimized_ir(text: str, triple: str, cpu: str, features: str, *, is_vector_code: bool = False) -> str:
    """What LLVM makes of the IR before it selects instructions."""
    with _optimized(text, triple, cpu, features, is_vector_code=is_vector_code) as (module, _):
        return str(module)


def assembly(text: str, triple: str, cpu: str, features: str, *, is_vector_code: bool = False) -> str:
    """The assembly of the object code that `compile_ir` gives."""
    with _optimized(text, triple, cpu, features, is_vector_code=is_vector_code) as (module, machine):
        return str(machine.emit_assembly(module))


@cache
def gathers(triple: str, cpu: str, features: str) -> bool:
    """Whether LLVM has elements that lie anywhere loaded by one instruction on that processor.

    Some have such an instruction that is slower than a load for each element, which is what LLVM makes there.
    """
    lanes = "<8 x ptr> %at, <8 x i1> %on, <8 x float> zeroinitializer"
    text = (
        "declare <8 x float> @llvm.masked.gather.v8f32.v8p0(<8 x ptr>, <8 x i1>, <8 x float>)\n"
        "define <8 x float> @f(<8 x ptr> %at, <8 x i1> %on) {\n"
        f"  %found = call <8 x float> @llvm.masked.gather.v8f32.v8p0({lanes})\n"
        "  ret <8 x float> %found\n}\n"
    )
    return "gather" in assembly(text, triple, cpu, features, is_vector_code=True)


def merged_ir(text: str, function: str, expected: str, main: str) -> str:
    """A user's module with `main` added, which calls its `function`; whatever else it defines becomes internal.

    `expected` is the type that the function has to have, as LLVM prints it.

    Raises:
        CompilationError: LLVM refused the text, or there is no such function of that type.
    """
    with _context() as context, _parsed(text, context) as module:
        defined = {value.name: value for value in module.functions if not value.is_declaration}
        if function not in defined:
            raise CompilationError(
                f"the LLVM IR defines no function {function!r}", fix=f"define one of type {expected}"
            )
        actual = str(defined[function].global_value_type)
        if actual.replace(" ", "") != expected.replace(" ", ""):
            raise CompilationError(f"@{function} is of type {actual}", fix=f"give it the type {expected}")
        for name, value in defined.items():
            value.linkage = "external" if name == function else "internal"
        with _parsed(main, context) as caller:
            module.link_in(caller, preserve=True)
        module.get_function(function).linkage = "internal"
        return str(module)


# --- loading ----------------------------------------------------------------------------------------------------------


class Library:
    """Object code in memory, until nothing refers to it."""

    def __init__(self, address: int, tracker: Any) -> None:
        self.address = address
        self._tracker = tracker


_numbers = itertools.count()
_linking = threading.RLock()


@cache
def _jit() -> Any:
    llvm = _llvm()
    triple, cpu, features = host()
    target = llvm.Target.from_triple(triple)
    return llvm.create_lljit_compiler(target.create_target_machine(cpu, features, 3, reloc="pic", codemodel="small"))


def load_object(object_code: bytes, symbol: str, library: str | None) -> Library:
    """Object code made callable. `library`: a shared library whose symbols it may refer to, beside the process's.

    Raises:
        DeviceError: the library is not there, or the object does not link.
    """
    if library is not None:
        try:
            ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            raise DeviceError(f"{library} cannot be loaded: {error}", fix="compile the kernel anew here") from error
    return load_symbols(object_code, symbol)[0]


def load_symbols(object_code: bytes, *symbols: str) -> tuple[Library, ...]:
    """Several functions of one object, made callable.

    Raises:
        DeviceError: the object does not link.
    """
    with _linking:
        builder = _llvm().JITLibraryBuilder().add_object_img(object_code).add_current_process()
        for symbol in symbols:
            builder = builder.export_symbol(symbol)
        try:
            tracker = builder.link(_jit(), f"quernel{next(_numbers)}")
        except RuntimeError as error:
            raise DeviceError("the object code does not link", chain=tuple(str(error).splitlines())) from None
    return tuple(Library(tracker[symbol], tracker) for symbol in symbols)
