"""Delete messages from a lake permanently, by key or id: bodies, keys and personal properties.

    commitlake erase --lake /data/lake --key order-4711 --reason "request 17 of 2026-11-20"

The rows of erased messages stay, without their contents, so that counts do not change; the table `erasures` has the
proof, and `commitlake audit` checks it. Erased data, by place:

    messages      body_ref, body_size, body_crc, unique_key, keys, tags, born_host, and all properties but the broker's
                  own, of the messages and of the copies that a broker made of them (delayed, retried, dead), and of
                  trace messages that name them
    packs         the bodies, at once
    message_keys  the rows; edges: the rows; replay_rows: keys, properties, bodies
    counts        in profiles, the sums that contain the messages; in topic_minutes, their tags and body sizes
    quarantine    bytes of damaged ranges in which a key is found; replays: the key in a plan
    HBase         the same, with --hbase; without it, the next archive --hbase erases it there

Older versions of the tables, which still contain the data, are deleted by `erase --finish` or `maintain` after the
retention and a day, with old log entries and unused files; with --now they are deleted at once. Topics, times, the
broker's host and the size of the record stay. The hashes of the rows before the erasure, by which a correct guess of
the erased data could be confirmed, are deleted with the older versions. A bucket that keeps old versions of objects
needs a rule of its own to delete them.

A later message with one of the keys, or a later copy of one of the messages (a delivered timer, a retry, a replay), is
erased when it is archived, unless --keep-later-copies is given; `erasures` has hashes to recognise it.

If the job is killed at any point, it completes its work when it is run again. Exit codes: 0; 1 if it did not complete
and a retry may help; 2 for a wrong lake or option; 3 if a table is damaged, or messages are lost that might be meant;
4 if the answer was no, or other processes changed the lake too often.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from commitlake.jobs.arguments.keys_file import read_keys
from commitlake.jobs.arguments.lake_location import open_lake_argument
from commitlake.jobs.cli.command import JobError
from commitlake.jobs.cli.damaged_file_errors import explain_damaged_files
from commitlake.jobs.erase.arguments import SELECTING, EraseOptions
from commitlake.jobs.report.output_formats import format_option
from commitlake.schemas.errors import ExitCode

if TYPE_CHECKING:
    from commitlake.pipelines.erasure.selection import KeysToErase

_READ = ("messages", "message_keys", "edges", "replay_rows", "erasures", "gaps")
DESCRIPTION = (
    "Delete messages from the lake permanently, by key or id: bodies, keys and properties are removed from tables, "
    "packs and HBase, and after the retention also from older versions of the tables. Rows and counts remain, and an "
    "audit verifies them."
)
EXAMPLES = (
    ("erase --lake /data/lake --key order-4711 --reason 'request 17' --dry-run", "show what would be erased"),
    ("erase --lake /data/lake --key order-4711 --reason 'request 17'", "ask for confirmation, and erase"),
    ("erase --lake s3://archive/lake --keys-file keys.txt --reason 'account closed' --yes", "many keys, one per line"),
    ("erase --lake /data/lake --id C0A8010A00002A9F0000000000000A31 --reason 'request 18'", "one message, by its id"),
    ("erase --lake /data/lake --finish", "finish interrupted erasures, and delete old versions that are due"),
    ("erase --lake /data/lake --list", "show all erasures, and which older versions still exist"),
)


@dataclass(frozen=True, kw_only=True)
class Erase(EraseOptions):
    """The command `erase`, which deletes messages from a lake permanently."""

    NAME = "erase"
    DESCRIPTION = DESCRIPTION
    EXAMPLES = EXAMPLES

    def run(self) -> ExitCode:
        """Check the options, and erase the messages, purge old versions, or list erasures."""
        _check_options(self)
        from commitlake.jobs.erase.run import finish_erasures_and_purge, list_erasures, run_erase

        if self.list:
            return list_erasures(self)
        with explain_damaged_files(open_lake_argument(self), _READ):
            if self.finish:
                return finish_erasures_and_purge(self)
            return run_erase(self, _keys_to_erase(self))

    output: str = format_option("output format of --list")


def _check_options(command: EraseOptions) -> None:
    if command.list or command.finish:
        return
    if not any(getattr(command, name) for name in SELECTING):
        hint = "name them with --key, --keys-file, --unique-key or --id"
        raise JobError("no messages are chosen: expected keys or ids of messages to erase", hint)
    if not command.reason or not command.reason.strip():
        raise JobError(
            "--reason: expected the reason of the erasure, found nothing", "it is stored in the table erasures"
        )


def _keys_to_erase(command: EraseOptions) -> KeysToErase:
    from commitlake.pipelines.erasure.selection import KeysToErase

    keys = {*command.key, *(read_keys(command.keys_file) if command.keys_file else ())}
    wanted = KeysToErase(frozenset(keys), frozenset(command.unique_key), frozenset(command.id))
    if any(not text.strip() for text in wanted.texts):
        raise JobError("a key or id is empty: expected at least one character")
    for text in wanted.texts:
        if text in (command.reason or ""):
            raise JobError(
                "--reason contains one of the keys to erase, which would then stay in the lake forever",
                "name the request, not the key",
            )
    return wanted


build_parser, main = Erase.parser, Erase.main
