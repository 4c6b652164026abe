"""From arguments to the messages that are chosen."""

from __future__ import annotations

import argparse
from pathlib import Path

from commitlake.connectors.lake.archive_log import read_last_commit
from commitlake.connectors.lake.paths import LakePaths
from commitlake.jobs.cli.command import JobError
from commitlake.jobs.cli.sizes import size_text
from commitlake.pipelines.query.sql import Conditions
from commitlake.pipelines.replay.consumed import offsets_of
from commitlake.pipelines.replay.selection import Selection, condition

_MAX_KEY_FILE_BYTES = 64 << 20
_MAX_KEYS = 10_000
_BLANKS = " \t\r"


def chosen_condition(arguments: argparse.Namespace, lake: LakePaths) -> str:
    """Return SQL for the messages that the arguments choose.

    Raises:
        JobError: if a file of keys cannot be read, or has too many.
        ReplayError: if what they choose cannot be sent.
    """
    offsets = None
    if arguments.not_consumed_by is not None:
        brokers = arguments.broker or _stores(lake)
        places = offsets_of(lake, arguments.not_consumed_by, brokers, arguments.offsets_at)
        wanted = set(arguments.topic)
        offsets = {place: offset for place, offset in places.items() if not wanted or place[1] in wanted}
    asked = Conditions(
        topics=arguments.topic,
        queue_id=arguments.queue,
        keys=[*arguments.key, *_keys_in(arguments.key_file)],
        brokers=arguments.broker,
        start=arguments.start,
        end=arguments.end,
        where=arguments.where,
    )
    return condition(
        Selection(
            asked,
            tags=arguments.tag,
            ids=arguments.id,
            born=arguments.born,
            dead_letters_of=arguments.dlq_of,
            offsets=offsets,
            has_replayed=arguments.include_replayed,
        )
    )


def _stores(lake: LakePaths) -> list[str]:
    last = read_last_commit(lake.messages)
    return [] if last is None else sorted(last.stores)


def _keys_in(path: str | None) -> list[str]:
    if path is None:
        return []
    try:
        with Path(path).open("rb") as file:
            data = file.read(_MAX_KEY_FILE_BYTES + 1)
        keys = [line.strip(_BLANKS) for line in data.decode().split("\n")]
    except (OSError, UnicodeDecodeError) as error:
        raise JobError(f"--key-file {path}: {error}", "expected a text file in UTF-8, one key a line") from None
    if len(data) > _MAX_KEY_FILE_BYTES:
        raise JobError(f"--key-file {path}: expected at most {size_text(_MAX_KEY_FILE_BYTES)}, found more")
    found = sorted({key for key in keys if key})
    if not found or len(found) > _MAX_KEYS:
        raise JobError(f"--key-file {path}: expected 1 to {_MAX_KEYS:,} keys, found {len(found):,}")
    return found
