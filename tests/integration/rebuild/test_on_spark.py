"""Rebuild and salvage on Spark make the same bytes as in one process."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from commitlake.connectors.formats.registry import COMMITLOGS
from commitlake.connectors.reading.stores import find_stores
from commitlake.connectors.spark.runner import SparkRunner
from commitlake.jobs.rebuild import command as rebuild
from commitlake.jobs.verify import command as verify
from commitlake.pipelines.rebuild.run import rebuild_store
from commitlake.pipelines.rebuild.settings import RequestedSettings
from commitlake.pipelines.salvage.run import salvage_store
from commitlake.schemas.layouts.segment_names import segment_name
from tests.support.indexed_stores import SEGMENT_BYTES, write_indexed_store
from tests.support.jmq_stores import write_jmq_store


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that nobody changes."""
    return write_indexed_store(tmp_path_factory.mktemp("indexed") / "broker-a" / "store")


def files_of(folder: Path) -> dict[str, bytes]:
    """Return all files below a folder, by their relative paths."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_rebuild_on_spark_is_the_same(spark: SparkSession, intact: Path, tmp_path: Path) -> None:
    (store,) = find_stores(str(intact), formats=COMMITLOGS)
    here = rebuild_store(store, tmp_path / "here", RequestedSettings(), partition_bytes=SEGMENT_BYTES)
    there = rebuild_store(
        store, tmp_path / "there", RequestedSettings(), runner=SparkRunner(spark), partition_bytes=SEGMENT_BYTES
    )
    assert files_of(here.out) == files_of(there.out)
    assert (here.totals, here.entries, here.queue_files) == (there.totals, there.entries, there.queue_files)


def test_a_salvage_on_spark_is_the_same(spark: SparkSession, intact: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(intact, tmp_path / "damaged"))
    for number in range(3):
        path = root / "commitlog" / segment_name(number * SEGMENT_BYTES)
        data = bytearray(path.read_bytes())
        data[4] ^= 1  # the first record's magic
        path.write_bytes(data)
    (root / "commitlog" / segment_name(3 * SEGMENT_BYTES)).unlink()
    (store,) = find_stores(str(root), formats=COMMITLOGS)
    here = salvage_store(store, tmp_path / "here")
    there = salvage_store(store, tmp_path / "there", runner=SparkRunner(spark))
    assert files_of(here.out) == files_of(there.out)
    assert here.damages == there.damages == 4


def test_the_job_runs_on_spark(spark: SparkSession, intact: Path, tmp_path: Path) -> None:
    assert rebuild.main([str(intact), "--out", str(tmp_path / "out"), "--quiet"]) == 0
    assert (tmp_path / "out" / "checkpoint").exists()


def test_a_jmq_store_is_rebuilt_and_verified_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    root, out = write_jmq_store(tmp_path / "store"), tmp_path / "out"
    assert rebuild.main([str(root), "--out", str(out), "--quiet"]) == 0
    assert files_of(out / "queue") == files_of(root / "queue")
    assert (out / "checkpoint").read_bytes() == (root / "checkpoint").read_bytes()
    assert verify.main([str(root), "--quiet"]) == 0
    shutil.rmtree(root / "queue" / "rare")
    assert verify.main([str(root), "--quiet"]) == 3


def test_an_error_on_a_worker_is_reported_by_the_job(
    spark: SparkSession, intact: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = Path(shutil.copytree(intact, tmp_path / "cut"))
    out = tmp_path / "out"
    out.mkdir()
    (out / ".rebuild").touch()  # where the parts should go
    assert rebuild.main([str(root), "--out", str(out), "--quiet"]) != 0
    assert capsys.readouterr().err.startswith("commitlake rebuild: error:")
