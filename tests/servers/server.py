"""A real server as a context manager, which starts it and stops it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Server(ABC):
    """One server, or several that are started and stopped together."""

    def __enter__(self) -> Self:
        """Start it."""
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop it, or kill it if a test failed, so that the test's error is shown."""
        if kind is None:
            self.stop()
        else:
            self.kill()

    @abstractmethod
    def start(self) -> Self:
        """Start it; return when a client gets answers."""

    @abstractmethod
    def kill(self) -> None:
        """End all its running processes with SIGKILL."""

    def stop(self) -> None:
        """Stop it cleanly; servers whose clean stop is slow and whose data is not read again are killed."""
        self.kill()
