from quernel.testing.test_closing import *  # noqa: F403
