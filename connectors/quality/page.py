"""The judgement as one HTML file: no script, no font, nothing from elsewhere; for light and dark, wide and narrow.

Its size is bounded: the largest topics are shown, the others are summed. Names come from producers and are escaped.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from connectors.page_text import page_text
from connectors.quality.bars import bars
from connectors.quality.report import Judgement, QualityReport
from connectors.quality.template import PAGE
from connectors.whole_files import write_whole
from schemas.tables.profile import WINDOW_SECONDS

_MOST_TEXT = 160
_TOPIC = ["broker", "topic"]
_WIDE, _NARROW = 96, 36
_SECONDS = datetime.timedelta(seconds=WINDOW_SECONDS)


@dataclass(frozen=True, slots=True)
class _Span:
    """The time that all pictures show."""

    begin: datetime.datetime
    end: datetime.datetime


def write_page(path: Path, report: QualityReport, profile: pa.Table, *, run_id: str, topics: int = 30) -> None:
    """Write the page; a file of that name is replaced at once.

    Args:
        path: of the file.
        report: what was judged.
        profile: the table of `PROFILE` that was judged.
        run_id: the archive run's.
        topics: how many are shown, the largest first.
    """
    page = render_page(report, profile, run_id=run_id, topics=topics)
    with write_whole(path) as file:
        file.write(page.encode("utf-8", "replace"))


def render_page(report: QualityReport, profile: pa.Table, *, run_id: str, topics: int = 30) -> str:
    """The page's text; the arguments are those of `write_page`."""
    failed = [*report.critical_failures, *report.warnings]
    met = [found for found in report.judgements if found.success]
    verdict, kind = _verdict(report)
    return PAGE.substitute(
        title=_text(f"Archive run: {verdict}"),
        kind=kind,
        verdict=_text(verdict),
        run=_text(f"Run {run_id}, judged {report.judged_at:%Y-%m-%d %H:%M:%S} UTC"),
        tiles=_tiles(report, profile),
        picture=_picture(profile),
        failed="".join(map(_failure, failed)) or "<p>All expectations are met.</p>",
        topics=_topic_rows(profile, topics),
        met="".join(map(_met_row, met)),
        met_count=len(met),
    )


def _verdict(report: QualityReport) -> tuple[str, str]:
    if not report.passed:
        return "stopped: critical expectations are not met, nothing was committed", "critical"
    if report.warnings:
        return "passed, with warnings", "warning"
    return "passed", "good"


def _tiles(report: QualityReport, profile: pa.Table) -> str:
    met = sum(found.success for found in report.judgements)
    figures = {
        "messages": f"{_sum(profile, 'messages'):,}",
        "log": _bytes(_sum(profile, "bytes")),
        "brokers": f"{_distinct(profile, ['broker']):,}",
        "topics": f"{_distinct(profile, _TOPIC):,}",
        "queues": f"{_distinct(profile, [*_TOPIC, 'queue_id']):,}",
        "critical": f"{len(report.critical_failures)}",
        "warnings": f"{len(report.warnings)}",
        "expectations met": f"{met} of {len(report.judgements)}",
    }
    return "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in figures.items())


def _picture(profile: pa.Table) -> str:
    span = _span(profile)
    return bars(_by_window(profile), span.begin, span.end, _WIDE) if span else ""


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


def _topic_rows(profile: pa.Table, most: int) -> str:
    grouped = profile.group_by(_TOPIC).aggregate(
        [("messages", "sum"), ("bytes", "sum"), ("missing_offsets", "sum"), ("queue_id", "count_distinct")]
    )
    ordered = grouped.sort_by([("messages_sum", "descending"), ("topic", "ascending"), ("broker", "ascending")])
    shown, others = ordered.slice(0, most).to_pylist(), ordered.slice(most)
    span = _span(profile)
    counts = _by_topic_and_window(profile, {(row["broker"], row["topic"]) for row in shown})
    lines = [_topic_row(row, counts.get((row["broker"], row["topic"]), {}), span) for row in shown]
    if others.num_rows:
        lines.append(
            f"<tr><td>{others.num_rows:,} others</td><td></td><td>{_sum(others, 'messages_sum'):,}</td>"
            f"<td>{_bytes(_sum(others, 'bytes_sum'))}</td><td></td><td>{_sum(others, 'missing_offsets_sum'):,}</td>"
            "<td></td></tr>"
        )
    return "".join(lines)


def _topic_row(row: Mapping[str, Any], counts: Mapping[datetime.datetime, int], span: _Span | None) -> str:
    picture = bars(counts, span.begin, span.end, _NARROW) if span else ""
    return (
        f"<tr><td>{_name(row['topic'])}</td><td>{_name(row['broker'])}</td><td>{row['messages_sum']:,}</td>"
        f"<td>{_bytes(row['bytes_sum'])}</td><td>{row['queue_id_count_distinct']:,}</td>"
        f"<td>{row['missing_offsets_sum']:,}</td><td>{picture}</td></tr>"
    )


def _by_topic_and_window(
    profile: pa.Table, shown: set[tuple[str, str]]
) -> dict[tuple[str, str], dict[datetime.datetime, int]]:
    names = pa.array(sorted({topic for _, topic in shown if topic is not None}), pa.string())
    chosen = profile.filter(pc.is_in(profile.column("topic"), names))
    found: dict[tuple[str, str], dict[datetime.datetime, int]] = {}
    for row in chosen.group_by([*_TOPIC, "window_start"]).aggregate([("messages", "sum")]).to_pylist():
        key = row["broker"], row["topic"]
        if key in shown and row["window_start"] is not None:
            found.setdefault(key, {})[row["window_start"]] = row["messages_sum"]
    return found


def _by_window(profile: pa.Table) -> dict[datetime.datetime, int]:
    sums = profile.group_by("window_start").aggregate([("messages", "sum")]).to_pylist()
    return {row["window_start"]: row["messages_sum"] for row in sums if row["window_start"] is not None}


def _span(profile: pa.Table) -> _Span | None:
    times = pc.min_max(profile.column("window_start")).as_py()
    return None if times["min"] is None else _Span(times["min"], times["max"] + _SECONDS)


def _sum(table: pa.Table, name: str) -> int:
    return int(pc.sum(table.column(name)).as_py() or 0)


def _distinct(profile: pa.Table, names: list[str]) -> int:
    return int(profile.group_by(names).aggregate([]).num_rows)


def _bytes(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:,.0f} {unit}" if unit == "B" else f"{count:,.1f} {unit}"
        count /= 1024
    raise AssertionError


def _words(name: str) -> str:
    return name.replace("_", " ")


def _value(value: object) -> str:
    return f"{value:,.6g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


def _name(value: object) -> str:
    """A value of somebody else's, which can change neither the page nor the direction of the text beside it."""
    return f"<bdi>{_text('' if value is None else str(value))}</bdi>"


def _text(text: str) -> str:
    return page_text(text, _MOST_TEXT)
