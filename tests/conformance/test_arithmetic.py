from quernel.testing.test_arithmetic import *  # noqa: F403
