"""Tests of findings on a page: grouped, counted, bounded, and escaped."""

from __future__ import annotations

import pytest

from commitlake.connectors.printable import escape_line
from commitlake.jobs.report.findings import (
    MAX_BYTES,
    MAX_GROUPS,
    SHOWN_EXAMPLES,
    Example,
    FindingGroup,
    findings_section,
)
from commitlake.jobs.report.html_blocks import blocks_html
from commitlake.schemas.finding_advice import Advice
from commitlake.schemas.report import Kind
from tests.support.html_pages import Element, parse_page, table_of

HOSTILE = "</dd></section><script>alert('x')</script>\"&\u202e\x00\n${title}"


def shown(*groups: FindingGroup) -> Element:
    return parse_page(blocks_html(findings_section(groups, "Nothing was found.").blocks))


def examples(count: int, text: str = "x") -> list[Example]:
    return [Example(f"place {number} {text}", f"found {text}", f"expected {text}") for number in range(count)]


def test_a_section_without_findings_states_that() -> None:
    assert shown().text == "Nothing was found."


def test_similar_findings_are_one_group_with_examples_and_a_count() -> None:
    root = shown(
        FindingGroup(
            Kind.CRITICAL, "Bad magic", 143, "Bytes were overwritten", Advice("look").fill_placeholders(), examples(3)
        )
    )
    (article,) = root.all("article")
    assert "Bad magic · 143 found" in article.all("h3")[0].text
    assert "140 more like this" in article.text
    assert [item.all("dd")[0].text for item in article.all("li")] == ["place 0 x", "place 1 x", "place 2 x"]
    assert "What to do: look." in article.text


def test_further_examples_are_folded() -> None:
    root = shown(FindingGroup(Kind.WARNING, "Bad", 143, examples=examples(20)))
    assert root.all("summary")[0].text == "140 more like this"
    rows = table_of(root)
    assert len(rows) == 1 + 20 - SHOWN_EXAMPLES
    assert rows[1] == ["place 3 x", "found x", "expected x"]
    all_of_them = shown(FindingGroup(Kind.WARNING, "Bad", 20, examples=examples(20)))
    assert all_of_them.all("summary")[0].text == "17 more like this"


def test_a_single_finding_has_no_count() -> None:
    root = shown(FindingGroup(Kind.INFO, "Abort present", 1, examples=examples(1)))
    assert root.all("h3")[0].text.endswith("Abort present")
    assert "more" not in root.text


def test_the_worst_findings_come_first() -> None:
    groups = [FindingGroup(kind, str(kind)) for kind in (Kind.INFO, Kind.CRITICAL, Kind.WARNING, Kind.CRITICAL)]
    classes = [article.attributes["class"] for article in shown(*groups).all("article")]
    assert classes == ["notice critical", "notice critical", "notice warning", "notice info"]


def test_a_command_is_shown_once() -> None:
    advice = Advice("{} makes it", ("rebuild {store} --in-place",)).fill_placeholders({"store": "/a b"})
    root = shown(*(FindingGroup(Kind.WARNING, "Bad", advice=advice) for _ in range(2)))
    assert [code.text for code in root.of_class("command")[0].all("code")] == ["commitlake rebuild '/a b' --in-place"]
    assert len(root.of_class("command")) == 1
    first, other = (article.all("p")[0].text for article in root.all("article"))
    assert first == "What to do: commitlake rebuild makes it."  # the whole command is below
    assert other == "What to do: commitlake rebuild '/a b' --in-place makes it."


def test_a_command_for_each_place_is_offered() -> None:
    advice = Advice("{} makes it", ("rebuild {store}",)).fill_for_each_place([{"store": "/a"}, {"store": "/b"}])
    root = shown(FindingGroup(Kind.WARNING, "Bad", advice=advice))
    assert [block.all("code")[0].text for block in root.of_class("command")] == [
        "commitlake rebuild /a", "commitlake rebuild /b",
    ]  # fmt: skip


def test_a_command_with_an_unknown_place_is_not_offered() -> None:
    root = shown(
        FindingGroup(Kind.WARNING, "Bad", advice=Advice("{} keeps it", ("archive --lake {lake}",)).fill_placeholders())
    )
    assert root.of_class("command") == []
    assert "What to do: commitlake archive --lake LAKE keeps it." in root.text


def test_a_command_in_a_sentence_is_code() -> None:
    advice = Advice("'commitlake rebuild' makes it, the broker's 'own' does not").fill_placeholders()
    root = shown(FindingGroup(Kind.WARNING, "Bad", advice=advice))
    assert [code.text for code in root.all("code")] == ["commitlake rebuild"]
    assert "What to do: commitlake rebuild makes it, the broker's 'own' does not." in root.text


def test_hostile_text_is_escaped() -> None:
    def group(text: str) -> FindingGroup:
        notes = {text: text}
        return FindingGroup(
            Kind.WARNING, text, 9, text, Advice(f"{text} {{}}", ("x",)).fill_placeholders(),
            [Example(text, text, text, notes)] * 5, text, text, text,
        )  # fmt: skip

    plain, hostile = shown(group("x")), shown(group(HOSTILE))
    assert [one.name for one in hostile.inner] == [one.name for one in plain.inner]
    assert escape_line(HOSTILE) in hostile.text
    assert "\x00" not in hostile.text
    assert "\u202e" not in hostile.text


@pytest.mark.long("pages of many stores and groups are bounded by the same code each time")
def test_the_page_of_a_million_findings_is_small_and_counts_what_is_left_out() -> None:
    text = "\u202e\"'<&" * 2000  # each character is several in HTML
    kept = examples(30, text)
    groups = [
        FindingGroup(Kind.CRITICAL, f"class {n}", 10_000, "why", Advice("what").fill_placeholders(), kept)
        for n in range(MAX_GROUPS + 7)
    ]
    content = blocks_html(findings_section(groups, "").blocks)
    assert len(content.encode()) < 1.2 * MAX_BYTES
    root = parse_page(content)
    assert "Not shown: 7 more groups, with 70,000 findings." in root.text
    assert len(root.all("article")) == MAX_GROUPS
    assert all("more like this" in article.text for article in root.all("article"))
