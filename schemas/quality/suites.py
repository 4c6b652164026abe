"""Expectation suites with which every archive run is checked.

CRITICAL is a state that a broker's log cannot have if it was read correctly, so a commit would archive an error.
DAMAGE is a loss in single queues of a log that was read correctly: a commit archives all that is left.
WARNING is a possible state that operators should know about. Normal states of a healthy store break no expectation:
queues whose archive begins in the middle, half messages, delays, retries, dead letters, topics that were deleted and
created again, inner batches, offsets lost in a range that is recorded as damaged.

Nearly all expectations of the suites rows, bodies, windows and run are CRITICAL: they check whether a run has read and
counted correctly, and a broker's log cannot produce rows that break them. None of the suites queues, times and topics
is, because a broker's log can have all of these states; they are for operators of brokers, producers and consumers.
"""

from __future__ import annotations

from collections.abc import Mapping

from commitlake.schemas.quality.expectation import (
    Expectation,
    Grain,
    Severity,
    Suite,
    expect_at_most,
    expect_never_less,
    expect_none,
)
from commitlake.schemas.tables.profile import BORN_TOLERANCE_MS, KEY_COLUMNS
from commitlake.schemas.times import FIRST_USUAL_TIME, epoch_ms

_CRITICAL, _WARNING = Severity.CRITICAL, Severity.WARNING
_OURS = "Nothing was committed. Keep the store and report this bug: CommitLake has read or counted incorrectly"
_CLOCKS = "Compare the clocks of the hosts (NTP); queries by time use the broker's clock"

ROWS = Suite(
    "rows",
    Grain.WINDOW,
    "Rules for each message; observed is the number of messages that break them",
    (
        expect_none("rows_are_there_once", "duplicate_rows", _CRITICAL, "A record was read twice", _OURS),
        expect_none(
            "numbers_are_not_negative",
            "negative_values",
            _WARNING,
            "A queue id, queue offset or retry count is negative: a client can send such a count, and damage to a "
            "record's header, which no checksum covers, can cause all of them",
            "Check the raw records with 'commitlake dump'",
        ),
        expect_none(
            "sizes_are_valid_for_records",
            "size_violations",
            _CRITICAL,
            "A record is smaller than the minimum or larger than the maximum that can be read",
            _OURS,
        ),
        expect_none(
            "bodies_fit_into_their_records",
            "body_size_violations",
            _CRITICAL,
            "A body is as large as the record that holds it",
            _OURS,
        ),
        expect_none(
            "every_message_has_an_id",
            "null_msg_id",
            _CRITICAL,
            "A message id is missing, although it is computed from host and offset",
            _OURS,
        ),
        expect_none(
            "kinds_are_known",
            "unknown_kinds",
            _CRITICAL,
            "A kind is missing, although it is computed from the topic",
            _OURS,
        ),
        expect_none(
            "every_message_has_hosts",
            "null_hosts",
            _WARNING,
            "A message has no born host or store host",
            "Check the raw records with 'commitlake dump'",
        ),
        expect_none(
            "properties_could_be_read",
            "null_properties",
            _WARNING,
            "Keys, tags and properties of some messages could not be read",
            "See the table quarantine for their bytes",
        ),
        expect_none(
            "codecs_are_known",
            "unknown_codecs",
            _WARNING,
            "A client uses an unknown compression; its bodies are kept as stored",
            "Find the producer by born_host; readers of these bodies need its codec",
        ),
        expect_none(
            "producers_set_a_time",
            "null_born_timestamp",
            _WARNING,
            "A producer's born time is outside the range that a table can store",
            "Find the producer by born_host",
        ),
        expect_none(
            "messages_are_born_before_they_are_stored",
            "born_after_store",
            _WARNING,
            f"A producer's clock is more than {BORN_TOLERANCE_MS // 60_000} minutes ahead of the broker's",
            _CLOCKS,
        ),
    ),
)

