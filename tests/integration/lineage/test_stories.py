"""Stories from a real broker's store: they have exactly the actions of its clients."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest

from commitlake.connectors.lake.lake import Lake
from commitlake.pipelines.edges.table_update import follow_edges
from commitlake.pipelines.lineage.history_reader import read_story
from commitlake.pipelines.lineage.message_history import Evidence, OutcomeState, Question, Story
from commitlake.pipelines.message_keys.table_update import catch_up_keys
from tests.servers.recording import FAILING_GROUP, MAX_RECONSUME_TIMES, RecordedStore
from tests.support.lakes import archive_store

BROKER = "b"
STATES = {
    "transaction_commit": {OutcomeState.UNKNOWN},  # committed, and no group is known to consume it
    "transaction_rollback": {OutcomeState.ROLLED_BACK},
    "transaction_pending": {
        OutcomeState.PREPARED,
        OutcomeState.CANCELLED,
    },  # the broker may have given it up by its end
}


@pytest.fixture(scope="module")
def lake(recorded_store: RecordedStore, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake of the recorded store."""
    lake = Lake(str(tmp_path_factory.mktemp("stories") / "lake"))
    archive_store(recorded_store.store, lake, BROKER)
    catch_up_keys(lake)
    follow_edges(lake)
    return lake


def records_by_key(store: RecordedStore) -> dict[str, list[dict[str, Any]]]:
    found = defaultdict(list)
    for row in store.decoded:
        if row["unique_key"] and row["topic"] != "RMQ_SYS_TRACE_TOPIC":
            found[row["unique_key"]].append(row)
    return found


def offsets_of(story: Story) -> set[int]:
    return {record.physical_offset for record in story.records if record.kind != "op"}


def test_a_failing_message_has_a_step_for_each_attempt_until_it_is_dead(
    lake: Lake, recorded_store: RecordedStore
) -> None:
    families = records_by_key(recorded_store)
    failed = {told["unique_key"] for told in recorded_store.failed}
    assert failed
    for unique_key in sorted(failed):
        story = read_story(lake, Question(message_id=unique_key))
        assert offsets_of(story) == {row["physical_offset"] for row in families[unique_key]}
        tries = [step.consumption.attempt for step in story.steps if step.consumption is not None]
        assert tries == list(range(1, MAX_RECONSUME_TIMES + 2))
        (dead,) = (outcome for outcome in story.outcomes if outcome.group == FAILING_GROUP)
        assert (dead.state, dead.proof) == (OutcomeState.DEAD, Evidence.RECORDS)
        assert dead.text.endswith("not redriven")


@pytest.mark.parametrize("kind", STATES)
def test_transactions_have_their_state(lake: Lake, recorded_store: RecordedStore, kind: str) -> None:
    families = records_by_key(recorded_store)
    keys = [row["unique_key"] for row in recorded_store.sent if row["kind"] == kind]
    assert keys
    for unique_key in keys:
        story = read_story(lake, Question(message_id=unique_key))
        assert offsets_of(story) == {row["physical_offset"] for row in families[unique_key]}
        assert STATES[kind] & {outcome.state for outcome in story.outcomes}
        assert OutcomeState.CONSUMED not in {outcome.state for outcome in story.outcomes}


def test_no_story_has_a_record_of_another_message(lake: Lake, recorded_store: RecordedStore) -> None:
    families = records_by_key(recorded_store)
    for unique_key, rows in sorted(families.items())[::7]:
        story = read_story(lake, Question(place=(BROKER, rows[0]["physical_offset"])))
        assert offsets_of(story) == {row["physical_offset"] for row in rows}, unique_key
