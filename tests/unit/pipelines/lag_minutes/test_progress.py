"""The log of `lag_minutes` records what the table has, and what it was computed from."""

from __future__ import annotations

from pathlib import Path

from commitlake.connectors.lake.archive_commits import StoreProgress
from commitlake.connectors.lake.committer import commit_with_transaction
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.store_progress import PulledProgress
from commitlake.pipelines.lag_minutes.progress import (
    APPLICATION_ID,
    FOLLOWED,
    NOTHING,
    MinutesProgress,
    StoreMinutes,
    checksum_topics,
    read_progress,
)


def test_progress_is_read_as_it_was_recorded(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    versions = {table: number - 1 for number, table in enumerate(FOLLOWED)}
    stores = {"broker-a": StoreMinutes(28_333_440, 1 << 50, 7), "b/c": StoreMinutes()}
    progress = MinutesProgress(versions, stores)
    numbers = progress.transaction_numbers()
    step = (None, numbers.pop(APPLICATION_ID))
    assert commit_with_transaction(
        lake,
        "lag_minutes",
        [],
        APPLICATION_ID,
        step,
        other_transactions={name: (0, new) for name, new in numbers.items()},
    )
    assert read_progress(lake.table("lag_minutes"), ["broker-a", "b/c"]) == progress


def test_without_a_table_nothing_is_recorded() -> None:
    found = read_progress(None, ["broker-a"])
    assert found.stores == {"broker-a": StoreMinutes(NOTHING, 0, 0)}
    assert set(found.versions.values()) == {-1}
    assert set(found.transaction_numbers().values()) == {0}


def test_archived_topics_have_a_number() -> None:
    def of(topics: tuple[str, ...] | None) -> int:
        return checksum_topics(StoreProgress(7, pulled=PulledProgress(topics=topics)))

    assert checksum_topics(StoreProgress(7)) == of(None) == 0
    assert of(("a", "b")) == of(("b", "a"))
    assert len({of(None), of(()), of(("a",)), of(("a", "b")), of(("c",))}) == 5
