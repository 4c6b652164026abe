"""A real server as a context: started when a test enters it, and ended when the test leaves it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Server(ABC):
    """One server, or several that are started and ended together."""

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
        """End all its running processes by SIGKILL."""

    def stop(self) -> None:
        """Stop it cleanly; kill it if a clean stop takes long and its data is not read again."""
        self.kill()
