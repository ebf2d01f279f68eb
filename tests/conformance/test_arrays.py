from quernel.testing.test_arrays import *  # noqa: F403
