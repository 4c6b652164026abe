"""Peak memory of a command over a store of very many small segments, and so of very many tasks.

    .venv/bin/python -m tests.benchmarks.many_segments 10000 audit

archives the store first where the command needs a lake. `--spark` runs the commands on Spark.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from commitlake.schemas.layouts.rocketmq.commitlog import serialize_blank, serialize_message
from commitlake.schemas.layouts.segment_names import segment_name
from tests.benchmarks.memory import memory_mib, python_descendants
from tests.support.logs import BROKER_HOST, START_MS, new_message

_SEGMENT = 4096
_BLANK = 8
_TOPICS, _QUEUES = 7, 4


def write_segments(store: Path, count: int) -> int:
    """Write a store of full segments, and return the number of messages."""
    log = store / "commitlog"
    log.mkdir(parents=True)
    number = 0
    for base in range(0, count * _SEGMENT, _SEGMENT):
        segment = bytearray()
        while True:
            message = new_message(number, f"orders{number % _TOPICS}", b"x%08d" % number * 8)
            record = serialize_message(
                replace(message, queue_id=number // _TOPICS % _QUEUES),
                queue_offset=number // (_TOPICS * _QUEUES),
                physical_offset=base + len(segment),
                store_timestamp=START_MS + 40 * number,
                store_host=BROKER_HOST,
            )
            if len(segment) + len(record) + _BLANK > _SEGMENT:
                break
            segment += record
            number += 1
        blank = serialize_blank(_SEGMENT - len(segment))
        (log / segment_name(base)).write_bytes(bytes(segment + blank).ljust(_SEGMENT, b"\0"))
    return number


def measure(command: list[str]) -> str:
    """Run a command, and return the peaks of its process and of the largest Python process below it."""
    started = time.monotonic()
    own = below = 0.0
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            own = max(own, memory_mib(Path(f"/proc/{process.pid}"))[1])
            below = max([below, *(memory_mib(child)[1] for child in python_descendants(process.pid))])
            time.sleep(0.05)
    seconds = time.monotonic() - started
    return f"exit {process.returncode}, {seconds:.0f} s, {own:.0f} MiB; workers {below:.0f} MiB each"


def main(count: int, name: str, *, on_spark: bool) -> None:
    """Measure one command."""
    with tempfile.TemporaryDirectory() as folder:
        store, lake = f"{folder}/store", f"{folder}/lake"
        print(f"{write_segments(Path(store), count):,} messages in {count:,} segments", flush=True)
        how = ["--spark"] if on_spark else []
        program = [str(Path(sys.executable).with_name("commitlake"))]
        places = ["--store", store, "--lake", lake, "--broker", "broker-a"]
        arguments = {
            "archive": places,
            "audit": places,
            "verify": [store],
            "rebuild": [store, "--out", f"{folder}/rebuilt"],
        }
        if name == "audit":
            subprocess.run([*program, "archive", *places, *how, "--quiet"], check=True)
        print(f"{name}: {measure([*program, name, *arguments[name], *how])}")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], on_spark="--spark" in sys.argv[3:])
