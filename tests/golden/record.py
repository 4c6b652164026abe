"""Cut the golden slices out of stores that real brokers write: `python -m tests.golden.record`.

A slice is a run of whole records, copied byte for byte from a segment; its name has the version, segment and position.
Beside it is the output of RocketMQ's own MessageDecoder for each record (tests/java/DumpStore.java).
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from pathlib import Path

from tests.servers.java_programs import Row
from tests.servers.recording import RecordedStore, recorded
from tests.servers.rocketmq import VERSIONS

FOLDER = Path(__file__).parent
_LARGE = 20_000
_FILLER_TOPIC = "EveryVolume"


def interesting_runs(rows: list[Row]) -> list[list[Row]]:
    """Return the two longest runs of adjacent records without large records and filler."""
    runs: list[list[Row]] = [[]]
    for row in rows:
        is_wanted = row["size"] < _LARGE and row["topic"] != _FILLER_TOPIC
        follows = not runs[-1] or runs[-1][-1]["segment"] == row["segment"]
        if not is_wanted or not follows:
            runs.append([])
        if is_wanted:
            runs[-1].append(row)
    return sorted(runs, key=len, reverse=True)[:2]


def write_slice(store: RecordedStore, rows: list[Row]) -> str:
    """Write a slice and its decoding; return its line for the list of digests."""
    segment = str(rows[0]["segment"])
    start = rows[0]["physical_offset"] - int(segment)
    end = rows[-1]["physical_offset"] + rows[-1]["size"] - int(segment)
    data = (store.store / "commitlog" / segment).read_bytes()[start:end]
    name = f"rocketmq-{store.version}-{segment}-{start}"
    (FOLDER / f"{name}.bin").write_bytes(data)
    lines = (json.dumps(row, ensure_ascii=False, sort_keys=True) for row in rows)
    (FOLDER / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return f"{hashlib.sha256(data).hexdigest()}  {name}.bin"


def main() -> None:
    """Record both versions, and write the slices again."""
    for old in FOLDER.glob("rocketmq-*"):
        old.unlink()
    digests = []
    for version in VERSIONS:
        with tempfile.TemporaryDirectory() as scratch:
            store = recorded(version, Path(scratch))
            digests += [write_slice(store, rows) for rows in interesting_runs(store.decoded)]
    (FOLDER / "SHA256SUMS").write_text("\n".join(sorted(digests)) + "\n")


if __name__ == "__main__":
    main()
