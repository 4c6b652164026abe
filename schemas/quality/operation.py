"""Suites for operators of brokers, producers and consumers: queues, times, topics.

None is CRITICAL, because a broker's log can have all of these states if it was read correctly.
"""

from __future__ import annotations

from commitlake.schemas.quality.expectation import Expectation, Grain, Severity, Suite, at_most, none_of
from commitlake.schemas.times import FIRST_USUAL_TIME, epoch_ms

_DAMAGE, _WARNING = Severity.DAMAGE, Severity.WARNING
_CLOCKS = "Compare the clocks of the hosts (NTP); queries by time use the broker's clock"
_AHEAD_S = 600
_BACK_S = 60
_WITHOUT_ID_SHARE = 0.01
_QUEUE_SHARE = 0.9
_LARGE_RECORD = 4 << 20

QUEUES = Suite(
    "queues",
    Grain.WINDOW,
    "Each queue's offsets are consecutive, from window to window; observed is the number of offsets",
    (
        none_of(
            "no_message_is_lost",
            "unexplained_offsets",
            _DAMAGE,
            "Messages of a queue are missing in a log without damage: the broker has skipped their queue offsets",
            "Everything that the log has is archived. Check 'commitlake dump --consumequeue' of the queue; a replica "
            "of the broker may have the messages",
        ),
        none_of(
            "no_message_is_lost_by_damage",
            "lost_offsets",
            _WARNING,
            "Messages of a queue are missing, most likely because the log is damaged or has gaps",
            "See the tables quarantine and gaps; a replica of the broker may still have the messages",
        ),
        none_of(
            "queue_offsets_do_not_restart",
            "queue_restarts",
            _WARNING,
            "A queue's offsets went back: its topic was deleted and created again, or the broker was restored",
            "Query messages of such a queue by time, not by offset",
        ),
        none_of(
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
        at_most(
            "no_message_is_from_the_future",
            "seconds_ahead",
            _AHEAD_S,
            _WARNING,
            f"A broker's clock is more than {_AHEAD_S // 60} minutes ahead of this machine's",
            _CLOCKS,
        ),
        at_most(
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
        at_most(
            "clients_give_message_ids",
            "share_without_id",
            _WITHOUT_ID_SHARE,
            _WARNING,
            "Messages without a client id cannot be followed through retries and delays",
            "Find the producer by born_host, and update its client",
        ),
        at_most(
            "queues_share_the_load",
            "largest_queue_share",
            _QUEUE_SHARE,
            _WARNING,
            "Nearly all of a topic's messages are in one of its queues: one consumer does all the work",
            "Check how the producer chooses queues (MessageQueueSelector)",
        ),
        none_of(
            "no_dead_letters",
            "dead_letters",
            _WARNING,
            "Messages are in dead-letter topics: all retries failed",
            "See them with 'commitlake query --kind dlq'; the group is the topic's name after %DLQ%",
        ),
        at_most(
            "records_are_not_huge",
            "max_size",
            _LARGE_RECORD,
            _WARNING,
            "A record is larger than the default limit of clients (4 MiB)",
            "Check whether the message is meant to be that large; other clients may refuse it",
        ),
    ),
)
