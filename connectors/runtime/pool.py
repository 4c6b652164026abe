"""A function over many tasks in a pool of threads or processes.

Few tasks are submitted at a time, and each result is given as soon as it is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from itertools import islice

from commitlake.connectors.runtime.runner import Result, Task

_SUBMITTED_PER_WORKER = 2  # one runs, and one is there when it is done
_CANCEL_SECONDS = 0.2


def run_in_pool(
    pool: Executor,
    workers: int,
    function: Callable[[Task], Result],
    tasks: Sequence[Task],
    *,
    cancel: Callable[[], None] | None = None,
) -> Iterator[tuple[int, Result]]:
    """Run a function over tasks.

    Args:
        pool: where they run; it cannot be used afterwards.
        workers: how many the pool has. Further tasks wait here and not in the pool.
        function: what is run.
        tasks: its arguments.
        cancel: ends the tasks that are running, where one fails or the caller wants no more results. It is called
            until they have ended: a task that is just starting may not be seen at first.

    Yields:
        Each task's number and result, in the order in which tasks are done.

    Raises:
        Exception: the first error of a task, once the other running tasks have ended.
    """
    waiting = iter(enumerate(tasks))
    running: dict[Future[Result], int] = {}

    def submit(count: int) -> None:
        for number, task in islice(waiting, count):
            running[pool.submit(function, task)] = number

    try:
        submit(_SUBMITTED_PER_WORKER * workers)
        while running:
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                number, result = running.pop(future), future.result()
                submit(1)
                yield number, result
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        while cancel is not None and any(not future.done() for future in running):
            cancel()
            wait(running, timeout=_CANCEL_SECONDS)
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
