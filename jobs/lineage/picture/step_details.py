"""HTML details of each step in a picture: columns, steps before and after it, properties and body.

The details of each step can be opened and linked to without a script; the page's script shows them beside the graph.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping, Sequence

from commitlake.jobs.arguments.sizes import size_text
from commitlake.jobs.lineage.picture.picture_rows import PictureRow, PictureRows
from commitlake.jobs.report.html_blocks import paragraph_html
from commitlake.jobs.report.html_elements import join_html, name_html, tag
from commitlake.pipelines.lineage.message_history import Consumption, Edge, MissingRecord, Outcome, Record, Story
from commitlake.pipelines.lineage.value_texts import approximate_duration_text
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.report import Html
from commitlake.schemas.times import format_time

MAX_BYTES = 12 << 20
"""Size of all details above which properties and bodies are left out."""
MAX_BODY = 4000
"""Largest number of characters shown of a body."""
MAX_VALUE = 400
"""Largest number of characters shown of a property."""
MAX_PROPERTIES = 80
_MAX_LINKS = 30
_HEX_BYTES = 256
_MAX_INDENT = 40
_PRINTABLE_PART = 0.9
Pairs = Iterable[tuple[str, str | None]]


def step_details_html(story: Story, rows: PictureRows) -> Html:
    """Return HTML with the details of each drawn step of a message's story, such as properties and body."""
    led_by, leads_to = _edges_by_step(story, rows, is_incoming=True), _edges_by_step(story, rows, is_incoming=False)
    outcomes: dict[str, list[Outcome]] = {}
    for outcome in story.outcomes:
        outcomes.setdefault(outcome.step, []).append(outcome)
    found: list[Html] = []
    left = MAX_BYTES
    for row in rows.rows:
        if row.is_folded:
            continue
        step_id = row.step.id
        content = [
            paragraph_html(name_html(row.step.text[:MAX_VALUE])),
            *(paragraph_html(tag("b", "Now: "), name_html(outcome.text[:MAX_VALUE]))
              for outcome in outcomes.get(step_id, [])[:_MAX_LINKS]),
            _definition_list_html(_step_details(row)),
            *_edge_list_html("Came of", led_by.get(step_id, [])),
            *_edge_list_html("Led to", leads_to.get(step_id, [])),
            *(_properties_and_body_html(row.step.record) if row.step.record is not None and left > 0 else []),
        ]  # fmt: skip
        if left <= 0:
            content.append(
                paragraph_html(
                    "Properties and body are left out, because the page would become too large.", is_quiet=True
                )
            )
        shown = tag(
            "details",
            tag("summary", f"{row.number}. ", name_html(row.step.title)),
            tag("div", *content, id=f"step-{row.number}", class_="step-details"),
        )
        left -= len(shown.encode())
        found.append(shown)
    return join_html(found)


def _edges_by_step(
    story: Story, rows: PictureRows, *, is_incoming: bool
) -> Mapping[str, list[tuple[Edge, PictureRow | None]]]:
    """Return, for each step, its incoming or outgoing edges, each with the row of the step at the other end."""
    found: dict[str, list[tuple[Edge, PictureRow | None]]] = {}
    for edge in story.edges:
        here, there = (edge.target, edge.source) if is_incoming else (edge.source, edge.target)
        found.setdefault(here, []).append((edge, rows.row_of.get(there)))
    return found


def _edge_list_html(title: str, edges: Sequence[tuple[Edge, PictureRow | None]]) -> Iterator[Html]:
    if not edges:
        return
    entries = []
    for edge, row in edges[:_MAX_LINKS]:
        gap = f", after {approximate_duration_text(edge.gap)}" if edge.gap is not None else ""
        joined_by = f", joined by {edge.joined_by[:MAX_VALUE]}" if edge.joined_by else ""
        other = (
            tag("a", f"{row.number}. ", name_html(row.step.title), href=f"#step-{row.number}", data_row=row.number)
            if row is not None
            else "a step that is folded"
        )
        entries.append(tag("li", other, f": {edge.text[:MAX_VALUE]}{gap}{joined_by}"))
    if len(edges) > _MAX_LINKS:
        entries.append(tag("li", f"and {len(edges) - _MAX_LINKS:,} more"))
    yield tag("h4", title)
    yield tag("ul", *entries)


def _step_details(row: PictureRow) -> Iterator[tuple[str, str | None]]:
    step = row.step
    yield "time (UTC)", _moment_text(step.at)
    yield "kind", step.kind
    if step.record is not None:
        yield from _record_details(step.record)
    if step.consumption is not None:
        yield from _consumption_details(step.consumption)
    if step.missing is not None:
        yield from _missing_record_details(step.missing)


def _record_details(record: Record) -> Iterator[tuple[str, str | None]]:
    yield "topic", record.topic
    yield "sent to", record.origin_topic if record.origin_topic != record.topic else None
    yield "queue", None if record.queue_id is None else f"{record.queue_id}"
    yield "queue offset", None if record.queue_offset is None else f"{record.queue_offset:,}"
    yield "keys", " ".join(record.keys)
    yield "tag", record.tags
    yield "message id", record.msg_id
    yield "unique key", record.unique_key
    yield "broker", record.broker
    yield "physical offset", f"{record.physical_offset}"
    yield "sent at (UTC)", _moment_text(record.born_at)
    yield "from", record.born_host
    yield "by", record.producer_group
    yield "stored on", record.store_host
    yield "failed tries", f"{record.reconsume_times}" if record.reconsume_times else None
    yield "body size", None if record.body_size is None else size_text(record.body_size)
    yield "related by", record.related_by


