"""An erasure on the command line: plan, confirmation, work, and what remains to be done later."""

from __future__ import annotations

import datetime
import importlib.metadata
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from commitlake.connectors.lake.archive_log import ArchiveCommit, read_last_commit
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.packs.errors import PackError
from commitlake.connectors.lake.packs.location import PackLocation
from commitlake.jobs.arguments.evidence import evidence_key, last_subject, write_evidence
from commitlake.jobs.arguments.names import warn
from commitlake.jobs.arguments.places import check_packs, lake_of
from commitlake.jobs.arguments.runner import make_runner
from commitlake.jobs.arguments.sizes import size_text
from commitlake.jobs.arguments.times import time_text
from commitlake.jobs.cli.confirm import confirm
from commitlake.jobs.cli.lost_ranges import warn_of_lost_ranges
from commitlake.jobs.cli.terminal import print_line
from commitlake.jobs.erase.arguments import EraseOptions
from commitlake.jobs.report.rows_output import Row, write
from commitlake.pipelines.archive.body_location import IN_LAKE, bodies_root, check_same_root
from commitlake.pipelines.erasure.ledger import ErasureState, erasure_facts, purge_facts, read_states
from commitlake.pipelines.erasure.purge import Purged
from commitlake.pipelines.erasure.run import (
    ErasurePlan,
    ErasureResult,
    Place,
    due_erasures,
    finish_erasures,
    plan_erasure,
    purge_erasures,
    run_erasure,
    unfinished_erasures,
)
from commitlake.pipelines.erasure.selection import KeysToErase, count_inner_batches
from commitlake.schemas.counts import count_text
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.layouts.rocketmq.sysflag import INNER_BATCH
from commitlake.schemas.report_columns import Column

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

PROG = "commitlake erase"
_SHOWN = 5
_LOST = (
    "lost messages that a repair brings back are erased then if another message with their key or id was erased, "
    "without --keep-later-copies. Erase again after the repair to be sure"
)
_COLUMNS = (
    Column("number"), Column("state"), Column("begun_at"), Column("messages"), Column("reason", 1),
    Column("erased_at", 2), Column("older_versions_until", 3), Column("purged_at", 4),
)  # fmt: skip


def erase(command: EraseOptions, wanted: KeysToErase) -> ExitCode:
    """Finish interrupted erasures, then erase the requested messages."""
    code = _erase(command, wanted)
    if warn_of_lost_ranges("erase", lake_of(command)):
        warn(PROG, _LOST)
        code = max(code, ExitCode.DAMAGE)
    batches = count_inner_batches(lake_of(command)) if wanted.keys or wanted.unique_keys else 0
    if not batches:
        return code
    warn(
        PROG,
        f"the lake has {count_text(batches, 'record')} of topics with queue.type=BatchCQ that hold several messages "
        "each. Their keys and ids are in the bodies only, and were not looked for: 'commitlake query --where "
        f"\"sys_flag & {INNER_BATCH} <> 0\" --grep KEY' finds such records, and 'erase --id' erases one",
    )
    return max(code, ExitCode.DAMAGE)


def _erase(command: EraseOptions, wanted: KeysToErase) -> ExitCode:
    say = _line_printer(command)
    key = evidence_key(command)
    place = _erasure_place(command)
    error = None if command.dry_run else _finish_interrupted(place, say)[1]
    plan = plan_erasure(place, wanted, keeps_later_copies=command.keep_later_copies)
    if plan.is_nothing:
        say("the lake has no matching message: nothing was erased")
        return ExitCode.OK if command.dry_run else _finish_run(command, place, key, say, error)
    if command.dry_run or not command.quiet:
        for line in plan_lines(plan):
            print_line(line)
    if command.dry_run:
        print_line("nothing was changed: this was a dry run")
        return ExitCode.OK
    confirm(
        f"erase the contents of {count_text(plan.messages, 'message')} permanently",
        what=f"the contents of {count_text(plan.messages, 'message')} would be erased permanently",
        nothing="nothing was erased",
        is_agreed=command.yes,
    )
    outcome = run_erasure(place, plan, (command.reason or "").strip(), command.retention, _step_printer(command, say))
    for line in outcome_lines(outcome):
        say(line)
    return _finish_run(command, place, key, say, error)


