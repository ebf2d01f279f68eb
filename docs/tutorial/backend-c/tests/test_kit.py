"""The conformance kit: launches here, each time; all of it by `quernel conform c`."""

from quernel.testing.test_launches import *  # noqa: F403
