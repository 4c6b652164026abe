"""Checks of the typed tables of topics: how far each follows `messages`, and which messages did not fit lately."""

from __future__ import annotations

import datetime
import shlex
from collections.abc import Iterator
from itertools import takewhile

from commitlake.connectors.lake.archive_commits import ArchiveCommit, read_messages_history
from commitlake.connectors.lake.delta_log.check import LogDamagedError
from commitlake.connectors.lake.delta_log.history import CommitNote
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.reader import run_sql
from commitlake.connectors.lake.sql import text_literal, timestamp_literal
from commitlake.jobs.arguments.durations import duration_text
from commitlake.jobs.doctor.findings import CheckState, DoctorFinding
from commitlake.pipelines.topics.progress import TopicProgress, lacks_misfits, read_topic_progress, topic_table_name
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.times import from_ms

_CHECK, _MISFITS = "topics", "topic_misfits"
_RECENT = datetime.timedelta(days=1)


def check_topic_tables(lake: Lake, now: datetime.datetime) -> Iterator[DoctorFinding]:
    """Yield a finding on each typed table of a lake, or two if messages of the last day did not fit.

    Args:
        lake: the lake.
        now: current time.
    """
    for table in lake.list_topic_tables(includes_lost=True):
        try:
            opened = lake.find(table)
        except LogDamagedError as error:
            advice = f"commitlake maintain --lake {shlex.quote(lake.root)} --repair"
            yield DoctorFinding(_CHECK, CheckState.MISSING, str(error), advice)
            continue
        progress = read_topic_progress(opened)
        if progress.version >= 0:  # another program may have tables there, too
            yield _check_progress(lake, table, progress, now)
            yield from _check_misfits(lake, table, now)


def _check_progress(lake: Lake, table: str, progress: TopicProgress, now: datetime.datetime) -> DoctorFinding:
    waiting = [
        note.timestamp_ms
        for note in _commits_after(lake, progress.version)
        if (commit := ArchiveCommit.from_metadata(note.metadata)) is not None
        and (commit.counts is None or commit.counts.messages)
    ]
    advice = f"commitlake topics --lake {shlex.quote(lake.root)} --topics-file TOPICS_FILE"
    if lacks_misfits(lake, table, progress):
        found = f"{table} was updated by a run that was killed before it recorded its misfits"
        return DoctorFinding(_CHECK, CheckState.WARNING, found, advice)
    if not waiting:
        return DoctorFinding(_CHECK, CheckState.OK, f"{table} follows messages to the newest commit")
    age = duration_text(max(now - from_ms(min(waiting)), datetime.timedelta()))
    found = f"{table} is {format_count(len(waiting), 'commit')} behind messages, since {age}"
    return DoctorFinding(_CHECK, CheckState.WARNING, found, advice)


def _commits_after(lake: Lake, version: int) -> Iterator[CommitNote]:
    # Newest first, so that reading ends at the first commit that the table follows.
    return takewhile(lambda note: note.version > version, read_messages_history(lake))


def _check_misfits(lake: Lake, table: str, now: datetime.datetime) -> Iterator[DoctorFinding]:
    """Yield a finding if messages of the last day are misfits: `doctor` keeps no record of an earlier look."""
    misfits = lake.find(_MISFITS)
    if misfits is None:
        return
    name = text_literal(topic_table_name(table))
    sql = (
        f"SELECT topic, count(*) AS n FROM {_MISFITS} WHERE topic_table = {name} "
        f"AND store_timestamp >= {timestamp_literal(now - _RECENT)} GROUP BY topic ORDER BY topic"
    )
    for row in run_sql(misfits, _MISFITS, sql).read_all().to_pylist():
        count = format_count(row["n"], "message of the last day does", "messages of the last day do")
        place = f"--lake {shlex.quote(lake.root)} --table {_MISFITS} --topic {shlex.quote(row['topic'])}"
        found = f"{table}: {count} not fit the schema"
        yield DoctorFinding(_CHECK, CheckState.WARNING, found, f"commitlake query {place}")
