"""Batches of kernels on what they may compile on, and 20 kernels from a cold start beside peers.

    python tests/benchmarks/batch.py workers [--rounds N] [--target cpu|opencl|cuda:sm_90] [--kernels N] [--lines N]
    python tests/benchmarks/batch.py cold [--pairs N] [--taichi PYTHON]

`workers` compiles distinct kernels of about 100 lines from their Python code to their artifact: on one warm worker
process, on two, by the default rule (the calling thread beside warm processes), on one thread and on the process's own
threads, one after the other in each round. `cold` runs whole processes with empty caches, in interleaved pairs: 20
kernels of one line each, compiled, launched and checked. Taichi is run by the interpreter named, as it does not install
on every Python.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

PROGRAMS = Path(__file__).parent / "programs"
PEERS = ("twenty_numba.py", "twenty_numba_prange.py")


# --- workers ----------------------------------------------------------------------------------------------------------


def kernels(folder: Path, number: int, num_kernels: int, num_lines: int) -> list[Any]:
    """Definitions of distinct kernels, from a module of their own, so that nothing of them was ever seen."""
    lines = ["import math", "import quernel as qn"]
    for kernel in range(num_kernels):
        lines += ["@qn.kernel", f"def kernel{kernel}(x: qn.Array1[qn.f32], y: qn.Array1[qn.f32], n: qn.i32):"]
        lines += ["    i = qn.global_id()", "    a = x[i]", f"    b = y[i] + {number}.5"]
        for line in range(num_lines // 5):
            constant = kernel * 1000 + line + 0.25
            lines += [f"    c{line} = a * b + {constant}", f"    if c{line} > {constant * 2}:"]
            lines += [f"        a = a - math.sqrt(b * b + {constant})", "    else:", f"        b = b + c{line} * 0.5"]
        lines.append("    y[i] = a + b")
    path = folder / f"kernels{number}.py"
    path.write_text("\n".join(lines) + "\n")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return [getattr(module, f"kernel{kernel}").specialize().definition for kernel in range(num_kernels)]


def compiler_of(target: str) -> Any:
    from quernel.api.wiring import catalog

    backend_name, _, name = target.partition(":")
    backend = catalog().load(backend_name)
    if backend_name == "opencl":
        import quernel as qn

        return qn.device(target).kernels.compiler
    return backend.compiler(backend.target_info(name))


def compare_workers(options: argparse.Namespace) -> None:
    from quernel.compiler import CompilationProcesses, compile_ahead, own_workers
    from quernel.compiler.threads import CompilationThreads
    from quernel.compiler.warming import warm_up

    compiler = compiler_of(options.target)
    pools = {f"{size} warm worker{'s' * (size > 1)}": CompilationProcesses(size) for size in options.sizes}
    own = own_workers.compilation_processes()
    for pool in (*pools.values(), *([own] if own is not None else [])):
        pool.grow(pool._max_workers, warm_up, compiler, compiler.build_id.digest)
        assert pool.wait_until_ready(pool._max_workers, 300), "workers do not start"
    ways: dict[str, Executor | None] = {**pools, "the default rule, warm": None, "one thread": CompilationThreads(1)}
    ways["threads, one per core"] = CompilationThreads(own_workers.num_cores())
    taken: dict[str, list[float]] = {way: [] for way in ways}
    with tempfile.TemporaryDirectory() as folder:
        count = 0
        for number in range(-1, options.rounds):  # the first round is not counted
            for way, executor in ways.items():
                count += 1
                made = kernels(Path(folder), count, options.kernels, options.lines)
                start = time.perf_counter()
                results = compile_ahead(compiler, made, executor=executor)
                spent_s = time.perf_counter() - start
                failures = [result.failure for result in results if result.failure is not None]
                assert not failures, failures[0]
                if number >= 0:
                    taken[way].append(spent_s)
    one = taken[next(iter(ways))]
    print(f"{options.kernels} kernels of about {options.lines} lines for {compiler.target_info.name}")
    print(f"{'':24} {'median s':>9}   times as fast as one warm worker: median (least – greatest)")
    for way, spent in taken.items():
        ratios = sorted(first / other for first, other in zip(one, spent, strict=True))
        spread = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} – {ratios[-1]:.2f})"
        print(f"{way:24} {statistics.median(spent):9.3f}   {spread}")


# --- cold -------------------------------------------------------------------------------------------------------------


def run(python: str, program: str, cache: Path) -> float:
    shutil.rmtree(cache, ignore_errors=True)
    environment = {
        **os.environ,
        "QUERNEL_ENVIRONMENT": str(cache / "quernel"),
        "NUMBA_CACHE_DIR": str(cache / "numba"),
        "TI_OFFLINE_CACHE_FILE_PATH": str(cache / "taichi"),
    }
    if python != sys.executable:
        environment.pop("PYTHONPATH", None)
    start = time.perf_counter()
    subprocess.run([python, PROGRAMS / program], check=True, env=environment, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def compare_cold(options: argparse.Namespace) -> None:
    peers = [(sys.executable, peer) for peer in PEERS if importlib.util.find_spec("numba") is not None]
    if options.taichi is not None:
        peers.append((options.taichi, "twenty_taichi.py"))
    print(f"{'peer':24} {'quernel s':>10} {'peer s':>8}   ratio: median (least – greatest)")
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder, "cache")
        ours: Callable[[], float] = lambda: run(sys.executable, "twenty_quernel.py", cache)  # noqa: E731
        pairs: dict[str, list[tuple[float, float]]] = {program: [] for _, program in peers}
        for _ in range(options.pairs):
            for python, program in peers:
                pairs[program].append((ours(), run(python, program, cache)))
    for program, results in pairs.items():
        mine, theirs = (statistics.median(column) for column in zip(*results, strict=True))
        ratios = sorted(peer_s / our_s for our_s, peer_s in results)
        spread = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} – {ratios[-1]:.2f})"
        print(f"{program:24} {mine:10.3f} {theirs:8.3f}   {spread}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(required=True)
    workers = parts.add_parser("workers")
    workers.add_argument("--rounds", type=int, default=5)
    workers.add_argument("--target", default="cpu")
    workers.add_argument("--kernels", type=int, default=20)
    workers.add_argument("--lines", type=int, default=100)
    workers.add_argument("--sizes", type=int, nargs="+", default=[1, 2])
    workers.set_defaults(part=compare_workers)
    cold = parts.add_parser("cold")
    cold.add_argument("--pairs", type=int, default=7)
    cold.add_argument("--taichi", metavar="PYTHON")
    cold.set_defaults(part=compare_cold)
    options = parser.parse_args()
    options.part(options)


if __name__ == "__main__":
    main()
