"""A driver of a replay whose tasks are processes of their own, which outlive it; a program for tests that kill them.

python -m tests.support.replay_processes LAKE REPLAY_ID TASKS
"""

from __future__ import annotations

import datetime
import multiprocessing
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection

from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.runtime.local_runner import ThreadRunner
from commitlake.connectors.runtime.runner import Result, Task
from commitlake.pipelines.replay.ledger import read_replay_state
from commitlake.pipelines.replay.plan import ReplayRequest
from commitlake.pipelines.replay.sending.run import ReplayRun
from commitlake.pipelines.replay.sending.target_client import open_target_client

_SPAWN = multiprocessing.get_context("spawn")


class SpawningRunner(ThreadRunner):
    """A runner that starts a process for each task, and another one if that was killed, as Spark does."""

    def run(
        self,
        function: Callable[[Task], Result],
        tasks: Sequence[Task],
        *,
        is_io_bound: bool = False,  # noqa: ARG002 (all tasks run at a time)
    ) -> Iterator[tuple[int, Result]]:
        """Run a function over tasks."""
        with ThreadPoolExecutor(len(tasks)) as pool:
            yield from enumerate(pool.map(lambda task: _run_until_done(function, task), tasks))


def _run_until_done(function: Callable[[Task], Result], task: Task) -> Result:
    while True:
        mine, theirs = _SPAWN.Pipe(duplex=False)
        process = _SPAWN.Process(target=_run, args=(function, task, theirs))
        process.start()
        theirs.close()
        try:
            result: Result = mine.recv()
        except EOFError:
            continue
        finally:
            process.join()
        return result


def _run(function: Callable[[Task], Result], task: Task, result: Connection) -> None:
    result.send(function(task))


def main(root: str, replay_id: str, tasks: str) -> None:
    """Send a planned replay, or the rest of it."""
    lake = Lake(root)
    state = read_replay_state(lake, replay_id)
    request = ReplayRequest(target_timeout=datetime.timedelta(minutes=2))
    runner = SpawningRunner(int(tasks)) if int(tasks) else None
    with open_target_client(state.plan.target.name_servers) as client:
        counts = ReplayRun(lake, state, request, client, runner).send_replay()
    print(counts)


if __name__ == "__main__":
    main(*sys.argv[1:])
