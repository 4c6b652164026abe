"""Rows that another program has changed: found in every table, undone if the files from before are still there."""

from __future__ import annotations

import datetime
import shutil
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from commitlake.connectors.lake.delta import open_delta_table
from commitlake.connectors.lake.delta_log.file_actions import read_table_files
from commitlake.connectors.lake.delta_log.seals import Seal
from commitlake.connectors.lake.lake import Lake
from commitlake.jobs.audit import command as audit
from commitlake.jobs.erase import command as erase
from commitlake.jobs.maintain import command as maintain
from commitlake.pipelines.repair import content_checksums
from commitlake.pipelines.repair.content_checksums import (
    SUMMED_TABLES,
    TableContents,
    list_unsealed_tables,
    seal_table_contents,
    sum_table_contents,
    undo_foreign_changes,
)
from commitlake.pipelines.snapshot.progress import OffsetKind, OffsetOwner, SnapshotSource, StoreSnapshot
from commitlake.pipelines.snapshot.table_append import append_snapshot
from commitlake.schemas.errors import ExitCode
from tests.support.lakes import GrowingLake, shop_messages
from tests.support.repairs import archive_run

LATER = datetime.datetime(2023, 11, 18, tzinfo=datetime.UTC)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> GrowingLake:
    """A lake with steps, a damaged record, a snapshot and an erasure."""
    growing = GrowingLake(tmp_path_factory.mktemp("sound"))
    messages = shop_messages(30, days=2)
    messages[20] = replace(messages[20], topic="%DLQ%g")
    for number, first in enumerate((0, 15)):
        growing.configure(number + 1)
        growing.write(messages[first : first + 15])
        archive_run(growing)
    offsets = {OffsetOwner(OffsetKind.GROUP, "g", "topic-00", 0): 1}
    append_snapshot(growing.lake, StoreSnapshot("broker-a", SnapshotSource.FILE, {OffsetKind.GROUP: LATER}, offsets))
    asked = ["--key", "order-3", "--reason", "asked", "--yes", "--quiet"]
    assert erase.main(["--lake", growing.lake.root, *asked]) == ExitCode.OK
    return growing


def tables_of(lake: Lake) -> list[str]:
    return [table for table in SUMMED_TABLES if Path(lake.uri(table)).is_dir()]


def change(lake: Lake, table: str) -> None:
    """Change one value of a table, as any other program may."""
    uri = lake.uri(table)
    rows = open_delta_table(uri).to_pyarrow_table()
    position = next(number for number, one in enumerate(rows.schema) if one.type in (pa.int64(), pa.string()))
    values = rows.column(position).to_pylist()
    values[0] = f"{values[0]}?" if rows.schema.field(position).type == pa.string() else (values[0] or 0) + 1
    changed = rows.set_column(position, rows.schema.field(position), pa.array(values, rows.schema.field(position).type))
    write_deltalake(uri, changed, mode="overwrite")


def differing(lake: Lake) -> list[TableContents]:
    return [contents for contents in sum_table_contents(lake) if contents.has_difference]


def test_the_sums_are_known_from_the_first_row(sound: GrowingLake) -> None:
    assert {"edges", "erasures", "consumer_offsets", "store_config", "topic_minutes"} <= {*tables_of(sound.lake)}
    assert list_unsealed_tables(sound.lake) == []
    assert [contents.expected for contents in sum_table_contents(sound.lake)] == [
        contents.found for contents in sum_table_contents(sound.lake)
    ]


def test_a_change_is_found_in_each_table_and_undone(sound: GrowingLake, tmp_path: Path) -> None:
    lake = sound.copy_to(tmp_path).lake
    filled = [contents.table for contents in sum_table_contents(lake) if contents.rows]
    for table in filled:
        change(lake, table)
    found = differing(lake)
    assert [contents.table for contents in found] == filled
    for contents in found:
        assert str(contents.wrong[0]).endswith("found one of another program")
        assert "was written by another program: WRITE of delta-rs" in contents.difference_sentences(1)[-1]
        assert undo_foreign_changes(lake, contents)
    assert differing(lake) == []


