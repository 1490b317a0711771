"""Do the main job's figures still come out as they did?

A change that means to move them remakes the file and says why.
"""

import json

from remake import PATH, make


def test_are_the_figures_of_the_main_job_unchanged() -> None:
    kept = json.loads(PATH.read_text())
    made = json.loads(json.dumps(make()))
    assert made["configuration"] == kept["configuration"]
    for ours, theirs in zip(made["results"], kept["results"], strict=True):
        assert ours == theirs
