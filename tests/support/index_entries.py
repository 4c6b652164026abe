"""The type of a function that reads a store's index entries."""

from __future__ import annotations

from collections.abc import Callable

from tests.support.index_entry_rows import Rows

Read = Callable[..., Rows]
