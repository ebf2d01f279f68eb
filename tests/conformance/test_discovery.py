from quernel.testing.test_discovery import *  # noqa: F403
