from quernel.testing.test_threads import *  # noqa: F403
