"""Runner that records what would be sent to other processes."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from commitlake.connectors.runtime.local_runner import ThreadRunner
from commitlake.connectors.runtime.runner import Result, Task


class SendingRunner(ThreadRunner):
    """Runner that sends each task as bytes, as to another process.

    Attributes:
        sent: the tasks so far, with their functions.
    """

    def __init__(self, workers: int = 1) -> None:
        super().__init__(workers)
        self.sent: list[bytes] = []

    def run(
        self, function: Callable[[Task], Result], tasks: Sequence[Task], *, is_io_bound: bool = False
    ) -> Iterator[tuple[int, Result]]:
        """Run the tasks from their bytes."""
        sent = [pickle.dumps((function, task)) for task in tasks]
        self.sent += sent
        return super().run(_run_sent, sent, is_io_bound=is_io_bound)


def _run_sent(data: bytes) -> Any:
    function, task = pickle.loads(data)
    return function(task)
