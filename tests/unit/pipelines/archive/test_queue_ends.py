"""A jump of a queue's offsets between two commits is found like one within a commit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from deltalake import DeltaTable

from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.runtime.local_runner import HERE
from commitlake.pipelines.archive import queue_ends
from commitlake.pipelines.archive.commit_series import archive_concurrently
from commitlake.pipelines.archive.result import Result
from commitlake.pipelines.archive.run import Config, OnBadRange, plan_work
from commitlake.pipelines.quality import profile_columns
from commitlake.schemas.layouts.rocketmq.commitlog import serialize_message
from commitlake.schemas.layouts.rocketmq.sysflag import TransactionType
from commitlake.schemas.tables.profile import WINDOW_SECONDS
from tests.support.logs import BROKER_HOST, START_MS, new_message, write_store

JUMPED = {"queues.no_message_is_lost": 1, "queues.no_message_is_lost_by_damage": 1}
WENT_BACK = {"queues.queue_offsets_do_not_restart": 1}
SEGMENT = 1 << 16
WINDOW = 1000 * WINDOW_SECONDS


class Broker:
    """A store whose queue offsets are given with each message, and its lake."""

    def __init__(self, folder: Path) -> None:
        self.log = bytearray()
        self.config = Config(str(folder / "store"), Lake(str(folder / "lake")), "a")
        self._segments = folder / "store"

    def write(
        self, offsets: Sequence[int], topic: str = "orders", *, later_ms: int | None = None, sys_flag: int = 0
    ) -> None:
        """Append messages with these queue offsets, stored some time after the first one."""
        for offset in offsets:
            self.log += serialize_message(
                new_message(0, topic=topic, queue_id=0, sys_flag=sys_flag),
                queue_offset=offset,
                physical_offset=len(self.log),
                store_timestamp=START_MS + (len(self.log) if later_ms is None else later_ms),
                store_host=BROKER_HOST,
            )
        write_store(self._segments, [(0, bytes(self.log).ljust(SEGMENT, b"\0"))])

    def archive(self, config: Config | None = None) -> dict[str, int]:
        """Archive what is new in one process, and return the number of violations of expectations about queues."""
        config = config or self.config
        result = archive_concurrently(HERE, config, plan_work(config))
        return violations(result, config.lake)


def violations(result: Result, lake: Lake) -> dict[str, int]:
    """Return how many rows of the profile violate each expectation about queues, in the newest commit."""
    rows = DeltaTable(lake.uri("quality_results")).to_pyarrow_table().to_pylist()
    newest = max(rows, key=lambda row: row["judged_at"])["run_id"]
    assert result.sequence
    return {
        f"{row['suite']}.{row['expectation']}": row["unexpected_count"]
        for row in rows
        if row["run_id"] == newest and row["suite"] == "queues" and row["unexpected_count"]
    }


@pytest.fixture(params=["same process", "new process"])
def broker(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Broker:
    """A broker that is archived by one process, or by a process for each run, which has to read the ends of queues."""
    found = Broker(tmp_path)
    if request.param == "new process":
        archive = Broker.archive

        def fresh(self: Broker, config: Config | None = None) -> dict[str, int]:
            given = config or self.config
            return archive(self, Config(given.store, given.lake, given.broker, quality=given.quality))

        monkeypatch.setattr(Broker, "archive", fresh)
    return found


@pytest.mark.some_cases(1)
def test_a_jump_between_two_runs_is_reported(broker: Broker) -> None:
    broker.write([0, 1, 2])
    broker.write([0, 1], "sound")
    assert broker.archive() == {}
    broker.write([5, 6])
    broker.write([2], "sound")
    assert broker.archive() == JUMPED
    broker.write([7])
    assert broker.archive() == {}


@pytest.mark.some_cases(1)
def test_offsets_that_go_back_between_two_runs_are_reported(broker: Broker) -> None:
    broker.write([7, 8])
    assert broker.archive() == {}
    broker.write([0, 1])
    assert broker.archive() == WENT_BACK
    broker.write([2])
    assert broker.archive() == {}


@pytest.mark.some_cases(1)
def test_a_queue_without_messages_in_a_run_is_compared_with_an_earlier_run(broker: Broker) -> None:
    broker.write([0, 1], "rare")
    assert broker.archive() == {}
    for offset in range(3):
        broker.write([offset])
        assert broker.archive() == {}
    broker.write([3], "rare")
    assert broker.archive() == JUMPED


@pytest.mark.some_cases(1)
def test_a_topic_that_begins_with_any_offset_is_no_jump(broker: Broker) -> None:
    broker.write([0])
    assert broker.archive() == {}
    broker.write([100], "older than the lake")
    assert broker.archive() == {}


@pytest.mark.some_cases(1)
def test_nothing_is_compared_across_a_run_without_a_profile(broker: Broker) -> None:
    broker.write([0, 1])
    assert broker.archive() == {}
    broker.write([2, 3])
    archive_without_profile(broker)
    broker.write([4])
    assert broker.archive() == {}
    broker.write([9])
    assert broker.archive() == JUMPED


def archive_without_profile(broker: Broker) -> None:
    config = Config(broker.config.store, broker.config.lake, "a", quality=False)
    assert archive_concurrently(HERE, config, plan_work(config)).sequence


@pytest.mark.some_cases(1)
def test_damage_explains_the_messages_that_a_later_run_lacks(broker: Broker) -> None:
    broker.write([0, 1])
    start = len(broker.log)
    broker.write([2])
    broker.log[start + 20 : start + 40] = b"\xff" * 20
    broker.write([0], "other")
    assert broker.archive().keys() <= {"queues.no_message_is_lost_by_damage"}
    broker.write([3])
    assert broker.archive() == {}


@pytest.mark.some_cases(1)
def test_a_record_without_a_queue_offset_is_no_end_of_its_queue(broker: Broker) -> None:
    broker.write([0])
    broker.write([1], later_ms=2 * WINDOW)
    broker.write([0], later_ms=1, sys_flag=TransactionType.PREPARED)  # a client set it, and the clock was set back
    assert broker.archive() == {}
    broker.write([2], later_ms=2 * WINDOW)
    assert broker.archive() == {}


@pytest.mark.some_cases(1)
def test_the_end_of_a_queue_is_not_known_after_a_window_with_too_many_ranges(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profile_columns, "MAX_RUNS", 2)
    broker.write([0])
    assert broker.archive() == {}
    broker.write([5, 5, 5])
    broker.archive()
    broker.write([9])
    assert broker.archive() == {}
    broker.write([11])
    assert broker.archive() == JUMPED


@pytest.mark.some_cases(1)
def test_what_was_observed_is_shown_alike_in_every_run(broker: Broker) -> None:
    broker.write([0, 1, 2])
    broker.archive()
    first = observed(broker.config.lake)
    broker.write([3, 4, 5])
    broker.archive()
    assert observed(broker.config.lake) == first


def observed(lake: Lake) -> dict[str, str]:
    """Return what each expectation observed in the newest run, except about times."""
    rows = DeltaTable(lake.uri("quality_results")).to_pyarrow_table().to_pylist()
    newest = max(rows, key=lambda row: row["judged_at"])["run_id"]
    return {
        f"{row['suite']}.{row['expectation']}": row["observed_value"]
        for row in rows
        if row["run_id"] == newest and row["suite"] != "times"
    }


@pytest.mark.some_cases(1)
def test_many_small_files_are_read_only_in_part(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_ends, "_MAX_FILES", 2)
    broker.write([0], "rare")
    for offset in range(3):
        broker.write([offset])
        assert broker.archive() == {}
    broker.write([4])
    assert broker.archive() == JUMPED


def test_commits_of_one_run_are_compared(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    broker.write([0, 1, 2, 5, 6, 7])
    size = len(broker.log) // 2
    config = Config(broker.config.store, broker.config.lake, "a", commit_bytes=size, on_corrupt=OnBadRange.KEEP)
    result = archive_concurrently(HERE, config, plan_work(config))
    assert result.sequence == 2
    assert [sentence for sentence in result.warnings if "broker has skipped their queue offsets" in sentence]
