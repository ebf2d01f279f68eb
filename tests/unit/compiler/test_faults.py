"""A fault at every arrow of a batch: what failed, what its siblings got, what is kept, what the next launch does."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import attrs
import filelock
import pytest
from tests.unit.compiler.scripted import Bench, artifact_id, definition
from tests.unit.compiler.test_persistent import Process, process

from quernel.compiler import Kernels
from quernel.compiler.loader import KernelLoader
from quernel.errors import CompilationError, DeviceError, KernelSyntaxError, StoreError, ValidationError
from quernel.store import CompilationOutcome, Environment, read_records

SIBLINGS = ("before", "after")
SOURCES = {"before": "text before", "bad": "text bad", "after": "text after"}


@attrs.frozen
class Fault:
    """A fault in one kernel of a batch of three.

    Attributes:
        arrow: where.
        inject: makes it happen.
        error: what the kernel's own launch raises, or `None`: it is loaded all the same.
        match: what that error says.
        is_kept: whether the kernel is in the store after.
        again: methods of the backend that the next launch calls for the kernel.
    """

    arrow: str
    inject: Callable[[Bench], object]
    error: type[Exception] | None = None
    match: str = ""
    is_kept: bool = False
    again: tuple[str, ...] = ()


def raising(method: str, error: Exception, subject: str = "bad") -> Callable[[Bench], object]:
    return lambda bench: bench.script.acts.update({(method, subject): error})


def raising_from_source(bench: Bench) -> None:
    compiler = bench.loader.target.compiler
    source = compiler.source

    def refuse(lowered: Any) -> Any:
        if lowered.name == "bad" and not bench.script.acts.get(("healed", "")):
            raise ZeroDivisionError("in source")
        return source(lowered)

    compiler.source = refuse


def raising_reporter(bench: Bench) -> None:
    def refuse(compiled: Any) -> None:
        raise ZeroDivisionError("in the reporter")

    bench.loader.request(definition("bad"), artifact_id("bad"), reporters=(refuse,))


def raising_records(bench: Bench) -> None:
    def refuse(*arguments: object) -> None:
        raise OSError("no space left")

    bench.loader._records = refuse


WHOLE = ("lower", "finalize", "load", "store")
FAULTS = [
    Fault("look up", raising("stored", StoreError("locked")), None, is_kept=True),
    Fault("look up", raising("stored", ZeroDivisionError("a bug")), ZeroDivisionError, "a bug", again=WHOLE),
    Fault("look up by IR", raising("stored_for_ir", StoreError("locked"), ""), None, is_kept=True),
    Fault("lower", raising("lower", ValidationError("too wide")), ValidationError, "too wide", again=WHOLE),
    Fault("lower", raising("lower", KeyError("x")), CompilationError, "bad failed with KeyError: 'x'", again=WHOLE),
    Fault("source", raising_from_source, CompilationError, "ZeroDivisionError: in source", again=WHOLE),
    Fault("look up by source", raising("stored_for_source", StoreError("locked"), "text bad"), None, is_kept=True),
    Fault("finalize", raising("finalize", CompilationError("toolchain")), CompilationError, "toolchain", again=WHOLE),
    Fault("finalize", raising("finalize", MemoryError()), CompilationError, "failed with MemoryError", again=WHOLE),
    Fault("reporter", raising_reporter, None, is_kept=True),
    Fault("load", raising("load", DeviceError("no such image")), DeviceError, "no such image", again=WHOLE),
    Fault("store", raising("store", StoreError("disk full")), None),
    Fault("store", raising("store", ZeroDivisionError("a bug")), None),
    Fault("record", raising_records, None, is_kept=True),
]


@pytest.mark.parametrize("fault", FAULTS, ids=[f"{fault.arrow}-{number}" for number, fault in enumerate(FAULTS)])
def test_fault_costs_its_own_kernel_only(bench: Bench, fault: Fault) -> None:
    bench.script.sources.update(SOURCES)
    fault.inject(bench)
    for name in ("before", "bad", "after"):
        bench.enqueue(name)
    assert bench.loader.compile_queued() == (3 if fault.error is None else 2)

    for name in SIBLINGS:  # they are loaded and kept
        num_calls = len(bench.script.calls)
        assert bench.load(name).loaded.payload == repr(SOURCES[name]).encode()
        assert len(bench.script.calls) == num_calls
        assert artifact_id(name) in bench.script.by_id

    assert (artifact_id("bad") in bench.script.by_id) is fault.is_kept
    assert ("text bad" in bench.script.by_source) is fault.is_kept
    counts = bench.loader.counts()
    assert (counts.compiled, counts.failed) == ((3, 0) if fault.error is None else (2, 1))
    assert bench.loader._tables._in_flight == bench.loader._tables._leaders == {}

    if fault.error is not None:  # told once, at its own launch; then it is tried again
        with pytest.raises(fault.error, match=fault.match):
            bench.load("bad")
    bench.script.acts = {("healed", ""): lambda: None}
    num_calls = len(bench.script.calls)
    assert bench.load("bad").loaded.payload == b"'text bad'"
    called = [call.method for call in bench.script.calls[num_calls:] if call.subject == "bad"]
    assert [method for method in called if method in WHOLE] == list(fault.again)


def test_fault_of_a_leader_is_that_of_its_followers_and_of_nobody_else(bench: Bench) -> None:
    bench.script.sources.update(leader="same", follower="same", other="own")
    bench.script.acts["finalize", "leader"] = CompilationError("toolchain")
    bench.script.acts["finalize", "follower"] = CompilationError("toolchain")
    for name in ("leader", "follower", "other"):
        bench.enqueue(name)
    assert bench.loader.compile_queued() == 1
    assert bench.script.count("finalize") == 2
    for name in ("leader", "follower"):
        with pytest.raises(CompilationError, match="toolchain"):
            bench.load(name)
    assert list(bench.script.by_source) == ["own"]


@pytest.mark.parametrize("arrow", ["stored", "load", "store", "stored_for_ir", "stored_for_source"])
def test_interrupt_at_any_arrow_of_the_driver_leaves_nothing_behind(bench: Bench, arrow: str) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    bench.script.sources.update(SOURCES)
    subject = {"stored_for_ir": "", "stored_for_source": "text bad"}.get(arrow, "bad")
    bench.script.acts[arrow, subject] = interrupt
    for name in ("before", "bad", "after"):
        bench.enqueue(name)
    with pytest.raises(KeyboardInterrupt):
        bench.loader.compile_queued()
    counts = bench.loader.counts()
    assert (counts.queued, counts.building) == (0, 0)
    assert counts.abandoned + counts.compiled == counts.registered == 3
    assert counts.abandoned >= 1
    bench.script.acts.clear()
    for name in ("before", "bad", "after"):
        assert bench.load(name).loaded.payload == repr(SOURCES[name]).encode()


@pytest.mark.parametrize("arrow", ["reporter", "record", "progress"])
def test_interrupt_of_what_is_told_leaves_nothing_in_flight(bench: Bench, arrow: str) -> None:
    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt

    kernels = Kernels(bench.loader)
    if arrow == "reporter":
        kernels = kernels.reporting(interrupt)
    elif arrow == "record":
        bench.loader._records = interrupt
    kernels.request(definition("a"))
    with pytest.raises(KeyboardInterrupt):
        kernels.build(progress=interrupt if arrow == "progress" else None)
    assert bench.loader.counts().building == 0
    bench.loader._records = bench.records
    assert bench.load("a").id == artifact_id("a")


class Breaking(ThreadPoolExecutor):
    """Breaks, or is shut down, at the second task."""

    def __init__(self, failure: Exception, *, at_submit: bool) -> None:
        super().__init__(1)
        self.failure = failure
        self.at_submit = at_submit
        self.num_taken = 0

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.num_taken += 1
        if self.num_taken != 2:
            return super().submit(fn, *args, **kwargs)
        if self.at_submit:
            raise self.failure
        failed: Future[Any] = Future()
        failed.set_exception(self.failure)
        return failed


@pytest.mark.parametrize(
    ("executor", "num_loaded"),
    [
        (lambda: Breaking(RuntimeError("cannot schedule new futures after shutdown"), at_submit=True), 3),
        (lambda: Breaking(BrokenProcessPool("a worker died"), at_submit=True), 2),
        (lambda: Breaking(BrokenProcessPool("a worker died"), at_submit=False), 2),
        (lambda: Breaking(OSError("no more processes"), at_submit=False), 2),
    ],
    ids=["shut-down", "broken", "worker-died", "odd"],
)
def test_fault_of_an_executor_costs_the_kernels_that_it_had(
    environment: Environment, executor: Callable[[], Breaking], num_loaded: int
) -> None:
    with executor() as workers:
        bench = Bench.of(environment, workers=workers)
        for name in ("before", "bad", "after"):
            bench.enqueue(name)
        assert bench.loader.compile_queued() == num_loaded
        failed = [name for name in ("before", "bad", "after") if artifact_id(name) not in bench.script.by_id]
        assert len(failed) == 3 - num_loaded
        for name in failed:
            with pytest.raises(CompilationError, match=f"a worker failed while compiling {name}"):
                bench.load(name)
            assert bench.load(name).id == artifact_id(name)


def test_executor_that_is_shut_down_while_it_compiles_loses_no_kernel(environment: Environment) -> None:
    workers = ThreadPoolExecutor(1)
    bench = Bench.of(environment, workers=workers)
    bench.script.acts["lower", "before"] = lambda: workers.shutdown(wait=False, cancel_futures=True)
    for name in ("before", "bad", "after"):
        bench.enqueue(name)
    assert bench.loader.compile_queued() == 3


# --- on the real store ------------------------------------------------------------------------------------------------


def load(running: Process, name: str = "a") -> Any:
    return running.loader.load(definition(name), artifact_id(name))


def test_lock_that_cannot_be_taken_costs_nothing(environment: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    running = process(environment)
    load(running, "first")

    def refuse(*arguments: object, **named: object) -> None:
        raise OSError(37, "No locks available")

    with monkeypatch.context() as patch:
        patch.setattr(filelock.FileLock, "acquire", refuse)
        assert load(running).id == artifact_id("a")
    assert process(environment).loader.load(definition("a"), artifact_id("a")).loaded.payload


def test_failed_kernel_leaves_no_row_and_no_record_and_siblings_both(environment: Environment, tmp_path: Path) -> None:
    running = process(environment)
    loader = KernelLoader(running.loader.target, environment=lambda: environment)
    running.script.acts["load", "bad"] = DeviceError("no such image")
    for name in ("before", "bad", "after"):
        loader.enqueue(definition(name), artifact_id(name))
    assert loader.compile_queued() == 2
    records = [record for record in read_records(tmp_path / "records") if hasattr(record, "outcome")]
    assert [(record.kernel, record.outcome) for record in records] == [
        ("before", CompilationOutcome.COMPILED),
        ("after", CompilationOutcome.COMPILED),
    ]
    following = process(environment)
    assert [load(following, name).id.kernel.name for name in SIBLINGS] == list(SIBLINGS)
    assert following.script.count("lower") == 0
    load(following, "bad")
    assert following.script.log()[-3:] == ["lower bad", "finalize bad", "load bad"]


def test_frontend_that_refuses_is_asked_again(environment: Environment) -> None:
    running = process(environment)
    refusals = [KernelSyntaxError("no lambda")]

    def expand() -> None:
        if refusals:
            raise refusals.pop()

    kernel = definition("a", expand=expand)
    with pytest.raises(KernelSyntaxError, match="no lambda"):
        running.loader.load(kernel, artifact_id("a"))
    assert running.loader.load(kernel, artifact_id("a")).id == artifact_id("a")
