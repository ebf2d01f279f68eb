"""Many threads, equal kernels, failures and interrupts at random: whoever asks gets an answer, and the right one."""

from __future__ import annotations

import random
import threading
import time

import pytest
from tests.unit.compiler.scripted import Bench, artifact_id, definition

from quernel.compiler import Kernels, Pending, PendingState
from quernel.errors import CompilationError
from quernel.store import Environment

NAMES = [f"k{number}" for number in range(12)]
pytestmark = pytest.mark.usefixtures("fast_switching")


@pytest.mark.parametrize("seed", range(6))
def test_random_loads_with_failures_and_interrupts_end_and_leave_nothing_in_flight(
    environment: Environment, seed: int
) -> None:
    chance = random.Random(seed)
    bench = Bench.of(environment, persists=seed % 3 != 0)
    irs = {name: chance.randint(1, 6) for name in NAMES}
    bench.script.sources.update({name: f"text {ir % 3}" for name, ir in irs.items() if ir % 2})

    def misbehave() -> None:
        drawn = chance.random()
        if drawn < 0.15:
            raise KeyboardInterrupt
        if drawn < 0.3:
            raise CompilationError("no")
        if drawn < 0.5:
            time.sleep(0.001)

    for name in NAMES:
        for method in ("lower", "finalize", "load"):
            bench.script.acts[method, name] = misbehave
    wrong: list[object] = []

    def run(number: int) -> None:
        own = random.Random(seed * 100 + number)
        for _ in range(12):
            name, drawn = own.choice(NAMES), own.random()
            kernel = definition(name, irs[name])
            try:
                if drawn < 0.3:
                    bench.enqueue(name, kernel)
                elif drawn < 0.4:
                    bench.loader.compile_queued()
                else:
                    payload = bench.load(name, kernel).loaded.payload
                    expected = repr(bench.script.sources.get(name, irs[name])).encode()
                    wrong.extend([(name, payload)] if payload != expected else [])
            except (KeyboardInterrupt, CompilationError):
                pass
            except BaseException as error:
                wrong.append(error)

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert wrong == []
    assert bench.loader._tables._in_flight == {}
    assert bench.loader._tables._leaders == {}
    bench.script.acts.clear()
    for name in NAMES:
        while True:
            try:
                assert bench.load(name, definition(name, irs[name])).id == artifact_id(name)
                break
            except CompilationError:  # a failure of the queue that waited for this launch; the next one compiles
                continue
    assert len(bench.loader) == len(NAMES)


@pytest.mark.parametrize("seed", range(4))
def test_random_requests_reporters_and_interrupts_settle_each_registration_once(
    environment: Environment, seed: int
) -> None:
    chance = random.Random(seed)
    bench = Bench.of(environment, persists=seed % 2 == 0)
    names = [f"k{number}" for number in range(30)]

    def misbehave() -> None:
        drawn = chance.random()
        if drawn < 0.15:
            raise KeyboardInterrupt
        if drawn < 0.3:
            raise CompilationError("no")

    for name in names:
        for method in ("lower", "load"):
            bench.script.acts[method, name] = misbehave
    reported: list[str] = []
    kernels = Kernels(bench.loader).reporting(lambda compiled: reported.append(compiled.name))
    wrong: list[object] = []
    ends: dict[int, tuple[Pending[object, object], PendingState]] = {}

    def note(pending: Pending[object, object]) -> None:
        if pending.is_done:
            known = ends.setdefault(id(pending), (pending, pending.state))
            if known[1] is not pending.state:
                wrong.append((known, pending.state))

    def run(number: int) -> None:
        own = random.Random(seed * 100 + number)
        asked: list[Pending[object, object]] = []
        for _ in range(40):
            drawn = own.random()
            try:
                if drawn < 0.4:
                    asked.append(kernels.request(definition(own.choice(names))))
                elif drawn < 0.5:
                    kernels.build()
                elif drawn < 0.6 and asked:
                    own.choice(asked).start()
                elif drawn < 0.8 and asked:
                    kernel = own.choice(asked).result()
                    bench.loader.check(kernel)
                else:
                    kernels.get(definition(own.choice(names)))
            except (KeyboardInterrupt, CompilationError):
                pass
            except BaseException as error:
                wrong.append(error)
            for pending in asked:
                note(pending)

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert wrong == []
    bench.script.acts.clear()
    kernels.build()
    until = time.monotonic() + 20
    while bench.loader.counts().building:  # what was started in the background
        assert time.monotonic() < until
        time.sleep(0.001)
    counts = bench.loader.counts()
    assert counts.queued == 0
    assert counts.compiled + counts.loaded == len(bench.loader) == len(bench.loader._loaded)
    assert len(reported) >= counts.compiled
    for pending, state in ends.values():
        assert pending.state is state
