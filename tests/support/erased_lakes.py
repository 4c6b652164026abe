"""Lakes with erased messages, and a search for remains of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from commitlake.connectors.lake.packs.frames import content_size
from commitlake.connectors.runtime.local_runner import HERE
from commitlake.pipelines.archive.result import Result
from commitlake.pipelines.archive.run import Config, run_archive
from commitlake.schemas.layouts.rocketmq.commitlog import NewMessage
from tests.support.audited_lakes import judge_nothing
from tests.support.lakes import DAY_MS, MIDNIGHT_MS, GrowingLake, prepared_lake
from tests.support.logs import new_message

SECRET = 17
"""Number of the message that is erased."""
MARK = "CANARY"
"""In everything that must go of it."""
KEY = f"order-{MARK}-4711"
UNIQUE_KEY = f"7F{MARK}000000000000000000000017"


def shop_message(number: int, *, secret: bool = False, **changes: object) -> NewMessage:
    """Return a message with a key, a unique key, a phone number, and a body with its number.

    It is the copy of one that was delayed, so that `edges` has a row of it.
    """
    topic = str(changes.get("topic", f"topic-{number % 2}"))
    key = KEY if secret else f"order-{number}"
    unique_key = UNIQUE_KEY if secret else f"7F0000010000{number:020d}"
    phone = f"{MARK}-0151-{number}" if secret else f"0151-{number}"
    name = f"{MARK} Erika" if secret else f"customer {number}"
    properties = (("KEYS", key), ("UNIQ_KEY", unique_key), ("TAGS", f"Tag{number % 3}"), ("phone", phone),
                  ("DELAY", "3"), ("REAL_TOPIC", topic))  # fmt: skip
    body = f'{{"number":{number},"name":"{name}","note":"{"abc" * (number % 5)}"}}'.encode()
    values = {"topic": topic, "born_timestamp": MIDNIGHT_MS + number * DAY_MS // 100}
    return new_message(number, **{**values, "body": body, "properties": properties, **changes})  # type: ignore[arg-type]


def shop_messages(count: int, secrets: Sequence[int] = (SECRET,), first: int = 0) -> list[NewMessage]:
    """Return messages, some of which have the canary in their key, properties and body."""
    return [shop_message(number, secret=number in secrets) for number in range(first, first + count)]


def archive(growing: GrowingLake) -> Result:
    """Archive the new messages of a store, with profiles and keys."""
    return run_archive(HERE, Config(str(growing.store), growing.lake, judge=judge_nothing))


def write_lake(folder: Path, runs: int = 2) -> GrowingLake:
    """Create a lake with several runs of 50 messages each; the first run has the secret one."""
    return prepared_lake(folder, _archive_runs, runs)


def _archive_runs(growing: GrowingLake, runs: int) -> None:
    for run in range(runs):
        growing.write(shop_messages(50, first=50 * run))
        archive(growing)


def traces(root: Path, mark: str = MARK) -> list[str]:
    """Return the files below a folder that contain a text, also compressed."""
    return sorted({str(path.relative_to(root)) for path in root.rglob("*") if path.is_file() and _holds(path, mark)})


def _holds(path: Path, mark: str) -> bool:
    data = path.read_bytes()
    if mark.encode() in data:
        return True
    if path.suffix == ".parquet":
        return mark in repr(pq.read_table(pa.BufferReader(data)).to_pylist()).replace("b'", "'")
    return path.suffix == ".zst" and any(mark.encode() in content for content in contents(data))


def contents(pack: bytes) -> Iterator[bytes]:
    """Yield the contents of a pack's frames, found by searching for frame headers."""
    position = pack.find(_MAGIC)
    while position >= 0:
        following = pack.find(_MAGIC, position + 4)
        frame = pack[position : following if following >= 0 else len(pack)]
        size = content_size(frame[:18])
        yield pa.Codec("zstd").decompress(frame, size, asbytes=True)
        position = following


_MAGIC = b"\x28\xb5\x2f\xfd"
