"""Tests of options that are declared as the fields of a dataclass."""

from __future__ import annotations

import argparse
from dataclasses import FrozenInstanceError, dataclass
from typing import ClassVar

import pytest

from commitlake.jobs.cli.command import Command
from commitlake.jobs.cli.options import (
    OneOf,
    Options,
    Section,
    add_options,
    argument,
    cannot_be_used_with,
    conflicts_with,
    find_option_conflict,
    flag,
    must_be_less_than,
    only_for_actions,
    only_with,
    option,
    option_declarations,
    option_values,
    overrides,
    repeated,
    requires_one_of,
    rules_for_values,
    shorthand_option,
)
from commitlake.schemas.errors import ExitCode

_PLACE = OneOf(required=True)
_WHERE = Section("where to", "the target")


@dataclass(frozen=True, kw_only=True)
class Forms(Options):
    """Options that commands share."""

    form: str = option("form", "--format", "--output", choices=("table", "json"), default="table")
    json: ClassVar = shorthand_option("same as --format json", form="json")


@dataclass(frozen=True, kw_only=True)
class Shop(Command, Forms, after={Forms: "topic"}):
    """A command."""

    NAME = "archive"  # a settings file may have a table of this name
    DESCRIPTION = "A shop."
    EXAMPLES = ()

    store: str | None = argument("the store", equivalent_option_help="the same as STORE", metavar="STORE")
    lake: str | None = option("a lake", one_of=_PLACE)
    dir: str | None = option("a folder", one_of=_PLACE)
    topic: tuple[str, ...] = repeated("topics")
    limit: int = option("rows", parse=int, default=100, rules=conflicts_with("count", hint="leave one out"))
    count: bool = flag("count rows", rules=overrides("topic", hint="all are counted"))
    bodies: str | None = option("bodies", rules=requires_one_of("lake", hint="a folder has none"))
    server: str | None = option("server", section=_WHERE, rules=only_with("form json"))

    def run(self) -> ExitCode:
        """Return as many as there are topics."""
        return ExitCode(len(self.topic))


def test_options_are_in_the_order_of_their_declaration() -> None:
    names = ["store", "lake", "dir", "topic", "form", "json", "limit", "count", "bodies", "server"]
    assert [name for name in option_declarations(Shop) if name not in option_declarations(Command)] == names


def test_a_command_is_made_from_its_command_line() -> None:
    shop = Shop.parse("s", "--lake", "l", "--topic", "a", "--topic", "b", "--json")
    assert (shop.store, shop.lake, shop.topic, shop.form, shop.limit) == ("s", "l", ("a", "b"), "json", 100)
    assert Shop.parse("--store", "s", "--dir", "d", "--output", "json").store == "s"
    assert Shop(lake="l") == Shop.parse("--lake", "l")
    with pytest.raises(FrozenInstanceError):
        shop.limit = 1  # type: ignore[misc]


def test_a_command_returns_its_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMMITLAKE_LAKE", "l")
    assert Shop.main(["--topic", "a", "--topic", "b"]) == 2
    assert Shop.main([]) == 0


def test_the_help_has_the_declared_texts_sections_and_names() -> None:
    shown = " ".join(Shop.parser().format_help().split())
    assert "the target --server SERVER server" in shown
    assert "--output" not in shown
    assert "topics; may be repeated" in shown


@pytest.mark.parametrize(
    ("words", "error", "hint"),
    [
        (["--lake", "l", "--limit", "1", "--count"], "--limit and --count cannot be used together", "leave one out"),
        (["--lake", "l", "--topic", "a", "--count"], "--topic has no effect with --count", "all are counted"),
        (["--dir", "d", "--bodies", "b"], "--bodies needs --lake", "a folder has none"),
        (
            ["--lake", "l", "--server", "s"],
            "--server has no effect without --format json",
            "add --format json, or leave it out",
        ),
    ],
)
def test_a_combination_that_is_refused_is_said_with_a_hint(words: list[str], error: str, hint: str) -> None:
    assert find_option_conflict(Shop(**option_values(Shop, Shop.parser().parse_args(words)))) == (error, hint)


