from quernel.testing.test_cases import *  # noqa: F403