def test_a_wrong_file_is_named_although_a_file_before_it_has_vanished(
    sound: GrowingLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, (gone, wrong, *_) = next(
        (table, files)
        for table in tables_of(sound.lake)
        if len(files := [file.path for file in read_table_files(sound.lake.table(table))]) > 1
    )
    sums_of_file = content_checksums._sum_rows_of_file

    def sums_of_changed_file(lake: Lake, name: str, path: str) -> content_checksums._FileSums | None:
        found = sums_of_file(lake, name, path)
        if found is None or path == unquote(gone):
            return None
        return replace(found, found=found.found + 1) if path == unquote(wrong) else found

    monkeypatch.setattr(content_checksums, "_sum_rows_of_file", sums_of_changed_file)
    (contents,) = sum_table_contents(sound.lake, [table])
    assert [damage.file.path for damage in contents.wrong] == [wrong]


def test_an_audit_names_the_table_and_repair_restores_it(
    sound: GrowingLake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = sound.copy_to(tmp_path).lake
    change(lake, "edges")
    write_deltalake(lake.uri("consumer_offsets"), lake.table("consumer_offsets").to_pyarrow_table(), mode="append")
    assert audit.main(["--lake", lake.root, "--local"]) == ExitCode.DAMAGE
    printed = capsys.readouterr().out
    assert "Damaged: edges · 1 table of other rows" in printed
    assert "Damaged: consumer_offsets · 1 table of other rows" in printed
    assert maintain.main(["--lake", lake.root, "--repair"]) == ExitCode.OK, capsys.readouterr()
    assert audit.main(["--lake", lake.root, "--local"]) == ExitCode.OK, capsys.readouterr()


def test_without_the_files_from_before_tables_are_rebuilt_or_what_is_lost_is_said(
    sound: GrowingLake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = sound.copy_to(tmp_path).lake
    edges = lake.table("edges").to_pyarrow_table().sort_by([("node_hash", "ascending")]).to_pylist()
    for table in ("edges", "store_config"):
        change(lake, table)
        lake.table(table).vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert maintain.main(["--lake", lake.root, "--repair"]) == ExitCode.DAMAGE
    assert "not recovered: store_config: the rows that another program has changed" in capsys.readouterr().err
    assert edges == lake.table("edges").to_pyarrow_table().sort_by([("node_hash", "ascending")]).to_pylist()
    assert differing(lake) == []


def test_files_that_another_program_merges_are_the_same_rows(sound: GrowingLake, tmp_path: Path) -> None:
    lake = sound.copy_to(tmp_path).lake
    for table in ("archive_runs", "profiles"):
        assert lake.table(table).optimize.compact()["numFilesRemoved"] > 1
    assert differing(lake) == []
    archive_run(sound.copy_to(tmp_path))
    assert differing(lake) == []


def test_maintain_seals_tables_of_earlier_versions(sound: GrowingLake, tmp_path: Path) -> None:
    lake = sound.copy_to(tmp_path).lake
    for seal in Path(lake.uri("edges"), "_delta_log/_seals").iterdir():
        known = Seal.from_bytes(seal.read_bytes())
        assert known is not None
        seal.write_bytes(replace(known, row_sum=None).to_bytes())
    assert list_unsealed_tables(lake) == ["edges"]
    assert maintain.main(["--lake", lake.root, "--quiet"]) == ExitCode.OK
    assert list_unsealed_tables(lake) == []
    change(lake, "edges")
    assert [contents.table for contents in differing(lake)] == ["edges"]


def test_deleted_seals_are_a_finding(sound: GrowingLake, tmp_path: Path) -> None:
    lake = sound.copy_to(tmp_path).lake
    lake.table("profiles").create_checkpoint()
    shutil.rmtree(Path(lake.uri("profiles"), "_delta_log/_seals"))
    Path(lake.uri("profiles"), f"_delta_log/{0:020}.json").unlink()
    assert [contents.table for contents in differing(lake)] == ["profiles"]
    assert seal_table_contents(lake) == ["profiles"]
    assert differing(lake) == []


def test_damage_of_messages_does_not_hide_changes_of_another_table(
    sound: GrowingLake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = sound.copy_to(tmp_path).lake
    before = open_delta_table(lake.uri("quality_results")).to_pyarrow_table().to_pylist()
    change(lake, "quality_results")
    Path(open_delta_table(lake.uri("messages")).file_uris()[0]).write_bytes(b"PAR1")
    assert maintain.main(["--lake", lake.root, "--repair"]) == ExitCode.DAMAGE
    assert "quality_results: expected rows with the sum" in capsys.readouterr().err
    after = open_delta_table(lake.uri("quality_results")).to_pyarrow_table().to_pylist()
    assert all(row in after for row in before)
    assert differing(lake) == []
