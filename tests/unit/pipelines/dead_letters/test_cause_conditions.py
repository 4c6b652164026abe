"""Conditions for the dead letters of one cause, and without those that were sent before."""

from __future__ import annotations

import pytest

from commitlake.connectors.lake.packs.pack_stores import open_pack_store
from commitlake.pipelines.dead_letters import cause_conditions
from commitlake.pipelines.dead_letters.cause_conditions import (
    cause_condition_sql,
    exclude_letters_sql,
    find_replayed_offsets,
    select_cause,
)
from commitlake.pipelines.dead_letters.causes import group_rows_by_cause
from commitlake.pipelines.dead_letters.dead_letter_rows import count_letters, dead_letter_condition
from commitlake.schemas.errors import UsageError
from tests.support.lakes import GrowingLake


def test_a_cause_known_only_from_bodies_is_a_list_of_offsets(dead_letters: GrowingLake) -> None:
    table, packs = dead_letters.lake.table("messages"), open_pack_store(dead_letters.lake.packs)
    where = dead_letter_condition(table)
    found = group_rows_by_cause(table, where, packs, max_samples=1)
    assert {one.shape: one.messages for one in found.causes} == {"id:number": 3, "(text)": 2, "(binary)": 1}
    for cause in found.causes:
        narrowed = cause_condition_sql(table, where, cause, found.causes, packs)
        assert "physical_offset IN" in narrowed
        (only,) = group_rows_by_cause(table, narrowed, packs, max_samples=1).causes
        assert only == cause


def test_a_cause_known_from_columns_needs_no_list(dead_letters: GrowingLake) -> None:
    table = dead_letters.lake.table("messages")
    where = dead_letter_condition(table)
    found = group_rows_by_cause(table, where, None, max_samples=1)
    narrowed = cause_condition_sql(table, where, found.causes[0], found.causes, None)
    assert "physical_offset" not in narrowed
    assert count_letters(table, narrowed) == 6


def test_a_cause_has_a_number_and_a_name(dead_letters: GrowingLake) -> None:
    table, packs = dead_letters.lake.table("messages"), open_pack_store(dead_letters.lake.packs)
    causes = group_rows_by_cause(table, dead_letter_condition(table), packs, max_samples=1).causes
    assert select_cause(causes, "2") == causes[1]
    assert select_cause(causes, causes[2].digest) == causes[2]
    assert select_cause(causes, causes[0].digest[:6]) == causes[0]
    for name in (causes[0].digest[:3], "0", "4", "zz", "", "²", "9" * 5000):
        with pytest.raises(UsageError, match="expected the number of a cause from 1 to 3"):
            select_cause(causes, name)
    with pytest.raises(UsageError, match="no dead letter is selected"):
        select_cause([], "1")


def test_messages_sent_before_are_left_out(dead_letters: GrowingLake) -> None:
    table = dead_letters.lake.table("messages")
    where = dead_letter_condition(table)
    assert exclude_letters_sql(where, []) == where
    assert count_letters(table, exclude_letters_sql(where, [{"broker-a": [0]}, {"broker-a": [0], "other": [5]}])) == 5
    assert find_replayed_offsets(dead_letters.lake, table, where) == {}


def test_a_long_list_of_places_is_answered(dead_letters: GrowingLake) -> None:
    table = dead_letters.lake.table("messages")
    # One list of as many numbers ends the process: the engine's stack overflows.
    places = {"broker-a": range(17_000)}
    assert count_letters(table, exclude_letters_sql(dead_letter_condition(table), [places])) == 0


def test_a_list_of_places_is_bounded(monkeypatch: pytest.MonkeyPatch, dead_letters: GrowingLake) -> None:
    monkeypatch.setattr(cause_conditions, "MAX_LISTED", 1)
    with pytest.raises(UsageError, match="choose fewer at a time"):
        exclude_letters_sql("true", [{"broker-a": [0, 1]}])
