from quernel.testing.test_conversions import *  # noqa: F403
