"""Readable forms of values in findings: names of magic codes, times, sizes.

>>> decode_value("4F4F4F4F")
'4F4F4F4F (the text "OOOO")'
>>> decode_value("stored at 1795183200000 ms, 1048576 bytes")
'stored at 2026-11-20 14:00:00.000 UTC (1795183200000 ms), 1,048,576 bytes (1.0 MiB)'
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator, Mapping

from commitlake.jobs.arguments.sizes import size_text
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.layouts.boltmq.dialect import BLANK_MAGICS, MESSAGE_MAGICS, Magic
from commitlake.schemas.layouts.jmq import journal
from commitlake.schemas.layouts.rocketmq.commitlog import BLANK, HEAD
from commitlake.schemas.times import EPOCH, MILLISECOND, format_time

_MAGIC_NAMES = {
    f"{Magic.V1 & 0xFFFFFFFF:08X}": "message of RocketMQ",
    f"{Magic.V2 & 0xFFFFFFFF:08X}": "message of RocketMQ 5 with a long topic",
    f"{Magic.BLANK & 0xFFFFFFFF:08X}": "filler at a segment's end",
    f"{Magic.BOLTMQ & 0xFFFFFFFF:08X}": "message of BoltMQ",
    f"{Magic.BOLTMQ_BLANK & 0xFFFFFFFF:08X}": "filler of BoltMQ's at a segment's end",
    f"{journal.Magic.MESSAGE:04X}": "message of JMQ",
    f"{journal.Magic.FILLER:04X}": "filler at a file's end",
}
_HEX = re.compile(r"(?<![0-9A-Za-z])(?:[0-9A-F]{8}|[0-9A-F]{4})(?![0-9A-Za-z])")
_MILLISECONDS = re.compile(r"(?<![0-9A-Za-z.-])([0-9]{12,13}) ms(?![0-9A-Za-z])")
_BYTES = re.compile(r"(?<![0-9A-Za-z.-])([0-9]{1,19}) bytes(?![0-9A-Za-z])")
_LEADING_NUMBER = re.compile(r"^-?[0-9]{1,10}(?![0-9])")
_PRINTABLE = range(0x20, 0x7F)
_MAGIC_CODES = frozenset({"log_bad_magic", "magic"})
_CRC_CODES = frozenset({"log_bad_crc", "body_crc"})
_SHOWN_BYTES = 16


def decode_value(value: str, finding_code: str = "magic") -> str:
    """Return a found or expected value with readable magic codes, checksums, times and sizes.

    Args:
        value: The text.
        finding_code: Class of the finding, or reason of the row in `quarantine`; it determines which numbers are magic
            codes.
    """
    if finding_code in _MAGIC_CODES:
        value = _HEX.sub(lambda match: _append_note(match[0], _magic_name(match[0])), value)
    if finding_code in _CRC_CODES:
        value = _LEADING_NUMBER.sub(lambda match: f"{int(match[0]) & 0xFFFFFFFF:08X} ({match[0]})", value)
    value = _MILLISECONDS.sub(lambda match: f"{ms_to_time_text(int(match[1]))} ({match[0]})", value)
    return _BYTES.sub(lambda match: bytes_text(int(match[1])), value)


def time_text(moment: datetime.datetime) -> str:
    """Format a time in UTC, to the second."""
    return f"{format_time(moment)} UTC"


def ms_to_time_text(milliseconds: int) -> str:
    """Format a time in ms since 1970 as UTC, to the millisecond; a time outside the calendar stays a number."""
    try:
        moment = EPOCH + milliseconds * MILLISECOND
    except OverflowError:
        return f"{milliseconds} ms"
    return f"{moment:%Y-%m-%d %H:%M:%S}.{moment.microsecond // 1000:03d} UTC"


def bytes_text(count: int) -> str:
    """Format a number of bytes, and a large one also with a unit: `1,048,576 bytes (1.0 MiB)`."""
    shown = format_count(count, "byte")
    return _append_note(shown, size_text(count)) if count >= 1024 else shown


def offset_text(offset: int) -> str:
    """Format a physical offset as a plain number, which can be copied, and a large one also as a size."""
    return _append_note(f"{offset}", size_text(offset)) if offset >= 1 << 20 else f"{offset}"


def decode_first_bytes(data: bytes) -> Mapping[str, str]:
    """Return the first bytes of a damaged range: in hex, as text, and decoded if they begin a RocketMQ record.

    Args:
        data: The bytes; without bytes the result is empty.
    """
    if not data:
        return {}
    shown = data[:_SHOWN_BYTES]
    text = "".join(chr(byte) if byte in _PRINTABLE else "·" for byte in shown)
    more = "…" if len(data) > _SHOWN_BYTES else ""
    found = {"first bytes": f"{shown.hex(' ')}{more} ({text}{more})"}
    if head := "; ".join(_header_field_texts(data)):
        found["says of itself"] = head
    return found


def _header_field_texts(data: bytes) -> Iterator[str]:
    """Yield the header fields of a record as text, if it has a magic code of RocketMQ or BoltMQ."""
    if len(data) < BLANK.size:
        return
    size, magic = BLANK.unpack(data, 0)
    if magic not in MESSAGE_MAGICS and magic not in BLANK_MAGICS:
        return
    yield f"magic {magic & 0xFFFFFFFF:08X}, {_magic_name(f'{magic & 0xFFFFFFFF:08X}')}"
    yield f"size {bytes_text(size)}" if size >= 0 else f"size {size}"
    if magic in BLANK_MAGICS or len(data) < HEAD.size:
        return
    head = HEAD.unpack(data, 0)
    queue_id, queue_offset, physical_offset, born = head[3], head[5], head[6], head[8]
    yield f"queue {queue_id}, number {queue_offset}"
    yield f"physical offset {physical_offset}"
    yield f"sent {ms_to_time_text(born)}"


def _magic_name(magic_hex: str) -> str:
    """Return the name of a magic code; for an unknown one, its bytes as text, or an empty string."""
    if magic_hex in _MAGIC_NAMES:
        return _MAGIC_NAMES[magic_hex]
    data = bytes.fromhex(magic_hex)
    if not any(data):
        return "zeros"
    return f'the text "{data.decode("ascii")}"' if all(byte in _PRINTABLE for byte in data) else ""


def _append_note(value: str, note: str) -> str:
    return f"{value} ({note})" if note else value
