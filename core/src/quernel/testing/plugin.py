"""The pytest plugin: the fixture `quernel_device`, gates on capabilities, known gaps, and a table at the end.

`--quernel-backend NAME` runs on the first device of a backend, `--quernel-device SPEC` on any device; both MAY be given
several times. Without either, `quernel_device` is the first device of every backend that is installed and has one.
`--quernel-quick` runs of each test of the kit only the first and the last set of its parameters, and
`--quernel-report FILE` writes the table at the end as JSON.

`@pytest.mark.quernel_needs("f64", "barriers")` names fields of `Capabilities`, and `memory_bytes=` an amount of the
device's memory: a device that does not declare them skips the test. A test that is parametrised by `qn.f64`, `qn.f16`
or `qn.bf16` needs that type without saying so. `"exact"` stands for `exact_f32` or `exact_f64`, by those types.
Names that are no capability are those of `quernel.testing.claims`:
`"host_access"` stands for a device that reaches the host's memory, for tests that are about NumPy arrays as they are;
`quernel.testing.launching` is for all others.
"""

from __future__ import annotations

import ast
import fnmatch
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from quernel.testing.outcomes import DEVICE, PART, Outcomes, not_declared

if TYPE_CHECKING:
    import quernel as qn

__all__ = ["missing", "names_of_the_kit", "quernel_device"]

# Assertions in what the cases call are shown with their values, as those of the cases are.
pytest.register_assert_rewrite(
    *(f"quernel.testing.{name}" for name in ("compiling", "exact", "launching", "processes", "watching"))
)

_KIT: Final = "quernel.testing."
_SPECS: Final[pytest.StashKey[list[str]]] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the options."""
    group = parser.getgroup("quernel", "devices of Quernel")
    group.addoption(
        "--quernel-backend",
        action="append",
        default=[],
        metavar="NAME",
        help="run tests that take quernel_device on the first device of this backend; may be repeated",
    )
    group.addoption(
        "--quernel-device",
        action="append",
        default=[],
        metavar="SPEC",
        help="run tests that take quernel_device on this device, such as cuda:1 or opencl:gpu; may be repeated",
    )
    group.addoption(
        "--quernel-quick",
        action="store_true",
        default=None,
        help="of each test of the conformance kit, run the first and the last set of parameters only",
    )
    group.addoption(
        "--quernel-whole",
        action="store_false",
        dest="quernel_quick",
        help="run all of the conformance kit, also where the configuration says quernel_quick",
    )
    group.addoption("--quernel-report", metavar="FILE", help="write what was found of each device there, as JSON")
    parser.addini("quernel_quick", "run the quick part of the conformance kit", type="bool", default=False)


def pytest_configure(config: pytest.Config) -> None:
    """Declares the mark, and shortens random tests where little is to be run."""
    config.addinivalue_line(
        "markers",
        "quernel_needs(*capabilities, memory_bytes=0): skips on a device that does not declare the capabilities",
    )
    config.pluginmanager.register(Outcomes(config), "quernel-outcomes")
    if _is_quick(config):
        os.environ.setdefault("FUZZ_EXAMPLES", "8")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Opens the devices that were asked for.

    Raises:
        pytest.UsageError: there is no such backend, or no such device.
    """
    if not hasattr(session.config, "workerinput"):  # what starts the workers has looked before
        _open_asked(session.config)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Runs what takes `quernel_device` once per device."""
    if "quernel_device" in metafunc.fixturenames:
        specs = _specs(metafunc.config)
        if specs:
            metafunc.parametrize("quernel_device", specs, indirect=True, scope="session")
        else:
            reason = 'needs a backend with a device: pip install "quernel[cpu]"'
            absent = pytest.param(None, marks=pytest.mark.skip(reason=reason), id="none")
            metafunc.parametrize("quernel_device", [absent], indirect=True, scope="session")


@pytest.fixture(scope="session")
def quernel_device(request: pytest.FixtureRequest) -> qn.Device:
    """An open device, of each backend or device that the command line names, or of every backend present."""
    import quernel as qn

    return qn.device(request.param)


def _specs(config: pytest.Config) -> list[str]:
    """The devices to run on, as device strings."""
    known = config.stash.get(_SPECS, None)
    if known is None:
        known = config.stash[_SPECS] = _chosen(config)
    return known


def _chosen(config: pytest.Config) -> list[str]:
    asked = [*config.getoption("--quernel-backend"), *config.getoption("--quernel-device")]
    if asked:
        return list(dict.fromkeys(asked))
    import quernel as qn

    return list(dict.fromkeys(info.backend for info in qn.devices()))


def _open_asked(config: pytest.Config) -> None:
    """Opens each device that the command line names, so that a wrong name is seen before anything is collected."""
    for option in ("--quernel-backend", "--quernel-device"):
        for spec in config.getoption(option):
            import quernel as qn

            try:
                name = qn.device(spec).info.backend
            except qn.errors.QuernelError as error:
                raise pytest.UsageError(f"{option} {spec}: {error}") from error
            if option == "--quernel-backend" and spec != name:
                raise pytest.UsageError(
                    f"{option} {spec}: {spec!r} is not the name of a backend\n"
                    f"  fix: --quernel-backend {name}, or --quernel-device {spec}"
                )


def _is_quick(config: pytest.Config) -> bool:
    chosen = config.getoption("quernel_quick")
    return bool(config.getini("quernel_quick") if chosen is None else chosen)


# --- what a device claims ---------------------------------------------------------------------------------------------


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips what the device does not claim, before any fixture is made."""
    spec = _spec_of(item)
    if spec is None:
        return
    import quernel as qn

    device = qn.device(spec)
    lacking = missing(item, device)
    if lacking:
        pytest.skip(not_declared(lacking, device.info.backend))


