from quernel.testing.test_subgroups import *  # noqa: F403
