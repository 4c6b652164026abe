"""A real server as a context: started when a test enters it, and ended when the test leaves it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Server(ABC):
    """One server, or some that are started and ended together."""

    def __enter__(self) -> Self:
        """Start it."""
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop it, or kill it where a test failed: the error to be seen is the test's."""
        if kind is None:
            self.stop()
        else:
            self.kill()

    @abstractmethod
    def start(self) -> Self:
        """Start it; return when a client gets answers."""

    @abstractmethod
    def kill(self) -> None:
        """End by SIGKILL whatever runs of it."""

    def stop(self) -> None:
        """Stop it cleanly; kill it where a clean stop takes long and nobody reads its data again."""
        self.kill()
