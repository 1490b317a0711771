"""Whether what is on disk is what is installed, and whether the sources keep to their shape."""

import ast
import fnmatch
import importlib.metadata
import importlib.resources
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
NOT_SHIPPED = {"tests", "benchmarks", "typings", "notebooks", "docs", "build", "dist"}
YAML_FOLDERS = ("arch_configs", "workloads")
SHIPPED_FOLDERS = ("mas_sim", "search", *YAML_FOLDERS)
MAX_MODULE_LINES, MAX_FUNCTION_LINES = 400, 60

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
SETUPTOOLS: dict[str, Any] = PROJECT["tool"]["setuptools"]


def folder_of(package: str) -> Path:
    """Folder of a package, as setuptools finds it: its own entry, or below its parent's."""
    if package in SETUPTOOLS["package-dir"]:
        return ROOT / str(SETUPTOOLS["package-dir"][package])
    parent, _, name = package.rpartition(".")
    return folder_of(parent) / name


def folders_with_modules() -> Iterator[Path]:
    """Folders on disk that hold Python modules and are not there for development only."""
    for top in sorted(ROOT.iterdir()):
        if top.is_dir() and not top.name.startswith(".") and top.name not in NOT_SHIPPED:
            yield from sorted({path.parent for path in top.rglob("*.py")})


def modules(*folders: str) -> list[str]:
    """Python files in folders, by path from the root."""
    return sorted(str(path.relative_to(ROOT)) for folder in folders for path in (ROOT / folder).rglob("*.py"))


# --- Is everything installed? ---


def test_does_the_package_list_equal_the_folders_with_modules() -> None:
    packages = SETUPTOOLS["packages"]
    assert len(packages) == len(set(packages))
    assert sorted(folder_of(package) for package in packages) == sorted(folders_with_modules())


def test_is_every_package_where_python_finds_it() -> None:
    for package in SETUPTOOLS["packages"]:
        folder = importlib.resources.files(package)
        shipped = {path.name for path in folder_of(package).iterdir() if path.suffix == ".py"}
        assert shipped <= {entry.name for entry in folder.iterdir()}


@pytest.mark.parametrize("folder", YAML_FOLDERS)
def test_is_the_init_of_a_yaml_folder_a_docstring_only(folder: str) -> None:
    tree = ast.parse((ROOT / folder / "__init__.py").read_text(encoding="utf-8"))
    assert ast.get_docstring(tree)
    assert len(tree.body) == 1
    assert [path.name for path in (ROOT / folder).rglob("*.py")] == ["__init__.py"]


def test_is_every_file_that_is_no_module_package_data() -> None:
    left_out, empty = [], []
    for package in SETUPTOOLS["packages"]:
        patterns = SETUPTOOLS["package-data"].get(package, [])
        for path in folder_of(package).iterdir():
            if path.is_dir() or path.suffix == ".py":
                continue
            if not any(fnmatch.fnmatch(path.name, pattern) for pattern in patterns):
                left_out.append(str(path.relative_to(ROOT)))
            if path.name != "py.typed" and not (importlib.resources.files(package) / path.name).read_bytes():
                empty.append(path.name)
    assert not left_out
    assert not empty


@pytest.mark.parametrize("package", ["mas_sim.arch_configs", "mas_sim.workloads"])
def test_is_there_data_in_every_yaml_package(package: str) -> None:
    names = {entry.name for entry in importlib.resources.files(package).iterdir()}
    assert any(name.endswith(".yaml") for name in names)
    assert "README.md" in names


@pytest.mark.parametrize("package", ["mas_sim", "mas_sim.search"])
def test_does_a_typed_package_say_so(package: str) -> None:
    assert (folder_of(package) / "py.typed").is_file()


def test_does_the_type_checker_find_search_below_mas_sim() -> None:
    link = ROOT / "typings" / "mas_sim" / "search"
    assert link.is_symlink()
    assert link.readlink() == Path("../../search")
    assert PROJECT["tool"]["mypy"]["mypy_path"] == "typings"
    assert set(PROJECT["tool"]["mypy"]["packages"]) == {"mas_sim", "mas_sim.search"}


def test_is_the_installed_version_this_one() -> None:
    assert importlib.metadata.version("mas_sim") == PROJECT["project"]["version"]


def test_is_coverage_measured_of_both_source_folders() -> None:
    assert PROJECT["tool"]["coverage"]["run"]["source"] == ["mas_sim", "search"]


# --- Do the sources keep to their shape? ---


@pytest.mark.parametrize("module", modules(*SHIPPED_FOLDERS, "tests", "benchmarks"))
def test_does_a_module_open_with_a_docstring(module: str) -> None:
    assert ast.get_docstring(ast.parse((ROOT / module).read_text(encoding="utf-8")))


@pytest.mark.parametrize("module", modules(*SHIPPED_FOLDERS))
def test_do_a_module_and_its_functions_stay_short(module: str) -> None:
    source = (ROOT / module).read_text(encoding="utf-8")
    lines = len(source.splitlines())
    assert lines < MAX_MODULE_LINES, f"{module} has {lines} lines"
    nodes = ast.walk(ast.parse(source))
    functions = (node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    lengths = {f"{module}:{f.lineno} {f.name}": (f.end_lineno or f.lineno) - f.lineno + 1 for f in functions}
    too_long = {name: length for name, length in lengths.items() if length >= MAX_FUNCTION_LINES}
    assert not too_long, f"functions of {MAX_FUNCTION_LINES} lines and more: {too_long}"
