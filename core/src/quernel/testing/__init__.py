"""The conformance kit: what every backend must do, as tests that run on any installed backend.

`pytest --pyargs quernel.testing --quernel-backend NAME` runs all of it on the first device of a backend. The kit is
also a pytest plugin, which gives the fixture `quernel_device` to any suite; `quernel.testing.plugin` lists its options.
A test that a backend does not claim by its `Capabilities` is skipped, with what it would need. One that a backend knows
to fail is listed in `Backend.known_gaps`, must fail, and is named in the table at the end. `quernel conform NAME` does
the same from the command line. Names of tests are an interface: known gaps and users' own selections rest on them.

Tests hold their data in NumPy arrays and launch with `quernel.testing.launching.on(device, kernel)`, which lends the
arrays as they are to a device that reaches the host's memory, and copies them there and back for any other.

It needs pytest, hypothesis and mpmath: `pip install "quernel[testing]"`.
"""

from __future__ import annotations

__all__: list[str] = []
