from quernel.testing.test_streams import *  # noqa: F403
