from quernel.testing.test_launches import *  # noqa: F403
