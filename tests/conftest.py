"""Settings and fixtures of all tests: hypothesis draws the same examples every time, and does not time them."""

import pytest
from cli_runner import Run, make_runner
from hypothesis import settings

pytest.register_assert_rewrite("dataflow_contract")  # so that a broken promise shows its values

settings.register_profile("same every time", derandomize=True, deadline=None)
settings.load_profile("same every time")


@pytest.fixture
def mas_sim(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command line's entry point in this process."""
    return make_runner(monkeypatch, capsys)
