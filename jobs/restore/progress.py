"""Progress of a restore, of which only the restore itself learns how much there is to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from commitlake.connectors.runtime.runner import Runner
from commitlake.jobs.cli.progress import runner_progress


@contextmanager
def shown(what: str, *, quiet: bool, runner: Runner) -> Iterator[Callable[[int], Callable[[int], None]]]:
    """A function to call with how many bytes there are, which gives one to call with how many more are done.

    Args:
        what: what the work is, in a few words.
        quiet: show nothing.
        runner: what does the work.
    """
    with ExitStack() as stack:
        yield lambda total: stack.enter_context(runner_progress(runner, what, total, quiet=quiet))
