"""Group dead letters by cause, export them, send them again, and track them until they are consumed or dead again.

    commitlake dlq --lake /data/lake --group billing --from -1d
    commitlake dlq redrive --lake /data/lake --group billing --cause 1 --namesrv 127.0.0.1:9876 --follow

It starts no JVM, unless `--spark` is given: tasks on Spark then read the dead letters. Exit codes: 0 if there is no
dead letter, or all redriven messages were consumed; 1 if the target did not answer, or messages are still waiting;
2 for a wrong lake, option or cause; 3 if messages are dead again, were lost (in the lake, too) or could not be
sent, or a table is damaged; 4 if the target cannot accept them; 130 if the job was stopped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from commitlake.jobs.arguments.lake_location import open_lake_argument
from commitlake.jobs.cli.damaged_file_errors import explain_damaged_files
from commitlake.jobs.dlq.arguments import EXPORT, OUTCOME, REDRIVE, SHOW, DlqOptions
from commitlake.schemas.errors import ExitCode

if TYPE_CHECKING:
    from commitlake.connectors.lake.lake import Lake

DESCRIPTION = (
    "Show the dead letters of consumer groups by cause: group, original topic, tag, attempts, the error that the "
    "client reported (property EXCEPTION or ERROR), and the shape of the body's JSON. 'export' writes them to a file. "
    "'redrive' sends them to their topics again, as 'replay' does: all groups of the topic receive them, not only the "
    "one that failed. 'outcome' shows which of them were consumed, are dead again, or are waiting; --follow waits for "
    "the result. In CSV, a text that begins with =, +, -, @, a quote or a tab gets a leading quote ('), also after a "
    "semicolon, a tab or a line break in it, so that a spreadsheet does not run it as a "
    "formula; --raw turns that off, and JSON lines and Parquet are exact."
)
EXAMPLES = (
    ("dlq --lake lake --from -1d", "causes of the last day, with a chart over time"),
    ("dlq --lake lake --group billing --cause 1", "one cause, with its newest dead letters"),
    ("dlq --lake s3://archive/lake --from -365d --spark", "of millions of dead letters"),
    ("dlq --lake lake --group billing --samples 2 --json", "all details, for programs"),
    ("dlq export --lake lake --group billing --out letters.csv --body", "a file for a spreadsheet"),
    ("dlq redrive --lake lake --group billing --cause 1 --dry-run", "show what would be sent again"),
    ("dlq redrive --lake lake --group billing --cause 57524a --namesrv 127.0.0.1:9876 --rate 100/s --follow",
     "send them again, and wait until each is consumed or dead again"),
    ("dlq outcome 20261117-142003-5f2a1c --lake lake", "show what became of them so far"),
)  # fmt: skip
_READ = ("messages", "replays", "replay_messages", "consumer_offsets")


@dataclass(frozen=True, kw_only=True)
class Dlq(DlqOptions):
    """The command `dlq`, which shows, exports or sends again the dead letters of consumer groups."""

    NAME = "dlq"
    DESCRIPTION = DESCRIPTION
    EXAMPLES = EXAMPLES

    def run(self) -> ExitCode:
        """Run the chosen action: show, export, redrive or outcome."""
        if self.action == EXPORT:
            self.export_path_and_format()
        lake = open_lake_argument(self)
        with explain_damaged_files(lake, _READ):
            return self._run_action(lake)

    def _run_action(self, lake: Lake) -> ExitCode:
        from commitlake.jobs.dlq.export import export_dead_letters
        from commitlake.jobs.dlq.outcome import print_outcome
        from commitlake.jobs.dlq.redrive import redrive_dead_letters
        from commitlake.jobs.dlq.report import print_causes

        acts = {SHOW: print_causes, EXPORT: export_dead_letters, REDRIVE: redrive_dead_letters, OUTCOME: print_outcome}
        return acts[self.action](self, lake)


build_parser, main = Dlq.parser, Dlq.main
