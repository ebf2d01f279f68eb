from quernel.testing.test_atomics import *  # noqa: F403
