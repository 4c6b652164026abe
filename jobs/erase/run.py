"""An erasure on the command line: plan, confirmation, work, and what remains to be done later."""

from __future__ import annotations

import datetime
import importlib.metadata
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from commitlake.connectors.lake.archive_commits import ArchiveCommit, read_last_commit
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.packs.errors import PackError
from commitlake.connectors.lake.packs.location import PackLocation
from commitlake.jobs.arguments.evidence_key import last_number_with_evidence, read_evidence_key, write_evidence
from commitlake.jobs.arguments.lake_location import check_packs_location, open_lake_argument
from commitlake.jobs.arguments.runner import make_runner
from commitlake.jobs.arguments.similar_names import print_warning
from commitlake.jobs.arguments.sizes import size_text
from commitlake.jobs.arguments.times import time_text
from commitlake.jobs.cli.confirm import confirm_action
from commitlake.jobs.cli.lost_range_warnings import warn_of_lost_ranges
from commitlake.jobs.cli.terminal import print_line
from commitlake.jobs.erase.arguments import EraseOptions
from commitlake.jobs.report.rows_output import Row, write_rows
from commitlake.pipelines.archive.body_location import IN_LAKE, bodies_root, check_bodies_root_unchanged
from commitlake.pipelines.erasure.ledger import (
    ErasureState,
    collect_erasure_evidence,
    collect_purge_evidence,
    read_erasure_states,
)
from commitlake.pipelines.erasure.purge import PurgeResult
from commitlake.pipelines.erasure.run import (
    ErasurePlan,
    ErasureResult,
    ErasureTarget,
    due_erasures,
    finish_erasures,
    plan_erasure,
    purge_erasures,
    run_erasure,
    unfinished_erasures,
)
from commitlake.pipelines.erasure.selection import KeysToErase, count_inner_batches
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.formatted_counts import format_count
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


def run_erase(command: EraseOptions, keys_to_erase: KeysToErase) -> ExitCode:
    """Finish interrupted erasures, then erase the requested messages."""
    code = _erase_messages(command, keys_to_erase)
    if warn_of_lost_ranges("erase", open_lake_argument(command)):
        print_warning(PROG, _LOST)
        code = max(code, ExitCode.DAMAGE)
    batches = count_inner_batches(open_lake_argument(command)) if keys_to_erase.keys or keys_to_erase.unique_keys else 0
    if not batches:
        return code
    print_warning(
        PROG,
        f"the lake has {format_count(batches, 'record')} of topics with queue.type=BatchCQ that hold several messages "
        "each. Their keys and ids are in the bodies only, and were not looked for: 'commitlake query --where "
        f"\"sys_flag & {INNER_BATCH} <> 0\" --grep KEY' finds such records, and 'erase --id' erases one",
    )
    return max(code, ExitCode.DAMAGE)


def _erase_messages(command: EraseOptions, keys_to_erase: KeysToErase) -> ExitCode:
    say = _make_line_printer(command)
    key = read_evidence_key(command)
    place = _open_erasure_target(command)
    # An earlier erasure that fails again does not prevent this one; its error is raised at the end.
    error = None if command.dry_run else _finish_interrupted_erasures(place, say)[1]
    plan = plan_erasure(place, keys_to_erase, keeps_later_copies=command.keep_later_copies)
    if plan.has_nothing_to_erase:
        say("the lake has no matching message: nothing was erased")
        return ExitCode.OK if command.dry_run else _purge_and_sign(command, place, key, say, error)
    if command.dry_run or not command.quiet:
        for line in erasure_plan_lines(plan):
            print_line(line)
    if command.dry_run:
        print_line("nothing was changed: this was a dry run")
        return ExitCode.OK
    confirm_action(
        f"erase the contents of {format_count(plan.message_count, 'message')} permanently",
        intended_action=f"the contents of {format_count(plan.message_count, 'message')} would be erased permanently",
        refusal_message="nothing was erased",
        is_confirmed=command.yes,
    )
    outcome = run_erasure(
        place, plan, (command.reason or "").strip(), command.retention, _make_step_printer(command, say)
    )
    for line in erasure_result_lines(outcome):
        say(line)
    return _purge_and_sign(command, place, key, say, error)


