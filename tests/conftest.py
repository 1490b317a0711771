"""Settings of all tests: hypothesis draws the same examples every time, and does not time them."""

from hypothesis import settings

settings.register_profile("same every time", derandomize=True, deadline=None)
settings.load_profile("same every time")
