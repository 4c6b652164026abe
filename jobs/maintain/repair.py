"""`commitlake maintain --repair`: find damage in a lake, repair it, and report what cannot be recovered."""

from __future__ import annotations

import importlib.metadata
import os
from collections.abc import Collection
from contextlib import suppress

from commitlake.connectors.lake.delta_log.check import LogDamagedError
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.paths import LakeError
from commitlake.connectors.runtime.runner import Runner
from commitlake.jobs.arguments.lake_location import check_packs_location
from commitlake.jobs.arguments.runner import make_runner
from commitlake.jobs.arguments.similar_names import print_warning, suggest_similar_name
from commitlake.jobs.arguments.store_layout import find_formats
from commitlake.jobs.cli.lost_range_warnings import warn_of_lost_ranges
from commitlake.jobs.cli.terminal import print_line
from commitlake.jobs.maintain.arguments import MaintainOptions
from commitlake.pipelines.audit.checksums_after_repair import update_refilled_checksums
from commitlake.pipelines.erasure.run import ErasureTarget, finish_erasures
from commitlake.pipelines.repair.content_checksums import list_unsealed_tables, seal_table_contents
from commitlake.pipelines.repair.plan import plan_repair
from commitlake.pipelines.repair.refill_from_stores import RefillStores
from commitlake.pipelines.repair.run import repair_lake
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.formatted_counts import format_count

_VERSION = importlib.metadata.version("commitlake")


def run_repair(command: MaintainOptions, lake: Lake) -> ExitCode:
    """Print the repair plan, and carry it out unless this is a dry run.

    Returns:
        0 if the lake is intact, or was repaired; 3 if it is not intact, or rows are lost.
    """
    check_packs_location(lake)  # before a table has changed
    _check_is_lake(lake)
    stores = _find_named_stores(command, lake)
    runner = make_runner(command, "maintain")
    plan = plan_repair(lake, stores=stores, runner=runner)
    if plan.is_empty and not command.dry_run:  # an earlier repair may have been interrupted
        _finish_repair(command, lake, runner)
    if plan.is_empty:
        _print_line(
            command,
            f"{lake.root}: no table is damaged ('commitlake audit' checks the bodies)",
        )
        return ExitCode.DAMAGE if warn_of_lost_ranges("maintain", lake) else ExitCode.OK
    for line in plan.plan_lines():
        _print_line(command, line)
    if command.dry_run:
        _print_line(command, "nothing was changed: this was a dry run")
        return ExitCode.DAMAGE
    missing = repair_lake(lake, plan, _VERSION, runner)
    _finish_repair(command, lake, runner, [contents.table for contents in plan.contents])
    for line in missing:
        _print_line(command, f"not recovered: {line}")
    _print_line(
        command, f"repaired; the replaced files are in {lake.root.rstrip('/')}/_damaged. Run 'commitlake archive' now"
    )
    is_lost = bool(warn_of_lost_ranges("maintain", lake))
    return ExitCode.DAMAGE if missing or is_lost else ExitCode.OK


def _finish_repair(command: MaintainOptions, lake: Lake, runner: Runner, changed_tables: Collection[str] = ()) -> None:
    """Repeat erasures whose data the repair has restored, and update checksums of messages that it has read again.

    Args:
        changed_tables: tables with rows of another program that the repair keeps.
    """
    place = ErasureTarget(lake, _VERSION, runner)
    outcomes = finish_erasures(place, lambda _: None)
    for outcome in outcomes:
        if outcome.error is not None:
            continue
        _print_line(
            command, f"erasure {outcome.state.number} was repeated: {format_count(outcome.state.messages, 'message')}"
        )
    update_refilled_checksums(lake, runner)
    # Others keep the sums that they have: what another program changes from now on is a finding of the next audit.
    seal_table_contents(lake, {*changed_tables, *list_unsealed_tables(lake)}, runner)
    for outcome in outcomes:
        if outcome.error is not None:
            raise outcome.error


def _check_is_lake(lake: Lake) -> None:
    """Raise an error if a location contains no lake; a lake with damaged tables is accepted."""
    with suppress(LogDamagedError):
        lake.table("messages")


def _find_named_stores(command: MaintainOptions, lake: Lake) -> RefillStores | None:
    """Return the stores that the options name for a repair; None if none is named."""
    if not command.store:
        return None
    from commitlake.connectors.lake.archive_commits import read_last_commit
    from commitlake.connectors.reading.stores import find_stores
    from commitlake.jobs.arguments.broker_name import choose_broker_name
    from commitlake.pipelines.masking.archive_masks import parse_lake_masks

    try:
        commit = read_last_commit(lake)
    except LakeError:  # the log is damaged
        commit = None
    known = {} if commit is None else commit.stores
    layouts = find_formats(command)
    name = choose_broker_name(command.store, command.broker, None, known, layouts).name
    stores = find_stores(command.store, name, formats=layouts)
    for store in stores if known else ():
        if store.broker not in known:
            print_warning(
                "commitlake maintain",
                f"the lake has no store {store.broker!a}.{suggest_similar_name(store.broker, known)}",
            )
    masks = None if commit is None else parse_lake_masks(commit.masks, os.environ)
    return RefillStores(stores, masks, _VERSION)


def _print_line(command: MaintainOptions, line: str) -> None:
    if not command.quiet:
        print_line(line)
