"""Tests of the findings of `doctor` on this machine, and of its advice for missing parts."""

from __future__ import annotations

import importlib.metadata
import json
from pathlib import Path

import pytest

from commitlake.connectors.catalog import lake_root_lookup
from commitlake.jobs.doctor import machine_checks
from commitlake.jobs.doctor.command import main
from commitlake.jobs.doctor.findings import CheckState
from tests.support.lakes import GrowingLake
from tests.support.logs import new_message
from tests.support.source_tree import ROOT


def findings(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> dict[str, dict[str, str]]:
    """Return the findings of a run by check, for several of one check the last one."""
    assert main([*arguments, "--format", "json"]) == code
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "commitlake.output/1"
    return {row["check"]: row for row in document["rows"]}


def test_doctor_works_without_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    found = findings(capsys)
    assert found["python"]["state"] == "ok"
    assert found["packages"]["state"] == "ok"
    assert found["temporary files"]["state"] == "ok"
    assert [found[name]["state"] for name in ("store", "lake", "s3", "hbase", "broker")] == ["skipped"] * 5


def test_a_table_ends_with_a_summary(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    out, err = capsys.readouterr()
    assert "python" in out
    assert "everything that was asked for is available" in err


def test_a_store_and_a_lake_are_shown_with_their_contents(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    growing = GrowingLake(tmp_path)
    growing.write([new_message(topic="orders")], lambda _: 1)
    growing.archive()
    found = findings(capsys, "--store", str(growing.store), "--lake", growing.lake.root)
    assert (found["store"]["state"], found["lake"]["state"]) == ("ok", "ok")
    assert "1 segment" in found["store"]["found"]
    (growing.store / "broker.conf").write_text("brokerName=orders-1")  # by which archive would name it
    assert findings(capsys, "--store", str(growing.store))["store"]["found"].startswith("orders-1: ")
    assert "version" in found["lake"]["found"]


def test_a_lake_whose_name_no_catalog_knows_is_a_finding(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("UNITY_CATALOG_URL", "DATABRICKS_HOST"):
        monkeypatch.delenv(name, raising=False)
    found = findings(capsys, "--lake", "main.logs", code=3)
    assert "no catalog is set" in found["lake"]["found"]
    monkeypatch.setattr(lake_root_lookup, "find_lake_root", lambda _: (tmp_path / "a lake").as_uri())
    assert findings(capsys, "--lake", "main.logs")["lake"]["found"] == "nothing is archived there yet"


def test_a_lake_whose_name_is_also_a_folders_is_a_finding(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "main.logs").mkdir()
    monkeypatch.setenv("UNITY_CATALOG_URL", "https://catalog.example")
    assert "write ./main.logs" in findings(capsys, "--lake", "main.logs", code=3)["lake"]["found"]
    assert findings(capsys, "--bodies", "main.logs")["bodies"]["state"] == "ok"


def test_a_lake_that_does_not_exist_yet_is_not_a_fault(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = findings(capsys, "--lake", str(tmp_path / "new" / "lake"))
    assert found["lake"]["found"] == "nothing is archived there yet"
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("option", "value", "check"),
    [
        ("--store", "{folder}/none", "store"),
        ("--lake", "{folder}/file", "lake"),
        ("--lake", "s3://", "s3"),
        ("--bodies", "s3a://", "s3"),
        ("--store", "s3://UPPER/store", "store"),
        ("--store", "gs://B/store", "store"),
        ("--store", "ftp://host/store", "store"),
        ("--lake", "gs://bucket/lake", "lake"),
        ("--bodies", "gs://bucket/bodies", "bodies"),
        ("--bodies", "hdfs://host:8020/bodies", "bodies"),
        ("--hbase", "127.0.0.1:9", "hbase"),
        ("--namesrv", "127.0.0.1:9", "broker"),
    ],
)
def test_a_missing_part_is_named_with_advice(
    option: str, value: str, check: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    arguments = [option, value.format(folder=tmp_path)]
    found = findings(capsys, *arguments, code=3)
    assert found[check]["state"] == "missing" or check == "lake"
    assert found[check]["advice"]
    assert main(arguments) == 3
    assert check in capsys.readouterr().err


def test_without_java_and_jars_only_spark_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COMMITLAKE_JARS", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    found = findings(capsys)
    assert found["jars"]["state"] == "warning"
    assert "--spark" in found["jars"]["advice"]
    assert "delta-spark" in found["jars"]["found"]
    assert "SHA" not in found["jars"]["found"]


def test_missing_packages_are_installed_by_what_the_installation_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def version(name: str) -> str:
        if name in lacking:
            raise importlib.metadata.PackageNotFoundError
        return "1.0"

    monkeypatch.setattr(importlib.metadata, "version", version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    lacking = {"pyspark", "delta-spark", "boto3"}
    clone = findings(capsys)
    assert {clone[check]["advice"] for check in ("packages", "spark")} == {f"run {ROOT}/spark-submit.sh --set-up-only"}
    monkeypatch.setattr(machine_checks, "SET_UP_SCRIPT", tmp_path / "spark-submit.sh")
    wheel = findings(capsys)
    assert wheel["packages"]["state"] == "warning"  # a package without extras is whole
    assert wheel["packages"]["advice"] == "pip install 'commitlake[s3,spark]'"
    assert wheel["spark"]["advice"] == "pip install 'commitlake[spark]'"
    assert "spark-submit.sh" not in json.dumps(wheel)
    lacking = {"numba"}
    assert findings(capsys, code=3)["packages"]["advice"] == "pip install --force-reinstall commitlake"


def test_a_full_disk_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_checks, "_LITTLE_DISK", 1 << 60)
    assert machine_checks.check_folder("lake", str(tmp_path)).state is CheckState.WARNING
