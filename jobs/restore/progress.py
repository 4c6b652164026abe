"""Progress of a restore, which learns the total amount of work only after it has started."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from commitlake.connectors.runtime.runner import Runner
from commitlake.jobs.cli.progress import runner_progress


@contextmanager
def shown(what: str, *, quiet: bool, runner: Runner) -> Iterator[Callable[[int], Callable[[int], None]]]:
    """Yield a function that takes the total number of bytes and returns a function to report further bytes.

    Args:
        what: name of the work, in a few words.
        quiet: whether to show nothing.
    """
    with ExitStack() as stack:
        yield lambda total: stack.enter_context(runner_progress(runner, what, total, quiet=quiet))
