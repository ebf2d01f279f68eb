from quernel.testing.test_errors import *  # noqa: F403
