"""Findings of a run. All findings are counted; the first of each class are kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from commitlake.pipelines.verify.finding_classes import CLASSES, FindingClass, Severity

DEFAULT_LIMIT = 20


@dataclass(frozen=True, slots=True)
class Finding:
    """Problem found in a store, and where it is.

    Attributes:
        code: the code of its class.
        file: path of the file, relative to the store's folder.
        position: byte in that file.
        physical_offset: physical offset in the log.
        queue: topic and queue id, such as `orders/3`.
        number: queue offset of the message, or number of the entry in its index file.
        found: the value that was found.
        expected: the value that was expected.
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
    def finding_class(self) -> FindingClass:
        """The class of the finding, with its severity and recommended action."""
        return CLASSES[self.code]

    @property
    def place_text(self) -> str:
        """Place of the problem in words: file, byte, queue and offsets."""
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
    """Findings of a verification by class, of which only the first of each class are kept.

    Attributes:
        limit: how many findings of a class are kept.
        counts: number of findings by class.
        kept: the first findings of each class.
    """

    limit: int = DEFAULT_LIMIT
    counts: Counter[str] = field(default_factory=Counter)
    kept: dict[str, list[Finding]] = field(default_factory=dict)

    def add(self, finding: Finding) -> None:
        """Count a finding, and keep it unless its class has the largest number of kept findings."""
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
        """Add a finding on a small file, such as a configuration file."""
        self.add(Finding(code, file, position, physical_offset, found=found, expected=expected))

    def add_many(self, code: str, count: int, first_findings: Iterable[Finding]) -> None:
        """Count several findings of one class, and keep the given examples up to the limit.

        Raises:
            KeyError: if there is no such class.
        """
        CLASSES[code]
        if count:
            self.counts[code] += count
            kept = self.kept.setdefault(code, [])
            for finding in first_findings:
                if len(kept) >= self.limit:
                    break
                kept.append(finding)

    def merge_findings(self, other_findings: Findings) -> None:
        """Add the findings of another part of the verification."""
        for code, count in other_findings.counts.items():
            self.add_many(code, count, other_findings.kept.get(code, ()))

    def with_broker(self, broker: str) -> Findings:
        """Return a copy in which each finding names the given store."""
        kept = {code: [replace(each, broker=broker) for each in found] for code, found in self.kept.items()}
        return Findings(self.limit, Counter(self.counts), kept)

    def __iter__(self) -> Iterator[Finding]:
        """Iterate over the kept findings, in a fixed order of classes."""
        for code in CLASSES:
            yield from self.kept.get(code, ())

    @property
    def codes(self) -> set[str]:
        """The codes of all classes that have at least one finding."""
        return set(self.counts)

    def count_by_severity(self, severity: Severity) -> int:
        """Return the number of findings of a severity."""
        return sum(count for code, count in self.counts.items() if CLASSES[code].severity is severity)

    @property
    def worst_severity(self) -> Severity | None:
        """The worst severity with findings; None if there are none."""
        return next((severity for severity in Severity if self.count_by_severity(severity)), None)
