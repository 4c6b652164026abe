"""Commands whose extra is not installed."""

from __future__ import annotations

import re
import sys
import tomllib

import pytest

from commitlake.connectors.runtime.blocked_imports import blocked_imports
from commitlake.jobs.archive import command as archive
from commitlake.jobs.cli import main, missing_packages
from commitlake.jobs.cli.missing_packages import EXTRAS, MissingPackageError, find_missing_package, require_package
from commitlake.jobs.metrics import command as metrics
from tests.support.source_tree import ROOT


def _find_nothing(_: str) -> None:
    """Find no package."""


@pytest.fixture
def _nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(missing_packages, "find_spec", _find_nothing)


@pytest.mark.usefixtures("_nothing_installed")
@pytest.mark.parametrize(("package", "extra"), EXTRAS.items())
def test_a_failed_import_names_the_extra(package: str, extra: str) -> None:
    error = find_missing_package(ModuleNotFoundError(f"No module named '{package}'", name=f"{package}.part"))
    assert error is not None
    assert str(error) == f"this command needs the package {package}, which is not installed"
    assert error.hint.startswith(f"pip install 'commitlake[{extra}]' installs it")
    assert error.exit_code == 2


def test_other_errors_stay_what_they_are() -> None:
    assert find_missing_package(ModuleNotFoundError("No module named 'x'", name="x")) is None
    assert find_missing_package(ModuleNotFoundError("no name")) is None
    assert find_missing_package(ModuleNotFoundError("a part is missing", name="pyspark.part")) is None
    assert find_missing_package(ValueError("x")) is None


def test_a_package_that_is_there_is_not_missing() -> None:
    require_package("boto3", "--lake s3://…")


@pytest.mark.usefixtures("_nothing_installed")
def test_an_option_that_needs_a_package_is_named() -> None:
    with pytest.raises(MissingPackageError, match=r"^--hbase needs the package happybase, which is not installed$"):
        require_package("happybase", "--hbase")


@pytest.mark.usefixtures("_nothing_installed")
@pytest.mark.parametrize(
    ("arguments", "needs", "extra"),
    [
        (["--spark"], "archive --spark needs the package pyspark", "spark"),
        ([], "archive without --no-quality needs the package great_expectations", "quality"),
        (["--no-quality", "--hbase", "h"], "--hbase needs the package happybase", "hbase"),
        (["--metrics-file", "m"], "--metrics-file needs the package prometheus_client", "metrics"),
    ],
)
def test_archive_ends_before_any_work(
    arguments: list[str], needs: str, extra: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert archive.main(["--store", "/none", "--lake", "/none-either", *arguments]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"commitlake archive: error: {needs}")
    assert f"pip install 'commitlake[{extra}]'" in said
    assert "Traceback" not in said


def test_a_command_that_cannot_be_imported_ends_with_the_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in sys.modules if name.startswith("prometheus_client")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(metrics, "main", lambda _: __import__("prometheus_client.core"))
    monkeypatch.setattr(missing_packages, "find_spec", _find_nothing)
    with blocked_imports("prometheus_client"):
        assert main.main(["metrics"]) == 2
    assert "pip install 'commitlake[metrics]'" in capsys.readouterr().err


def test_extras_and_core_are_those_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    assert set(EXTRAS.values()) <= extras.keys()
    names = {re.split(r"[^A-Za-z0-9-]", text, maxsplit=1)[0].replace("-", "_") for text in project["dependencies"]}
    assert not names & EXTRAS.keys()
