from quernel.testing.test_persistence import *  # noqa: F403
