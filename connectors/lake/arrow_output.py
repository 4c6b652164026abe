"""Python's files for writers of Arrow, which write in small pieces."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pyarrow as pa

_BUFFER_BYTES = 1 << 20


@contextmanager
def arrow_output(file: object) -> Iterator[pa.NativeFile]:
    """Collect what Arrow writes in a buffer, and write that to the file, which stays open.

    Arrow's writer of Parquet writes a thousand pieces per data file. Each would wait for Python's lock, which the other
    tasks of this process need, too.

    Args:
        file: a writable file of Python's; its `write` must write everything.
    """
    output = pa.BufferedOutputStream(pa.PythonFile(file, "w"), _BUFFER_BYTES)
    try:
        yield output
    except BaseException:
        with suppress(Exception):  # the file will be dropped; otherwise Arrow would close it later
            output.detach()
        raise
    output.detach()
