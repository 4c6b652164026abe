"""Regular expressions over bytes: matches, and the excerpts that are shown."""

from __future__ import annotations

import time

import pyarrow as pa
import pytest

from commitlake.pipelines.grep.pattern import MAX_PATTERN_BYTES, parse_pattern
from commitlake.schemas.errors import UsageError
from tests.support.machine_speed import slowness


def excerpt(pattern: str, body: bytes) -> tuple[int, str]:
    """Return the start of the first match, and its excerpt."""
    starts, texts = parse_pattern(pattern).first_match_excerpts(pa.array([body]))
    return starts[0].as_py(), texts[0].as_py()


@pytest.mark.parametrize(
    ("pattern", "bodies", "expected"),
    [
        ("b+", [b"abbc", b"ac", None, b""], [True, False, False, False]),
        (r"\xff\xfe", [b"a\xff\xfeb", b"\xfe\xff"], [True, False]),  # no UTF-8 at all
        ("größe", ["die größe".encode(), "die größe".encode("latin-1")], [True, False]),
        ("(?i)ORDER", [b"order", b"0rder"], [True, False]),
        ("a.b", [b"a\nb", b"a b"], [False, True]),
        ("(?s)a.b", [b"a\nb"], [True]),
        ("^b", [b"a\nb"], [False]),
        ("(?m)^b", [b"a\nb"], [True]),
        (r"\x00", [b"\0"], [True]),
    ],
)
def test_bytes_are_searched(pattern: str, bodies: list[bytes | None], expected: list[bool]) -> None:
    assert parse_pattern(pattern).match_bodies(pa.array(bodies, pa.binary())).tolist() == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"x", (0, "x")),
        (b"a" * 100 + b"x" + b"b" * 100, (100, "a" * 40 + "x" + "b" * 40)),
        ("ä".encode() * 50 + b"x" + "北".encode() * 50, (100, "ä" * 20 + "x" + "北" * 13)),
        (b"\xff\xfex\x80", (2, "\\xff\\xfex\\x80")),
        (b"\x1b[2Jx\n", (4, "\x1b[2Jx\n")),  # printers escape these
    ],
)
def test_an_excerpt_has_whole_characters_around_the_match(body: bytes, expected: tuple[int, str]) -> None:
    assert excerpt("x", body) == expected


def test_a_long_match_is_cut() -> None:
    start, text = excerpt("x+", b"ab" + b"x" * 100_000)
    assert (start, text) == (2, "ab" + "x" * 160 + "…")


def test_an_expression_with_groups_has_an_excerpt() -> None:
    assert excerpt("(a(b))(?P<name>c)", b"zabc") == (1, "zabc")


@pytest.mark.parametrize("pattern", ["", "(", "a)(b", "(?<=a)b", r"(a)\1", "x" * (MAX_PATTERN_BYTES + 1), "(" * 5000])
def test_an_invalid_expression_is_refused(pattern: str) -> None:
    with pytest.raises(UsageError, match="--grep: "):
        parse_pattern(pattern)


@pytest.mark.some_cases(2)
@pytest.mark.parametrize("pattern", ["(a+)+$b", "(a|aa)+$b", "(.*)*.*[^a]", "(a?){500}a{500}b"])
def test_matching_time_is_not_exponential(pattern: str) -> None:
    started = time.process_time()
    assert not parse_pattern(pattern).match_bodies(pa.array([b"a" * 100_000])).any()
    assert time.process_time() - started < 5 * slowness()  # backtracking takes longer than the universe is old
