"""Requests to an object store, and bytes in it, for archives, checks and look-ups.

    python -m tests.benchmarks.s3_requests                      a store of 1 GiB, bodies of 1 KiB
    python -m tests.benchmarks.s3_requests --gib 4 --body 200

The store is shipped into a bucket, and archived from this disk and from the bucket, each into a lake in the bucket,
which is then queried. A proxy in front of a real S3 server counts the requests. Times mean nothing here, because the
proxy reads each request whole.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from deltalake import DeltaTable
from rich.console import Console
from rich.table import Table

from tests.benchmarks.commands import run_commitlake
from tests.benchmarks.machine import machine
from tests.servers.fault_proxy import FaultProxy
from tests.servers.s3 import S3Server
from tests.support.corpus import make_corpora

_WRITES = ("PUT", "POST")
_LISTS = "list-type="


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, and print two tables."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.s3_requests", description=__doc__.splitlines()[0])
    parser.add_argument("--gib", type=float, default=1, help="size of the log (default: %(default)s)")
    parser.add_argument("--body", type=int, default=1024, help="bytes of a body (default: %(default)s)")
    arguments = parser.parse_args(argv)
    print(*(f"{name}: {value}" for name, value in machine().items()), sep="\n")
    with tempfile.TemporaryDirectory(prefix="commitlake-requests-") as folder:
        (corpus,) = make_corpora(Path(folder), arguments.gib, arguments.body, [1])
        print(f"messages: {corpus.messages:,} in {arguments.gib:g} GiB")
        with _counted(Path(folder)) as (server, proxy):
            _measure(str(corpus.store), server, proxy, corpus.messages)
    return 0


@contextmanager
def _counted(folder: Path) -> Iterator[tuple[S3Server, FaultProxy]]:
    """Start a server and its proxy, which the environment names to all commands."""
    with S3Server(folder) as server, FaultProxy(server.address) as proxy:
        os.environ.update(server.environment(proxy.endpoint), AWS_EC2_METADATA_DISABLED="true")
        yield server, proxy


def _measure(store: str, server: S3Server, proxy: FaultProxy, messages: int) -> None:
    server.client().create_bucket(Bucket="logs")
    shipped, lake, second = "s3://logs/shipped/broker-a", "s3://logs/lake", "s3://logs/second"
    archive = ["archive", "--broker", "broker-a", "--local", "--quiet"]
    requests = Table("command", "PUT, POST", "list", "GET, HEAD", "DELETE")

    def run(name: str, *words: str) -> None:
        proxy.seen.clear()
        run_commitlake(words)
        requests.add_row(name, *(f"{count:,}" for count in _kinds(proxy.seen)))

    run("ship --once", "ship", "--store", store, "--to", shipped, "--once", "--quiet")
    run("archive, from this disk", *archive, "--store", store, "--lake", lake)
    run("archive, nothing new", *archive, "--store", store, "--lake", lake)
    run("archive, from the bucket", *archive, "--store", shipped, "--lake", second)
    uri = f"{lake}/messages"
    options = {**server.environment(), "AWS_ALLOW_HTTP": "true"}
    (message_id,) = DeltaTable(uri, storage_options=options).to_pyarrow_dataset().head(1).column("msg_id").to_pylist()
    run("query by id, with its body", "query", "--lake", lake, "--id", message_id, "--body")
    run("audit", "audit", "--lake", lake, "--local", "--quiet")
    run("maintain, nothing to do", "maintain", "--lake", lake, "--quiet")
    Console(width=120).print(requests)
    sizes = Table("part of the lake", "objects", "bytes for each message")
    for part, (objects, size) in sorted(_parts(server).items()):
        sizes.add_row(part, f"{objects:,}", f"{size / messages:.1f}")
    Console(width=120).print(sizes)


def _kinds(lines: Sequence[str]) -> list[int]:
    """Count requests by their price class: writes, lists, reads, and deletions, which are free."""
    counts: Counter[str] = Counter()
    for line in lines:
        method, target = line.split(" ")[:2]
        is_deletion = method == "DELETE" or target.endswith(("?delete", "?delete="))
        kind = "list" if _LISTS in target else "delete" if is_deletion else "write" if method in _WRITES else "read"
        counts[kind] += 1
    return [counts[kind] for kind in ("write", "list", "read", "delete")]


def _parts(server: S3Server) -> dict[str, tuple[int, int]]:
    """Return the number of objects, and their bytes, in each folder of the first lake."""
    found: dict[str, tuple[int, int]] = {}
    for page in server.client().get_paginator("list_objects_v2").paginate(Bucket="logs", Prefix="lake/"):
        for item in page.get("Contents", ()):
            part = item["Key"].split("/")[1]
            objects, size = found.get(part, (0, 0))
            found[part] = objects + 1, size + item["Size"]
    return found


if __name__ == "__main__":
    sys.exit(main())
