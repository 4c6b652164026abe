"""Exceptions of this project's code in Spark's worker processes, raised again in the driver with their own type.

    with forward_worker_errors():            # in a worker: around all code that Spark calls
        yield from work(batches)

    with raise_worker_errors():     # in the driver: around calls that make Spark run tasks
        rows = frame.collect()

Spark passes an exception of a Python process on as text. `forward_worker_errors` adds a note to the exception: one
line with its class, arguments, exit code and hint as JSON, which Python prints after the exception's message wherever
it prints that.
`raise_worker_errors` finds this line and recreates the exception. The error fails its task as any other does: Spark
retries the task as often as configured, then gives up and cancels the others.

The text of an error may contain text from a log, including a forged line of this kind. Only the last line counts: the
real one comes after the message, and quotes in the message are escaped there. A forged line could do no more than
create an exception of a loaded class, from strings and numbers.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from commitlake.schemas.errors import CommitLakeError, ExitCode

_MARK = '{"commitlake_error": '
_OURS = "commitlake."
_ATTRIBUTES: dict[str, Callable[[Any], Any]] = {"exit_code": ExitCode, "hint": str, "is_transient": bool}
"""What an error of this project may be given when it is raised, with what checks it."""
_SPARK = frozenset({"pyspark", "py4j"})


@contextmanager
def forward_worker_errors() -> Iterator[None]:
    """Make the driver receive this process's exceptions with their own type."""
    try:
        yield
    except Exception as error:
        if not any(note.startswith(_MARK) for note in getattr(error, "__notes__", ())):
            error.add_note(_to_json(error))
        raise


@contextmanager
def raise_worker_errors() -> Iterator[None]:
    """Raise the exception that ended a Spark task, with its own type and with Spark's error as its cause.

    Exceptions that Spark raises itself are raised unchanged.
    """
    try:
        yield
    except Exception as error:
        if (found := extract_worker_error(error)) is None:
            raise
        raise found from error


def extract_worker_error(error: BaseException) -> Exception | None:
    """Return the exception that a worker raised, extracted from Spark's error; None if there is none."""
    if type(error).__module__.partition(".")[0] not in _SPARK:
        return None
    _, found, rest = str(error).rpartition(_MARK)
    return _from_json(found + rest) if found else None


def _to_json(error: Exception) -> str:
    kind, reduced = type(error), error.__reduce__()  # __reduce__ includes the file name of an OSError
    arguments = reduced[1] if isinstance(reduced, tuple) and reduced[0] is kind else error.args
    plain = [each if isinstance(each, str | int | float | None) else str(each) for each in arguments]
    given = vars(error) if isinstance(error, CommitLakeError) else {}
    given = {name: value for name, value in given.items() if name in _ATTRIBUTES}
    document = {"commitlake_error": kind.__name__, "module": kind.__module__, "arguments": plain, "attributes": given}
    return json.dumps(document)


def _from_json(text: str) -> Exception | None:
    try:
        document, _ = json.JSONDecoder().raw_decode(text)
        name, module, arguments = document["commitlake_error"], document["module"], document["arguments"]
        found = importlib.import_module(module) if module.startswith(_OURS) else sys.modules[module]
        kind = getattr(found, name)
        if not issubclass(kind, Exception):
            return None
        made = kind(*arguments)
        given = document["attributes"].items()
        vars(made).update({name: _ATTRIBUTES[name](value) for name, value in given})
    except Exception:  # noqa: BLE001 (a line of somebody else's can be wrong in any way: Spark's own error is raised)
        return None
    return made if isinstance(made, Exception) else None
