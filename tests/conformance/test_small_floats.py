from quernel.testing.test_small_floats import *  # noqa: F403
