"""Names of packs, relative to the lake's folder of bodies, with '/' between the parts on every system.

    store_date=2026-11-20/broker=broker-a/00000000000000000000-00000000000134217728-5f0c3a9e77d2b164.zst

A merged pack has `-merged` before `.zst`, and the range from the first to the last byte of the packs that it holds, see
`merged_packs`; no row refers to its name.

The date is first so that a rule of an object store can expire bodies by date. The numbers are the range of the broker's
log that the bodies come from: its start, and its end, exclusive. The last part is a random token of the writer. Rows
refer to frames by their position, so a pack that rows refer to must never be replaced by another, not even by the same
bodies compressed with another version of zstd.

`parse_pack_name` accepts exactly the names that `pack_name` returns. In a broker's name, letters, digits, `-_~` and
single dots are unchanged; everything else is percent-encoded. Names are case-sensitive, as brokers' names are.
"""

from __future__ import annotations

import datetime
import re
import secrets
from dataclasses import dataclass
from urllib.parse import quote, unquote

from commitlake.connectors.lake.packs.errors import PackNameError
from commitlake.connectors.printable import escape_line

_NULL_DATE = "__HIVE_DEFAULT_PARTITION__"  # folder of Spark and Hive for a null in a partition column
_OFFSET_LIMIT = 1 << 63
_MAX_SHOWN = 60
_MAX_PART_BYTES = 255  # limit for a folder's name on common file systems
_TOKEN = re.compile("[0-9a-f]{16}")
_NAME = re.compile(
    rf"store_date=(?P<date>[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}|{_NULL_DATE})/"
    r"broker=(?P<broker>[A-Za-z0-9._~%-]*)/"
    r"(?P<start>[0-9]{20})-(?P<end>[0-9]{20})-(?P<token>[0-9a-f]{16})(?P<merged>-merged)?\.zst"
)


@dataclass(frozen=True, slots=True)
class PackName:
    """The parts of a pack's name."""

    store_date: datetime.date | None
    broker: str
    start: int
    end: int
    token: str
    is_merged: bool = False


@dataclass(frozen=True, slots=True)
class PackFile:
    """A pack (file with message bodies): its name, date, size and modification time.

    Attributes:
        name: name of the pack.
        store_date: date in the name.
        size: size in bytes.
        modified: modification time in UTC, by the clock of the file system or object store.
    """

    name: str
    store_date: datetime.date | None
    size: int
    modified: datetime.datetime


@dataclass(frozen=True, slots=True)
class PackPlace:
    """The byte range with a pack's content: a whole file, or a part of a merged pack.

    Attributes:
        file: name of the file.
        offset: position of the pack's first byte in it.
        size: size of the pack; None for all of the file.
    """

    file: str
    offset: int = 0
    size: int | None = None


def new_token() -> str:
    """Return a random token for a new pack's name."""
    return secrets.token_hex(8)


def pack_name(
    store_date: datetime.date | None, broker: str, start: int, end: int, token: str, *, is_merged: bool = False
) -> str:
    """Return the name of a pack.

    Args:
        store_date: the date of its messages in UTC, or None if they have none.
        broker: name of the broker as in the table; any string.
        start: start of the range.
        end: end of the range, exclusive.
        token: result of `new_token`.
        is_merged: True for a merged pack.

    Raises:
        ValueError: if the range or the token is not valid, or the broker's name is too long for a folder.
    """
    if not 0 <= start <= end < _OFFSET_LIMIT:
        raise ValueError(
            f"expected a range of physical offsets with 0 <= start <= end < 2**63, found start {start} and end {end}"
        )
    if _TOKEN.fullmatch(token) is None:
        raise ValueError(f"expected a pack's token of 16 hexadecimal digits, found {token!r}")
    # isoformat would include the time of a datetime, which is a subclass of date.
    date = _NULL_DATE if store_date is None else f"{store_date.year:04}-{store_date.month:02}-{store_date.day:02}"
    if not fits_folder_name(broker):
        raise ValueError(
            f"expected the name of a broker of at most {_MAX_PART_BYTES} bytes once it is escaped, found a longer one: "
            f"{broker[:100]!r}"
        )
    return (
        f"store_date={date}/{_broker_folder(broker)}/{start:020}-{end:020}-{token}{'-merged' if is_merged else ''}.zst"
    )


def fits_folder_name(broker: str) -> bool:
    """Return True if a broker's name, once escaped, is short enough for the name of a folder of packs."""
    return len(_broker_folder(broker)) <= _MAX_PART_BYTES


def _broker_folder(broker: str) -> str:
    return f"broker={_escape_broker_name(broker)}"


def parse_pack_name(name: str) -> PackName:
    """Parse a pack's name; a name from a table must pass this check before it becomes part of a path.

    Raises:
        PackNameError: if `pack_name` would not give this name.
    """
    found = _NAME.fullmatch(name)
    if found is not None:
        try:
            parsed = PackName(
                None if found["date"] == _NULL_DATE else datetime.date.fromisoformat(found["date"]),
                unquote(found["broker"], errors="surrogatepass"),
                int(found["start"]),
                int(found["end"]),
                found["token"],
                found["merged"] is not None,
            )
            date, broker, is_merged = parsed.store_date, parsed.broker, parsed.is_merged
            # Only the exact spelling is accepted. Two spellings of one pack would be two files in an object store.
            if pack_name(date, broker, parsed.start, parsed.end, parsed.token, is_merged=is_merged) == name:
                return parsed
        except ValueError:  # invalid date, invalid range, or not UTF-8
            pass
    raise PackNameError(
        name,
        None,
        "store_date=DATE/broker=NAME/START-END-TOKEN.zst, as 'archive' writes it",
        "another shape",
        "The table's body_ref was not written by 'archive', or is damaged: nothing was opened",
    )


def _escape_broker_name(broker: str) -> str:
    # Broker names may come from folders, and a folder's name that is not UTF-8 contains surrogates.
    escaped = quote(broker, safe="", errors="surrogatepass")
    # No part of a path may be `..`, also not as part of a longer name.
    return re.sub(r"\.{2,}", lambda dots: "%2E" * len(dots[0]), escaped)


def find_broker_name_fault(broker: str) -> str | None:
    """Return the reason why a text is not a valid broker name, as `expected ..., found ...`; None for a valid name."""
    shown = ascii(broker if len(broker) <= _MAX_SHOWN else f"{broker[:_MAX_SHOWN]}...")
    if not fits_folder_name(broker):
        return f"expected a broker's name of at most 248 bytes, found {len(broker)} characters: {shown}"
    if not broker or broker != broker.strip() or "/" in broker or escape_line(broker) != broker:
        return f"expected a broker's name without '/', control characters and spaces around it, found {shown}"
    return None
