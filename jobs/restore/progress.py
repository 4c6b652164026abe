"""Progress of a restore, of which only the restore itself learns how much there is to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from commitlake.jobs.cli.progress import counted_progress


@contextmanager
def shown(what: str, *, quiet: bool) -> Iterator[Callable[[int], Callable[[int], None]]]:
    """A function to call with how many bytes there are, which gives one to call with how many more are done.

    Args:
        what: what the work is, in a few words.
        quiet: show nothing.
    """
    with ExitStack() as stack:
        yield lambda total: stack.enter_context(counted_progress(what, total, "bytes", quiet=quiet))
