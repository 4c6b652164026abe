"""Verify on Spark, and against a lake."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from commitlake.connectors.formats.registry import COMMITLOGS
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.reading.stores import find_stores
from commitlake.connectors.spark.runner import SparkRunner
from commitlake.jobs.verify import command as verify
from commitlake.pipelines.archive.run import Config, run_archive
from commitlake.pipelines.audit.compared_sides import AuditSides
from commitlake.pipelines.audit.window_profiles import Profile
from commitlake.pipelines.verify.store_precheck import VerifyOptions
from commitlake.pipelines.verify.store_verification import verify_stores
from tests.support.indexed_stores import SEGMENT_BYTES, write_indexed_store
from tests.support.jmq_stores import FILE_BYTES, write_jmq_store

OF_JMQ = pytest.mark.long("a RocketMQ store is compared with its lake each time")


@pytest.fixture(scope="module")
def archived(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store and its lake."""
    root = tmp_path_factory.mktemp("verified")
    store = write_indexed_store(root / "broker-a" / "store", 200)
    config = Config(str(store), Lake(str(root / "lake")), max_partition_bytes=SEGMENT_BYTES)
    assert run_archive(SparkRunner(spark), config).messages == 200
    return root


def run_verify(folder: Path, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, list[dict[str, Any]]]:
    """Run verify; return the exit code, and the stores' reports."""
    capsys.readouterr()
    code = verify.main([str(folder / "{broker}" / "store"), "--quiet", "--output", "json", *more])
    return code, json.loads(capsys.readouterr().out)["rows"]


def test_spark_has_the_findings_of_a_single_process(spark: SparkSession, archived: Path, tmp_path: Path) -> None:
    copies = [shutil.copytree(archived / "broker-a" / "store", tmp_path / name / "store") for name in ("a", "b")]
    shutil.rmtree(copies[0] / "consumequeue" / "rare")
    path = copies[1] / "commitlog" / f"{SEGMENT_BYTES:020d}"
    data = bytearray(path.read_bytes())
    data[9] ^= 1
    path.write_bytes(data)
    stores = find_stores(str(tmp_path / "{broker}" / "store"), formats=COMMITLOGS)
    here = verify_stores(stores, VerifyOptions())
    there = verify_stores(stores, VerifyOptions(), runner=SparkRunner(spark))
    assert [list(report.findings) for report in here] == [list(report.findings) for report in there]
    assert [report.findings.codes for report in here] == [{"queue_missing"}, {"log_bad_crc"}]
    assert [report.records for report in there] == [200, 199]


