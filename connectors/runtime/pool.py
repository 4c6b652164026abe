"""Execution of a function over many tasks in a pool of threads or processes.

Only a few tasks are submitted at a time, and each result is yielded as soon as it is available.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from itertools import islice

from commitlake.connectors.runtime.runner import Result, Task

_SUBMITTED_PER_WORKER = 2  # one runs, and one waits
_CANCEL_SECONDS = 0.2


def run_in_pool(
    pool: Executor,
    workers: int,
    function: Callable[[Task], Result],
    tasks: Sequence[Task],
    *,
    cancel: Callable[[], None] | None = None,
) -> Iterator[tuple[int, Result]]:
    """Run a function over tasks in a pool, and yield the results as they arrive.

    Args:
        pool: pool in which they run; it cannot be used afterwards.
        workers: number of workers of the pool. Further tasks wait outside the pool.
        tasks: arguments of the function.
        cancel: cancels the running tasks, after an error or if the caller wants no more results. It is called
            repeatedly until they have ended, because a starting task may be missed at first.

    Yields:
        Number and result of each task, in the order in which they finish.

    Raises:
        Exception: the first error of a task, once the other running tasks have ended.
    """
    waiting = iter(enumerate(tasks))
    running: dict[Future[Result], int] = {}

    def submit_next_tasks(count: int) -> None:
        for number, task in islice(waiting, count):
            running[pool.submit(function, task)] = number

    try:
        submit_next_tasks(_SUBMITTED_PER_WORKER * workers)
        while running:
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                number, result = running.pop(future), future.result()
                # Before the result is handed over, so that no worker waits for the caller.
                submit_next_tasks(1)
                yield number, result
    except BaseException:
        # Without waiting: the running tasks are cancelled first.
        pool.shutdown(wait=False, cancel_futures=True)
        while cancel is not None and any(not future.done() for future in running):
            cancel()
            wait(running, timeout=_CANCEL_SECONDS)
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
