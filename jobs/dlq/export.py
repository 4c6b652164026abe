"""Export of dead letters to a file."""

from __future__ import annotations

from pathlib import Path

from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.owned_folders import refuse_owned_folder
from commitlake.jobs.arguments.lake_location import open_packs
from commitlake.jobs.cli.damaged_file_errors import explain_invalid_where
from commitlake.jobs.cli.terminal import print_line
from commitlake.jobs.dlq.arguments import DlqOptions
from commitlake.jobs.dlq.selection import choose_dead_letters
from commitlake.pipelines.dead_letters.export import ExportFormat, export_letters
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.formatted_counts import format_count


def export_dead_letters(arguments: DlqOptions, lake: Lake) -> ExitCode:
    """Write the selected dead letters to a file, outside tables and stores."""
    out, form = arguments.export_path_and_format()
    refuse_owned_folder(out, "--out")
    chosen = choose_dead_letters(arguments, lake, max_samples_per_cause=None)
    packs = chosen.packs
    if arguments.body and packs is None:  # --no-shape reads no bodies to find causes
        packs = open_packs(lake)
    with explain_invalid_where(arguments.where, lake):
        count = export_letters(
            chosen.table,
            chosen.condition_of_cause(),
            packs,
            Path(out),
            ExportFormat(form),
            with_bodies=arguments.body,
            is_raw=arguments.raw,
        )
    if not arguments.quiet:
        print_line(f"{format_count(count, 'dead letter')} written to {out}")
    return chosen.exit_code
