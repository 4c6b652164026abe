"""Findings of a run: all are counted, the first of each class are kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from commitlake.pipelines.verify.classes import CLASSES, FindingClass, Severity

DEFAULT_LIMIT = 20


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it must be.

    Attributes:
        code: of its class.
        file: its file, from the store's folder on.
        position: byte in that file.
        physical_offset: place in the log that it is about.
        queue: topic and queue id, `orders/3`.
        number: of the message in its queue, or of the entry in its index file.
        found: what stands there.
        expected: what must.
        broker: the store's name.
    """

    code: str
    file: str = ""
    position: int | None = None
    physical_offset: int | None = None
    queue: str = ""
    number: int | None = None
    found: str = ""
    expected: str = ""
    broker: str = ""

    @property
    def kind(self) -> FindingClass:
        """Its class."""
        return CLASSES[self.code]

    @property
    def place(self) -> str:
        """Where it is, in words."""
        words = [self.file]
        if self.position is not None:
            words.append(f"byte {self.position}")
        if self.queue:
            words.append(f"queue {self.queue}")
        if self.number is not None:
            words.append(f"number {self.number}")
        if self.physical_offset is not None:
            words.append(f"offset {self.physical_offset}")
        return ", ".join(word for word in words if word)


@dataclass
class Findings:
    """What was found.

    Attributes:
        limit: findings of a class that are kept.
        counts: how many there are of each class.
        kept: the first of each class.
    """

    limit: int = DEFAULT_LIMIT
    counts: Counter[str] = field(default_factory=Counter)
    kept: dict[str, list[Finding]] = field(default_factory=dict)

    def add(self, finding: Finding) -> None:
        """Count one, and keep it if there is room."""
        self.add_many(finding.code, 1, [finding])

    def note(
        self,
        code: str,
        file: str,
        position: int | None = None,
        physical_offset: int | None = None,
        *,
        found: str,
        expected: str,
    ) -> None:
        """See `connectors.formats.small_files.Problems`."""
        self.add(Finding(code, file, position, physical_offset, found=found, expected=expected))

    def add_many(self, code: str, count: int, first: Iterable[Finding]) -> None:
        """Count several of a class; of the first, as many are taken as there is room for.

        Raises:
            KeyError: if there is no such class.
        """
        CLASSES[code]
        if count:
            self.counts[code] += count
            kept = self.kept.setdefault(code, [])
            for finding in first:
                if len(kept) >= self.limit:
                    break
                kept.append(finding)

    def merge(self, other: Findings) -> None:
        """Take over what another part of the run found."""
        for code, count in other.counts.items():
            self.add_many(code, count, other.kept.get(code, ()))

    def of_broker(self, broker: str) -> Findings:
        """The same, each finding with the store's name."""
        kept = {code: [replace(each, broker=broker) for each in found] for code, found in self.kept.items()}
        return Findings(self.limit, Counter(self.counts), kept)

    def __iter__(self) -> Iterator[Finding]:
        """Those that were kept, in the order of the classes."""
        for code in CLASSES:
            yield from self.kept.get(code, ())

    @property
    def codes(self) -> set[str]:
        """The classes that occur."""
        return set(self.counts)

    def count(self, severity: Severity) -> int:
        """How many there are of a severity."""
        return sum(count for code, count in self.counts.items() if CLASSES[code].severity is severity)

    @property
    def worst(self) -> Severity | None:
        """The worst severity that occurs; None where nothing was found."""
        return next((severity for severity in Severity if self.count(severity)), None)
