from quernel.testing.test_together import *  # noqa: F403