def missing(item: pytest.Item, device: qn.Device) -> list[str]:
    """What the test needs and the device does not declare."""
    from quernel.testing.claims import claims_of

    needed: list[str] = []
    memory_bytes = 0
    for mark in item.iter_markers("quernel_needs"):
        for name in mark.args:
            needed += _exactness_of(item) if name == "exact" else [name]
        memory_bytes = max(memory_bytes, mark.kwargs.get("memory_bytes", 0))
    needed += _types_of(item)
    claims = claims_of(device) if needed else {}
    lacking = [name for name in dict.fromkeys(needed) if not claims[name]]
    available = device.info.memory_bytes or _host_memory_bytes()
    if memory_bytes > available:
        lacking.append(f"{memory_bytes / 2**30:.1f} GiB of memory")
    return lacking


def _types_of(item: pytest.Item) -> Iterator[str]:
    """The capabilities behind the types by which a test is parametrised."""
    import quernel as qn

    gated: tuple[Any, ...] = (qn.f16, qn.bf16, qn.f64)
    for value in _parameters(item).values():
        yield from (dtype.name for dtype in gated if value is dtype)


def _exactness_of(item: pytest.Item) -> Iterator[str]:
    """The capabilities that say whether operations on those types round as IEEE 754 says."""
    import quernel as qn

    for value in _parameters(item).values():
        if any(value is dtype for dtype in (qn.f16, qn.bf16, qn.f32)):
            yield "exact_f32"
        elif value is qn.f64:
            yield "exact_f64"


def _host_memory_bytes() -> int:
    """The memory that the system says it has available, or a small amount where it does not say."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 1 << 30


def _parameters(item: pytest.Item) -> dict[str, Any]:
    callspec = getattr(item, "callspec", None)
    return {} if callspec is None else dict(callspec.params)


def _spec_of(item: pytest.Item) -> str | None:
    spec = _parameters(item).get("quernel_device")
    return spec if isinstance(spec, str) else None


# --- what is run, and what a backend still owes -----------------------------------------------------------------------


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what a quick run does without, and marks the known gaps: they must fail, and say why."""
    if _is_quick(config):
        _keep_first_and_last(config, items)
    gaps: dict[str, dict[str, str]] = {}
    for item in items:
        spec, name = _spec_of(item), _name_in_kit(item)
        if spec is None or name is None:
            continue
        item.user_properties += [(DEVICE, spec), (PART, name.partition("::")[0].removeprefix("test_"))]
        if spec not in gaps:
            gaps[spec] = _gaps_of(spec)
        for pattern, reason in gaps[spec].items():
            if fnmatch.fnmatchcase(name, pattern):
                item.add_marker(pytest.mark.xfail(reason=reason, strict=True))


def _keep_first_and_last(config: pytest.Config, items: list[pytest.Item]) -> None:
    sets: dict[tuple[object, ...], list[pytest.Item]] = {}
    for item in items:
        name = _name_in_kit(item)
        if name is not None:
            sets.setdefault((item.path, name, _spec_of(item)), []).append(item)
    chosen = {id(found[end]) for found in sets.values() for end in (0, -1)}
    kept: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for item in items:
        is_kept = _name_in_kit(item) is None or id(item) in chosen
        (kept if is_kept else left_out).append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = kept


def _gaps_of(spec: str) -> dict[str, str]:
    import quernel as qn
    from quernel.api.wiring import catalog

    name = qn.device(spec).info.backend
    gaps = dict(catalog().load(name).known_gaps())
    for pattern, reason in gaps.items():
        if not any(fnmatch.fnmatchcase(test, pattern) for test in names_of_the_kit()):
            raise pytest.UsageError(f"{name} has a known gap {pattern!r}, but the kit has no such test")
        if not reason:
            raise pytest.UsageError(f"{name} gives no reason for its known gap {pattern!r}")
    return gaps


def _name_in_kit(item: pytest.Item) -> str | None:
    """`module::test` of a test of the kit, wherever it was collected; `None` for any other."""
    function = getattr(item, "function", None)
    module = str(getattr(function, "__module__", ""))
    if not module.startswith(_KIT):
        return None
    return f"{module.removeprefix(_KIT)}::{getattr(item, 'originalname', item.name)}"


def names_of_the_kit() -> frozenset[str]:
    """Every `module::test` that a known gap can name, read from the sources."""
    found = set()
    for path in Path(__file__).parent.glob("test_*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                found.add(f"{path.stem}::{node.name}")
    return frozenset(found)
