"""Suites that tell those who run brokers, producers and consumers what they want to know: queues, times, topics.

Only one is CRITICAL: messages that are missing in a log without damage.
"""

from __future__ import annotations

from commitlake.schemas.quality.expectation import Expectation, Grain, Severity, Suite, at_most, none_of

_CRITICAL, _WARNING = Severity.CRITICAL, Severity.WARNING
_CLOCKS = "Compare the clocks of the hosts (NTP); times asked of the lake are the broker's"
_FIRST_TIME_S = 1_262_304_000  # 2010-01-01, before the first RocketMQ
_AHEAD_S = 600
_BACK_S = 60
_WITHOUT_ID_SHARE = 0.01
_QUEUE_SHARE = 0.9
_LARGE_RECORD = 4 << 20

QUEUES = Suite(
    "queues",
    Grain.WINDOW,
    "Each queue's offsets follow one another, from window to window; observed is the number of offsets",
    (
        none_of(
            "no_message_is_lost",
            "unexplained_offsets",
            _CRITICAL,
            "Messages of a queue are missing in a log without damage: they were not read, or never written",
            "Nothing was committed. Compare `dump --consumequeue` of the queue; if the broker lost them itself, "
            "archive with --no-quality",
        ),
        none_of(
            "no_message_is_lost_by_damage",
            "lost_offsets",
            _WARNING,
            "Messages of a queue are missing, and the log is damaged or has gaps: they are most likely there",
            "See the tables quarantine and gaps; a replica of the broker may still have them",
        ),
        none_of(
            "queues_do_not_start_again",
            "queue_restarts",
            _WARNING,
            "A queue's offsets went back: its topic was deleted and made anew, or the broker was restored",
            "Look messages of such a queue up by time, not by offset",
        ),
        none_of(
            "offsets_are_given_once",
            "repeated_offsets",
            _WARNING,
            "Two messages of a queue have one offset: consumers have seen only one of them",
            "Compare `dump --consumequeue` of the queue with the rows of its offsets",
        ),
    ),
)

TIMES = Suite(
    "times",
    Grain.WINDOW,
    "The brokers' clocks can be believed",
    (
        Expectation(
            "messages_are_of_this_age",
            "ExpectColumnMinToBeBetween",
            {"column": "stored_s", "min_value": _FIRST_TIME_S},
            _WARNING,
            "A broker stored messages before there were such brokers: its clock was not set",
            _CLOCKS,
        ),
        at_most(
            "messages_are_not_of_the_future",
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
            f"A broker's clock was put back by more than {_BACK_S} s: times do not tell its messages' order",
            _CLOCKS,
        ),
    ),
)

TOPICS = Suite(
    "topics",
    Grain.TOPIC,
    "What those who run producers and consumers want to know",
    (
        at_most(
            "clients_give_message_ids",
            "share_without_id",
            _WITHOUT_ID_SHARE,
            _WARNING,
            "Messages without a client id cannot be followed through retries and delays",
            "Find the producer by born_host, and bring its client up to date",
        ),
        at_most(
            "queues_share_the_load",
            "largest_queue_share",
            _QUEUE_SHARE,
            _WARNING,
            "Nearly all of a topic's messages lie in one of its queues: one consumer does all the work",
            "Look at how the producer chooses queues (MessageQueueSelector)",
        ),
        none_of(
            "no_message_is_dead",
            "dead_letters",
            _WARNING,
            "Consumers gave messages up after all retries",
            "`query --kind dlq` shows them; their group is the topic's name behind %DLQ%",
        ),
        at_most(
            "records_are_not_huge",
            "max_size",
            _LARGE_RECORD,
            _WARNING,
            "A record is larger than what clients send by default (4 MiB)",
            "Ask whether the message is meant to be that large; other clients may refuse it",
        ),
    ),
)
