"""The pytest plugin: the fixture `quernel_device`, gates on capabilities, known gaps, and a table at the end.

`--quernel-backend NAME` runs on the first device of a backend, `--quernel-device SPEC` on any device; both MAY be given
several times. Without either, `quernel_device` is the first device of every backend that is installed and has one.

`@pytest.mark.quernel_needs("f64", "barriers")` names fields of `Capabilities`, and `memory_bytes=` an amount of the
device's memory: a device that does not declare them skips the test. A test that is parametrised by `qn.f64`, `qn.f16`
or `qn.bf16` needs that type without saying so. `"host_access"` is no capability: it stands for a device that reaches
the host's memory, for tests that are about NumPy arrays as they are; `quernel.testing.launching` is for all others.
"""

from __future__ import annotations

import ast
import collections
import fnmatch
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
import pytest

if TYPE_CHECKING:
    import quernel as qn

__all__ = ["missing", "names_of_the_kit", "quernel_device"]

_KIT: Final = "quernel.testing."
_PROPERTY: Final = "quernel_device"
_HOST_ACCESS: Final = "host_access"
_SPECS: Final[pytest.StashKey[list[str]]] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the two options."""
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


def pytest_configure(config: pytest.Config) -> None:
    """Declares the mark."""
    config.addinivalue_line(
        "markers",
        "quernel_needs(*capabilities, memory_bytes=0): skips on a device that does not declare the capabilities",
    )


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
    import quernel as qn

    asked = [*config.getoption("--quernel-backend"), *config.getoption("--quernel-device")]
    for spec in asked:
        try:
            qn.device(spec)
        except qn.errors.QuernelError as error:
            raise pytest.UsageError(f"no device for {spec!r}: {error}") from error
    if asked:
        return list(dict.fromkeys(asked))
    return list(dict.fromkeys(info.backend for info in qn.devices()))


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
        pytest.skip(f"needs {', '.join(lacking)}, which {device.info.backend} does not declare")


def missing(item: pytest.Item, device: qn.Device) -> list[str]:
    """What the test needs and the device does not declare."""
    capabilities = device.target_info.capabilities
    needed: list[str] = []
    memory_bytes = 0
    for mark in item.iter_markers("quernel_needs"):
        needed += mark.args
        memory_bytes = max(memory_bytes, mark.kwargs.get("memory_bytes", 0))
    needed += _types_of(item)
    has = {_HOST_ACCESS: device.is_host_accessible, **attrs.asdict(capabilities, recurse=False)}
    lacking = [name for name in dict.fromkeys(needed) if not has[name]]
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


# --- what a backend still owes ----------------------------------------------------------------------------------------


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the known gaps of each backend: they must fail, and say why."""
    gaps: dict[str, dict[str, str]] = {}
    for item in items:
        spec, name = _spec_of(item), _name_in_kit(item)
        if spec is None or name is None:
            continue
        item.user_properties.append((_PROPERTY, spec))
        if spec not in gaps:
            gaps[spec] = _gaps_of(spec)
        for pattern, reason in gaps[spec].items():
            if fnmatch.fnmatchcase(name, pattern):
                item.add_marker(pytest.mark.xfail(reason=reason, strict=True))


def _gaps_of(spec: str) -> dict[str, str]:
    import quernel as qn
    from quernel.api.wiring import catalog

    return dict(catalog().load(qn.device(spec).info.backend).known_gaps())


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


# --- the table at the end ---------------------------------------------------------------------------------------------


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Says of each device what passed, what it does not claim, and what its backend still owes."""
    counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    reasons: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for outcome in ("passed", "failed", "error", "skipped", "xfailed"):
        for report in terminalreporter.stats.get(outcome, []):
            spec = dict(getattr(report, "user_properties", ())).get(_PROPERTY)
            if spec is None or (outcome == "passed" and report.when != "call"):
                continue
            counts[spec][outcome] += 1
            if outcome == "skipped" and isinstance(report.longrepr, tuple):
                reasons[spec][f"not run: {str(report.longrepr[2]).removeprefix('Skipped: ')}"] += 1
            elif outcome == "xfailed":
                reasons[spec][f"owes: {report.wasxfail}"] += 1
    if not counts:
        return
    terminalreporter.section("conformance with Quernel")
    for spec in sorted(counts):
        shown = counts[spec]
        failed = shown["failed"] + shown["error"]
        terminalreporter.write_line(
            f"{spec}: {shown['passed']} passed, {failed} failed, "
            f"{shown['skipped']} not run, {shown['xfailed']} owed as known gaps"
        )
        for reason, number in reasons[spec].most_common():
            terminalreporter.write_line(f"    {number:4} × {reason}")
