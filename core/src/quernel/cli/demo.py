"""`quernel demo`: a few kernels on a picture, checked against NumPy, and what compiling them took."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import click
import numpy as np

from quernel.cli.consoles import console
from quernel.wording import counted

if TYPE_CHECKING:
    from quernel.runtime.devices import Device
    from quernel.store import CompilationRecord

__all__ = ["demo"]

_RADIUS = 6
_MANDELBROT = {"left": -2.2, "top": -1.2, "step": 1 / 400, "limit": 160}
_MANDELBROT_SHAPE = (960, 1280)
_FILTERS = ("saxpy", "blur_rows", "blur_columns", "edges")
_LONG_MS = 1000.0
"""A launch that takes longer is not repeated to find the quickest."""
_INTERPRETED_POINTS = 64 * 48
"""The most pixels of a picture on a device that interprets, some hundred thousand times slower than compiled code."""
_OUTCOMES = {
    "compiled": "compiled now",
    "loaded": "found in the store",
    "rekeyed": "found under another key: changed, or of another Python, but the same code in the end",
    "in memory": "compiled or loaded earlier in this process",
}
_STAGES = ("expand", "lower", "finalize", "load", "store")


class _Records:
    """Keeps the records of this run, and hands them on to the installed observers."""

    def __init__(self) -> None:
        from quernel.api.wiring import connect, observers
        from quernel.runtime.loading import observe_compilations

        connect()
        self._next = observers()
        self.by_kernel: dict[str, CompilationRecord] = {}
        observe_compilations(lambda: self)

    def compiled(self, record: Any) -> None:
        """Keeps a record by its kernel's name; each kernel of the demo has one specialization."""
        self.by_kernel[record.kernel] = record
        self._next.compiled(record)

    def outcome_of(self, kernel: str) -> str:
        """How a kernel came to the device, in a word."""
        record = self.by_kernel.get(kernel)
        return record.outcome.value if record is not None else "in memory"

    def meaning_of(self, outcome: str) -> str:
        """What the word stands for in this run."""
        from quernel import settings

        meaning = _OUTCOMES[outcome]
        if outcome != "compiled":
            return meaning
        if settings.no_cache():
            return f"{meaning}; nothing is kept, as QUERNEL_NO_CACHE is set"
        made = [record for record in self.by_kernel.values() if record.outcome.value == outcome]
        is_kept = all("store" in dict(record.stages) for record in made)
        return f"{meaning}, and kept in the store" if is_kept else f"{meaning}, and not kept in a store"

    def batch_closed(self, record: Any) -> None:
        """Hands it on."""
        self._next.batch_closed(record)


class _Progress:
    """Says on a terminal which kernel runs, where a device takes its time."""

    def __init__(self, device: Device, num_kernels: int) -> None:
        from rich.console import Console
        from rich.progress import MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = (SpinnerColumn(), TextColumn("{task.description}"), MofNCompleteColumn())
        console = Console(stderr=True)
        self._device = device
        self._bar = Progress(
            *columns, TimeElapsedColumn(), console=console, transient=True, disable=not console.is_terminal
        )
        self._task = self._bar.add_task("starting", total=num_kernels)
        self._num_begun = 0

    def __enter__(self) -> _Progress:
        self._bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._bar.stop()

    def next(self, kernel: str, num_points: int) -> None:
        """The kernel that comes now, over so many points; the one before is done."""
        slowly = ", interpreted" if _interprets(self._device) else ""
        text = f"{kernel}: {counted(num_points, 'point')} on {self._device.name}{slowly}"
        self._bar.update(self._task, description=text, completed=self._num_begun)
        self._num_begun += 1


@attrs.frozen
class _Step:
    """One kernel's part of the demo: how long its launch took, and how far it is from NumPy."""

    kernel: str
    launch_ms: float
    numpy_ms: float
    worst_error: float
    allowed_error: float

    @property
    def is_right(self) -> bool:
        """Whether every element is as close to NumPy's as this kernel has to be."""
        return self.worst_error <= self.allowed_error


