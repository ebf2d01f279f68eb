from quernel.testing.test_loading import *  # noqa: F403