def _purge_and_sign(
    command: EraseOptions,
    target: ErasureTarget,
    evidence_key: Ed25519PrivateKey | None,
    write_line: Callable[[str], None],
    earlier_error: PackError | None,
) -> ExitCode:
    """Delete table versions whose retention is over, sign evidence, and raise the error of a failed erasure, if any."""
    purge_error = _purge_due_versions(command, target, write_line)
    _sign_erasure_evidence(target, evidence_key, write_line)
    for line in retained_version_lines(target.lake):
        write_line(line)
    if found := earlier_error or purge_error:
        raise found
    return ExitCode.OK


def finish_erasures_and_purge(command: EraseOptions) -> ExitCode:
    """Finish interrupted erasures, and delete older versions whose retention is over."""
    say = _make_line_printer(command)
    key = read_evidence_key(command)
    place = _open_erasure_target(command)
    if command.dry_run:
        unfinished = unfinished_erasures(place.lake)
        due = due_erasures(read_erasure_states(place.lake), _current_time(), is_only_user=command.now)
        print_line(
            f"{format_count(len(unfinished), 'erasure is', 'erasures are')} unfinished, and older versions of "
            f"{len(due)} are due for deletion"
        )
        print_line("nothing was changed: this was a dry run")
        return ExitCode.OK
    done, error = _finish_interrupted_erasures(place, say)
    if (
        not done
        and error is None
        and not due_erasures(read_erasure_states(place.lake), _current_time(), is_only_user=command.now)
    ):
        say("no erasure is unfinished, and no deletion is due")
    return _purge_and_sign(command, place, key, say, error)


def list_erasures(command: EraseOptions) -> ExitCode:
    """Print a list of all erasures."""
    lake = open_lake_argument(command)
    lake.table("messages")  # raises an error if this is not a lake
    states = read_erasure_states(lake)
    write_rows(command.output, [_erasure_row(state) for state in states], _COLUMNS)
    if not states and not command.quiet:
        print_line("no erasure is recorded in the lake")
    return ExitCode.OK


def _erasure_row(state: ErasureState) -> Row:
    times = {"begun_at": state.begun_at, "erased_at": state.erased_at, "purged_at": state.purged_at}
    shown = {name: None if at is None else time_text(at) for name, at in times.items()}
    name = "unfinished" if state.is_unfinished else "purged" if state.purged_at else "erased"
    until = None if state.purge_due_at is None else time_text(state.purge_due_at)
    facts = {"number": state.number, "state": name, "messages": state.messages, "reason": state.reason}
    return {**facts, **shown, "older_versions_until": until}


def erasure_plan_lines(plan: ErasurePlan) -> Iterator[str]:
    """Yield lines that describe what an erasure would delete."""
    yield f"{format_count(plan.message_count, 'message')}, including the copies that brokers made of them"
    if plan.selection.unmatched:
        names = sorted(plan.selection.unmatched)
        shown = ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")
        yield f"  {len(names):,} of the keys and ids match no message, or only erased ones: {shown}"
    for work in plan.tables:
        if work.rows:
            yield (
                f"  {work.table}: {format_count(work.rows, 'row')} in {format_count(work.files, 'data file')} "
                f"({size_text(work.bytes_before)})"
            )
    packs = plan.packs
    if packs.packs:
        yield (
            f"  packs: {format_count(packs.bodies, 'body', 'bodies')} ({size_text(packs.body_bytes)}) in "
            f"{format_count(packs.packs, 'pack')} ({size_text(packs.rewritten_bytes)})"
        )
    if packs.gone:
        yield f"  packs: {packs.gone:,} no longer exist"


def erasure_result_lines(result: ErasureResult) -> Iterator[str]:
    """Yield lines that describe what an erasure has deleted."""
    state = result.state
    yield f"erasure {state.number} ({state.erasure_id}): {format_count(state.messages, 'message')}"
    for work in result.tables:
        sizes = f"{size_text(work.bytes_before)} -> {size_text(work.bytes_after)}"
        yield (
            f"  {work.table}: {format_count(work.rows, 'row')}, {format_count(work.files, 'data file')} rewritten "
            f"({sizes})"
        )
    packs = result.packs
    yield (
        f"  packs: {format_count(packs.bodies, 'body', 'bodies')} overwritten in {packs.packs:,} "
        f"({size_text(packs.body_bytes)})"
    )
    if packs.gone:
        yield f"  packs: {packs.gone:,} no longer exist"
    if result.hbase is None:
        yield "  HBase was not changed (no --hbase): the next 'archive --hbase' erases there"
    else:
        yield (
            f"  HBase: {format_count(result.hbase, 'row')} rewritten; a compaction was started, which deletes the "
            "old cells"
        )


