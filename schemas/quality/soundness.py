"""Suites that tell whether a run has read and counted rightly: rows, bodies, windows, run.

Nearly all are CRITICAL: a log that a broker wrote gives no such rows, so that it is our mistake, or damage unseen.
"""

from __future__ import annotations

from commitlake.schemas.quality.expectation import Expectation, Grain, Severity, Suite, never_less, none_of
from commitlake.schemas.tables.profile import BORN_TOLERANCE_MS, KEY_COLUMNS

_CRITICAL, _WARNING = Severity.CRITICAL, Severity.WARNING
_OURS = "Nothing was committed. Keep the store and report this: CommitLake has read or counted wrongly"
_CLOCKS = "Compare the clocks of the hosts (NTP); times asked of the lake are the broker's"

ROWS = Suite(
    "rows",
    Grain.WINDOW,
    "Rules that each message keeps; observed is the number of messages that break them",
    (
        none_of("rows_are_there_once", "duplicate_rows", _CRITICAL, "A record was read twice", _OURS),
        none_of(
            "numbers_are_not_negative",
            "negative_values",
            _WARNING,
            "A queue, a queue offset or a count of retries is below 0: a client can send such a count, and damage to a "
            "record's header, which no checksum covers, can make all of them",
            "Look at the messages' raw records with `dump`",
        ),
        none_of(
            "sizes_are_of_records",
            "size_violations",
            _CRITICAL,
            "A record is smaller than the smallest or larger than what is read at all",
            _OURS,
        ),
        none_of(
            "bodies_fit_into_their_records",
            "body_size_violations",
            _CRITICAL,
            "A body is as large as the record that holds it",
            _OURS,
        ),
        none_of(
            "message_ids_are_there",
            "null_msg_id",
            _CRITICAL,
            "Message ids follow from host and offset: none can be absent",
            _OURS,
        ),
        none_of(
            "kinds_are_known", "unknown_kinds", _CRITICAL, "Kinds follow from topics: there is one for each", _OURS
        ),
        none_of(
            "hosts_are_there",
            "null_hosts",
            _WARNING,
            "A message does not say who sent or stored it",
            "Look at the messages' raw records with `dump`",
        ),
        none_of(
            "properties_could_be_read",
            "null_properties",
            _WARNING,
            "Keys, tags and properties of some messages are unknown",
            "See the table quarantine for what their bytes were",
        ),
        none_of(
            "codecs_are_known",
            "unknown_codecs",
            _WARNING,
            "A client compresses in a way that no released client does; its bodies are kept as stored",
            "Find the producer by born_host; what reads these bodies has to know its codec",
        ),
        none_of(
            "producers_tell_their_time",
            "null_born_timestamp",
            _WARNING,
            "A producer's time is no time that a table can hold",
            "Find the producer by born_host",
        ),
        none_of(
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
    "Bodies are where the table says",
    (
        none_of(
            "bodies_have_a_place",
            "null_body_ref",
            _CRITICAL,
            "Messages would be in the lake without their bodies",
            _OURS,
        ),
        none_of(
            "places_are_those_of_the_bodies",
            "body_ref_violations",
            _CRITICAL,
            "A place in a pack is of another length than the body: another body would be read there",
            _OURS,
        ),
        never_less(
            "records_are_larger_than_their_bodies",
            "bytes",
            "body_bytes",
            _CRITICAL,
            "Sizes or bodies were added up wrongly",
            _OURS,
        ),
    ),
)

WINDOWS = Suite(
    "windows",
    Grain.WINDOW,
    "The profile itself is sound: the audit stands on it",
    (
        Expectation(
            "windows_are_there_once",
            "ExpectCompoundColumnsToBeUnique",
            {"column_list": list(KEY_COLUMNS)},
            _CRITICAL,
            "Parts of a window were not put together: the audit would compare halves",
            _OURS,
        ),
        Expectation(
            "windows_have_messages",
            "ExpectColumnMinToBeBetween",
            {"column": "messages", "min_value": 1},
            _CRITICAL,
            "A window without messages has no row",
            _OURS,
        ),
        Expectation(
            "brokers_are_named",
            "ExpectColumnValuesToNotBeNull",
            {"column": "broker"},
            _CRITICAL,
            "A row without its broker has no primary key",
            _OURS,
        ),
        Expectation(
            "topics_are_named",
            "ExpectColumnValueLengthsToBeBetween",
            {"column": "topic", "min_value": 1, "max_value": 255},
            _WARNING,
            "A topic's name is empty, or longer than any that a broker makes",
            "See the table quarantine: a name that is not UTF-8 is there as it was",
        ),
        never_less(
            "queue_offsets_are_in_order",
            "last_queue_offset",
            "first_queue_offset",
            _CRITICAL,
            "The least offset of a queue is above its greatest",
            _OURS,
        ),
        never_less(
            "physical_offsets_are_in_order",
            "last_physical_offset",
            "first_physical_offset",
            _CRITICAL,
            "The least offset of the log is above its greatest",
            _OURS,
        ),
        none_of(
            "times_lie_in_their_window",
            "seconds_outside",
            _CRITICAL,
            "Messages were counted in another window than their own",
            _OURS,
        ),
        none_of(
            "records_fit_into_their_stretch",
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
            "The broker stored a time that no table can hold; no question by time finds such messages",
            "See the table quarantine for the value",
        ),
    ),
)

RUN = Suite(
    "run",
    Grain.BROKER,
    "What was counted is what was written and what was read",
    (
        none_of(
            "profile_and_files_agree",
            "uncounted_messages",
            _CRITICAL,
            "Data files hold more or fewer messages than the profile",
            _OURS,
        ),
        none_of(
            "messages_fit_into_the_log",
            "bytes_beyond_log",
            _CRITICAL,
            "A broker's messages add up to more bytes than its log has",
            _OURS,
        ),
        none_of(
            "logs_are_intact",
            "bad_ranges",
            _WARNING,
            "Stretches of a log could not be read",
            "See the table quarantine; a replica may still have them",
        ),
        none_of(
            "logs_are_whole",
            "missing_ranges",
            _WARNING,
            "Segments were deleted before they were archived",
            "See the table gaps; archive more often, or let the broker keep its log longer (`guard` tells)",
        ),
        none_of(
            "values_fit_their_columns",
            "marked_rows",
            _WARNING,
            "Messages have values that no column can hold; all else of them is there",
            "See the table quarantine",
        ),
    ),
)
