"""Keeps what the kit compiles out of the user's store, in this process and in those that it starts."""

from __future__ import annotations

import os
import shutil
import tempfile

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Gives the run an environment of its own."""
    folder = tempfile.mkdtemp(prefix="quernel-conformance-")
    before = {name: value for name, value in os.environ.items() if name.startswith("QUERNEL_")}
    for name in before:
        del os.environ[name]
    os.environ["QUERNEL_ENVIRONMENT"] = folder

    def restore() -> None:
        os.environ.pop("QUERNEL_ENVIRONMENT", None)
        os.environ.update(before)
        shutil.rmtree(folder, ignore_errors=True)

    config.add_cleanup(restore)
