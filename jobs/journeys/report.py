"""Report of `commitlake journeys`: the paths of keys, times from topic to topic, and the keys that do not fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from commitlake.jobs.journeys.arguments import TITLE
from commitlake.jobs.report.flow_diagram import MAX_STOPS, FlowBand, flow_diagram_html
from commitlake.jobs.report.html_elements import tag
from commitlake.schemas.finding_advice import Command
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.report import (
    Block,
    Code,
    CollapsedContent,
    Html,
    KeyFigures,
    Kind,
    Name,
    Notice,
    Paragraph,
    Report,
    Section,
    Table,
    Verdict,
)
from commitlake.schemas.report_columns import Column

Row = Mapping[str, Any]
SHOWN_PATHS = 20
"""Number of paths on a page; the others are counted."""
KEYS_OF_PATH = 20
"""Number of keys that a page lists of each path."""
MAX_HOPS = 200
"""Largest number of hops on a page; the others are counted."""
MAX_KEYS = 1_000
"""Largest number of keys that do not fit on a page; the others are counted."""
_NOTE = (
    "Each band is a path, as wide as its number of keys; it leads to some of them. Topics that keys pass after the "
    "same number of messages are below each other."
)


@dataclass(frozen=True)
class JourneysPage:
    """The content of a page of journeys.

    Attributes:
        facts: lake and time.
        counts: number of keys, see `JourneysAnswer`.
        paths: the most frequent paths.
        path_count: number of all paths.
        examples: some keys of each path, by its topics.
        hops: hops, as rows of the command.
        hop_columns: their columns.
        misfits: keys that do not fit; None if the command asks for none.
        misfit_count: number of all of them.
        has_reasons: True if the command asks for keys that do not fit, and not only for those through some topics.
        through: these topics.
        key_columns: their columns.
        notes: sentences on what is cut.
        missing: sentences on what the lake has lost.
        lake: the lake, for commands.
    """

    facts: Sequence[tuple[str, str]]
    counts: Mapping[str, int]
    paths: Sequence[Row]
    path_count: int
    examples: Mapping[tuple[str, ...], Sequence[str]]
    hops: Sequence[Row]
    hop_columns: Sequence[Column]
    misfits: Sequence[Row] | None
    misfit_count: int
    has_reasons: bool
    through: Sequence[str]
    key_columns: Sequence[Column]
    notes: Sequence[str]
    missing: Sequence[str]
    lake: str


def journeys_report(page: JourneysPage) -> Report:
    """Return the report on the paths of keys from topic to topic, and on keys whose paths are not as required."""
    sections = [
        Section("paths", "Paths", _path_blocks(page)),
        Section("hops", "Times from topic to topic", _hop_blocks(page)),
    ]
    if page.misfits is not None:
        sections.insert(0, Section("keys", _keys_title(page), _misfit_blocks(page)))
    return Report(TITLE, _journeys_verdict(page), page.facts, sections, "journeys")


def _journeys_verdict(page: JourneysPage) -> Verdict:
    keys = format_count(page.counts["keys"], "key")
    if page.missing:
        return Verdict(Kind.CRITICAL, f"The lake has lost messages of the time; {keys} began in it", "Incomplete")
    if page.misfits is None:
        return Verdict(Kind.INFO, f"{keys} took {format_count(page.path_count, 'path')}", "Paths")
    if not page.has_reasons:
        through = f"{page.misfit_count:,} of {keys} {'passes' if page.misfit_count == 1 else 'pass'}"
        return Verdict(Kind.INFO, f"{through} through {' and '.join(page.through)}", "Keys")
    if not page.misfit_count:
        return Verdict(Kind.GOOD, f"All of {keys} fit", "Good")
    return Verdict(
        Kind.WARNING, f"{page.misfit_count:,} of {keys} {'does' if page.misfit_count == 1 else 'do'} not fit"
    )


def _path_blocks(page: JourneysPage) -> list[Block]:
    counts, shown = page.counts, page.paths[:SHOWN_PATHS]
    blocks: list[Block] = [Notice(Kind.CRITICAL, each) for each in page.missing]
    blocks += [Paragraph(Name(note), is_quiet=True) for note in page.notes]
    if not shown:
        return [*blocks, Paragraph("No key began in the time.")]
    figures = {"keys": f"{counts['keys']:,}", "paths": f"{page.path_count:,}",
               "keys that began before": f"{counts['began_before']:,}"}  # fmt: skip
    flows = [FlowBand(row["path"], row["keys"], f"path-{place}") for place, row in enumerate(shown, 1)]
    note = _NOTE
    if any(len(flow.stops) > MAX_STOPS for flow in flows):
        note += f" The first {MAX_STOPS} messages are drawn."
    if page.path_count > len(shown):
        rest = counts["keys"] - sum(flow.value for flow in flows)
        note += f" {format_count(rest, 'key')} on {page.path_count - len(shown):,} more paths are not drawn."
    blocks += [KeyFigures(figures), flow_diagram_html("Keys by path", note, flows)]
    return [*blocks, *(_path_keys_block(page, place, row) for place, row in enumerate(shown, 1))]


def _path_keys_block(page: JourneysPage, path_number: int, row: Row) -> Block:
    path, keys = row["path"], page.examples.get(tuple(row["path"]), ())
    share = f"{row['share_percent']:g} %"
    summary = f"{path_number}. {' > '.join(path)}: {format_count(row['keys'], 'key')}, {share}"
    parts = [format_count(row[name], f"key with {text}", f"keys with {text}") for name, text in _OUTCOMES.items()
             if row[name]]  # fmt: skip
    # An id inside of collapsed content: a browser that is sent there opens it.
    here = tag("p", "; ".join(parts) or "No dead letters, and nothing open.", id=f"path-{path_number}")
    story = [{"key": Name(key), "command": Code(_lineage_command(page, key).to_shell_line)} for key in keys]
    rest = f"{row['keys'] - len(keys):,} more keys take this path." if row["keys"] > len(keys) else ""
    return CollapsedContent(summary, Html(here), Table.of("The first keys of the path", _STORY, story, rest))


_STORY = (Column("key", is_whole=True), Column("what happened to it", key="command", can_sort=False))
_OUTCOMES = {"dead": "an open dead letter", "open": "an open transaction or a message that is held back"}


def _lineage_command(page: JourneysPage, key: str) -> Command:
    # A key may begin with a hyphen, so it is one word with its option.
    return Command(("commitlake", "lineage", "--lake", page.lake, f"--key={key}"), is_complete=True)


def _hop_blocks(page: JourneysPage) -> list[Block]:
    if not page.hops:
        return [Paragraph("No key went from one topic to another.")]
    text = "A hop counts where its later message was sent. Times are rounded up to two digits."
    rest = len(page.hops) - MAX_HOPS
    left = f"{rest:,} rarer hops are left out of this page; --show hops --limit 0 lists all." if rest > 0 else ""
    return [Paragraph(text, is_quiet=True),
            Table.of("From topic to topic", page.hop_columns, page.hops[:MAX_HOPS], left)]  # fmt: skip


def _misfit_blocks(page: JourneysPage) -> list[Block]:
    assert page.misfits is not None
    if not page.misfits:
        return [Paragraph("All keys fit." if page.has_reasons else "No key passes through these topics.")]
    rest = page.misfit_count - len(page.misfits)
    left = f"{rest:,} more keys are left out of this page; --limit 0 --json lists all." if rest else ""
    return [Table.of(_keys_title(page), page.key_columns, page.misfits, left)]


def _keys_title(page: JourneysPage) -> str:
    return "Keys that do not fit" if page.has_reasons else "Keys that pass through the topics"
