"""Copies of messages that replays have sent are dropped when nobody needs them, and not before."""

from __future__ import annotations

import datetime
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.lake.committer import open_messages_for_append
from commitlake.connectors.lake.lake import Lake
from commitlake.pipelines.maintenance.compaction import compact_table, plan_compaction
from commitlake.pipelines.replay.errors import ReplayError
from commitlake.pipelines.replay.ledger import Ledger, add_replay_event, check_has_copies, read_replay_state
from commitlake.pipelines.replay.replay_rows import OldCopies, drop_copies, find_old_copies
from commitlake.schemas.tables.replays import REPLAY_MESSAGES, ReplayEvent
from tests.support.copied_replays import COPIES, add_copied_replay, add_copies
from tests.support.lakes import data_files

NOW = datetime.datetime.now(datetime.UTC)
LATER = NOW + datetime.timedelta(days=31)
KEEP = datetime.timedelta(days=30)
WEEK = datetime.timedelta(days=7)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A lake without messages."""
    made = Lake(str(tmp_path / "lake"))
    open_messages_for_append(made)
    return made


def copies(lake: Lake) -> dict[str, int]:
    """Return the number of rows of each replay."""
    return dict(Counter(DeltaTable(lake.uri("replay_rows")).to_pyarrow_table().column("replay_id").to_pylist()))


def find(lake: Lake, now: datetime.datetime = LATER, *, drops_resumable: bool = False) -> OldCopies:
    return find_old_copies(lake, now, KEEP, WEEK, drops_resumable=drops_resumable)


@pytest.mark.parametrize(
    "events",
    [
        (ReplayEvent.STARTED, ReplayEvent.FINISHED),
        (ReplayEvent.STARTED, ReplayEvent.FINISHED, ReplayEvent.VERIFIED),
        (ReplayEvent.STARTED, ReplayEvent.STOPPED, ReplayEvent.UNDONE),
        (ReplayEvent.WITHDRAWN,),
    ],
)
def test_copies_of_a_replay_that_ended_long_ago_are_dropped(lake: Lake, events: tuple[ReplayEvent, ...]) -> None:
    add_copied_replay(lake, "ended", *events)
    assert find(lake, NOW + KEEP - WEEK) == OldCopies()
    found = find(lake)
    assert (found.replays, found.row_count, found.resumable) == (("ended",), COPIES, ())
    assert found.size_bytes > 0
    before = read_replay_state(lake, "ended")
    drop_copies(lake, found)
    assert copies(lake) == {}
    state = read_replay_state(lake, "ended")
    assert (state.event, state.detail) == (before.event, before.detail)
    with pytest.raises(ReplayError, match="dropped the messages that the replay ended sends from the lake on 20"):
        check_has_copies(state)
    assert find(lake) == OldCopies()


@pytest.mark.parametrize("event", [ReplayEvent.STOPPED, ReplayEvent.FAILED])
def test_copies_of_a_resumable_replay_are_dropped_only_on_request(lake: Lake, event: ReplayEvent) -> None:
    add_copied_replay(lake, "left", ReplayEvent.STARTED, event)
    found = find(lake)
    assert (found.replays, found.files, found.resumable) == ((), (), ("left",))
    assert find(lake, NOW, drops_resumable=True) == OldCopies()
    found = find(lake, drops_resumable=True)
    assert found.replays == ("left",)
    drop_copies(lake, found)
    assert copies(lake) == {}


def test_copies_of_a_running_replay_are_kept(lake: Lake) -> None:
    add_copied_replay(lake, "sending", ReplayEvent.STARTED)  # by this process
    found = find(lake, drops_resumable=True)
    assert (found.replays, found.resumable) == ((), ("sending",))


def test_copies_of_a_replay_that_was_killed_before_its_plan_was_written_are_dropped(lake: Lake) -> None:
    killed, begins = f"{NOW - WEEK * 2:%Y%m%d-%H%M%S}-5f2a1c", f"{NOW:%Y%m%d-%H%M%S}-5f2a1d"
    for name in (killed, begins):
        add_copies(lake, name)
    found = find(lake, NOW)
    assert (found.replays, found.unknown) == ((killed,), ())
    drop_copies(lake, found)
    assert set(copies(lake)) == {begins}


@pytest.mark.parametrize("is_compacted", [False, True])
def test_copies_under_a_chosen_name_without_a_plan_are_dropped_by_the_age_of_their_file(
    lake: Lake, *, is_compacted: bool
) -> None:
    names = ("20269999-999999-5f2a1c", "orders-again")
    for name in names:
        add_copies(lake, name)
    add_copied_replay(lake, "planned", ReplayEvent.STARTED)
    if is_compacted:
        compact_table(lake, "replay_rows", plan_compaction(lake, "replay_rows", 1 << 20), (), lambda _: None)
    written = datetime.datetime.now(datetime.UTC)
    assert find(lake, written + WEEK - datetime.timedelta(minutes=5)) == OldCopies()
    found = find(lake, written + WEEK + datetime.timedelta(minutes=5))
    assert (found.replays, found.unknown, found.row_count) == (names, (), 2 * COPIES)
    drop_copies(lake, found)
    assert set(copies(lake)) == {"planned"}


def test_copies_without_an_id_are_kept(lake: Lake) -> None:
    add_copies(lake, "")
    found = find(lake)
    assert (found.replays, found.unknown) == ((), ("",))


def test_copies_of_a_replay_with_a_damaged_plan_are_kept(lake: Lake) -> None:
    add_copied_replay(lake, "ended", ReplayEvent.FINISHED)
    add_copied_replay(lake, "damaged", ReplayEvent.FINISHED)
    DeltaTable(lake.uri("replays")).update({"plan": "'{'"}, predicate="replay_id = 'damaged' AND plan IS NOT NULL")
    found = find(lake, drops_resumable=True)
    assert (found.replays, found.unknown) == (("ended",), ("damaged",))


def test_a_file_of_several_replays_is_rewritten_without_dropped_ones(lake: Lake) -> None:
    for name in ("first", "second", "third"):
        add_copied_replay(lake, name, ReplayEvent.STARTED, ReplayEvent.FINISHED)
    compact_table(lake, "replay_rows", plan_compaction(lake, "replay_rows", 1 << 20), (), lambda _: None)
    assert len(data_files(lake.uri("replay_rows"))) == 1
    add_copied_replay(lake, "left", ReplayEvent.STARTED, ReplayEvent.STOPPED)
    add_replay_event(lake, "second", ReplayEvent.STARTED)
    drop_copies(lake, find(lake))
    assert copies(lake) == {"second": COPIES, "left": COPIES}
    kept = DeltaTable(lake.uri("replay_rows")).to_pyarrow_table().to_pylist()
    assert {row["body"] for row in kept} == {b"text"}


def test_the_next_run_completes_an_announced_drop(lake: Lake) -> None:
    add_copied_replay(lake, "ended", ReplayEvent.FINISHED)
    add_replay_event(lake, "ended", ReplayEvent.COPIES_DROPPED)
    found = find(lake, NOW)
    assert found.replays == ("ended",)
    before = DeltaTable(lake.uri("replays")).to_pyarrow_table().num_rows
    drop_copies(lake, found)
    assert copies(lake) == {}
    assert DeltaTable(lake.uri("replays")).to_pyarrow_table().num_rows == before


def test_a_lake_without_copies_has_no_old_copies(lake: Lake) -> None:
    assert find(lake) == OldCopies()
    drop_copies(lake, OldCopies())
    assert not Path(lake.uri("replays")).exists()


def test_a_replay_with_a_recent_outcome_is_resumable(lake: Lake) -> None:
    add_copied_replay(lake, "left", ReplayEvent.STARTED, ReplayEvent.STOPPED)
    ledger = Ledger(lake, "left")
    ledger.claim_replay()
    row = {"replay_id": "left", "part": 0, "broker": "broker-a", "physical_offset": 0, "sent_at": LATER}
    ledger.add_outcomes(pa.Table.from_pylist([row], arrow_schema(REPLAY_MESSAGES)))
    assert find(lake, drops_resumable=True).resumable == ("left",)
