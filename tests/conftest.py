"""Keeps what tests compile out of the user's store, in this process and in those that it starts."""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator

import hypothesis
import pytest

import quernel

# Where a run decides whether a change lands, the same examples are tried each time; elsewhere new ones are looked for.
hypothesis.settings.register_profile("ci", derandomize=True, deadline=None)
if os.environ.get("CI"):
    hypothesis.settings.load_profile("ci")


def pytest_configure(config: pytest.Config) -> None:
    folder = tempfile.mkdtemp(prefix="quernel-tests-")
    own = {"QUERNEL_ENVIRONMENT": folder, "PYTHONPATH": _path_of_the_tree()}
    changed = {name for name in os.environ if name.startswith("QUERNEL_")} | own.keys()
    before = {name: os.environ.pop(name) for name in changed if name in os.environ}
    os.environ.update(own)
    quernel._imported_ns = 1 << 63  # Sources may be edited while the tests run; their artifacts are kept all the same.

    def restore() -> None:
        for name in own:
            os.environ.pop(name, None)
        os.environ.update(before)
        shutil.rmtree(folder, ignore_errors=True)

    config.add_cleanup(restore)


@pytest.fixture
def fast_switching() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def _path_of_the_tree() -> str:
    """Where this process finds sources: a process that it starts runs the same ones, whatever is installed."""
    inherited = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    sources = (place for place in sys.path if os.path.basename(place) == "src")
    return os.pathsep.join(dict.fromkeys([*inherited, *sources]))