@click.command()
@click.argument("image", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--device", "spec", default=None, help="The device: cpu, reference, cuda:1, opencl:gpu, …")
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("quernel-demo"),
    show_default=True,
    help="Where to write the pictures.",
)
@click.option("--full-size", is_flag=True, help="Do not shrink the picture on a device that interprets.")
def demo(image: Path | None, spec: str | None, output: Path, full_size: bool) -> int:
    """Run saxpy, a separable blur and an edge filter on IMAGE, and check each against NumPy.

    Without IMAGE a Mandelbrot kernel draws one. A second run finds every kernel in the store. A device that interprets
    works on a smaller picture.
    """
    import quernel as qn
    from quernel.cli.pictures import prepare_folder, read_picture, write_picture

    prepare_folder(output)
    records = _Records()
    device = qn.device(spec) if spec is not None else qn.device()
    steps: list[_Step] = []
    picture = read_picture(image) if image is not None else None
    height, width = picture.shape[1:] if picture is not None else _MANDELBROT_SHAPE
    every = 1 if full_size or not _interprets(device) else _shrinking(height, width)
    if every > 1:
        size = f"{width} x {height} to {width // every} x {height // every}"
        click.echo(f"{device.name} interprets: the picture is shrunk from {size}; --full-size leaves it", err=True)
    with _Progress(device, len(_FILTERS) + (image is None)) as progress:
        picture = _draw(device, steps, progress, every) if picture is None else _shrunk(picture, every)
        results = _filter(device, picture, steps, progress)
    for name, result in {"input": picture, **results}.items():
        write_picture(output / f"{name}.png", result)
    _report(device, picture, steps, records, output)
    return 0 if all(step.is_right for step in steps) else 1


def _interprets(device: Device) -> bool:
    return device.info.backend == "reference"


def _shrinking(height: int, width: int) -> int:
    """How many pixels along each axis become one, so that few enough are left and there is one along each axis."""
    return max(1, min(math.ceil(math.sqrt(height * width / _INTERPRETED_POINTS)), height, width))


def _shrunk(picture: np.ndarray[Any, Any], every: int) -> np.ndarray[Any, Any]:
    """The means of squares of pixels; what is left over at the right and the lower edge is cut off."""
    planes, height, width = picture.shape
    rows, columns = height // every, width // every
    squares = picture[:, : rows * every, : columns * every].reshape(planes, rows, every, columns, every)
    return np.ascontiguousarray(squares.mean(axis=(2, 4), dtype=np.float64), np.float32)


def _timed(action: Callable[..., Any], *arguments: Any) -> tuple[Any, float]:
    """What the call gives, and its milliseconds."""
    start = time.perf_counter()
    result = action(*arguments)
    return result, (time.perf_counter() - start) * 1e3


def _run(device: Device, launcher: Any, arguments: tuple[Any, ...]) -> float:
    """Milliseconds of a launch on device arrays, once the kernel is loaded and its pages are there."""

    def launch() -> None:
        launcher(*arguments)
        device.synchronize()

    fastest = _timed(launch)[1]
    for _ in range(2):
        if fastest < _LONG_MS:
            fastest = min(fastest, _timed(launch)[1])
    return fastest