def _finish_run(
    command: EraseOptions,
    place: Place,
    key: Ed25519PrivateKey | None,
    say: Callable[[str], None],
    error: PackError | None,
) -> ExitCode:
    """Delete older versions that are due, sign evidence, and then raise the error of an unfinished erasure."""
    purge_error = _purge_due_versions(command, place, say)
    _sign_evidence(place, key, say)
    for line in waiting_lines(place.lake):
        say(line)
    if found := error or purge_error:
        raise found
    return ExitCode.OK


def finish(command: EraseOptions) -> ExitCode:
    """Finish interrupted erasures, and delete older versions whose retention is over."""
    say = _line_printer(command)
    key = evidence_key(command)
    place = _erasure_place(command)
    if command.dry_run:
        unfinished = unfinished_erasures(place.lake)
        due = due_erasures(read_states(place.lake), _now(), is_alone=command.now)
        print_line(
            f"{count_text(len(unfinished), 'erasure is', 'erasures are')} unfinished, and older versions of "
            f"{len(due)} are due for deletion"
        )
        print_line("nothing was changed: this was a dry run")
        return ExitCode.OK
    done, error = _finish_interrupted(place, say)
    if not done and error is None and not due_erasures(read_states(place.lake), _now(), is_alone=command.now):
        say("no erasure is unfinished, and no deletion is due")
    return _finish_run(command, place, key, say, error)


def show_all(command: EraseOptions) -> ExitCode:
    """Print a list of all erasures."""
    lake = lake_of(command)
    lake.table("messages")  # raises an error if this is not a lake
    states = read_states(lake)
    write(command.output, [_row(state) for state in states], _COLUMNS)
    if not states and not command.quiet:
        print_line("no erasure is recorded in the lake")
    return ExitCode.OK


def _row(state: ErasureState) -> Row:
    times = {"begun_at": state.begun_at, "erased_at": state.erased_at, "purged_at": state.purged_at}
    shown = {name: None if at is None else time_text(at) for name, at in times.items()}
    name = "unfinished" if state.is_unfinished else "purged" if state.purged_at else "erased"
    until = None if state.due_at is None else time_text(state.due_at)
    facts = {"number": state.number, "state": name, "messages": state.messages, "reason": state.reason}
    return {**facts, **shown, "older_versions_until": until}


def plan_lines(plan: ErasurePlan) -> Iterator[str]:
    """Yield lines that describe what an erasure would delete."""
    yield f"{count_text(plan.messages, 'message')}, including the copies that brokers made of them"
    if plan.selection.unmatched:
        names = sorted(plan.selection.unmatched)
        shown = ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")
        yield f"  {len(names):,} of the keys and ids match no message, or only erased ones: {shown}"
    for work in plan.tables:
        if work.rows:
            yield (
                f"  {work.table}: {count_text(work.rows, 'row')} in {count_text(work.files, 'data file')} "
                f"({size_text(work.bytes_before)})"
            )
    packs = plan.packs
    if packs.packs:
        yield (
            f"  packs: {count_text(packs.bodies, 'body', 'bodies')} ({size_text(packs.body_bytes)}) in "
            f"{count_text(packs.packs, 'pack')} ({size_text(packs.rewritten_bytes)})"
        )
    if packs.gone:
        yield f"  packs: {packs.gone:,} no longer exist"


def outcome_lines(outcome: ErasureResult) -> Iterator[str]:
    """Yield lines that describe what an erasure has deleted."""
    state = outcome.state
    yield f"erasure {state.number} ({state.erasure_id}): {count_text(state.messages, 'message')}"
    for work in outcome.tables:
        sizes = f"{size_text(work.bytes_before)} -> {size_text(work.bytes_after)}"
        yield (
            f"  {work.table}: {count_text(work.rows, 'row')}, {count_text(work.files, 'data file')} rewritten ({sizes})"
        )
    packs = outcome.packs
    yield (
        f"  packs: {count_text(packs.bodies, 'body', 'bodies')} overwritten in {packs.packs:,} "
        f"({size_text(packs.body_bytes)})"
    )
    if packs.gone:
        yield f"  packs: {packs.gone:,} no longer exist"
    if outcome.hbase is None:
        yield "  HBase was not changed (no --hbase): the next 'archive --hbase' erases there"
    else:
        yield (
            f"  HBase: {count_text(outcome.hbase, 'row')} rewritten; a compaction was started, which deletes the "
            "old cells"
        )


