from quernel.testing.test_identity import *  # noqa: F403
