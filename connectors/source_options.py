"""Options of the Spark sources and sinks, each declared once, as a field of a dataclass.

    @dataclass(frozen=True)
    class ReadOptions(DeclaredOptions):
        path: str = option("path", str, NEEDED, "a store: the folder that holds `commitlog/`")
        max_batch_bytes: int = option("maxBatchBytes", byte_count, 4 << 20, "log bytes that a worker holds at a time")

    ReadOptions.parse({"PATH": "/store"}).max_batch_bytes

Names, parsing, defaults and the tables of docs/reference/spark-options.md follow from the declaration. Options are
checked at once: an unknown name or an invalid value is an error, never a default. A check that needs several options is
the class's own `check`.

A parser takes an option's text, and raises ValueError with what it expected and found; the name is added here.
"""

from __future__ import annotations

import dataclasses
import datetime
import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Self, TypeVar

from commitlake.schemas.errors import UsageError
from commitlake.schemas.layouts.integer_parsing import parse_int64
from commitlake.schemas.times import epoch_ms_rounded_up, with_time_zone

_T = TypeVar("_T")
_D = TypeVar("_D")
_W = TypeVar("_W", bound=str)

NEEDED: Final[Any] = dataclasses.MISSING
"""Default of an option that must be given."""


class OptionUse(StrEnum):
    """Way of using a source for which an option is valid, such as a stream."""

    ALWAYS = "always"
    BATCH = "batch"
    STREAM = "stream"


@dataclass(frozen=True)
class SourceOption:
    """Declaration of one option of a source or sink: its name, parser and default, and its text for the documentation.

    Attributes:
        name: documented name; Spark passes it in any case of letters.
        parse: converts the option's text to the field's value.
        default: value if the option is not given; `NEEDED` if it must be.
        text: meaning, for the documentation.
        shown: the default in words, if the value does not say it.
        missing: for an option that must be given: what to give, for the error.
        use: the only use in which the option may be given.
    """

    name: str
    parse: Callable[[str], object]
    default: object
    text: str
    shown: str | None = None
    missing: str = ""
    use: OptionUse = OptionUse.ALWAYS

    @property
    def default_text(self) -> str:
        """Default value as the documentation shows it."""
        if self.shown is not None:
            return self.shown
        if self.default is NEEDED:
            return "(needed)"
        if self.default is None:
            return "(none)"
        if isinstance(self.default, bool):
            return str(self.default).lower()
        if self.parse is byte_count and isinstance(self.default, int):
            return f"{self.default >> 20} MiB"
        return str(self.default)


def option(
    name: str,
    parse: Callable[[str], _T],
    default: _D,
    text: str,
    *,
    shown: str | None = None,
    missing: str = "",
    use: OptionUse = OptionUse.ALWAYS,
) -> _T | _D:
    """Declare a dataclass field as an option of a source or sink; `SourceOption` describes the parameters."""
    declared = SourceOption(name, parse, default, text, shown, missing, use)
    field: Any = dataclasses.field(default=default, metadata={"option": declared}, kw_only=True)
    return field  # type: ignore[no-any-return]


@dataclass(frozen=True)
class DeclaredOptions:
    """Base class of the options of a source or sink.

    Attributes:
        given: names of the options that were given.
    """

    given: frozenset[str] = dataclasses.field(default=frozenset(), kw_only=True)

    @classmethod
    def declared_options(cls) -> dict[str, SourceOption]:
        """Return the options that the class declares, by the names of their fields, in the documentation's order."""
        fields = dataclasses.fields(cls)
        return {field.name: field.metadata["option"] for field in fields if "option" in field.metadata}

    @classmethod
    def parse(cls, given_options: Mapping[str, str], **defaults: object) -> Self:
        """Parse the options that Spark passes as strings; the case of their names does not matter.

        Args:
            given_options: the options.
            defaults: values of fields whose option is not given, instead of the declared defaults.

        Raises:
            UsageError: for an unknown name, a missing option or an invalid value.
        """
        declared = cls.declared_options()
        texts = _rename_to_documented(given_options, [each.name for each in declared.values()])
        values = dict(defaults)
        for field, each in declared.items():
            text = texts.get(each.name)
            if each.default is NEEDED and not text:
                raise UsageError(f"the option {each.name!r} is missing: {each.missing}")
            if text is not None:
                try:
                    values[field] = each.parse(text)
                except ValueError as error:
                    raise UsageError(f"option {each.name}: {error}") from None
        options = cls(**values, given=frozenset(texts))
        options.check()
        return options

    def check(self) -> None:
        """Check rules that concern several options; called after parsing.

        Raises:
            UsageError: if options do not fit one another.
        """

    def for_batch(self) -> Self:
        """Return these options; raise an error if one of them is valid only for streams.

        Raises:
            UsageError: for the first such option.
        """
        return self._refuse_options_for(OptionUse.STREAM, "is for streams: expected spark.readStream, found spark.read")

    def for_stream(self) -> Self:
        """Return these options; raise an error if one of them is valid only for batches.

        Raises:
            UsageError: for the first such option.
        """
        return self._refuse_options_for(OptionUse.BATCH, "is only for spark.read: a stream has no end")

    def _refuse_options_for(self, use: OptionUse, problem: str) -> Self:
        for each in self.declared_options().values():
            if each.use is use and each.name in self.given:
                raise UsageError(f"option {each.name} {problem}")
        return self

    def refuse_both(self, first_option: str, second_option: str) -> None:
        """Check that at most one of two options is given.

        Raises:
            UsageError: if both are.
        """
        if {first_option, second_option} <= self.given:
            raise UsageError(f"options {first_option} and {second_option}: expected only one of them, found both")