def waiting_lines(lake: Lake) -> Iterator[str]:
    """Yield lines that say which older versions of tables still contain erased data, and until when."""
    for state in read_states(lake):
        if state.due_at is not None:
            yield (
                f"erasure {state.number}: older versions of the tables hold keys and properties until "
                f"{time_text(state.due_at)}; 'commitlake erase --finish' or 'maintain' deletes them after that"
            )


def _finish_interrupted(place: Place, say: Callable[[str], None]) -> tuple[bool, PackError | None]:
    """Complete unfinished erasures; return whether any was completed, and the error of the first one that failed."""
    outcomes = finish_erasures(place, lambda _: None)
    done = [outcome for outcome in outcomes if outcome.error is None]
    for outcome in done:
        why = "which was interrupted, undone by a repair, or done by an earlier version"
        say(f"erasure {outcome.state.number}, {why}, is now complete")
    errors = (outcome.error for outcome in outcomes if outcome.error is not None)
    return bool(done), next(errors, None)


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def _sign_evidence(place: Place, key: Ed25519PrivateKey | None, say: Callable[[str], None]) -> None:
    """Sign evidence for each erasure that has none yet, such as those of earlier runs that were killed."""
    if key is None:
        return
    states = read_states(place.lake)
    for kind, facts in (("erasure", erasure_facts), ("purge", purge_facts)):
        last = last_subject(place.lake, kind) or 0
        line = write_evidence(place.lake, key, kind, facts(place.lake, [one for one in states if one.number > last]))
        if line is not None:
            say(line)


def _purge_due_versions(command: EraseOptions, place: Place, say: Callable[[str], None]) -> PackError | None:
    states, purged, error = purge_erasures(place, _now(), _step_printer(command, say), is_alone=command.now)
    for line in _purged_lines(states, purged):
        say(line)
    return error


def _purged_lines(states: list[ErasureState], purged: Purged) -> Iterator[str]:
    if states:
        yield (
            f"older versions of {count_text(len(states), 'erasure')} are deleted: "
            f"{count_text(purged.files, 'data file')} ({size_text(purged.file_bytes)}), "
            f"{count_text(purged.packs, 'pack')} that no row names, {count_text(purged.checkpoints, 'file')} of logs, "
            f"{count_text(purged.aside, 'file')} of repairs; values were removed from "
            f"{count_text(purged.entries, 'log entry', 'log entries')}"
        )


def _step_printer(command: EraseOptions, say: Callable[[str], None]) -> Callable[[str], None]:
    return (lambda step: say(f"  {step} …")) if command.verbose else lambda _: None


def _line_printer(command: EraseOptions) -> Callable[[str], None]:
    def say(line: str) -> None:
        if not command.quiet:
            print_line(line)

    return say


def _erasure_place(command: EraseOptions) -> Place:
    """Return the lake with the location of its bodies; raise an error if archive runs used another location."""
    lake = lake_of(command)
    lake.table("messages")  # raises an error if this is not a lake
    last = read_last_commit(lake) or ArchiveCommit(0, "")
    if command.bodies is None and last.bodies not in (None, IN_LAKE):
        lake = replace(lake, packs=PackLocation(str(last.bodies)))
    check_packs(lake)
    check_same_root(last, bodies_root(lake))
    hbase = None
    if command.hbase:
        from commitlake.connectors.hbase.options import HBaseOptions

        named = {"table": command.hbase_table} if command.hbase_table else {}
        hbase = HBaseOptions.of_address(command.hbase, **named)
    version = importlib.metadata.version("commitlake")
    return Place(lake, version, make_runner(command, "erase"), hbase)