BODIES = Suite(
    "bodies",
    Grain.WINDOW,
    "Bodies are at the positions in the table",
    (
        expect_none(
            "bodies_have_a_place",
            "null_body_ref",
            _CRITICAL,
            "Messages would be in the lake without their bodies",
            _OURS,
        ),
        expect_none(
            "body_places_match_the_messages",
            "body_ref_violations",
            _CRITICAL,
            "A position in a pack has another length than the body, so another body would be read there",
            _OURS,
        ),
        expect_never_less(
            "records_are_larger_than_their_bodies",
            "bytes",
            "body_bytes",
            _CRITICAL,
            "Sizes or bodies were added up incorrectly",
            _OURS,
        ),
    ),
)

WINDOWS = Suite(
    "windows",
    Grain.WINDOW,
    "The profile itself is correct; the audit relies on it",
    (
        Expectation(
            "windows_are_unique",
            "ExpectCompoundColumnsToBeUnique",
            {"column_list": list(KEY_COLUMNS)},
            _CRITICAL,
            "Parts of a window were not merged, so the audit would compare parts",
            _OURS,
        ),
        Expectation(
            "windows_have_messages",
            "ExpectColumnMinToBeBetween",
            {"column": "messages", "min_value": 1},
            _CRITICAL,
            "There is a row for a window without messages",
            _OURS,
        ),
        Expectation(
            "brokers_are_named",
            "ExpectColumnValuesToNotBeNull",
            {"column": "broker"},
            _CRITICAL,
            "A row without a broker has no primary key",
            _OURS,
        ),
        expect_none(
            "topics_are_named",
            "unnamed",
            _WARNING,
            "A topic's name is empty, or longer than any that a broker creates",
            "See the table quarantine, which has the original bytes of a name that is not UTF-8",
        ),
        expect_never_less(
            "queue_offsets_are_in_order",
            "last_queue_offset",
            "first_queue_offset",
            _CRITICAL,
            "The smallest offset of a queue is above its largest",
            _OURS,
        ),
        expect_never_less(
            "physical_offsets_are_in_order",
            "last_physical_offset",
            "first_physical_offset",
            _CRITICAL,
            "The smallest offset of the log is above its largest",
            _OURS,
        ),
        expect_none(
            "times_lie_in_their_window",
            "seconds_outside",
            _CRITICAL,
            "Messages were counted in the wrong window",
            _OURS,
        ),
        expect_none(
            "records_fit_into_their_range",
            "bytes_beyond",
            _CRITICAL,
            "Records overlap in the log: they add up to more than the bytes from the first to the last",
            _OURS,
        ),
        Expectation(
            "messages_have_a_time",
            "ExpectColumnValuesToNotBeNull",
            {"column": "window_start"},
            _WARNING,
            "A store time is outside the range that a table can store; queries by time do not find such messages",
            "See the table quarantine for the value",
        ),
    ),
)

RUN = Suite(
    "run",
    Grain.BROKER,
    "The numbers of counted, written and read messages agree",
    (
        expect_none(
            "profile_and_files_agree",
            "uncounted_messages",
            _CRITICAL,
            "Data files contain more or fewer messages than the profile",
            _OURS,
        ),
        expect_none(
            "messages_fit_into_the_log",
            "bytes_beyond_log",
            _CRITICAL,
            "A broker's messages have more bytes in total than its log",
            _OURS,
        ),
        expect_none(
            "logs_are_intact",
            "bad_ranges",
            _WARNING,
            "Parts of a log could not be read",
            "See the table quarantine; a replica may still have these messages",
        ),
        expect_none(
            "logs_have_no_gaps",
            "missing_ranges",
            _WARNING,
            "Segments were deleted before they were archived",
            "See the table gaps; archive more often, or let the broker keep its log longer ('commitlake guard' shows "
            "how long)",
        ),
        expect_none(
            "values_fit_their_columns",
            "marked_rows",
            _WARNING,
            "Messages have values that their columns cannot store; all other values are stored",
            "See the table quarantine",
        ),
    ),
)


_DAMAGE = Severity.DAMAGE
_AHEAD_S = 600
_BACK_S = 60
_WITHOUT_ID_SHARE = 0.01
_QUEUE_SHARE = 0.9
_LARGE_RECORD = 4 << 20