@pytest.mark.long("a lost message is the only finding in a lake each time")
def test_a_complete_archive_has_no_finding(archived: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, (report,) = run_verify(archived, capsys, "--lake", str(archived / "lake"))
    assert (code, report["counts"]) == (0, {})


@pytest.mark.long("lakes are compared without Spark each time")
def test_a_message_that_the_lake_lost_is_found(
    archived: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(shutil.copytree(archived, tmp_path / "copy"))
    DeltaTable(str(folder / "lake" / "messages")).delete("topic = 'rare'")
    code, (report,) = run_verify(folder, capsys, "--lake", str(folder / "lake"))
    assert code == 3
    assert set(report["counts"]) == {"lake_missing"}
    assert {each["queue"].split("/")[0] for each in report["findings"]} == {"rare"}


@pytest.mark.long("a lost message is found on Spark each time; the comparison is the same")
def test_a_message_that_differs_in_the_lake_is_found(
    archived: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(shutil.copytree(archived, tmp_path / "copy"))
    DeltaTable(str(folder / "lake" / "messages")).update({"body_crc": "body_crc + 1"}, predicate="topic = 'rare'")
    code, (report,) = run_verify(folder, capsys, "--lake", str(folder / "lake"))
    assert code == 3
    assert set(report["counts"]) == {"lake_different"}
    assert {each["queue"].split("/")[0] for each in report["findings"]} == {"rare"}


@pytest.mark.long("a lost message is found on Spark each time; the comparison is the same")
def test_a_message_that_only_the_lake_has_is_found(
    archived: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(shutil.copytree(archived, tmp_path / "copy"))
    DeltaTable(str(folder / "lake" / "messages")).update({"topic": "'elsewhere'"}, predicate="topic = 'rare'")
    code, (report,) = run_verify(folder, capsys, "--lake", str(folder / "lake"))
    assert code == 3
    assert set(report["counts"]) == {"lake_missing", "lake_extra"}
    queues = {each["code"]: each["queue"].split("/")[0] for each in report["findings"]}
    assert queues == {"lake_missing": "rare", "lake_extra": "elsewhere"}


@pytest.mark.long("a lake is compared with a store that lost no segment each time")
def test_a_segment_deleted_during_verify_is_not_a_finding(
    archived: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(shutil.copytree(archived, tmp_path / "copy"))
    whole = AuditSides.profile_stores

    def deleted(sides: AuditSides, *arguments: Any) -> Profile:
        (folder / "broker-a" / "store" / "commitlog" / f"{0:020d}").unlink(missing_ok=True)
        return whole(sides, *arguments)

    monkeypatch.setattr(AuditSides, "profile_stores", deleted)
    _, (report,) = run_verify(folder, capsys, "--lake", str(folder / "lake"))
    assert not {code for code in report["counts"] if code.startswith("lake_")}


@pytest.mark.long("a lost message is found on Spark each time; the comparison is the same")
def test_a_store_missing_from_the_lake_is_a_finding(
    archived: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(archived / "broker-a", tmp_path / "broker-new")
    code, (report,) = run_verify(tmp_path, capsys, "--lake", str(archived / "lake"))
    assert (code, report["counts"]) == (0, {"lake_not_archived": 1})


@pytest.fixture(scope="module")
def archived_jmq(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same for a JMQ store."""
    root = tmp_path_factory.mktemp("verified-jmq")
    store = write_jmq_store(root / "broker-j" / "store", 200)
    config = Config(str(store), Lake(str(root / "lake")), max_partition_bytes=FILE_BYTES)
    assert run_archive(SparkRunner(spark), config).messages == 200
    return root


@pytest.mark.parametrize(
    ("change", "codes"),
    [
        pytest.param(lambda _: None, set(), marks=OF_JMQ),
        pytest.param(lambda table: table.delete("topic = 'rare'"), {"lake_missing"}, marks=OF_JMQ),
        pytest.param(
            lambda table: table.update({"body_crc": "body_crc + 1"}, predicate="topic = 'rare'"),
            {"lake_different"},
            marks=OF_JMQ,
        ),
        pytest.param(
            lambda table: table.update({"topic": "'other'"}, predicate="topic = 'rare'"),
            {"lake_missing", "lake_extra"},
            marks=OF_JMQ,
        ),
    ],
)
def test_a_jmq_store_is_compared_with_its_lake(
    archived_jmq: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    change: Callable[[DeltaTable], object],
    codes: set[str],
) -> None:
    folder = Path(shutil.copytree(archived_jmq, tmp_path / "copy"))
    change(DeltaTable(str(folder / "lake" / "messages")))
    code, (report,) = run_verify(folder, capsys, "--lake", str(folder / "lake"))
    assert (code, set(report["counts"])) == (3 if codes else 0, codes)
    assert {each["queue"].split("/")[0] for each in report["findings"]} <= {"rare", "other"}
    expected = len(list((folder / "broker-j" / "store" / "queue" / "rare").iterdir()))
    assert {code: len(queues) for code, queues in queues_of(report).items()} == dict.fromkeys(codes, expected)


def queues_of(report: dict[str, Any]) -> dict[str, set[str]]:
    """Return the queues in which each class of findings occurs."""
    found: dict[str, set[str]] = {}
    for each in report["findings"]:
        found.setdefault(each["code"], set()).add(each["queue"])
    return found


@pytest.mark.long("a RocketMQ store is compared with its lake each time")
def test_a_window_in_which_the_journal_has_lost_a_record_differs_from_the_lake(
    archived_jmq: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(shutil.copytree(archived_jmq, tmp_path / "copy"))
    path = folder / "broker-j" / "store" / "journal" / f"{FILE_BYTES:020d}"
    data = bytearray(path.read_bytes())
    data[60] ^= 1
    path.write_bytes(data)
    code, (report,) = run_verify(folder, capsys, "--lake", str(folder / "lake"))
    assert (code, report["counts"]) == (3, {"log_bad_crc": 1, "lake_different": 1})
