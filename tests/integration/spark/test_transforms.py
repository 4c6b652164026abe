"""Spark gives the results of transforms that the engine without a JVM gives."""

# ruff: noqa: F401 (pytest finds these tests here, and gives them this folder's session)
from __future__ import annotations

from tests.unit.pipelines.transforms.test_columns import test_columns_are_those_declared
from tests.unit.pipelines.transforms.test_dead_letters import test_dead_letters_are_messages_with_more_columns
from tests.unit.pipelines.transforms.test_group_offsets import (
    test_many_offsets_in_queues_that_do_not_exist_are_left_out,
    test_offsets_are_between_those_of_two_snapshots,
)
from tests.unit.pipelines.transforms.test_group_subscriptions import test_subscriptions_are_the_last_ones_that_are_known
from tests.unit.pipelines.transforms.test_lag import test_lag_is_summed_by_group
from tests.unit.pipelines.transforms.test_moments import test_the_latest_rows_hold_at_each_moment
from tests.unit.pipelines.transforms.test_queue_spans import test_queues_end_at_the_last_message_of_their_last_topic
from tests.unit.pipelines.transforms.test_rates import (
    test_rates_are_for_the_seconds_that_were_asked_for,
    test_windows_are_counted,
)
from tests.unit.pipelines.transforms.test_stored_lag import (
    test_a_row_holds_until_the_next_one_or_the_end_of_its_hour,
    test_whole_hours_have_rows_of_their_own,
)
