"""`commitlake maintain --repair`: what is wrong with a lake, what is done about it, and what cannot be brought back."""

from __future__ import annotations

import argparse
import importlib.metadata
import sys

from connectors.lake.paths import LakePaths
from connectors.maintenance.repair import plan_repair, repair_lake
from jobs.command import ExitCode
from jobs.layouts import layout_of


def run_repair(arguments: argparse.Namespace, lake: LakePaths) -> ExitCode:
    """Print the plan, and do it unless it is a dry run.

    Returns:
        0 where the lake is whole, or is whole again; 3 where it is not, or where rows are lost.
    """
    plan = plan_repair(lake, first_offsets=_first_offsets(arguments))
    if plan.is_nothing:
        _tell(
            arguments,
            f"{lake.root}: all tables are whole ('commitlake audit' looks at the bodies)",
        )
        return ExitCode.OK
    for line in plan.lines():
        _tell(arguments, line)
    if arguments.dry_run:
        _tell(arguments, "nothing was changed: this was a dry run")
        return ExitCode.DAMAGE
    missing = repair_lake(lake, plan, importlib.metadata.version("commitlake"))
    for line in missing:
        _tell(arguments, f"not brought back: {line}")
    _tell(
        arguments, f"repaired; what was replaced is in {lake.root.rstrip('/')}/_damaged. Run 'commitlake archive' now"
    )
    return ExitCode.DAMAGE if missing else ExitCode.OK


def _first_offsets(arguments: argparse.Namespace) -> dict[str, int] | None:
    """The first offset of each store that is named; None where none is."""
    if not arguments.store:
        return None
    from connectors.commitlog.stores import find_stores

    stores = find_stores(arguments.store, arguments.broker, layout_of(arguments).layouts)
    return {store.broker: store.segments[0].base_offset for store in stores}


def _tell(arguments: argparse.Namespace, line: str) -> None:
    if not arguments.quiet:
        print(line, file=sys.stderr, flush=True)