@dataclass(frozen=True, kw_only=True)
class Stall(Options):
    """Options of a command with actions."""

    NAME = "stall"
    action: str = argument(
        "what to do",
        default="show",
        rules=(
            *rules_for_values("sell", "give", rules=requires_one_of("to", "anybody", hint="as in --to Ann")),
            *rules_for_values("show", "give", rules=cannot_be_used_with("price", hint="it is free")),
        ),
    )
    item: str = argument("what", metavar="ITEM", default="", rules=only_for_actions("sell", "give"))
    to: str | None = option("to whom")
    anybody: bool = flag("to anybody")
    price: float | None = option("price", parse=float, rules=only_for_actions("sell"))
    engine: str = option(argparse.SUPPRESS, default="own")
    spark: ClassVar = shorthand_option("on Spark", engine="spark")
    memory: int | None = option("memory", parse=int, rules=conflicts_with("engine spark"))


@pytest.mark.parametrize(
    ("stall", "error"),
    [
        (Stall(action="sell"), ("'stall sell' needs one of --to and --anybody", "as in --to Ann")),
        (Stall(action="sell", to="Ann", item="tea", price=1.5), None),
        (Stall(item="tea"), ("ITEM cannot be used with 'stall show'", "it belongs to sell and give")),
        (Stall(action="give", anybody=True, price=1.5), ("--price cannot be used with 'stall give'", "it is free")),
        (Stall(action="give", anybody=True, price=0.0), None),
        (Stall(memory=1, engine="spark"), ("--memory and --spark cannot be used together", "")),
    ],
)
def test_an_option_may_belong_to_some_actions(stall: Stall, error: tuple[str, str] | None) -> None:
    assert find_option_conflict(stall) == error


@pytest.mark.parametrize(("first", "last", "is_refused"), [(0, 0, True), (1, 0, True), (0, 1, False), (5, None, False)])
def test_a_range_needs_a_start_before_its_end(first: int | None, last: int | None, is_refused: bool) -> None:
    @dataclass(frozen=True, kw_only=True)
    class Page(Options):
        first: int | None = option("first", parse=int, rules=must_be_less_than("last"))
        last: int | None = option("last", parse=int)

    error = (f"--first {first} is not before --last {last}", "exchange them")
    assert find_option_conflict(Page(first=first, last=last)) == (error if is_refused else None)


def test_a_value_that_chooses_nothing_is_enough_where_an_option_is_needed() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Throttle(Options):
        action: str = argument("what to do", rules=rules_for_values("throttle", rules=requires_one_of("rate")))
        rate: float | None = option("messages per second, 0 for no limit", parse=float)

    assert find_option_conflict(Throttle(action="throttle", rate=0.0)) is None
    assert find_option_conflict(Throttle(action="throttle")) is not None


def test_options_of_which_one_must_be_given_are_refused_without_any(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        Shop.parse()
    assert "one of the arguments --lake --dir is required" in capsys.readouterr().err


def test_an_option_without_an_effect_may_be_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMMITLAKE_SERVER", "s")
    assert Shop.parse("--lake", "l").server == "s"


def test_a_field_that_is_declared_again_replaces_the_option_at_its_place() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Other(Shop):
        topic: tuple[str, ...] = repeated("only this topic")

    assert list(option_declarations(Other)) == list(option_declarations(Shop))
    assert "only this topic" in Other.parser().format_help()


def test_a_field_that_is_declared_again_keeps_the_rules_of_its_bases() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Page(Options):
        first: int | None = option("first", parse=int, rules=must_be_less_than("last"))
        last: int | None = option("last", parse=int)

    @dataclass(frozen=True, kw_only=True)
    class NumberedPage(Page):
        count: bool = flag("count")
        first: int | None = option("first", "--from", parse=int, rules=overrides("count"))

    @dataclass(frozen=True, kw_only=True)
    class ShortPage(NumberedPage):
        first: int | None = option("first", "--begin", parse=int)

    assert find_option_conflict(NumberedPage(first=2, last=1)) == ("--from 2 is not before --last 1", "exchange them")
    assert find_option_conflict(NumberedPage(first=1, count=True)) == ("--count has no effect with --from", "")
    assert find_option_conflict(ShortPage(first=2, last=1)) == ("--begin 2 is not before --last 1", "exchange them")
    assert find_option_conflict(ShortPage(first=1, count=True)) == ("--count has no effect with --begin", "")
    assert find_option_conflict(ShortPage(first=1, last=2)) is None


def test_options_can_be_added_to_any_parser_with_other_texts() -> None:
    parser = argparse.ArgumentParser()
    add_options(parser, Forms, help_texts={"form": "the form of rows"})
    assert "the form of rows" in parser.format_help()
    assert option_values(Forms, parser.parse_args(["--json"])) == {"form": "json"}
