"""Whether every bad file is refused at once, quickly, with all its faults and where they stand."""

import pickle
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from mas_sim import arch, config, errors, presets, workload, yaml_source

GOOD_WORKLOAD = """\
name: tiny
heads: 4
n_q: 32
n_kv: 32
head_dim_qk: 16
head_dim_v: 16
"""

Write = Callable[[str | bytes], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a file and return its path."""

    def write_file(content: str | bytes) -> Path:
        path = tmp_path / "input.yaml"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write_file


def faults_of(path: str | Path) -> tuple[errors.Fault, ...]:
    """Load a workload that must be refused, within a second, and return its faults."""
    start = time.perf_counter()
    with pytest.raises(errors.ConfigError) as caught:
        workload.load_workload(path)
    assert time.perf_counter() - start < 1.0
    assert caught.value.faults
    assert str(caught.value).splitlines() == [str(fault) for fault in caught.value.faults]
    return caught.value.faults


def edited(old: str, new: str) -> str:
    """Return the good workload with one piece replaced."""
    assert GOOD_WORKLOAD.count(old) == 1
    return GOOD_WORKLOAD.replace(old, new)


# --- Is what cannot be read as one YAML mapping refused with one clear fault? ---

NOT_A_MAPPING = [
    pytest.param("", "empty", id="empty"),
    pytest.param("# only a comment\n", "empty", id="comment only"),
    pytest.param(b"\x00\x01\x02\x03heads: 4\n", "binary", id="binary with NUL"),
    pytest.param(b"\x89PNG\xff\xfe\xfd", "not UTF-8", id="binary"),
    pytest.param("name: caf\xe9\n".encode("latin-1"), "not UTF-8", id="latin-1"),
    pytest.param("name: a\x07b\n", "not valid YAML", id="control character"),
    pytest.param("- 1\n- 2\n", "must be a mapping", id="list"),
    pytest.param("just text\n", "must be a mapping", id="text"),
    pytest.param("a: 1\n---\nb: 2\n", "more than one YAML document", id="two documents"),
    pytest.param("heads: [1, 2\n", "not valid YAML", id="unclosed list"),
    pytest.param("heads: 4\n\tn_q: 3\n", "not valid YAML", id="tab"),
    pytest.param("a: &x 1\nb: 2\n", "anchors and aliases", id="anchor"),
    pytest.param("a: *x\n", "anchors and aliases", id="alias"),
    pytest.param("a: !!python/object/apply:os.getcwd []\n", "tags", id="python tag"),
    pytest.param("a: " + "[" * 40 + "]" * 40 + "\n", "nested more than 32", id="deep"),
    pytest.param("[" * 500_000, "nest", id="very deep"),  # libyaml has a limit of its own, and looks ahead
    pytest.param("{a: " * 200_000, "nest", id="very deep mapping"),
]


@pytest.mark.parametrize(("content", "expected"), NOT_A_MAPPING)
def test_is_an_unreadable_file_one_clear_fault(write: Write, content: str | bytes, expected: str) -> None:
    (fault,) = faults_of(write(content))
    assert expected in fault.rule
    assert fault.file.endswith("input.yaml")


@pytest.mark.parametrize(("content", "expected"), NOT_A_MAPPING)
def test_does_the_loader_without_libyaml_refuse_the_same(
    write: Write, content: str | bytes, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(yaml_source, "_Loader", yaml.SafeLoader)
    assert expected in faults_of(write(content))[0].rule


def test_is_an_alias_bomb_refused_on_its_first_line(write: Write) -> None:
    levels = "".join(f"l{i}: &l{i} [{', '.join([f'*l{i - 1}'] * 9)}]\n" for i in range(1, 30))
    (fault,) = faults_of(write("l0: &l0 [x]\n" + levels))
    assert fault.line == 1
    assert "anchors and aliases" in fault.rule


def test_is_a_file_of_10_mb_refused_before_it_is_read(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write("a: 1\n" * 2_000_000)
    monkeypatch.setattr(Path, "read_bytes", lambda self: pytest.fail("the file was read"))
    (fault,) = faults_of(path)
    assert "too large: 10000000 bytes" in fault.rule


def test_is_the_largest_allowed_file_refused_quickly(write: Write) -> None:
    lines = "".join(f"key_{i}: {i}\n" for i in range(58_000))
    content = lines + "#" * (yaml_source.MAX_FILE_BYTES - len(lines))
    path = write(content)
    start = time.perf_counter()
    with pytest.raises(errors.ConfigError) as caught:
        workload.load_workload(path)
    assert time.perf_counter() - start < 15.0
    assert len(caught.value.faults) == yaml_source.MAX_FAULTS + 1
    assert "and 57956 further faults" in caught.value.faults[-1].rule  # 58,000 unknown keys, 6 missing, 50 shown


def test_are_missing_files_and_directories_named(tmp_path: Path) -> None:
    assert "no such file" in faults_of(tmp_path / "absent.yaml")[0].rule
    assert "directory" in faults_of(tmp_path)[0].rule
    assert "not a regular file" in faults_of(Path("/dev/null"))[0].rule
    assert faults_of("nul\0.yaml")
    assert faults_of("x" * 5000 + ".yaml")


def test_is_an_unreadable_file_named(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(GOOD_WORKLOAD)

    def deny(self: Path) -> bytes:
        raise PermissionError

    monkeypatch.setattr(Path, "read_bytes", deny)
    assert faults_of(path)[0].rule == "permission denied"


def test_is_a_byte_order_mark_harmless(write: Write) -> None:
    assert workload.load_workload(write(b"\xef\xbb\xbf" + GOOD_WORKLOAD.encode())).heads == 4


# --- Does each wrong field give its own fault: line, path, rule, value, suggestion? ---

WRONG_FIELDS = [
    pytest.param("heads: 4", "head: 4", 2, "head", "unknown key", "heads", id="misspelt key"),
    pytest.param("n_q: 32", "n_q: -32", 3, "n_q", "at least 1", None, id="negative size"),
    pytest.param("n_q: 32", "n_q: 0", 3, "n_q", "at least 1", None, id="zero"),
    pytest.param("n_q: 32", "n_q: 1.5", 3, "n_q", "must be an integer", None, id="fraction"),
    pytest.param("n_q: 32", "n_q: yes", 3, "n_q", "reads a bare yes", None, id="yes"),
    pytest.param("n_q: 32", "n_q: true", 3, "n_q", "must be an integer", None, id="true"),
    pytest.param("n_q: 32", 'n_q: "32"', 3, "n_q", "must be an integer", None, id="quoted number"),
    pytest.param("n_q: 32", "n_q: .nan", 3, "n_q", "must be an integer", None, id="NaN"),
    pytest.param("n_q: 32", "n_q: .inf", 3, "n_q", "must be an integer", None, id="infinity"),
    pytest.param("n_q: 32", "n_q:", 3, "n_q", "must be an integer", None, id="null"),
    pytest.param("n_q: 32", "n_q: [32]", 3, "n_q", "must be an integer", None, id="list"),
    pytest.param("heads: 4", "heads: 1e30", 2, "heads", "reads an exponent", None, id="1e30"),
    pytest.param("heads: 4", "heads: 2e1", 2, "heads", "reads an exponent", "20", id="2e1"),
    pytest.param("heads: 4", f"heads: {10**30}", 2, "heads", "at most 4096", None, id="10**30"),
    pytest.param("heads: 4", f"heads: {'9' * 10_000}", 2, "heads", "plain decimal", None, id="10,000 digits"),
    pytest.param("n_q: 32", "n_q: 032", 3, "n_q", "plain decimal", None, id="octal"),
    pytest.param("n_q: 32", "n_q: 0x20", 3, "n_q", "plain decimal", None, id="hexadecimal"),
    pytest.param("n_q: 32", "n_q: 1:30", 3, "n_q", "plain decimal", None, id="base 60"),
    pytest.param("n_q: 32", "n_q: 1:30.5", 3, "n_q", "plain decimal", None, id="base 60 fraction"),
    pytest.param("heads: 4", "heads: 4\nheads: 8", 3, "heads", "duplicate key, first set on line 2", None, id="twice"),
    pytest.param("heads: 4", "heads: 4\non: 8", 3, "", "a key must be text", None, id="key on"),
    pytest.param("name: tiny", "name: no", 1, "name", "reads a bare yes", None, id="name no"),
    pytest.param("name: tiny", "name: ''", 1, "name", "must not be empty", None, id="empty name"),
    pytest.param("heads: 4", "heads: 4\ndtype: fp61", 3, "dtype", "must be one of", "fp16", id="misspelt value"),
    pytest.param("heads: 4", "heads: 4\nmask: casual", 3, "mask", "must be one of", "causal", id="mask"),
    pytest.param("heads: 4", "heads: 4\nkv_heads: 3", 3, "kv_heads", "must divide heads (4)", None, id="kv_heads"),
    pytest.param("heads: 4\n", "", 1, "heads", "required key is missing", None, id="missing key"),
]


@pytest.mark.parametrize(("old", "new", "line", "path", "rule", "suggestion"), WRONG_FIELDS)
def test_does_a_wrong_field_say_where_and_what(
    write: Write, old: str, new: str, line: int, path: str, rule: str, suggestion: str | None
) -> None:
    faults = faults_of(write(edited(old, new)))
    (fault,) = (fault for fault in faults if fault.path == path)
    assert len(faults) == (2 if path == "head" else 1)  # a misspelt key is also a missing one
    assert rule in fault.rule
    assert fault.line == line
    assert fault.suggestion == suggestion
    assert len(fault.value) <= errors.VALUE_CHARS


def test_are_two_faults_reported_at_once_with_their_own_lines(write: Write) -> None:
    faults = faults_of(write("name: tiny\nheads: 4\nn_q: -1\nn_kv: 32\nhead_dim_kq: 16\nhead_dim_v: 16\n"))
    seen = [(fault.line, fault.path, fault.suggestion) for fault in faults]
    assert seen == [
        (1, "head_dim_qk", None),
        (3, "n_q", None),
        (5, "head_dim_kq", "head_dim_qk"),
    ]


def test_are_faults_of_yaml_and_of_fields_reported_together(write: Write) -> None:
    faults = faults_of(write(edited("n_kv: 32", "n_kv: 0\nn_q: 7\nhead_dim_v: 020").replace("head_dim_v: 16\n", "")))
    assert [(fault.line, fault.path) for fault in faults] == [(4, "n_kv"), (5, "n_q"), (6, "head_dim_v")]


def test_is_a_fault_inside_a_nested_section_found_on_its_line(write: Write) -> None:
    text = config.find_preset("arch_configs", "mas_edge").read_text()
    text = text.replace("  rows: 16", "  rowz: 16").replace("    exp: 6", "    exp: six")
    text = text.replace("[sum]", "[smu]")
    lines = text.splitlines()
    with pytest.raises(errors.ConfigError) as caught:
        arch.load_arch(write(text))
    by_path = {fault.path: fault for fault in caught.value.faults}
    assert set(by_path) == {"mac.rows", "mac.rowz", "vec.op_lane_cycles.exp", "vec.softmax_passes[3][0]"}
    for path, piece in [("mac.rows", "mac:"), ("mac.rowz", "rowz"), ("vec.op_lane_cycles.exp", "exp: six")]:
        assert piece in lines[(by_path[path].line or 0) - 1]
    assert by_path["mac.rowz"].suggestion == "rows"
    assert by_path["vec.softmax_passes[3][0]"].suggestion == "sum"


def test_does_the_message_read_as_promised() -> None:
    fault = errors.Fault.of("a.yaml", 3, "mac.rows", "must be an integer", "x" * 500, "rows")
    text = str(fault)
    assert text.startswith("a.yaml:3: mac.rows: must be an integer (got 'xxx")
    assert text.endswith("); did you mean 'rows'?")
    assert len(fault.value) <= 60


SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.dates())
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(SCALARS, inner, max_size=3))


@given(st.binary(max_size=200) | st.dictionaries(st.sampled_from(list(arch.Arch.model_fields)), VALUES))
@settings(max_examples=200, deadline=None)
def test_does_no_content_at_all_cause_anything_but_a_config_error(
    tmp_path_factory: pytest.TempPathFactory, content: bytes | dict[str, object]
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_bytes(content if isinstance(content, bytes) else yaml.safe_dump(content).encode())
    for load in (arch.load_arch, workload.load_workload, presets.validate_file):
        with pytest.raises(errors.ConfigError) as caught:
            load(path)
        assert str(caught.value)


# --- Do the errors behave as exceptions should? ---


def test_are_all_errors_mas_sim_errors_that_survive_pickling() -> None:
    fault = errors.Fault("f", 1, "p", "rule")
    for error in (errors.ConfigError([fault]), errors.TilingError("no room", 512), errors.ScheduleError("stuck")):
        assert isinstance(error, errors.MasSimError)
        copy = pickle.loads(pickle.dumps(error))
        assert (str(copy), vars(copy)) == (str(error), vars(error))
    assert errors.TilingError("no room", 512).over_bytes == 512
    assert errors.TilingError("no room").over_bytes is None


def test_does_nearest_suggest_only_what_is_near() -> None:
    assert errors.nearest("Lattency", ["latency", "bandwidth"]) == "latency"
    assert errors.nearest("bert-base", ["bert_base", "bert_large"]) == "bert_base"
    assert errors.nearest("zzz", ["latency", "bandwidth"]) is None
    assert errors.nearest("q" * 1_000_000, ["latency"]) is None


# --- Are presets found by name, and files by path? ---


def test_are_the_presets_listed_by_kind() -> None:
    assert config.list_presets("arch_configs") == ["davinci_lite", "fusemax_cloud", "mas_edge"]
    assert config.list_presets("energy_tables") == ["energy_16nm"]
    assert len(config.list_presets("workloads")) == 37


@pytest.mark.parametrize("name", ["mas_edg", "MAS-EDGE", "mas edge"])
def test_does_an_unknown_name_get_the_nearest_one(name: str) -> None:
    with pytest.raises(errors.ConfigError) as caught:
        config.find_preset("arch_configs", name)
    assert caught.value.faults[0].suggestion == "mas_edge"


def test_is_a_name_told_from_a_path() -> None:
    assert config.find_preset("workloads", "bert_base").is_file()
    assert config.find_preset("workloads", "bert_base.yaml") == Path("bert_base.yaml")
    assert config.find_preset("workloads", "here/bert_base") == Path("here/bert_base")
    for name in ("", "energy_16nm"):
        with pytest.raises(errors.ConfigError):
            config.find_preset("arch_configs", name)


# --- Does validate_file know what a file is? ---


@pytest.mark.parametrize("kind", ["arch_configs", "workloads", "energy_tables"])
def test_does_every_shipped_file_validate_as_its_kind(kind: config.PresetKind) -> None:
    expected = {"arch_configs": "Arch", "workloads": "Workload", "energy_tables": "EnergyTable"}[kind]
    for name in config.list_presets(kind):
        assert type(presets.validate_file(config.find_preset(kind, name))).__name__ == expected


def test_is_a_file_of_unclear_kind_held_against_the_closest(write: Write) -> None:
    with pytest.raises(errors.ConfigError) as caught:
        presets.validate_file(write("name: x\nclock_ghz: 1.0\nmcu: {}\n"))
    first, *rest = caught.value.faults
    assert "taken for an architecture, the closest kind" in first.rule
    assert any(fault.path == "mac" and "missing" in fault.rule for fault in rest)
    with pytest.raises(errors.ConfigError, match="taken for a workload"):
        presets.validate_file(write("name: x\nhead: 3\nn_q: 3\n"))


# --- Does every number of a shipped file say where it comes from? ---


@pytest.mark.parametrize("kind", ["arch_configs", "workloads", "energy_tables"])
def test_does_every_shipped_number_carry_a_source_or_assumed(kind: config.PresetKind) -> None:
    bare = []
    for name in config.list_presets(kind):
        for number, line in enumerate(config.find_preset(kind, name).read_text().splitlines(), 1):
            value, _, comment = line.partition("#")
            key, _, value = value.partition(":")
            is_prose = key.strip() in {"name", "description", "source"}
            in_row_with_source = key.strip() in {"{pj", "{pj_per_byte", "{mw_per_mib"}  # the model requires its source
            if not any(character.isdigit() for character in value) or is_prose or in_row_with_source:
                continue
            has_source = "source:" in comment or "assumed" in comment
            has_confidence = comment.rstrip().endswith(("(high)", "(medium)", "(low)"))
            if not (has_source and has_confidence):
                bare.append(f"{name}:{number}: {line}")
    assert not bare


# --- Is the content hash one of content? ---


def test_is_the_hash_blind_to_layout_and_sensitive_to_values(write: Write) -> None:
    plain = workload.load_workload(write(GOOD_WORKLOAD)).hash
    shuffled = "# a comment\n" + "\n".join(reversed(GOOD_WORKLOAD.splitlines())) + "\nkv_heads: 4\n"
    assert workload.load_workload(write(shuffled)).hash == plain
    assert workload.load_workload(write(edited("n_q: 32", "n_q: 33"))).hash != plain
    assert len(plain) == 12
