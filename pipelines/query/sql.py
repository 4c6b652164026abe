"""The selection of messages by the name that replays use."""

from commitlake.schemas.selection import Selection as Conditions

__all__ = ["Conditions"]
