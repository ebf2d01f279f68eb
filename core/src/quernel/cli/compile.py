"""`quernel compile`: one kernel for one target, without a device."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import json
import logging
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from quernel.api.kernels import Kernel
    from quernel.compiler.artifacts import ArtifactHeader
    from quernel.runtime.parameters import Spec

__all__ = ["compile_kernel"]

_log = logging.getLogger(__name__)
_ARRAY = re.compile(r"(?:qn\.)?Array([1-4]?)\[(?:qn\.|np\.)?(\w+)\]")
_FORMS = ("ir", "source", "ptx", "asm", "artifact")


@click.command("compile")
@click.argument("kernel", metavar="FILE.py:KERNEL|MODULE:KERNEL")
@click.option("--target", required=True, metavar="BACKEND[:NAME]", help="For example cuda:sm_90, or cpu:x86-64-v3.")
@click.option("--emit", type=click.Choice(_FORMS), help="What to write; without it, a summary is shown.")
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write there, not to the terminal."
)
@click.option("--type", "types", multiple=True, metavar="NAME=TYPE", help="A parameter's type: f32, or Array2[f32].")
@click.option("--const", "constants", multiple=True, metavar="NAME=VALUE", help="The value of a Const parameter.")
@click.option("--block", metavar="B0[,B1[,B2]]", help="Threads of a block along each axis, the last one fastest.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
def compile_kernel(
    kernel: str,
    target: str,
    emit: str | None,
    output: Path | None,
    types: tuple[str, ...],
    constants: tuple[str, ...],
    block: str | None,
    as_json: bool,
) -> None:
    """Compile KERNEL for a target, and show what came of it.

    Parameters whose annotation says their type need no --type. No device is needed, except for OpenCL's.
    """
    from quernel.api.specialized import exact_definition
    from quernel.api.wiring import catalog
    from quernel.compiler.artifacts import ArtifactId
    from quernel.compiler.recording import CompilationRecording
    from quernel.runtime.asking import ask_compiler
    from quernel.runtime.device_strings import is_only_a_kind

    if emit == "artifact" and output is None and sys.stdout.isatty():
        raise click.UsageError("an artifact is bytes, which a terminal does not show: give -o FILE")
    found = _kernel(kernel)
    if block is not None:
        found = found.options(block=tuple(_integer(part, "--block") for part in block.split(",")))
    named = {**dict(_type(given) for given in types), **dict(_constant(given) for given in constants)}
    definition = exact_definition(found._launchable, (), named, _how_to_give)
    backend, _, name = target.partition(":")
    if is_only_a_kind(backend, catalog().names()):
        raise click.UsageError(f"{backend!r} is a kind of device, not a target: name one, such as cuda:sm_90")
    loaded = catalog().load(backend)
    if emit == "ir":  # of no target, so none of the backend's has to be there
        from quernel.ir.printer import print_module

        _write(print_module(definition.expand()), output)
        return
    compiler = ask_compiler(loaded, name)
    recording = CompilationRecording(is_full=True)
    identity = ArtifactId(definition.id, compiler.default_variant(definition.specialization.signature))
    lowered = compiler.lower(definition, identity, recording, _log)
    match emit:
        case "source":
            _write(_shown(recording.source_text or compiler.source(lowered), emit, target), output)
        case "ptx":
            _write(_shown(_ptx(compiler, lowered), emit, target), output)
        case "asm":
            _write(_shown(compiler.assembly(lowered), emit, target), output)
        case _:
            artifact = compiler.finalize(identity, lowered)
            if emit == "artifact":
                _write(artifact.payload, output)
            else:
                _summarize(found.__name__, target, artifact.header, len(artifact.payload), as_json=as_json)


def _how_to_give(spec: Spec) -> str:
    """The option that gives what a parameter lacks."""
    return f"--const {spec.name}=3" if spec.is_const else f"--type {spec.name}=f32, or --type {spec.name}=Array1[f32]"


def _kernel(spec: str) -> Kernel:
    """The kernel that `FILE.py:NAME` or `MODULE:NAME` names."""
    from quernel.api.kernels import Kernel

    place, separator, name = spec.rpartition(":")
    if not separator:
        raise click.UsageError(f"{spec!r} names no kernel: write FILE.py:KERNEL or MODULE:KERNEL")
    found = _from_file(Path(place)) if place.endswith(".py") else _from_module(place)
    for part in name.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, Kernel):
        raise click.UsageError(f"{place} has no kernel {name!r}")
    return found


def _from_file(path: Path) -> Any:
    if not path.exists():
        raise click.UsageError(f"there is no file {path}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    sys.path.insert(0, str(path.parent.resolve()))
    spec.loader.exec_module(module)
    return module


def _from_module(name: str) -> Any:
    sys.path.insert(0, "")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise click.UsageError(f"cannot import {name}: {error}") from error


def _pair(given: str, option: str) -> tuple[str, str]:
    name, separator, value = given.partition("=")
    if not separator:
        raise click.UsageError(f"{option} {given!r}: write NAME=…")
    return name.strip(), value.strip()


def _type(given: str) -> tuple[str, Any]:
    """A parameter's name and type."""
    import quernel as qn
    from quernel.dtypes import BY_NAME, bf16

    name, text = _pair(given, "--type")
    array = _ARRAY.fullmatch(text)
    element = array[2] if array is not None else text.removeprefix("qn.").removeprefix("np.")
    of_numpy = {dtype.numpy.name: dtype for dtype in BY_NAME.values() if dtype is not bf16}
    elements = {**BY_NAME, **of_numpy, "bfloat16": bf16}
    known: dict[str, Any] = {**elements, "int": int, "float": float}
    if element not in (known if array is None else elements):
        raise click.UsageError(
            f"--type {given!r}: use one of {', '.join([*BY_NAME, 'int', 'float'])}, or Array1[f32] to Array4[f32]"
        )
    if array is None:
        return name, known[element]
    return name, getattr(qn, f"Array{array[1] or 1}")[known[element]]


def _constant(given: str) -> tuple[str, Any]:
    name, text = _pair(given, "--const")
    try:
        return name, ast.literal_eval(text)
    except (ValueError, SyntaxError) as error:
        raise click.UsageError(f"--const {given!r}: {text!r} is no Python literal") from error


def _integer(text: str, option: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise click.UsageError(f"{option}: {text!r} is no integer") from error


def _shown(text: str | None, emit: str, target: str) -> str:
    if text is None:
        raise click.UsageError(f"{target} has no {emit} to show")
    return text


def _ptx(compiler: Any, lowered: Any) -> str | None:
    """The PTX of a kernel, from a compiler that makes any."""
    make: Any = getattr(compiler, "ptx", None)
    return None if make is None else str(make(lowered))


def _write(content: str | bytes, output: Path | None) -> None:
    data = content.encode() if isinstance(content, str) else content
    if output is not None:
        output.write_bytes(data)
    else:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def _summarize(name: str, target: str, header: ArtifactHeader, nbytes: int, *, as_json: bool) -> None:
    facts: dict[str, Any] = {
        "kernel": name,
        "target": target,
        "entry": header.entry,
        "block": list(header.block),
        "points_per_thread": header.points_per_thread,
        "shared_bytes": header.shared_bytes,
        "artifact_bytes": nbytes,
        **dict(header.statistics),
    }
    if as_json:
        click.echo(json.dumps(facts))
        return
    for label, value in facts.items():
        click.echo(f"{label.replace('_', ' '):22} {value}")
