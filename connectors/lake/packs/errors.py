"""Errors of reading bodies from packs.

PackError                   a pack, or a reference to it, that does not yield the body: what was expected and found
├── PackNameError           a name that `pack_name` never returns: such a path is not opened
└── PackStoreError          the place of all packs, not one of them: no such bucket, no permission, no answer now
"""

from __future__ import annotations

from commitlake.schemas.errors import CommitLakeError, ExitCode


class PackError(CommitLakeError):
    """A body is not available; the message is for a user.

    Attributes:
        pack: the pack's name, as in the table.
        offset: the position in the pack, in bytes; None for the whole pack.
        expected: what the reference or the format requires.
        found: what was found.
        advice: advice for the user.
    """

    exit_code = ExitCode.USAGE

    def __init__(self, pack: str, offset: int | None, expected: str, found: str, advice: str) -> None:
        super().__init__(pack, offset, expected, found, advice)  # all attributes, so that the error can be pickled
        self.pack = pack
        self.offset = offset
        self.expected = expected
        self.found = found
        self.advice = advice

    def __str__(self) -> str:
        place = "" if self.offset is None else f", offset {self.offset}"
        return f"pack {self.pack!r}{place}: expected {self.expected}, found {self.found}. {self.advice}"


class PackNameError(PackError):
    """A name does not have the form of a pack's name."""


class PackStoreError(PackError):
    """The folder or object store with the packs is unusable as a whole.

    Attributes:
        root: the place.
        is_transient: True if the place does not answer now, so that a retry may succeed.
    """

    def __init__(self, root: str, expected: str, found: str, advice: str, *, is_transient: bool = False) -> None:
        super().__init__("", None, expected, found, advice)
        self.args = (root, expected, found, advice)  # arguments for unpickling
        self.root = root
        if is_transient:
            self.exit_code, self.is_transient = ExitCode.FAILED, True

    def __str__(self) -> str:
        return f"bodies in {self.root}: expected {self.expected}, found {self.found}. {self.advice}"
