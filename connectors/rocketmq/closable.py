"""A base class for clients that are closed at the end of a `with` block."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Closable(ABC):
    """A client with connections, which are closed at the end of a `with` block."""

    def __enter__(self) -> Self:
        """Enter a `with` block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the client at the end of the block."""
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Close all connections."""
