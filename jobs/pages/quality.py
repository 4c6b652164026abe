"""The judgement as one HTML file: no script, no font, nothing from elsewhere; for light and dark, wide and narrow.

Its size is bounded: the largest topics are shown, the others are summed. Names come from producers and are escaped.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from commitlake.connectors.whole_files import write_whole
from commitlake.jobs.cli.sizes import size_text
from commitlake.jobs.pages.bars import bars
from commitlake.jobs.pages.quality_template import PAGE
from commitlake.jobs.pages.text import page_text
from commitlake.pipelines.quality.figures import PageFigures, Span
from commitlake.pipelines.quality.judgement import Judgement
from commitlake.pipelines.quality.report import QualityReport
from commitlake.pipelines.quality.verdict import Losses, RunVerdict

_MOST_TEXT = 160
_WIDE, _NARROW = 96, 36


def write_page(
    path: Path, report: QualityReport, figures: PageFigures, *, run_id: str, verdict: RunVerdict | None = None
) -> None:
    """Write the page; a file of that name is replaced at once.

    Args:
        path: of the file.
        report: what was judged.
        figures: of the profile that was judged.
        run_id: the archive run's.
        verdict: on the run; on the judgement alone where not given.
    """
    page = render_page(report, figures, run_id=run_id, verdict=verdict)
    with write_whole(path) as file:
        file.write(page.encode("utf-8", "replace"))


def render_page(report: QualityReport, figures: PageFigures, *, run_id: str, verdict: RunVerdict | None = None) -> str:
    """The page's text; the arguments are those of `write_page`."""
    failed = [*report.critical_failures, *report.warnings]
    met = [each for each in report.judgements if each.success]
    found = verdict or Losses().verdict(report)
    return PAGE.substitute(
        title=_text(f"Archive run: {found.text}"),
        kind=found.kind,
        verdict=_text(found.text),
        run=_text(f"Run {run_id}, judged {report.judged_at:%Y-%m-%d %H:%M:%S} UTC"),
        tiles=_tiles(report, figures),
        picture=_picture(figures),
        failed="".join(map(_failure, failed)) or "<p>All expectations are met.</p>",
        topics=_topic_rows(figures),
        met="".join(map(_met_row, met)),
        met_count=len(met),
    )


def _tiles(report: QualityReport, figures: PageFigures) -> str:
    met = sum(found.success for found in report.judgements)
    tiles = {
        "messages": f"{figures.messages:,}",
        "log": size_text(figures.bytes),
        "brokers": f"{figures.brokers:,}",
        "topics": f"{figures.topics:,}",
        "queues": f"{figures.queues:,}",
        "critical": f"{len(report.critical_failures)}",
        "warnings": f"{len(report.warnings)}",
        "expectations met": f"{met} of {len(report.judgements)}",
    }
    return "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in tiles.items())


def _picture(figures: PageFigures) -> str:
    span = figures.span
    return bars(figures.by_window, span.begin, span.end, _WIDE) if span else ""


def _failure(found: Judgement) -> str:
    wanted = found.expectation
    rows = f"{found.unexpected:,} of {found.judged:,} rows of the profile"
    observed = rows if found.observed is None else f"observed {_value(found.observed)}; {rows}"
    return (
        f'<article class="{wanted.severity}"><h3><span class="badge">{wanted.severity}</span> '
        f"{_text(_words(wanted.name))}</h3><p>{_text(wanted.why)}.</p><p><b>What to do:</b> {_text(wanted.action)}.</p>"
        f'<p class="quiet">{_text(found.suite)}.{_text(wanted.name)}: {_text(observed)}</p>'
        f"{_examples(found.examples)}</article>"
    )


def _examples(examples: Iterable[Mapping[str, object]]) -> str:
    rows = list(examples)
    if not rows:
        return ""
    heads = "".join(f"<th>{_text(name)}</th>" for name in rows[0])
    body = "".join("<tr>" + "".join(f"<td>{_name(value)}</td>" for value in row.values()) + "</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>'


def _met_row(found: Judgement) -> str:
    wanted = found.expectation
    return f"<tr><td>{_text(found.suite)}</td><td>{_text(_words(wanted.name))}</td><td>{wanted.severity}</td></tr>"


def _topic_rows(figures: PageFigures) -> str:
    span, shown, others = figures.span, figures.shown, figures.others
    lines = [_topic_row(row, figures.of_topic((row["broker"], row["topic"])), span) for row in shown]
    if figures.topics > len(shown):
        lines.append(
            f"<tr><td>{figures.topics - len(shown):,} others</td><td></td><td>{others['messages']:,}</td>"
            f"<td>{size_text(others['bytes'])}</td><td></td><td>{others['missing_offsets']:,}</td><td></td></tr>"
        )
    return "".join(lines)


def _topic_row(row: Mapping[str, Any], counts: Mapping[datetime.datetime, int], span: Span | None) -> str:
    picture = bars(counts, span.begin, span.end, _NARROW) if span else ""
    return (
        f"<tr><td>{_name(row['topic'])}</td><td>{_name(row['broker'])}</td><td>{row['messages_sum']:,}</td>"
        f"<td>{size_text(row['bytes_sum'])}</td><td>{row['queue_id_count_distinct']:,}</td>"
        f"<td>{row['missing_offsets_sum']:,}</td><td>{picture}</td></tr>"
    )


def _words(name: str) -> str:
    return name.replace("_", " ")


def _value(value: object) -> str:
    return f"{value:,.6g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


def _name(value: object) -> str:
    """A value of somebody else's, which can change neither the page nor the direction of the text beside it."""
    return f"<bdi>{_text('' if value is None else str(value))}</bdi>"


def _text(text: str) -> str:
    return page_text(text, _MOST_TEXT)
