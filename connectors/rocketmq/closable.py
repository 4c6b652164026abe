"""What is closed at the end of a `with`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Closable(ABC):
    """A client with connections, which are closed at the end of a `with`."""

    def __enter__(self) -> Self:
        """Begin a `with`."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Close all connections."""
