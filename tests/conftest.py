"""Keeps what tests compile out of the user's store, in this process and in those that it starts."""

import os
import shutil
import tempfile

import hypothesis
import pytest

import quernel

# Where a run decides whether a change lands, the same examples are tried each time; elsewhere new ones are looked for.
hypothesis.settings.register_profile("ci", derandomize=True, deadline=None)
if os.environ.get("CI"):
    hypothesis.settings.load_profile("ci")


def pytest_configure(config: pytest.Config) -> None:
    folder = tempfile.mkdtemp(prefix="quernel-tests-")
    before = {name: value for name, value in os.environ.items() if name.startswith("QUERNEL_")}
    for name in before:
        del os.environ[name]
    os.environ["QUERNEL_ENVIRONMENT"] = folder
    quernel._imported_ns = 1 << 63  # Sources may be edited while the tests run; their artifacts are kept all the same.

    def restore() -> None:
        os.environ.pop("QUERNEL_ENVIRONMENT", None)
        os.environ.update(before)
        shutil.rmtree(folder, ignore_errors=True)

    config.add_cleanup(restore)
