"""Is what a figure is given refused in plain words, and are values written so that what differs is seen?"""

from collections.abc import Callable

import pytest

from mas_sim._cli_plot_frames import refuse_one_value
from mas_sim.errors import ConfigError, MasSimError
from mas_sim.plots import convergence_figure
from mas_sim.plots._frames import labels_of
from mas_sim.store import load_results


@pytest.mark.parametrize(
    ("call", "rule"),
    [(lambda: convergence_figure([]), "mapping of methods"), (lambda: load_results(None), "must be a path")],  # type: ignore[arg-type]
)
def test_is_a_value_of_another_type_refused(call: Callable[[], object], rule: str) -> None:
    with pytest.raises(ConfigError, match=rule):
        call()


def test_are_parts_of_a_machine_written_in_short() -> None:
    keys = [f'\0{{"kind": "direct", "bytes_per_cycle": {rate}}}' for rate in (64, 128)]
    assert labels_of(keys) == ["direct, 64 bytes/cycle", "direct, 128 bytes/cycle"]
    assert labels_of(['\0{"capacity_kib": 512, "shared": true}']) == ["capacity 512 KiB, sha..."]
    assert labels_of(["\0{broken"]) == ["{broken"]


def test_is_said_what_the_only_value_left_is_zipped_with() -> None:
    import pandas as pd

    frame = pd.DataFrame({"lanes": [16, 16]})
    with pytest.raises(MasSimError, match=r"lanes has one value only, 16: .* \(it is zipped with exp\)"):
        refuse_one_value(frame, "lanes", ["exp"])