def retained_version_lines(lake: Lake) -> Iterator[str]:
    """Yield lines that say which older versions of tables still contain erased data, and until when."""
    for state in read_erasure_states(lake):
        if state.purge_due_at is not None:
            yield (
                f"erasure {state.number}: older versions of the tables hold keys and properties until "
                f"{time_text(state.purge_due_at)}; 'commitlake erase --finish' or 'maintain' deletes them after that"
            )


def _finish_interrupted_erasures(
    target: ErasureTarget, write_line: Callable[[str], None]
) -> tuple[bool, PackError | None]:
    """Complete unfinished erasures; return whether any was completed, and the error of the first one that failed."""
    outcomes = finish_erasures(target, lambda _: None)
    done = [outcome for outcome in outcomes if outcome.error is None]
    for outcome in done:
        why = "which was interrupted, undone by a repair, or done by an earlier version"
        write_line(f"erasure {outcome.state.number}, {why}, is now complete")
    errors = (outcome.error for outcome in outcomes if outcome.error is not None)
    return bool(done), next(errors, None)


def _current_time() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def _sign_erasure_evidence(
    target: ErasureTarget, evidence_key: Ed25519PrivateKey | None, write_line: Callable[[str], None]
) -> None:
    """Sign evidence for each erasure that has none yet, for example because its run was killed."""
    if evidence_key is None:
        return
    states = read_erasure_states(target.lake)
    for kind, facts in (("erasure", collect_erasure_evidence), ("purge", collect_purge_evidence)):
        last = last_number_with_evidence(target.lake, kind) or 0
        line = write_evidence(
            target.lake, evidence_key, kind, facts(target.lake, [one for one in states if one.number > last])
        )
        if line is not None:
            write_line(line)


def _purge_due_versions(
    command: EraseOptions, target: ErasureTarget, write_line: Callable[[str], None]
) -> PackError | None:
    states, purged, error = purge_erasures(
        target, _current_time(), _make_step_printer(command, write_line), is_only_user=command.now
    )
    for line in _purge_result_lines(states, purged):
        write_line(line)
    return error


def _purge_result_lines(states: list[ErasureState], purged: PurgeResult) -> Iterator[str]:
    if states:
        yield (
            f"older versions of {format_count(len(states), 'erasure')} are deleted: "
            f"{format_count(purged.files, 'data file')} ({size_text(purged.file_bytes)}), "
            f"{format_count(purged.packs, 'pack')} that no row names, {format_count(purged.checkpoints, 'file')} of "
            f"logs, {format_count(purged.aside, 'file')} of repairs; values were removed from "
            f"{format_count(purged.entries, 'log entry', 'log entries')}"
        )


def _make_step_printer(command: EraseOptions, write_line: Callable[[str], None]) -> Callable[[str], None]:
    return (lambda step: write_line(f"  {step} …")) if command.verbose else lambda _: None


def _make_line_printer(command: EraseOptions) -> Callable[[str], None]:
    def print_line_unless_quiet(line: str) -> None:
        if not command.quiet:
            print_line(line)

    return print_line_unless_quiet


def _open_erasure_target(command: EraseOptions) -> ErasureTarget:
    """Return the lake with the location of its bodies; raise an error if archive runs used another location."""
    lake = open_lake_argument(command)
    lake.table("messages")  # raises an error if this is not a lake
    last = read_last_commit(lake) or ArchiveCommit(0, "")
    # Bodies are where archive runs have put them, unless the user names another place.
    if command.bodies is None and last.bodies not in (None, IN_LAKE):
        lake = replace(lake, packs=PackLocation(str(last.bodies)))
    check_packs_location(lake)
    check_bodies_root_unchanged(last, bodies_root(lake))
    hbase = None
    if command.hbase:
        from commitlake.connectors.hbase.options import HBaseOptions

        named = {"table": command.hbase_table} if command.hbase_table else {}
        hbase = HBaseOptions.of_address(command.hbase, **named)
    version = importlib.metadata.version("commitlake")
    return ErasureTarget(lake, version, make_runner(command, "erase"), hbase)
