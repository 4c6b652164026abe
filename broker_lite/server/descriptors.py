"""File descriptors: connections must leave some of them for the store's files.

The soft limit is often 1,024, and a process may raise it up to the hard limit. A store that cannot open its files
cannot flush them to disk.
"""

from __future__ import annotations

import logging
import resource

from commitlake.broker_lite.stores.engine.mapped_file import DEFAULT_MAX_MAPPED_FILES

RESERVED = DEFAULT_MAX_MAPPED_FILES + 64
"""File descriptors for mapped files and files that are opened briefly."""
_logger = logging.getLogger(__name__)


def raise_limit(connections: int) -> None:
    """Raise the limit on file descriptors for a number of connections, as far as the system allows.

    Args:
        connections: maximum number of connections.
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
        # Some systems have a further limit besides the two that they report.
        _logger.warning("cannot raise the limit on file descriptors from %d to %d: %s", soft, wanted, error)


def is_reserved(descriptor: int) -> bool:
    """Return whether a descriptor is among the reserved ones; systems hand out the lowest free number."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft != resource.RLIM_INFINITY and descriptor >= soft - min(RESERVED, soft // 2)
