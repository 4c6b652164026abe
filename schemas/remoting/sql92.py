"""SQL92 expressions over a message's properties, as documented by RocketMQ.

    expression   = conjunction { OR conjunction }
    conjunction  = negation { AND negation }
    negation     = [ NOT ] predicate
    predicate    = operand ( = | <> | < | <= | > | >= ) operand
                 | operand IS [ NOT ] NULL
                 | operand [ NOT ] BETWEEN operand AND operand
                 | operand [ NOT ] IN ( 'text', … )
                 | operand [ NOT ] ( CONTAINS | STARTSWITH | ENDSWITH ) 'text'
                 | TRUE | FALSE | ( expression )
    operand      = property | number | 'text' | TRUE | FALSE

Keywords are not case-sensitive; a quote in a text is doubled. Properties are text, and are converted to a number or a
boolean if they are compared with one. If that fails, the comparison is false. A missing property makes it unknown
(three-valued logic); a message matches if the whole expression is true. Source: SelectorParser, ComparisonExpression
(filter module, 5.5.0).

An expression is compiled to a condition: a function of properties whose result is true, false or unknown (None).
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import NamedTuple

from commitlake.schemas.errors import CommitLakeError
from commitlake.schemas.layouts.integer_parsing import parse_decimal, parse_int64

Value = str | int | float | bool | None
Properties = Mapping[str, str]
Condition = Callable[[Properties], bool | None]
Operand = Callable[[Properties], Value]

SEARCHES_AT_ONCE = 24 << 20
"""Cost of the searches between two pauses: some 3 ms, at 0.1 to 0.3 ns for each unit of `_search_cost`."""
_LONG_PART = 128
"""Length from which Python searches in a time that does not depend on it."""
MAX_LENGTH = 16_384
MAX_TERMS = 256
"""Comparisons in an expression: each is evaluated for each message, and a property may have 32 KB."""
MAX_DEPTH = 64
"""Depth of nested brackets and NOTs, which is also the depth of evaluation."""
_TOKEN = re.compile(
    r"""\s*(?:(?P<text>'(?:[^']|'')*')
    |(?P<number>(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+)(?:[eE][+-]?[0-9]+)?[lL]?)
    |(?P<word>[A-Za-z_$][A-Za-z0-9_$.]*)
    |(?P<sign><=|>=|<>|[=<>(),+-])
    |(?P<end>\Z))""",
    re.VERBOSE,
)
_KEYWORDS = frozenset(
    "AND OR NOT BETWEEN IN IS NULL TRUE FALSE CONTAINS STARTSWITH ENDSWITH".split()  # noqa: SIM905 (more readable)
)


class PausedError(CommitLakeError):
    """Signal that an evaluation was paused after long text searches; evaluating the expression again resumes it."""


class PausableProperties(dict[str, str]):
    """Properties of one message, for an evaluation that may pause between long text searches.

    A search may compare every character of the text with every character of the pattern, and an expression may have 256
    searches in texts of 32 KB, which takes a tenth of a second. Results are cached, so each search runs once.
    """

    __slots__ = ("_left", "_results")

    def __init__(self, properties: Properties) -> None:
        super().__init__(properties)
        self._results: dict[tuple[str, str], bool] = {}
        self._left = SEARCHES_AT_ONCE

    def text_contains(self, text: str, part: str) -> bool:
        """Return whether `text` contains `part`; raise `PausedError` to pause a long evaluation.

        Raises:
            PausedError: if the searches since the last pause have cost enough.
        """
        found = self._results.get((text, part))
        if found is None:
            if self._left <= 0:
                self._left = SEARCHES_AT_ONCE
                raise PausedError("the evaluation of an SQL92 filter was paused: call it again to continue")
            self._left -= _search_cost(text, part)
            found = self._results[text, part] = part in text
        return found


def _search_cost(text: str, part: str) -> int:
    return len(text) * (8 + min(len(part), _LONG_PART))


def any_of_conditions(conditions: list[Condition]) -> Condition:
    """Return an OR condition: true if one part is true, else unknown if one is unknown."""

    def any_condition_holds(properties: Properties) -> bool | None:
        result: bool | None = False
        for part in conditions:
            value = part(properties)
            if value:
                return True
            if value is None:
                result = None
        return result

    return any_condition_holds


def all_of_conditions(conditions: list[Condition]) -> Condition:
    """Return an AND condition: false if one part is false, else unknown if one is unknown."""

    def all_conditions_hold(properties: Properties) -> bool | None:
        result: bool | None = True
        for part in conditions:
            value = part(properties)
            if value is False:
                return False
            if value is None:
                result = None
        return result

    return all_conditions_hold


def negate_condition(operand: Condition) -> Condition:
    """Return a NOT condition, which leaves unknown results unknown."""

    def operand_is_false(properties: Properties) -> bool | None:
        value = operand(properties)
        return None if value is None else not value

    return operand_is_false


def equal_operands(left: Operand, right: Operand) -> Condition:
    """Return a condition that is true if two operands are equal; they are compared as a type that fits both."""

    def operands_are_equal(properties: Properties) -> bool | None:
        one, other = left(properties), right(properties)
        if one is None or other is None:
            return None
        if isinstance(one, str) and isinstance(other, str):
            return one == other
        # Before numbers, because a bool is a number for Python.
        if isinstance(one, bool) or isinstance(other, bool):
            return _operand_to_boolean(one) == _operand_to_boolean(other)
        # If both cannot be converted, None equals None, which must not count as equal.
        return _operand_to_number(one) == _operand_to_number(other) is not None

    return operands_are_equal


def compare_numbers(left: Operand, right: Operand, compare: Callable[[float, float], bool]) -> Condition:
    """Return a condition that compares two numbers, such as `<`."""

    def number_comparison_holds(properties: Properties) -> bool | None:
        one, other = left(properties), right(properties)
        if one is None or other is None:
            return None
        first, second = _operand_to_number(one), _operand_to_number(other)
        return first is not None and second is not None and compare(first, second)

    return number_comparison_holds


def passes_text_test(operand: Operand, passes_test: Callable[[str], bool]) -> Condition:
    """Return a condition that is true if a text operand passes the given test."""

    def text_passes_test(properties: Properties) -> bool | None:
        value = operand(properties)
        if value is None:
            return None
        return isinstance(value, str) and passes_test(value)

    return text_passes_test


def contains_text(operand: Operand, part: str) -> Condition:
    """Return a condition that is true if a text operand contains the given text."""

    def text_contains_part(properties: Properties) -> bool | None:
        value = operand(properties)
        if value is None:
            return None
        if not isinstance(value, str):
            return False
        if isinstance(properties, PausableProperties):
            return properties.text_contains(value, part)
        return part in value

    return text_contains_part


def _operand_to_number(value: Value) -> int | float | None:
    if isinstance(value, bool) or value is None:
        return None
    if not isinstance(value, str):
        return value
    number = parse_int64(value)
    return parse_decimal(value) if number is None else number


def _operand_to_boolean(value: Value) -> bool | None:
    if isinstance(value, str):
        return len(value) == len("true") and value.lower() == "true"
    return value if isinstance(value, bool) else None


_ORDERS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_TEXT_TESTS: dict[str, Callable[[str, str], bool]] = {
    "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}


class SqlError(CommitLakeError, ValueError):
    """Error for a text that is not a valid expression."""


class _SqlToken(NamedTuple):
    kind: str
    text: str
    position: int


@lru_cache(maxsize=256)
def compile_sql92(expression: str) -> Callable[[Properties], bool]:
    """Compile an expression to a function that returns whether it is true for given properties.

    With `PausableProperties`, the function raises PausedError after a few milliseconds, and continues at its next call.

    Raises:
        SqlError: if the expression is invalid.
    """
    if len(expression) > MAX_LENGTH:
        raise SqlError(
            f"SQL92: expected an expression of at most {MAX_LENGTH} characters, found {len(expression)} characters"
        )
    parser = _SqlParser(expression)
    condition = parser.parse_expression()
    parser.expect_end()
    return lambda properties: condition(properties) is True


def property_names(expression: str) -> frozenset[str]:
    """Return the names of the properties that an expression reads.

    Raises:
        SqlError: if the expression is invalid.
    """
    # Only valid expressions have names.
    compile_sql92(expression)
    return frozenset(token.text for token in _tokenize(expression) if token.kind == "word")


def _tokenize(expression: str) -> list[_SqlToken]:
    tokens = []
    position = 0
    while True:
        match = _TOKEN.match(expression, position)
        if match is None:
            raise SqlError(
                f"SQL92: expected a name, a number, a text in quotes or an operator at character {position}, found "
                f"{expression[position:][:40]!r}"
            )
        kind = str(match.lastgroup)
        text = match[kind]
        if kind == "word" and text.upper() in _KEYWORDS:
            kind, text = "keyword", text.upper()
        tokens.append(_SqlToken(kind, text, match.start(match.lastgroup or 0)))
        if kind == "end":
            return tokens
        position = match.end()


class _SqlParser:
    """Recursive descent parser with one method per rule of the grammar."""

    def __init__(self, expression: str) -> None:
        self._tokens = _tokenize(expression)
        self._next = 0
        self._depth = 0
        self._terms = 0

    def _peek(self) -> _SqlToken:
        return self._tokens[self._next]

    def _take_token(self, *texts: str) -> str | None:
        token = self._peek()
        if token.kind in ("keyword", "sign") and token.text in texts:
            self._next += 1
            return token.text
        return None

    def _expect_token(self, *texts: str) -> str:
        found = self._take_token(*texts)
        if found is None:
            raise self._syntax_error(f"expected {' or '.join(texts)}")
        return found

    def _syntax_error(self, problem: str) -> SqlError:
        token = self._peek()
        return SqlError(f"SQL92: {problem} at character {token.position}, found {token.text[:40] or 'the end'!r}")

    def expect_end(self) -> None:
        if self._peek().kind != "end":
            raise self._syntax_error("expected AND, OR or the end of the expression")

    def parse_expression(self) -> Condition:
        parts = [self._parse_conjunction()]
        while self._take_token("OR"):
            parts.append(self._parse_conjunction())
        return parts[0] if len(parts) == 1 else any_of_conditions(parts)

    def _parse_conjunction(self) -> Condition:
        parts = [self._parse_negation()]
        while self._take_token("AND"):
            parts.append(self._parse_negation())
        return parts[0] if len(parts) == 1 else all_of_conditions(parts)

    def _parse_negation(self) -> Condition:
        if not self._take_token("NOT"):
            return self._parse_predicate()
        with_depth = self._parse_nested(self._parse_negation)
        return negate_condition(with_depth)

    def _parse_nested(self, parse: Callable[[], Condition]) -> Condition:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._syntax_error(f"expected at most {MAX_DEPTH} nested levels of brackets and NOT")
        condition = parse()
        self._depth -= 1
        return condition

    def _parse_predicate(self) -> Condition:
        if self._take_token("("):
            condition = self._parse_nested(self.parse_expression)
            self._expect_token(")")
            return condition
        self._terms += 1
        if self._terms > MAX_TERMS:
            raise self._syntax_error(f"expected at most {MAX_TERMS} comparisons in an expression")
        left, literal = self._parse_operand()
        if sign := self._take_token("=", "<>"):
            condition = equal_operands(left, self._parse_operand()[0])
            return condition if sign == "=" else negate_condition(condition)
        if sign := self._take_token(*_ORDERS):
            return compare_numbers(left, self._parse_number_operand(), _ORDERS[sign])
        if self._take_token("IS"):
            negative = self._take_token("NOT") is not None
            self._expect_token("NULL")
            return lambda properties: (left(properties) is None) is not negative
        negative = self._take_token("NOT") is not None
        if word := self._take_token("BETWEEN", "IN", "CONTAINS", *_TEXT_TESTS):
            condition = self._finish_predicate(word, left)
            return negate_condition(condition) if negative else condition
        if negative or not isinstance(literal, bool):
            raise self._syntax_error("expected a comparison")
        return lambda _: literal

    def _finish_predicate(self, operator_word: str, left: Operand) -> Condition:
        if operator_word == "BETWEEN":
            low = self._parse_number_operand()
            self._expect_token("AND")
            high = self._parse_number_operand()
            return all_of_conditions(
                [compare_numbers(left, low, operator.ge), compare_numbers(left, high, operator.le)]
            )
        if operator_word == "IN":
            self._expect_token("(")
            texts = {self._parse_text()}
            while self._take_token(","):
                texts.add(self._parse_text())
            self._expect_token(")")
            return passes_text_test(left, lambda value: value in texts)
        part = self._parse_text()
        if operator_word == "CONTAINS":
            return contains_text(left, part)
        test = _TEXT_TESTS[operator_word]
        return passes_text_test(left, lambda value: test(value, part))

    def _parse_text(self) -> str:
        token = self._peek()
        if token.kind != "text":
            raise self._syntax_error("expected a text in single quotes")
        self._next += 1
        return token.text[1:-1].replace("''", "'")

    def _parse_number_operand(self) -> Operand:
        token = self._peek()
        if token.kind == "text" or token.text in ("TRUE", "FALSE"):
            raise self._syntax_error("expected a number or the name of a property")
        return self._parse_operand()[0]

    def _parse_operand(self) -> tuple[Operand, Value]:
        """Parse an operand; return a function for its value, and the value itself if it is a literal."""
        token = self._peek()
        if token.kind == "text":
            literal: Value = self._parse_text()
        elif token.kind == "word":
            self._next += 1
            return (lambda properties: properties.get(token.text)), None
        elif sign := self._take_token("+", "-"):
            literal = self._parse_number(sign)
        elif token.kind == "number":
            literal = self._parse_number()
        elif word := self._take_token("TRUE", "FALSE"):
            literal = word == "TRUE"
        else:
            raise self._syntax_error(
                "expected the name of a property, a number, a text in single quotes, TRUE or FALSE"
            )
        return (lambda _: literal), literal

    def _parse_number(self, sign: str = "") -> int | float:
        token = self._peek()
        if token.kind != "number":
            raise self._syntax_error("expected a number")
        text = token.text.rstrip("lL")
        number = parse_int64(sign + text) if text.isdecimal() else parse_decimal(sign + text)
        if number is None:
            raise self._syntax_error("expected a number that fits in 64 bits")
        self._next += 1
        return number
