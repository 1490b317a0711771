"""Does `mas-sim workload` turn a model's own configuration into a file that the other commands take?"""

import json
from pathlib import Path
from typing import Any

import pytest
from cli_runner import Run

from mas_sim.workload import Workload, load_workload

CONFIG: dict[str, Any] = {
    "model_type": "gemma2", "hidden_size": 64, "head_dim": 16, "num_attention_heads": 4, "num_key_value_heads": 2,
    "num_hidden_layers": 4, "sliding_window": 8, "torch_dtype": "bfloat16",
}  # fmt: skip


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A model's configuration on disk."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIG, indent=2))
    return path


def loaded(text: str, folder: Path) -> Workload:
    """Load what a command printed."""
    path = folder / "printed.yaml"
    path.write_text(text)
    return load_workload(path)


def test_is_what_it_prints_a_workload_file(mas_sim: Run, config: Path, tmp_path: Path) -> None:
    done = mas_sim("workload", config, "--seq", 24, "--phase", "prefill")
    assert done.returncode == 0, done.stderr
    workload = loaded(done.stdout, tmp_path)
    assert (workload.heads, workload.kv_heads, workload.n_q, workload.n_kv) == (4, 2, 24, 24)
    assert (workload.mask, workload.dtype) == ("causal", "bf16")
    assert "config.json of model_type gemma2: " in workload.source
    assert "num_attention_heads 4, num_key_value_heads 2, head_dim 16" in workload.source
    assert str(tmp_path) not in done.stdout


def test_is_what_was_chosen_said_in_one_line_on_standard_error(mas_sim: Run, config: Path) -> None:
    done = mas_sim("workload", config, "--seq", 24)
    assert done.stderr.splitlines() == [
        "note: the model has 2 global and 2 local layers: this is a global one (--attention local gives the other)"
    ]


def test_do_the_options_reach_the_workload(mas_sim: Run, config: Path, tmp_path: Path) -> None:
    options = ("--phase", "decode", "--new-tokens", 2, "--batch", 3, "--dtype", "int8", "--name", "mine")
    done = mas_sim("workload", config, "--seq", 24, "--attention", "local", *options)
    workload = loaded(done.stdout, tmp_path)
    assert (workload.name, workload.batch, workload.dtype, workload.n_q) == ("mine", 3, "int8", 2)
    assert workload.band == (7, 0)


def test_does_the_written_file_validate_with_its_mask(mas_sim: Run, config: Path, tmp_path: Path) -> None:
    out = tmp_path / "gemma.yaml"
    done = mas_sim("workload", config, "--seq", 24, "--attention", "local", "--out", out)
    assert (done.returncode, done.stdout) == (0, "")
    assert f"wrote {out}" in done.stderr
    done = mas_sim("validate", out)
    assert done.returncode == 0
    assert "B 1, H 4/2, N 24, E 16, bf16, window 7+0" in done.stdout


def test_does_list_show_the_masks_in_one_column(mas_sim: Run) -> None:
    lines = mas_sim("list").stdout.splitlines()
    shapes = {line.split()[0]: line for line in lines if ", N " in line}
    assert shapes["gemma2_2b_local_8k"].endswith(", bf16, window 4095+0")
    assert shapes["llama3_8b_decode_8k"].endswith("N 1x8192, E 128, bf16, causal")
    assert shapes["bert_base"].endswith("N 512, E 64, fp16")
    assert len({line.index(" B ") for line in shapes.values()}) == 1


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ('{"model_type": "gemma2",\n "num_attention_heads": 0}', (), ":2: num_attention_heads: must be from 1"),
        ("{", (), ":1: is not valid JSON"),
        ("[]", (), "must hold an object"),
        ('{"model_type": "gemma22", "x": 1}', (), "did you mean 'gemma2'?"),
        ('{"model_type": "deepseek_v3"}', (), "latent"),
        ("{" + " " * 2**21 + "}", (), "too large"),
        (json.dumps(CONFIG), ("--attention", "golbal"), "--attention: must be one of"),
        (json.dumps(CONFIG), ("--new-tokens", 25), "--new-tokens: must be at most seq (24)"),
        (json.dumps(CONFIG), ("--out", "here.txt"), "--out: must end in .yaml"),
        (
            '{"model_type": "bert", "hidden_size": 8, "num_attention_heads": 2}',
            ("--phase", "decode"),
            "--phase: an enc",
        ),
        (json.dumps(CONFIG), ("--seq", 0), "--seq"),
        (json.dumps(CONFIG), ("--phase", "prefil"), "prefil"),
    ],
)
def test_is_bad_input_one_message_and_exit_code_2(
    mas_sim: Run, config: Path, text: str, options: tuple[str | int, ...], message: str
) -> None:
    config.write_text(text)
    done = mas_sim("workload", config, "--seq", 24, *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_is_a_missing_file_or_a_folder_exit_code_2(mas_sim: Run, tmp_path: Path) -> None:
    for path, message in ((tmp_path / "none.json", "no such file"), (tmp_path, "directory")):
        done = mas_sim("workload", path, "--seq", 24)
        assert done.returncode == 2
        assert message in done.stderr