def _draw(device: Device, steps: list[_Step], progress: _Progress, every: int) -> np.ndarray[Any, Any]:
    """A picture of the Mandelbrot set, (3, height, width), of each axis one point in so many."""
    import quernel as qn
    from quernel.cli.demo_kernels import mandelbrot, numpy_mandelbrot

    shape = (_MANDELBROT_SHAPE[0] // every, _MANDELBROT_SHAPE[1] // every)
    left, top, step, limit = _MANDELBROT.values()
    step *= every
    progress.next("mandelbrot", math.prod(shape))
    counts = device.zeros(shape, qn.i32)
    launch_ms = _run(device, mandelbrot.over(shape, device=device), (left, top, step, limit, counts))
    found = counts.numpy()
    expected, numpy_ms = _timed(numpy_mandelbrot, left, top, step, int(limit), shape)
    worst = float(np.abs(found - expected).max())
    steps.append(_Step("mandelbrot", launch_ms, numpy_ms, worst, 0.0))
    shade = np.where(found < limit, found / limit, 0.0)
    colours = np.stack([shade**0.3, shade**0.55, 0.15 + 0.85 * np.sin(np.pi * shade**0.4)])
    return np.where(found < limit, colours, 0.0).astype(np.float32)


def _filter(
    device: Device, picture: np.ndarray[Any, Any], steps: list[_Step], progress: _Progress
) -> dict[str, np.ndarray[Any, Any]]:
    """The picture with more contrast, blurred, and its edges."""
    import quernel as qn
    from quernel.cli import demo_kernels as kernels

    planes, height, width = picture.shape
    source = device.array(picture)

    progress.next("saxpy", picture.size)
    gain = 1.4
    lifted = device.full(picture.size, -0.2, qn.f32)
    launcher = kernels.saxpy.over(picture.size, device=device)
    launcher(gain, source.reshape(picture.size), lifted)
    contrast = lifted.numpy().reshape(picture.shape)
    scratch = device.full(picture.size, -0.2, qn.f32)
    launch_ms = _run(device, launcher, (gain, source.reshape(picture.size), scratch))
    _, numpy_ms = _timed(lambda: np.float32(gain) * picture + np.float32(-0.2))
    expected = gain * picture.astype(np.float64) + np.float64(np.float32(-0.2))
    steps.append(_step("saxpy", contrast, expected, launch_ms, numpy_ms))

    taps = kernels.gaussian_taps(_RADIUS)
    weights = device.array(taps)
    rows, blurred = device.empty(picture.shape, qn.f32), device.empty(picture.shape, qn.f32)
    for kernel, axis, before, after in (
        (kernels.blur_rows, 2, source, rows),
        (kernels.blur_columns, 1, rows, blurred),
    ):
        progress.next(kernel.__name__, picture.size)
        launch_ms = _run(device, kernel.over((planes, height, width), device=device), (before, weights, after))
        blurred_by_numpy, numpy_ms = _timed(kernels.numpy_blur, before.numpy(), taps, axis)
        steps.append(_step(kernel.__name__, after.numpy(), blurred_by_numpy, launch_ms, numpy_ms))

    progress.next("edges", height * width)
    outline = device.empty((height, width), qn.f32)
    launch_ms = _run(device, kernels.edges.over((height, width), device=device), (blurred, outline))
    edges_by_numpy, numpy_ms = _timed(kernels.numpy_edges, blurred.numpy())
    steps.append(_step("edges", outline.numpy(), edges_by_numpy, launch_ms, numpy_ms))

    strongest = max(float(outline.numpy().max()), 1e-6)
    return {"contrast": contrast, "blurred": blurred.numpy(), "edges": outline.numpy() / strongest}


def _step(kernel: str, found: Any, expected: Any, launch_ms: float, numpy_ms: float) -> _Step:
    """f32 sums of some ten terms of size 1 are right to a few units in the last place of 1."""
    worst = float(np.abs(found.astype(np.float64) - expected).max())
    return _Step(kernel, launch_ms, numpy_ms, worst, 16 * 2.0**-24 * max(1.0, float(np.abs(expected).max())))


def _report(device: Device, picture: Any, steps: list[_Step], records: _Records, output: Path) -> None:
    from rich.markup import escape
    from rich.table import Table

    _, height, width = picture.shape
    compiled = Table(title=f"How each kernel came to {escape(device.name)}, in milliseconds", title_justify="left")
    compiled.add_column("kernel", no_wrap=True, min_width=max(len(step.kernel) for step in steps))
    compiled.add_column("outcome")
    for stage in _STAGES:
        compiled.add_column(stage, justify="right")
    compiled.add_column("in all", justify="right")
    ran = Table(title=f"What it did to a picture of {width} x {height}", title_justify="left")
    ran.add_column("kernel")
    for column in ("launch ms", "NumPy ms", "worst error"):
        ran.add_column(column, justify="right")
    ran.add_column("agrees")
    for step in steps:
        record = records.by_kernel.get(step.kernel)
        stages = dict(record.stages) if record is not None else {}
        compiled.add_row(
            step.kernel,
            records.outcome_of(step.kernel),
            *(f"{stages[stage] / 1e6:.1f}" if stage in stages else "" for stage in _STAGES),
            f"{record.duration_ns / 1e6:.1f}" if record is not None else "",
        )
        ran.add_row(
            step.kernel,
            f"{step.launch_ms:.2f}",
            f"{step.numpy_ms:.2f}",
            f"{step.worst_error:.1e}" if step.worst_error else "none",
            "[green]yes[/]" if step.is_right else "[bold red]NO[/]",
        )
    screen = console()
    screen.print(compiled)
    outcomes = [records.outcome_of(step.kernel) for step in steps]
    for outcome in _OUTCOMES:
        if outcome in outcomes:
            screen.print(f"{outcome}: {records.meaning_of(outcome)}")
    screen.print(ran)
    screen.print(f"Pictures: {escape(str(output))}/input.png, contrast.png, blurred.png, edges.png")