def _consumption_details(consumption: Consumption) -> Iterator[tuple[str, str | None]]:
    succeeded = consumption.succeeded
    yield "group", consumption.group
    yield "client", consumption.host
    yield "try", None if consumption.attempt is None else f"{consumption.attempt}"
    yield "took", None if consumption.cost_ms is None else f"{consumption.cost_ms:,} ms"
    yield "result", consumption.outcome or (None if succeeded is None else "succeeded" if succeeded else "failed")


def _missing_record_details(missing_record: MissingRecord) -> Iterator[tuple[str, str | None]]:
    yield "why", missing_record.text
    yield "reason", missing_record.reason
    yield "known of it", missing_record.name


def _moment_text(moment: datetime.datetime | None) -> str | None:
    return None if moment is None else format_time(moment, "milliseconds")


def _definition_list_html(pairs: Pairs) -> Html:
    shown = (tag("div", tag("dt", tag("bdi", _shorten(label))), tag("dd", tag("bdi", _shorten(value))))
             for label, value in pairs if value)  # fmt: skip
    return tag("dl", *shown)


def _shorten(value: str) -> str:
    return value if len(value) <= MAX_VALUE else f"{value[:MAX_VALUE]}… ({len(value):,} characters)"


def _properties_and_body_html(record: Record) -> Iterator[Html]:
    """Yield HTML elements for a record's properties and body."""
    if record.properties:
        pairs = sorted(record.properties.items())
        yield tag("h4", "Properties")
        yield _definition_list_html(pairs[:MAX_PROPERTIES])
        if len(pairs) > MAX_PROPERTIES:
            yield paragraph_html(f"and {len(pairs) - MAX_PROPERTIES:,} more", is_quiet=True)
    if record.body is not None:
        yield tag("h4", "Body")
        shown, note = body_text(record.body)
        yield tag("pre", *_escaped_lines(shown), class_="body", tabindex=0)
        if note:
            yield paragraph_html(note, is_quiet=True)
    elif record.body_problem is not None:
        yield tag("h4", "Body")
        yield paragraph_html(_shorten(record.body_problem))


def _escaped_lines(text: str) -> Iterator[Html]:
    """Yield the lines of a text, each escaped separately, so that an escaped newline differs from a real one."""
    for number, line in enumerate(text.split("\n")):
        yield join_html([Html("\n") if number else Html(), line])


def body_text(body: bytes) -> tuple[str, str]:
    """Return a body as text for people, and a note on the part that is left out.

    Text is shown as it is, JSON with a line for each value; anything else as hex.
    """
    if not body:
        return "", "The body is empty."
    head = body[: MAX_BODY * 4]
    text = head.decode("utf-8", "replace")
    is_text = text.count("\ufffd") + sum(map(text.count, map(chr, range(9)))) <= len(text) * (1 - _PRINTABLE_PART)
    if not is_text:
        lines = [body[at : at + 16].hex(" ") for at in range(0, min(len(body), _HEX_BYTES), 16)]
        more = f"; the first {_HEX_BYTES} are shown" if len(body) > _HEX_BYTES else ""
        return "\n".join(lines), f"{format_count(len(body), 'byte that is', 'bytes that are')} not text{more}."
    cut = text[:MAX_BODY]
    note = f"The first {MAX_BODY:,} characters of {size_text(len(body))}." if cut != text or head != body else ""
    return indent_json(cut) if cut.lstrip()[:1] in {"{", "["} else cut.replace("\r\n", "\n"), note


def indent_json(text: str) -> str:
    """Return JSON with one value per line, without parsing it: it may be cut, damaged, or nested too deeply.

    >>> print(indent_json('{"a":[1,2],"b":"x,y"}'))
    {
      "a": [
        1,
        2
      ],
      "b": "x,y"
    }
    """
    found: list[str] = []
    depth, is_quoted, is_escaped = 0, False, False
    for at, sign in enumerate(text):
        if is_quoted:
            found.append(sign)
            is_quoted = is_escaped or sign != '"'
            is_escaped = sign == "\\" and not is_escaped
        elif sign in "{[":
            depth += 1
            found += [sign, "" if text[at + 1 : at + 2] in ("}", "]") else _indented_newline(depth)]
        elif sign in "}]":
            depth -= 1
            found += ["" if text[at - 1 : at] in ("{", "[") else _indented_newline(depth), sign]
        elif sign == ",":
            found += [sign, _indented_newline(depth)]
        elif sign == ":":
            found.append(": ")
        elif not sign.isspace():
            is_quoted = sign == '"'
            found.append(sign)
    return "".join(found)


def _indented_newline(depth: int) -> str:
    return "\n" + "  " * min(max(depth, 0), _MAX_INDENT)
