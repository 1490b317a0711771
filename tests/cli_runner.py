"""Runs the command line's entry point in this process, for tests; `conftest` makes a fixture of it."""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from mas_sim.cli import main


@dataclass
class Done:
    """What a finished command left."""

    returncode: int
    stdout: str
    stderr: str

    @property
    def width(self) -> int:
        """Columns of the widest line of what was printed."""
        return max(map(len, self.stdout.splitlines()))

    @property
    def json(self) -> Any:
        """What was printed, read as JSON."""
        assert self.stdout, self.stderr
        return json.loads(self.stdout)


Run = Callable[..., Done]


def make_runner(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs `mas-sim` with some arguments."""

    def run(*arguments: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["mas-sim", *map(str, arguments)])
        code: object = 0
        try:
            main()
        except SystemExit as stop:
            code = stop.code or 0
        out, err = capsys.readouterr()
        assert isinstance(code, int)
        return Done(code, out, err)

    return run
