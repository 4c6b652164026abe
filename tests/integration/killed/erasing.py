"""An erasure in a process of its own, to be killed: it prints a line before it begins, and waits for input.

python -m tests.integration.killed.erasing LAKE KEY
"""

from __future__ import annotations

import sys

# All of it is loaded first, so that the kills hit the work.
from commitlake.jobs.erase import command
from commitlake.jobs.erase.run import run_erase
from commitlake.pipelines.maintenance.compaction import rewrite_file


def main() -> int:
    """Erase a key, and delete older versions at once."""
    lake, key = sys.argv[1:]
    assert run_erase.__module__ in sys.modules
    assert rewrite_file.__module__ in sys.modules
    print("ready", flush=True)
    sys.stdin.readline()
    arguments = ["--lake", lake, "--key", key, "--reason", "a test", "--yes", "--now", "--quiet"]
    code = command.main(arguments)
    print(f"done {code}", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
