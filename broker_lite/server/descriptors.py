"""File descriptors: a process has so many, and connections must leave some for the store's files.

A system often gives 1,024, of which a process may take more by itself, up to the hard limit. A store without any left
cannot open its files to put them on the disk.
"""

from __future__ import annotations

import logging
import resource

from commitlake.broker_lite.stores.engine.mapped_file import DEFAULT_MAX_MAPPED_FILES

RESERVED = DEFAULT_MAX_MAPPED_FILES + 64
"""For mapped files, and those that are opened for a moment."""
_logger = logging.getLogger(__name__)


def raise_limit(connections: int) -> None:
    """Have descriptors for so many connections, as far as the system lets this process.

    Args:
        connections: how many there may be.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + RESERVED
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError) as error:
        # Some systems have a limit beside the two that they tell.
        _logger.warning("this process has %d file descriptors, and cannot have %d: %s", soft, wanted, error)


def is_reserved(descriptor: int) -> bool:
    """Whether a connection's descriptor is one of the last: a system gives the lowest that is free."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft != resource.RLIM_INFINITY and descriptor >= soft - min(RESERVED, soft // 2)