def _rename_to_documented(given_options: Mapping[str, str], documented_names: Sequence[str]) -> dict[str, str]:
    """Return the given options with their names spelled as documented; the case of the given names does not matter."""
    parse_names = {name.lower(): name for name in documented_names}
    texts: dict[str, str] = {}
    for name, text in given_options.items():
        if name.lower() not in parse_names:
            close = difflib.get_close_matches(name.lower(), list(parse_names), n=1)
            nearest = f" (did you mean {parse_names[close[0]]!r}?)" if close else ""
            raise UsageError(f"there is no option {name!r}{nearest}: expected some of {', '.join(documented_names)}")
        texts[parse_names[name.lower()]] = text
    return texts


def choice_parser(words: Iterable[_W], change_case: Callable[[str], str] = str.lower) -> Callable[[str], _W]:
    """Return a parser that accepts only the given words, after changing their case.

    Args:
        words: the members of an enumeration, or plain words.
        change_case: makes the case of letters that the words have.
    """
    known = {str(word): word for word in words}

    def parse_choice(text: str) -> _W:
        word = known.get(change_case(text))
        if word is None:
            raise ValueError(f"expected one of {', '.join(known)}, found {text!r}")
        return word

    return parse_choice


def integer_parser(minimum: int | None = None, maximum: int | None = None, unit: str = "") -> Callable[[str], int]:
    """Return a parser for an integer.

    Args:
        minimum: smallest value.
        maximum: largest value, only together with `minimum`.
        unit: unit of the value, for errors.
    """

    def parse_integer(text: str) -> int:
        number = parse_int64(text)
        if number is None:
            raise ValueError(f"expected a whole number, found {text[:100]!r}")
        if (minimum is not None and number < minimum) or (maximum is not None and number > maximum):
            limits = f"at least {minimum}" if maximum is None else f"{minimum} to {maximum}"
            raise ValueError(f"expected {limits}{unit and ' '}{unit}, found {number}")
        return number

    return parse_integer


byte_count = integer_parser(1, unit="byte")


def parse_flag(text: str) -> bool:
    """Parse `true` or `false`."""
    if text.lower() not in {"true", "false"}:
        raise ValueError(f"expected true or false, found {text!r}")
    return text.lower() == "true"


def parse_time_ms(text: str) -> int:
    """Parse a time, given as ms since 1970, or as ISO 8601, which is UTC unless it has an offset.

    A bound between two milliseconds is rounded up, because it means the messages from the later one on, or before it.
    """
    milliseconds = parse_int64(text)
    if milliseconds is not None:
        return milliseconds
    try:
        return epoch_ms_rounded_up(with_time_zone(datetime.datetime.fromisoformat(text)))
    except ValueError:
        raise ValueError(f"expected a time as ms since 1970 or such as 2026-11-20T14:00, found {text!r}") from None


def parse_names(text: str) -> tuple[str, ...]:
    """Parse a comma-separated list of names."""
    found = tuple(part.strip() for part in text.split(",") if part.strip())
    if not found:
        raise ValueError(f"expected at least one name, or several with commas between them, found {text!r}")
    return found


def parse_name_set(text: str) -> frozenset[str]:
    """Parse a comma-separated list of names whose order does not matter."""
    return frozenset(parse_names(text))


def parse_number_set(text: str) -> frozenset[int]:
    """Parse a comma-separated list of integers."""
    numbers = {parse_int64(part) for part in parse_names(text)}
    known = frozenset(number for number in numbers if number is not None)
    if len(known) < len(numbers):
        raise ValueError(f"expected whole numbers with commas between them, found {text[:100]!r}")
    return known
