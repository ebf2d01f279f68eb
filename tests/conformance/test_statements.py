from quernel.testing.test_statements import *  # noqa: F403
