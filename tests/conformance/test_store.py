from quernel.testing.test_store import *  # noqa: F403
