"""The report as one HTML file: no script, no font, nothing from elsewhere; for light and dark, wide and narrow.

Its size is bounded, as the findings of each class are. Names come from producers and are escaped.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path

from commitlake.connectors.whole_files import write_whole
from commitlake.jobs.pages.text import page_text
from commitlake.jobs.pages.verify_template import PAGE
from commitlake.pipelines.verify.classes import CLASSES, FindingClass, Severity
from commitlake.pipelines.verify.doctor import StoreReport
from commitlake.pipelines.verify.findings import Finding, Findings
from commitlake.pipelines.verify.verdict import verdict_of

_MOST_TEXT = 200


def write_page(path: Path, reports: Sequence[StoreReport], now: datetime.datetime) -> None:
    """Write the page; a file of that name is replaced at once.

    Args:
        path: of the file.
        reports: of all stores.
        now: when they were made.
    """
    with write_whole(path) as file:
        file.write(render_page(reports, now).encode("utf-8", "replace"))


def render_page(reports: Sequence[StoreReport], now: datetime.datetime) -> str:
    """The page's text; the arguments are those of `write_page`."""
    together = joined(reports)
    verdict = verdict_of(together, len(reports))
    return PAGE.substitute(
        title=_text(f"Stores verified: {verdict.text}"),
        kind=verdict.kind,
        verdict=_text(verdict.text[:1].upper() + verdict.text[1:]),
        run=_text(f"Verified {now.astimezone(datetime.UTC):%Y-%m-%d %H:%M:%S} UTC"),
        stores="".join(map(_store_row, reports)),
        classes="".join(_class(CLASSES[code], together) for code in CLASSES if code in together.codes)
        or "<p>Everything is as it must be.</p>",
    )


def joined(reports: Sequence[StoreReport]) -> Findings:
    """The findings of all stores."""
    together = Findings(max((report.findings.limit for report in reports), default=1))
    for report in reports:
        together.merge(report.findings)
    return together


def _store_row(report: StoreReport) -> str:
    figures = [report.segments, report.bytes, report.records, report.queues, report.index_files, report.groups]
    figures += [report.findings.count(severity) for severity in Severity]
    cells = "".join(f"<td>{figure:,}</td>" for figure in figures)
    live = " (a broker has it open)" if report.is_live else ""
    return f"<tr><td>{_name(report.broker)}{live}</td><td>{_name(report.root)}</td>{cells}</tr>"


def _class(kind: FindingClass, findings: Findings) -> str:
    count, kept = findings.counts[kind.code], findings.kept.get(kind.code, [])
    shown = f"{count:,} found" if count <= len(kept) else f"{count:,} found, the first {len(kept)} are shown"
    rows = "".join(map(_finding_row, kept))
    return (
        f'<article class="{kind.severity}"><h3><span class="badge">{kind.severity}</span> {_text(kind.code)}</h3>'
        f"<p>{_text(kind.cause)}.</p><p><b>What to do:</b> {_text(kind.action)}.</p>"
        f'<p class="quiet">{shown}</p><div class="wide"><table><thead><tr><th>store</th><th>place</th><th>found</th>'
        f"<th>expected</th></tr></thead><tbody>{rows}</tbody></table></div></article>"
    )


def _finding_row(finding: Finding) -> str:
    values = (finding.broker, finding.place, finding.found, finding.expected)
    return "<tr>" + "".join(f"<td>{_name(value)}</td>" for value in values) + "</tr>"


def _name(value: str) -> str:
    """A value of somebody else's, which can change neither the page nor the direction of the text beside it."""
    return f"<bdi>{_text(value)}</bdi>"


def _text(text: str) -> str:
    return page_text(text, _MOST_TEXT)
