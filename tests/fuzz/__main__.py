"""`poe fuzz`: random damage to bytes from peers and in files, until a case fails.

    python -m tests.fuzz --cases 10000000
    python -m tests.fuzz --only planted-messages sent-messages planted-jmq    # ten million messages through all jobs

Each target runs in a process of its own. The exit code is 1 if a case failed; the same seed reproduces it.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor

from tests.fuzz.running import TARGETS, run_cases

SHARES = {
    "frames": 0.4, "requests": 0.2, "layouts": 0.2, "jmq-layouts": 0.104, "stores": 0.003, "jmq-stores": 0.003,
    "planted-messages": 0.04, "sent-messages": 0.03, "planted-jmq": 0.02,
}  # fmt: skip
"""A store takes four hundred times as long as a frame, a message through all jobs a few times."""
_PIECES = 8


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the arguments."""
    parser = argparse.ArgumentParser(prog="poe fuzz", description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=10_000_000, help="of all targets (default: 10000000)")
    parser.add_argument("--seed", type=int, default=1, help="of all that is random (default: 1)")
    parser.add_argument("--only", choices=sorted(TARGETS), nargs="+", help="these targets (default: all)")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run all cases, and print the results."""
    arguments = build_parser().parse_args(argv)
    wanted = {name: SHARES[name] for name in arguments.only or SHARES}
    shares = {name: share / sum(wanted.values()) for name, share in wanted.items()}
    started, failed = time.monotonic(), 0
    jobs = [
        (name, arguments.seed * _PIECES + piece, max(1, int(arguments.cases * share / _PIECES)))
        for piece in range(_PIECES)
        for name, share in shares.items()
    ]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(os.cpu_count(), context, max_tasks_per_child=1) as pool:
        running = [(job, pool.submit(run_cases, *job)) for job in jobs]
        for (name, seed, cases), future in running:
            error = future.exception()
            failed += error is not None
            told = f"FAILED: {error}" if error else f"{cases:,} cases, {future.result()} MiB more memory"
            print(f"{time.monotonic() - started:6.0f} s  {name}, seed {seed}: {told}", flush=True)
    total = sum(cases for _, _, cases in jobs)
    print(f"{total:,} cases in {time.monotonic() - started:.0f} s, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
