"""Report of `commitlake journeys`: the paths of keys, times from topic to topic, and the keys that do not fit."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from commitlake.jobs.journeys.arguments import TITLE
from commitlake.jobs.report.flow_diagram import MAX_STOPS, FlowBand, flow_diagram_html
from commitlake.jobs.report.html_elements import tag
from commitlake.pipelines.lineage.value_texts import approximate_duration_text
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

if TYPE_CHECKING:
    from commitlake.jobs.journeys.journey_results import JourneysAnswer, MisfitKeys
    from commitlake.pipelines.journeys.misfits import MisfitRules

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


def _path_text(path: Sequence[str]) -> str:
    return " > ".join(path)


def _delay_text(delay_ms: int) -> str:
    return approximate_duration_text(datetime.timedelta(milliseconds=delay_ms))


PATH_COLUMNS = (
    Column("path", text=_path_text), Column("keys", is_number=True),
    Column("% of keys", 1, key="share_percent", is_number=True), Column("dead", 2, is_number=True),
    Column("open", 3, is_number=True),
)  # fmt: skip
HOP_COLUMNS = (
    Column("from", key="source"), Column("to", key="target"), Column("hops", is_number=True),
    Column("p50", 1, key="p50_ms", is_number=True, text=_delay_text),
    Column("p95", 2, key="p95_ms", is_number=True, text=_delay_text),
    Column("p99", 3, key="p99_ms", is_number=True, text=_delay_text),
)  # fmt: skip
KEY_COLUMNS = (
    Column("key", is_whole=True), Column("reasons", 1, text=", ".join), Column("path", 2, text=_path_text),
    Column("outcome", 3), Column("last sent", 4, key="last_sent_at"), Column("due", 5, key="due_at"),
    Column("messages", 6, is_number=True), Column("retries", 7, is_number=True),
)  # fmt: skip


def paths_with_shares(answer: JourneysAnswer, limit: int | None) -> list[dict[str, Any]]:
    """Return the most frequent paths from topic to topic, with the share of all keys that took them."""
    keys = max(answer.key_counts["keys"], 1)
    return [{**row, "share_percent": round(100 * row["keys"] / keys, 1)} for row in answer.paths(limit)]


def journeys_report(
    answer: JourneysAnswer,
    rules: MisfitRules,
    notes: Sequence[str],
    missing_data_sentences: Sequence[str],
    lake_location: str,
) -> Report:
    """Return the report on the paths of keys from topic to topic, and on keys whose paths are not as required.

    Args:
        rules: conditions for keys that do not fit, if any.
        notes: sentences on the time, and on what is cut.
        missing_data_sentences: sentences on what the lake has lost.
        lake_location: the lake, for commands.
    """
    found = answer.find_misfit_keys(rules, MAX_KEYS) if rules.has_conditions else None
    losses = [Notice(Kind.CRITICAL, each) for each in missing_data_sentences]
    cuts = [Paragraph(Name(note), is_quiet=True) for note in notes[1:]]
    sections = [
        Section("paths", "Paths", [*losses, *cuts, *_path_blocks(answer, lake_location)]),
        Section("hops", "Times from topic to topic", _hop_blocks(answer.hops())),
    ]
    if found is not None:
        title = "Keys that do not fit" if rules.needs_reason else "Keys that pass through the topics"
        # The count is complete once the rows are read.
        sections.insert(0, Section("keys", title, _misfit_blocks(title, list(found.rows), found, rules)))
    verdict = _journeys_verdict(answer, rules, found, is_incomplete=bool(losses))
    return Report(TITLE, verdict, [("Lake", lake_location), ("Time", notes[0])], sections, "journeys")


def _journeys_verdict(
    answer: JourneysAnswer, rules: MisfitRules, misfits: MisfitKeys | None, *, is_incomplete: bool
) -> Verdict:
    keys = format_count(answer.key_counts["keys"], "key")
    if is_incomplete:
        return Verdict(Kind.CRITICAL, f"The lake has lost messages of the time; {keys} began in it", "Incomplete")
    if misfits is None:
        return Verdict(Kind.INFO, f"{keys} took {format_count(answer.path_count, 'path')}", "Paths")
    found = f"{misfits.count:,} of {keys}"
    if not rules.needs_reason:
        passes = "passes" if misfits.count == 1 else "pass"
        return Verdict(Kind.INFO, f"{found} {passes} through {' and '.join(rules.through)}", "Keys")
    if not misfits.count:
        return Verdict(Kind.GOOD, f"All of {keys} fit", "Good")
    return Verdict(Kind.WARNING, f"{found} {'does' if misfits.count == 1 else 'do'} not fit")


def _path_blocks(answer: JourneysAnswer, lake_location: str) -> list[Block]:
    counts, shown = answer.key_counts, paths_with_shares(answer, SHOWN_PATHS)
    if not shown:
        return [Paragraph("No key began in the time.")]
    figures = {"keys": f"{counts['keys']:,}", "paths": f"{answer.path_count:,}",
               "keys that began before": f"{counts['began_before']:,}"}  # fmt: skip
    flows = [FlowBand(row["path"], row["keys"], f"path-{place}") for place, row in enumerate(shown, 1)]
    note = _NOTE
    if any(len(flow.stops) > MAX_STOPS for flow in flows):
        note += f" The first {MAX_STOPS} messages are drawn."
    if answer.path_count > len(shown):
        rest = counts["keys"] - sum(flow.value for flow in flows)
        note += f" {format_count(rest, 'key')} on {answer.path_count - len(shown):,} more paths are not drawn."
    examples = answer.first_keys_of_paths([row["path"] for row in shown], KEYS_OF_PATH)
    blocks: list[Block] = [KeyFigures(figures), flow_diagram_html("Keys by path", note, flows)]
    for place, row in enumerate(shown, 1):
        blocks.append(_path_keys_block(place, row, examples.get(tuple(row["path"]), ()), lake_location))
    return blocks


def _path_keys_block(path_number: int, row: Row, keys: Sequence[str], lake_location: str) -> Block:
    share = f"{row['share_percent']:g} %"
    summary = f"{path_number}. {_path_text(row['path'])}: {format_count(row['keys'], 'key')}, {share}"
    parts = [format_count(row[name], f"key with {text}", f"keys with {text}") for name, text in _OUTCOMES.items()
             if row[name]]  # fmt: skip
    # An id inside of collapsed content: a browser that is sent there opens it.
    here = tag("p", "; ".join(parts) or "No dead letters, and nothing open.", id=f"path-{path_number}")
    story = [{"key": Name(key), "command": Code(_lineage_command(lake_location, key).to_shell_line)} for key in keys]
    rest = f"{row['keys'] - len(keys):,} more keys take this path." if row["keys"] > len(keys) else ""
    return CollapsedContent(summary, Html(here), Table.of("The first keys of the path", _STORY, story, rest))


_STORY = (Column("key", is_whole=True), Column("what happened to it", key="command", can_sort=False))
_OUTCOMES = {"dead": "an open dead letter", "open": "an open transaction or a message that is held back"}


def _lineage_command(lake_location: str, key: str) -> Command:
    # A key may begin with a hyphen, so it is one word with its option.
    return Command(("commitlake", "lineage", "--lake", lake_location, f"--key={key}"), is_complete=True)


def _hop_blocks(hops: Sequence[Row]) -> list[Block]:
    if not hops:
        return [Paragraph("No key went from one topic to another.")]
    text = "A hop counts where its later message was sent. Times are rounded up to two digits."
    rest = len(hops) - MAX_HOPS
    left = f"{rest:,} rarer hops are left out of this page; --show hops --limit 0 lists all." if rest > 0 else ""
    return [Paragraph(text, is_quiet=True), Table.of("From topic to topic", HOP_COLUMNS, hops[:MAX_HOPS], left)]


def _misfit_blocks(title: str, rows: Sequence[Row], misfits: MisfitKeys, rules: MisfitRules) -> list[Block]:
    if not rows:
        return [Paragraph("All keys fit." if rules.needs_reason else "No key passes through these topics.")]
    rest = misfits.count - len(rows)
    left = f"{rest:,} more keys are left out of this page; --limit 0 --json lists all." if rest else ""
    return [Table.of(title, KEY_COLUMNS, rows, left)]
