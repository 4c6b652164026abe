"""Tests of `commitlake publish`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.utils.config import Config

from commitlake.jobs.audit import command as audit
from commitlake.jobs.maintain import command as maintain
from commitlake.jobs.publish import command as publish
from commitlake.schemas.errors import ExitCode
from tests.support.erased_lakes import archive, shop_messages, write_lake
from tests.support.lakes import GrowingLake


@pytest.fixture
def growing(tmp_path: Path) -> GrowingLake:
    """A lake of a run of 50 messages."""
    return write_lake(tmp_path / "a folder", runs=1)


def configure(monkeypatch: pytest.MonkeyPatch, name: str, **properties: str) -> None:
    """Configure a catalog in the environment, which PyIceberg reads when it is imported."""
    for key, value in properties.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__{name}__{key}", value)
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())


@pytest.fixture
def prod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Catalog:
    """The catalog `prod`, in a database of SQLite."""
    configure(
        monkeypatch, "PROD", TYPE="sql", URI=f"sqlite:///{tmp_path}/catalog.db", WAREHOUSE=f"file://{tmp_path}/tables"
    )
    return load_catalog("prod")


def run(growing: GrowingLake, *options: str) -> int:
    return publish.main(["--iceberg", "--lake", growing.lake.root, *options])


def test_all_tables_are_published_and_named(growing: GrowingLake, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(growing) == ExitCode.OK
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines[:-1]] == ["messages", *growing.lake.list_follower_tables()]
    assert "1 new snapshot" in lines[0]
    assert f"iceberg_scan('{growing.lake.root}/_iceberg/messages')" in lines[-1]
    assert run(growing, "--table", "messages") == ExitCode.OK
    assert "nothing new" in capsys.readouterr().out


def test_other_jobs_leave_the_metadata_alone(growing: GrowingLake) -> None:
    run(growing, "--quiet")
    folder = Path(growing.lake.root) / "_iceberg"
    before = sorted(folder.rglob("*"))
    assert maintain.main(["--lake", growing.lake.root, "--quiet", "--vacuum-after", "7d"]) == ExitCode.OK
    archive(growing)
    assert audit.main(["--lake", growing.lake.root, "--quiet"]) == ExitCode.OK
    assert sorted(folder.rglob("*")) == before


def test_a_catalog_gets_the_tables(growing: GrowingLake, prod: Catalog, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(growing, "--to", "prod.logs.raw") == ExitCode.OK
    assert "namespace logs.raw of the catalog 'prod'" in capsys.readouterr().out
    table = prod.load_table(("logs", "raw", "messages"))
    assert table.scan().count() == 50
    growing.write(shop_messages(50, secrets=(), first=50))
    archive(growing)
    assert run(growing, "--to", "prod.logs.raw", "--table", "messages") == ExitCode.OK
    table.refresh()
    assert table.scan().count() == 100
    assert len(table.snapshots()) == 2
    assert table.properties["gc.enabled"] == "false"


def test_a_foreign_table_of_a_catalog_is_left_alone(
    growing: GrowingLake, prod: Catalog, capsys: pytest.CaptureFixture[str]
) -> None:
    prod.create_namespace("logs")
    foreign = prod.create_table("logs.messages", DeltaTable(growing.lake.uri("messages")).to_pyarrow_table().schema)
    assert run(growing, "--to", "prod.logs") == ExitCode.REFUSED
    shown = capsys.readouterr()
    assert "messages was not published" in shown.err
    assert "is another table" in shown.err
    assert "topic_minutes: 1 new snapshot" in shown.out
    foreign.refresh()
    assert foreign.current_snapshot() is None


def test_a_table_that_iceberg_cannot_describe_is_named(
    growing: GrowingLake, capsys: pytest.CaptureFixture[str]
) -> None:
    log = Path(growing.lake.uri("edges")) / "_delta_log"
    first = [json.loads(line) for line in (log / f"{0:020d}.json").read_text().splitlines()]
    (metadata,) = (action["metaData"] for action in first if "metaData" in action)
    metadata["configuration"]["delta.columnMapping.mode"] = "name"
    newest = growing.lake.table("edges").version() + 1
    (log / f"{newest:020d}.json").write_text(json.dumps({"metaData": metadata}))
    growing.lake.seal_log("edges")
    assert run(growing) == ExitCode.REFUSED
    shown = capsys.readouterr()
    assert "edges was not published: its columns have other names" in shown.err
    assert "messages: 1 new snapshot" in shown.out


@pytest.mark.parametrize("place", ["prod", ".logs", "prod..logs", "prod.logs."])
def test_a_place_without_a_namespace_is_refused(
    growing: GrowingLake, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(growing, "--to", place) == ExitCode.USAGE
    assert "a catalog and a namespace" in capsys.readouterr().err


def test_a_catalog_that_is_not_configured_is_named(growing: GrowingLake, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(growing, "--to", "unknown.logs") == ExitCode.USAGE
    assert "PYICEBERG_CATALOG__UNKNOWN__URI" in capsys.readouterr().err


def test_a_catalog_that_does_not_answer_is_an_error(
    growing: GrowingLake, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    configure(monkeypatch, "DOWN", URI="http://127.0.0.1:9")
    assert run(growing, "--to", "down.logs") == ExitCode.FAILED
    assert "the Iceberg catalog 'down' refused a request" in capsys.readouterr().err


def test_a_folder_without_a_lake_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert publish.main(["--iceberg", "--lake", str(tmp_path)]) == ExitCode.USAGE
    assert "not a lake" in capsys.readouterr().err
