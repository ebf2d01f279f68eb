"""The conformance kit: launches here, each time; all of it by `pytest --pyargs quernel.testing`."""

from quernel.testing.test_launches import *  # noqa: F403
