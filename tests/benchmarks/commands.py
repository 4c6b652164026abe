"""Runs of commands, each measured from start to end.

The kernel counts the memory of the parent process at the fork as the command's own. So a small process starts the
command; otherwise the figure would include the memory of the benchmark, which may have made a lake before.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import IO, NamedTuple

_STARTER = """
import json, os, sys
process = os.posix_spawn(sys.argv[2], sys.argv[2:], os.environ)
_, status, usage = os.wait4(process, 0)
with open(int(sys.argv[1]), "w") as answer:
    json.dump([os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024], answer)
"""


class CommandRun(NamedTuple):
    """A finished command.

    Attributes:
        seconds: from its start to its end.
        processor_seconds: of all cores.
        mib: the largest memory of one of its processes.
    """

    seconds: float
    processor_seconds: float
    mib: float


def run_commitlake(
    words: Sequence[str], output: IO[bytes] | int = subprocess.DEVNULL, module: str = "commitlake.jobs.cli.main"
) -> CommandRun:
    """Run `commitlake`, and measure it.

    Args:
        words: the job and its arguments.
        output: file for standard output.
        module: another module to run in place of the command line.

    Raises:
        AssertionError: if the command fails.
    """
    reader, writer = os.pipe()
    command = [sys.executable, "-m", module, *words]
    starter = [sys.executable, "-I", "-S", "-c", _STARTER, str(writer), *command]
    begun = time.perf_counter()
    with subprocess.Popen(starter, stdout=output, pass_fds=[writer]) as process:
        os.close(writer)
        with os.fdopen(reader, encoding="utf-8") as answer:
            code, busy, mib = json.load(answer)
        process.wait()
    assert code == 0, f"commitlake {' '.join(words)}: exit code {code}"
    return CommandRun(time.perf_counter() - begun, busy, mib)
