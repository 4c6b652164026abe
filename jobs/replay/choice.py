"""The selection of messages by the arguments."""

from __future__ import annotations

import argparse
from pathlib import Path

from commitlake.connectors.lake.archive_log import read_last_commit
from commitlake.connectors.lake.paths import LakePaths
from commitlake.jobs.cli.command import JobError
from commitlake.jobs.cli.names import there_are
from commitlake.jobs.cli.sizes import size_text
from commitlake.jobs.replay.source import MessageSource
from commitlake.pipelines.query.sql import Conditions
from commitlake.pipelines.replay.consumed import Places, offsets_of
from commitlake.pipelines.replay.origins import origin_sql
from commitlake.pipelines.replay.selection import SENDABLE, Selection, condition

_MAX_KEY_FILE_BYTES = 64 << 20
_MAX_KEYS = 10_000
_BLANKS = " \t\r"


def chosen_condition(arguments: argparse.Namespace, lake: LakePaths, source: MessageSource) -> str:
    """Return an SQL condition for the messages that the arguments select.

    Args:
        arguments: parsed arguments of the job.
        lake: the lake.
        source: the source of the messages.

    Raises:
        JobError: if a file of keys cannot be read, or has too many keys.
        ReplayError: if the selected messages cannot be sent.
    """
    offsets = None
    if arguments.not_consumed_by is not None:
        places = _offsets(arguments, lake, source)
        wanted = set(arguments.topic)
        offsets = {place: offset for place, offset in places.items() if not wanted or place[1] in wanted}
    asked = Conditions(
        topics=arguments.topic,
        queue_ids=arguments.queue,
        kinds=SENDABLE if arguments.all_copies else (),
        keys=[*arguments.key, *_keys_in(arguments.keys_file)],
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
            origin=origin_sql(source.table) if arguments.all_copies else None,
        )
    )


def _offsets(arguments: argparse.Namespace, lake: LakePaths, source: MessageSource) -> Places:
    group = arguments.not_consumed_by
    if not source.is_copied:
        return offsets_of(lake, group, arguments.broker or _stores(lake), arguments.offsets_at)
    found = source.offsets(arguments.broker)
    if group not in found:
        where = "store" if arguments.store is not None else "broker"
        raise JobError(f"the {where} has no offsets of the group {group!a}", there_are(found))
    return dict(found[group])


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
        raise JobError(f"--keys-file {path}: {error}", "expected a text file in UTF-8, one key per line") from None
    if len(data) > _MAX_KEY_FILE_BYTES:
        raise JobError(f"--keys-file {path}: expected at most {size_text(_MAX_KEY_FILE_BYTES)}, found more")
    found = sorted({key for key in keys if key})
    if not found or len(found) > _MAX_KEYS:
        raise JobError(f"--keys-file {path}: expected 1 to {_MAX_KEYS:,} keys, found {len(found):,}")
    return found
