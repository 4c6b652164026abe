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

import argparse
import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from commitlake.jobs.cli.command import JobError, job_parser, run_job
from commitlake.jobs.cli.durations import duration_text, parse_duration
from commitlake.jobs.cli.evidence import add_evidence_argument
from commitlake.jobs.cli.output_forms import add_format_argument
from commitlake.jobs.cli.places import add_place_arguments
from commitlake.jobs.cli.runner import add_spark_argument
from commitlake.schemas.errors import ExitCode

if TYPE_CHECKING:
    from commitlake.pipelines.erasure.selection import KeysToErase

MAX_FILE_BYTES = 64 << 20


def read_keys(name: str) -> list[str]:
    """Read the keys of a file, without its empty lines.

    Args:
        name: name of the file, in UTF-8.

    Raises:
        JobError: if the file cannot be read, is too large, or has no key.
    """
    path = Path(name)
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise JobError(f"--keys-file {name}: expected a file to read, found: {error.strerror}") from None
    if len(data) > MAX_FILE_BYTES:
        raise JobError(f"--keys-file {name}: expected at most {MAX_FILE_BYTES:,} bytes, found more", "split the file")
    try:
        lines = data.decode("utf-8-sig").split("\n")  # other Unicode line separators may be part of a key
    except UnicodeDecodeError as error:
        raise JobError(f"--keys-file {name}: expected UTF-8, found an invalid byte at {error.start:,}") from None
    keys = [line.strip(" \t\r") for line in lines if line.strip()]
    if not keys:
        raise JobError(f"--keys-file {name}: expected one key per line, found none")
    return keys


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
SELECTING = ("key", "keys_file", "unique_key", "id")


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of the job's arguments."""
    parser = job_parser("erase", DESCRIPTION, EXAMPLES)
    add_place_arguments(parser)
    parser.add_argument("--key", action="append", default=[], help="business key of the messages")
    parser.add_argument("--keys-file", "--keys", metavar="FILE", help="file of business keys, one per line, in UTF-8")
    parser.add_argument("--unique-key", action="append", default=[], metavar="ID", help="client message id (UNIQ_KEY)")
    parser.add_argument("--id", action="append", default=[], help="offset message id, or client message id")
    parser.add_argument("--reason", help="the reason, stored in the table erasures; it must not contain a key")
    retention_help = "keep older versions of the tables for this time, at least 1d (default: 7d)"
    names = ("--vacuum-after", "--retention")
    parser.add_argument(
        *names, dest="retention", type=parse_duration, default="7d", metavar="TIME", help=retention_help
    )
    now_help = "delete older versions at once; use it only while no other job reads or writes the lake"
    parser.add_argument("--now", action="store_true", help=now_help)
    parser.add_argument(
        "--keep-later-copies",
        action="store_true",
        help="archive later messages with these keys and ids as they are; by default, they are erased when they arrive",
    )
    parser.add_argument("--hbase", metavar="HOST[:PORT]", help="also erase in HBase, through its Thrift server")
    parser.add_argument(
        "--hbase-table", metavar="NAME", help="name of the table in HBase (default: commitlake_messages)"
    )
    parser.add_argument(
        "--finish",
        action="store_true",
        help="erase nothing new; finish interrupted erasures and delete old versions that are due",
    )
    parser.add_argument("--list", action="store_true", help="show all erasures, and change nothing")
    parser.add_argument("--dry-run", action="store_true", help="only show what would be done")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    add_format_argument(parser, scope="--list")
    add_evidence_argument(parser)
    add_spark_argument(parser)
    return parser


def job(arguments: argparse.Namespace) -> ExitCode:
    """Check the arguments, and erase."""
    _check(arguments)
    from commitlake.jobs.erase.run import erase, finish, show_all

    if arguments.list:
        return show_all(arguments)
    if arguments.finish:
        return finish(arguments)
    return erase(arguments, _wanted(arguments))


def _check(arguments: argparse.Namespace) -> None:
    from commitlake.jobs.cli.combinations import check_has_effect

    check_has_effect(arguments, ["hbase-table"], "hbase")
    named = [option for option in SELECTING if getattr(arguments, option)]
    if arguments.list and arguments.finish:
        raise JobError("--list and --finish cannot be used together", "leave one of them out")
    other = next((f"--{option}" for option in ("list", "finish") if getattr(arguments, option)), None)
    if other is not None:
        if named:
            shown = named[0].replace("_", "-")
            raise JobError(f"--{shown} has no effect with {other}", "leave one of them out")
        return
    if not named:
        hint = "name them with --key, --keys-file, --unique-key or --id"
        raise JobError("expected messages to erase, found none", hint)
    if not arguments.reason or not arguments.reason.strip():
        raise JobError("--reason: expected a reason, found nothing", "it is stored in the table erasures")
    if arguments.retention < datetime.timedelta(days=1):
        raise JobError(
            f"--vacuum-after: expected at least 1d, found {duration_text(arguments.retention)}",
            "a running job must be done with its version by then; if no other job is running, use --now",
        )


def _wanted(arguments: argparse.Namespace) -> KeysToErase:
    from commitlake.pipelines.erasure.selection import KeysToErase

    keys = {*arguments.key, *(read_keys(arguments.keys_file) if arguments.keys_file else ())}
    wanted = KeysToErase(frozenset(keys), frozenset(arguments.unique_key), frozenset(arguments.id))
    if any(not text.strip() for text in wanted.texts):
        raise JobError("expected keys and ids of at least one character, found an empty one")
    for text in wanted.texts:
        if text in arguments.reason:
            raise JobError(
                "--reason: it contains one of the keys, which would stay in the lake forever",
                "name the request, not the key",
            )
    return wanted


def main(argv: Sequence[str] | None = None) -> int:
    """Run `commitlake erase`."""
    return run_job(build_parser(), job, argv)
