"""Warnings about lost messages: jobs whose answers may lack them print a warning, and have exit code 3."""

from __future__ import annotations

import datetime
from collections.abc import Collection

from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.lost_ranges import describe_lost_ranges, lost_ranges
from commitlake.jobs.arguments.similar_names import print_warning

OF_MESSAGES = frozenset({"messages", "message_keys", "edges"})
"""Tables that lack rows of lost messages; others, such as `topic_minutes`, still count these."""


def warn_of_lost_ranges(
    job: str,
    lake: Lake,
    brokers: Collection[str] = (),
    start: datetime.datetime | None = None,
    end: datetime.datetime | None = None,
) -> list[str]:
    """Warn of lost parts of the log that may have contained messages of the given brokers and time range.

    Args:
        job: name of the job.
        brokers: the brokers; all if empty.
        start: first time at which the messages were stored; None for no bound.
        end: end of these times; None for no bound.

    Returns:
        The sentences, for output in JSON.
    """
    sentences = describe_lost_ranges(lost_ranges(lake, brokers, start, end))
    for sentence in sentences:
        print_warning(f"commitlake {job}", sentence)
    return sentences
