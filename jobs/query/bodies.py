"""Bodies of matching messages: a single one unchanged, or a column with the body of each row."""

from __future__ import annotations

import base64
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from commitlake.connectors.printable import escape_unprintable
from commitlake.jobs.cli.command import JobError
from commitlake.jobs.cli.terminal import EscapingStream, print_line, unguarded_stream
from commitlake.jobs.report.rows_output import Row
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.formatted_counts import format_count

if TYPE_CHECKING:
    from commitlake.connectors.lake.packs.pack_stores import PackStore

COLUMNS = ("broker", "physical_offset", "msg_id", "topic", "body_ref", "body_crc", "body_codec")
BODY_COLUMNS = ("body", "body_base64")
MAX_BODY_ROWS = 1000
_SHOWN = 3

Fetch = Callable[[Row], bytes | None]


def make_body_fetcher(packs: PackStore, *, keeps_stored_form: bool) -> Fetch:
    """Return a function that reads the body of a row's message; the function returns None if the lake has no body.

    Args:
        packs: the lake's packs.
        keeps_stored_form: whether bodies are wanted as the broker stored them.
    """
    from commitlake.connectors.lake.packs.body_reader import fetch_body

    return lambda row: fetch_body(packs, row, as_stored=keeps_stored_form)


class BodyTextReader:
    """Reader of bodies as text columns. A body that cannot be read becomes null and is counted.

    Anybody who may send a message can send a body that does not match its flags, or is too large when decompressed.

    Attributes:
        unreadable: number of bodies that could not be read.
        reasons: error messages for the first of these bodies.
    """

    def __init__(self, fetch: Fetch) -> None:
        """Create a reader that gets bodies with a function from `make_body_fetcher`."""
        self._fetch = fetch
        self.unreadable = 0
        self.reasons: list[str] = []

    def read_body_text(self, row: Row, message_name: str = "") -> tuple[str | None, str | None]:
        """Return a row's body as (text, None), or (None, base64) if it is not UTF-8; (None, None) if there is none.

        Args:
            row: a row with `COLUMNS`, or at least those with the position of the body.
            message_name: name of the message, for `reasons`.
        """
        from commitlake.connectors.lake.packs.errors import PackError, PackStoreError
        from commitlake.connectors.reading.errors import BodyError

        try:
            body = self._fetch(row)
        except PackStoreError:
            raise
        except (BodyError, PackError) as error:
            self.unreadable += 1
            if len(self.reasons) < _SHOWN:
                self.reasons.append(f"{message_name}: {error}" if message_name else str(error))
            return None, None
        if body is None:
            return None, None
        try:
            return body.decode(), None
        except UnicodeDecodeError:
            return None, base64.b64encode(body).decode()

    def report_unreadable(self) -> ExitCode:
        """Print how many bodies could not be read, and return the exit code: an error if there were any."""
        if not self.unreadable:
            return ExitCode.OK
        print_line(f"{format_count(self.unreadable, 'body is', 'bodies are')} unreadable, and null in the result:")
        for reason in self.reasons:
            print_line(f"  {reason}")
        return ExitCode.DAMAGE


def add_body_columns(rows: Iterable[Row], body_texts: BodyTextReader, hidden_columns: Iterable[str]) -> Iterator[Row]:
    """Yield rows with the bodies added: column `body` for UTF-8 text, and `body_base64` for other bodies.

    Args:
        rows: rows with `COLUMNS`.
        body_texts: reader of the bodies.
        hidden_columns: columns that are not printed.
    """
    for row in rows:
        body = body_texts.read_body_text(row, f"message {row['msg_id']}")
        kept = {name: value for name, value in row.items() if name not in set(hidden_columns)}
        yield kept | dict(zip(BODY_COLUMNS, body, strict=True))


def write_one_body(rows: Iterator[Row], read_body: Fetch, output_path: str | None) -> int | None:
    """Write the body of the only row, without anything else, and return its size; None if there is no row.

    Args:
        rows: rows with `COLUMNS`.
        read_body: function from `make_body_fetcher`.
        output_path: path of a file, or None for standard output.

    Raises:
        JobError: if there are several messages, or if it has no body in the lake.
    """
    found = list(islice(rows, _SHOWN + 1))
    if not found:
        return None
    if len(found) > 1:
        which = ", ".join(str(row["msg_id"]) for row in found[:_SHOWN])
        more = " and more" if len(found) > _SHOWN else ""
        raise JobError(
            f"--body prints the body of only one message, but several were found: {which}{more}",
            "select it with --id; or add --limit 1 for the first, or --format jsonl for all bodies",
        )
    body = read_body(found[0])
    if body is None:
        raise JobError(
            f"message {found[0]['msg_id']} has no body in the lake: it was archived without bodies, so its body_ref is "
            "null"
        )
    if output_path is not None:
        _write_body_file(Path(output_path), body)
    else:
        _write_to_stdout(body)
    return len(body)


def _write_body_file(path: Path, body: bytes) -> None:
    from commitlake.connectors.atomic_files import open_atomic

    try:
        with open_atomic(path) as file:
            file.write(body)
    except OSError as error:
        raise JobError(f"--body-out {path}: {error.strerror}") from None


def _write_body_to_stream(stream: Any, body: bytes) -> None:
    if hasattr(stream, "buffer"):
        stream.buffer.write(body)
        return
    try:
        stream.write(body.decode())
    except UnicodeDecodeError:
        raise JobError(
            "the body contains other bytes than text, which a notebook cannot show", "add --body-out FILE"
        ) from None


def _write_to_stdout(body: bytes) -> None:
    out: Any = sys.stdout
    if not isinstance(out, EscapingStream) or not out.isatty():  # a file or a pipe, or --raw
        _write_body_to_stream(unguarded_stream(out), body)
        return
    text = body.decode(errors="replace")
    if escape_unprintable(text) != text or "\ufffd" in text:
        raise JobError(
            "the body contains other bytes than text, and is not printed on a terminal",
            "add --body-out FILE, send it to a pipe, or print it anyway with --raw",
        )
    out.write(text if text.endswith("\n") else text + "\n")
