from quernel.testing.test_checked import *  # noqa: F403