QUEUES = Suite(
    "queues",
    Grain.WINDOW,
    "Each queue's offsets are consecutive, from window to window and from commit to commit; observed is their number",
    (
        expect_none(
            "no_message_is_lost",
            "unexplained_offsets",
            _DAMAGE,
            "Messages of a queue are missing in a log without damage: the broker has skipped their queue offsets",
            "Everything that the log has is archived. Check 'commitlake dump --consumequeue' of the queue; a replica "
            "of the broker may have the messages",
        ),
        expect_none(
            "no_message_is_lost_by_damage",
            "lost_offsets",
            _WARNING,
            "Messages of a queue are missing, most likely because the log is damaged or has gaps",
            "See the tables quarantine and gaps; a replica of the broker may still have the messages",
        ),
        expect_none(
            "queue_offsets_do_not_restart",
            "queue_restarts",
            _WARNING,
            "A queue's offsets went back: its topic was deleted and created again, or the broker was restored",
            "Query messages of such a queue by time, not by offset",
        ),
        expect_none(
            "queue_offsets_are_unique",
            "repeated_offsets",
            _WARNING,
            "Two messages of a queue have the same offset: consumers have received only one of them",
            "Compare 'commitlake dump --consumequeue' of the queue with the rows for these offsets",
        ),
    ),
)

TIMES = Suite(
    "times",
    Grain.WINDOW,
    "The brokers' clocks are plausible",
    (
        Expectation(
            "no_message_is_from_before_2010",
            "ExpectColumnMinToBeBetween",
            {"column": "stored_s", "min_value": epoch_ms(FIRST_USUAL_TIME) // 1000},
            _WARNING,
            "A broker stored messages with times before 2010: its clock was not set",
            _CLOCKS,
        ),
        expect_at_most(
            "no_message_is_from_the_future",
            "seconds_ahead",
            _AHEAD_S,
            _WARNING,
            f"A broker's clock is more than {_AHEAD_S // 60} minutes ahead of this machine's",
            _CLOCKS,
        ),
        expect_at_most(
            "clocks_do_not_step_back",
            "seconds_back",
            _BACK_S,
            _WARNING,
            f"A broker's clock was set back by more than {_BACK_S} s: its messages are not ordered by time",
            _CLOCKS,
        ),
    ),
)

TOPICS = Suite(
    "topics",
    Grain.TOPIC,
    "Checks for operators of producers and consumers",
    (
        expect_at_most(
            "clients_give_message_ids",
            "share_without_id",
            _WITHOUT_ID_SHARE,
            _WARNING,
            "Messages without a client id cannot be followed through retries and delays",
            "Find the producer by born_host, and update its client",
        ),
        expect_at_most(
            "queues_share_the_load",
            "largest_queue_share",
            _QUEUE_SHARE,
            _WARNING,
            "Nearly all of a topic's messages are in one of its queues: one consumer does all the work",
            "Check how the producer chooses queues (MessageQueueSelector)",
        ),
        expect_none(
            "no_dead_letters",
            "dead_letters",
            _WARNING,
            "Messages are in dead-letter topics: all retries failed",
            "See them with 'commitlake query --kind dlq'; the group is the topic's name after %DLQ%",
        ),
        expect_at_most(
            "records_are_not_huge",
            "max_size",
            _LARGE_RECORD,
            _WARNING,
            "A record is larger than the default limit of clients (4 MiB)",
            "Check whether the message is meant to be that large; other clients may refuse it",
        ),
    ),
)


SUITES = (ROWS, BODIES, WINDOWS, QUEUES, TIMES, TOPICS, RUN)


FORMER_NAMES: Mapping[str, str] = {
    "messages_are_of_this_age": "no_message_is_from_before_2010",
    "no_message_is_dead": "no_dead_letters",
    "queues_do_not_start_again": "queue_offsets_do_not_restart",
    "offsets_are_given_once": "queue_offsets_are_unique",
    "messages_are_not_of_the_future": "no_message_is_from_the_future",
    "producers_tell_their_time": "producers_set_a_time",
    "message_ids_are_there": "every_message_has_an_id",
    "hosts_are_there": "every_message_has_hosts",
    "sizes_are_of_records": "sizes_are_valid_for_records",
    "places_are_those_of_the_bodies": "body_places_match_the_messages",
    "windows_are_there_once": "windows_are_unique",
    "records_fit_into_their_stretch": "records_fit_into_their_range",
    "logs_are_whole": "logs_have_no_gaps",
}
"""The present name for each former one, which the table `quality_results` of older lakes still contains."""
