"""Settings of all tests: hypothesis draws the same examples every time, and does not time them."""

import pytest
from hypothesis import settings

pytest.register_assert_rewrite("dataflow_contract")  # so that a broken promise shows its values

settings.register_profile("same every time", derandomize=True, deadline=None)
settings.load_profile("same every time")
