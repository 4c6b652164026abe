"""What went wrong in one of Spark's Python workers, from the text that Spark makes of it.

An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "…/task.py", line 118, in _read
    check_uncut(split)
connectors.formats.engine.errors.StoreError: … is shorter than …
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass

_TRACEBACK = "Traceback (most recent call last):\n"
_OURS = "commitlake."


@dataclass(frozen=True, slots=True)
class WorkerError:
    """An exception of a worker.

    Attributes:
        kind: its class where it is one of ours, else None.
        name: of its class, without the module.
        message: its words.
    """

    kind: type[Exception] | None
    name: str
    message: str


def worker_error(error: BaseException) -> WorkerError | None:
    """The exception behind an error of Spark's; None where the error tells of none."""
    _, found, rest = str(error).rpartition(_TRACEBACK)
    if not found:
        return None
    lines = rest.splitlines()
    first = next((number for number, line in enumerate(lines) if not line.startswith(" ")), None)
    if first is None:
        return None
    qualified, _, message = "\n".join(lines[first:]).strip().partition(": ")
    module, _, name = qualified.rpartition(".")
    return WorkerError(_class_of(module, name), name, message or name)


def _class_of(module: str, name: str) -> type[Exception] | None:
    if not module.startswith(_OURS):
        return None
    try:
        found = getattr(importlib.import_module(module), name, None)
    except ImportError:
        return None
    return found if isinstance(found, type) and issubclass(found, Exception) else None
