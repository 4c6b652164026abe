"""Only files that a step needs are read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from unittest.mock import Mock

import pyarrow as pa
import pytest

from commitlake.connectors.lake.delta_log.versions import AddedFile
from commitlake.connectors.lake.paths import LakeError
from commitlake.connectors.lake.rows.table_rows import TableRows
from commitlake.connectors.runtime.local_runner import HERE
from commitlake.pipelines.archive.run import Config, run_archive
from commitlake.pipelines.edges.row_lookup import file_may_need_edges, may_need_edges
from commitlake.pipelines.edges.table_update import follow_edges
from commitlake.schemas.layouts.rocketmq.commitlog import NewMessage
from tests.support.lakes import GrowingLake
from tests.support.message_families import Family, committed, dead, delayed, delivered, half, op, pub, record, trace
from tests.support.table_damages import damage

ONE_ROLE = pytest.mark.long("the first of these records, which suffices, is tried alone each time")


@pytest.fixture
def family(tmp_path: Path) -> Family:
    """A store without records."""
    return Family(GrowingLake(tmp_path), [])


def read_of(family: Family, monkeypatch: pytest.MonkeyPatch, *runs: Sequence[NewMessage]) -> list[int]:
    """Archive in some runs of a file each, link all at once, and return the runs whose files were read."""
    names: list[str] = []
    for messages in runs:
        family.write(*messages)
        family.growing.archive()
    found: list[str] = []
    read = TableRows.read_file

    def noted(self: TableRows, file: AddedFile) -> object:
        found.append(file.name)
        return read(self, file)

    with monkeypatch.context() as patched:
        patched.setattr(TableRows, "read_file", noted)
        follow_edges(family.growing.lake)
    actions = family.growing.lake.table("messages").get_add_actions(flatten=True)
    offsets = dict(zip(actions["path"].to_pylist(), actions["min.physical_offset"].to_pylist(), strict=True))
    names = sorted(offsets, key=lambda name: offsets[name])
    return sorted(names.index(name) for name in found)


def plain(count: int, first: int = 0) -> list[NewMessage]:
    return [record(f"P{number}") for number in range(first, first + count)]


def test_a_file_without_a_record_that_has_a_role_is_not_read(family: Family, monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_of(family, monkeypatch, plain(3), plain(3, 3)) == []
    assert family.steps() == []
    # The version is still reached.
    assert follow_edges(family.growing.lake).version == family.growing.lake.table("messages").version()


@pytest.mark.parametrize(
    "special",
    [
        [delayed("D1")],
        pytest.param([delayed("D1"), delivered("D1", 10)], marks=ONE_ROLE),
        [half("H1")],
        pytest.param([half("H1"), committed("H1", 0)], marks=ONE_ROLE),
        [op([0])],
        [dead("D1", 3, 0)],
        [trace(pub("T1", None))],
        [record("R1", properties={"REPLAY_ID": "r", "ORIGIN_BROKER": "b", "ORIGIN_PHYSICAL_OFFSET": 0})],
    ],
    ids=["delayed", "delivered", "half", "committed", "op", "dead", "trace", "replayed"],
)
def test_a_file_with_a_record_that_has_a_role_is_read(
    family: Family, monkeypatch: pytest.MonkeyPatch, special: list[NewMessage]
) -> None:
    assert read_of(family, monkeypatch, plain(3), [*plain(3, 3), *special], plain(3, 6)) == [1]


@pytest.mark.parametrize(
    "special",
    [
        [],
        [delayed("D1")],
        [delivered("D1", 10)],
        [half("H1")],
        [committed("H1", 0)],
        [record("R1", properties={"REPLAY_ID": "r", "ORIGIN_BROKER": "b", "ORIGIN_PHYSICAL_OFFSET": 0})],
    ],
    ids=["plain", "delayed", "delivered", "half", "committed", "replayed"],
)
def test_a_file_is_looked_at_only_if_the_task_that_wrote_it_found_such_a_record(
    family: Family, monkeypatch: pytest.MonkeyPatch, special: list[NewMessage]
) -> None:
    family.write(*plain(3), *special)
    look = Mock(wraps=file_may_need_edges)
    monkeypatch.setattr("commitlake.pipelines.edges.table_update.file_may_need_edges", look)
    growing = family.growing
    run_archive(HERE, Config(str(growing.store), growing.lake, quality=False))
    assert look.call_count == bool(special)
    assert all(file_may_need_edges(*call.args) for call in look.call_args_list)


def test_a_name_that_only_other_rows_of_a_dictionary_have_gives_no_role() -> None:
    names = pa.DictionaryArray.from_arrays(pa.array([0, 0, 1], pa.int32()), ["KEYS", "DELAY"])
    maps = pa.MapArray.from_arrays([0, 1, 2, 3], names, pa.array(["a", "b", "3"]))
    rows = pa.table({"kind": ["normal"] * 3, "sys_flag": pa.array([0] * 3, pa.int32()), "properties": maps})
    assert [may_need_edges(rows.slice(first, 1).combine_chunks()) for first in range(3)] == [False, False, True]


def test_a_file_with_the_record_of_a_traced_message_is_read(family: Family, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = plain(3), [*plain(3, 3), record("T1")], [trace(pub("T1", None))], plain(3, 6)
    assert read_of(family, monkeypatch, *runs) == [1, 2]
    assert [step[:3] for step in family.steps()] == [("produced", None, 6)]


def test_a_file_with_the_record_that_an_open_step_waits_for_is_read(
    family: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert read_of(family, monkeypatch, [trace(pub("T1", None))]) == [0]
    assert read_of(family, monkeypatch, plain(3), [record("T1")], plain(3, 3)) == [2]
    assert [step[:4] for step in family.steps()] == [("produced", None, 4, None)]


@pytest.mark.parametrize("how", ["cut", "zeroed"])
def test_a_damaged_file_is_an_error_and_not_skipped(family: Family, how: str) -> None:
    family.write(*plain(20))
    family.growing.archive()
    (path,) = Path(family.growing.lake.uri("messages")).rglob("*.parquet")
    damage(path, how)
    with pytest.raises(LakeError, match=path.name):
        follow_edges(family.growing.lake)
