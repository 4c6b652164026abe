"""Masks: replacement of values in messages before the messages are archived or sent again.

A mask names a field and a rule, as in `body.customer.email=hash`:

    field                          rule
    body           the whole body  null      the field is removed; in a JSON body, it becomes null
    body.a.b       of a JSON body  hash      64 hexadecimal digits, the same for the same value and key
    property.NAME  a property      last:N    all characters but the last N become *
    keys, tags                     text:T    the text T
                                   truncate:N  the first N characters

A message with a field that cannot be masked is an error: it is not sent, and it is archived without its body.

Values in a JSON body are replaced in its text, which otherwise stays unchanged.

MaskError                a message that cannot be masked
"""

from __future__ import annotations

import hmac
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from json.decoder import scanstring  # type: ignore[attr-defined]  # typeshed lacks it

from commitlake.schemas.errors import CommitLakeError, ExitCode, UsageError
from commitlake.schemas.layouts.integer_parsing import parse_int

BODY, PROPERTY, KEYS, TAGS = "body", "property", "keys", "tags"
KEY_VARIABLE = "COMMITLAKE_MASK_KEY"
_MAX_KEPT = 1000
_PLAIN_RULES, _RULES_WITH_ARGUMENT = frozenset({"null", "hash"}), frozenset({"last", "text", "truncate"})
_FIELD = re.compile(r"(body)((?:\.[^.=]+)*)|(property)\.([^=]+)|(keys)|(tags)")
_EXAMPLE = "as in body.customer.email=hash, property.phone=last:4, keys=null or body.note=text:removed"
Replace = Callable[[str], str | None]
"""Function from the text of a value to its replacement; None stands for null."""
_BLANKS = re.compile(r"[ \t\n\r]*")
_decoder = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str)  # numbers may have any length
_scan = _decoder.scan_once  # type: ignore[attr-defined]  # the type stubs lack it


class MaskError(CommitLakeError):
    """Error for a message that cannot be masked; its text gives the reason."""

    exit_code = ExitCode.DAMAGE


@dataclass(frozen=True, slots=True)
class MaskableMessage:
    """The parts of a message that masking rules can change.

    Attributes:
        body: the body as its producer sent it.
        keys: business keys.
        tags: its tag; None if it has none.
        properties: all other properties.
    """

    body: bytes
    keys: Sequence[str]
    tags: str | None
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Mask:
    """Masking rule: the field to mask, and how its value is replaced.

    Attributes:
        field: `body`, `property`, `keys` or `tags`.
        path: names in a JSON body from the top; for a property, its name.
        rule: `null`, `hash`, `last`, `truncate` or `text`.
        argument: the number for `last` and `truncate`, the text for `text`.
    """

    field: str
    path: tuple[str, ...]
    rule: str
    argument: str = ""

    def mask_value(self, value: str, key: bytes) -> str | None:
        """Return the masked form of a value; None if the value is to be removed."""
        if self.rule == "hash":
            return hmac.digest(key, value.encode("utf-8", "surrogatepass"), "sha256").hex()
        if self.rule == "last":
            shown = int(self.argument)
            return "*" * max(0, len(value) - shown) + (value[-shown:] if shown else "")
        if self.rule == "truncate":
            return value[: int(self.argument)]
        return self.argument if self.rule == "text" else None

    def __str__(self) -> str:
        argument = f":{self.argument}" if self.rule in _RULES_WITH_ARGUMENT else ""
        return f"{'.'.join((self.field, *self.path))}={self.rule}{argument}"


def parse_mask(text: str) -> Mask:
    """Parse a masking rule such as `keys=hash`.

    Raises:
        UsageError: if the text is not a mask.
    """
    field, equals, rule = text.partition("=")
    named = _FIELD.fullmatch(field)
    name, colon, argument = rule.partition(":")
    is_known = name in (_RULES_WITH_ARGUMENT if colon else _PLAIN_RULES)
    if not equals or named is None or not is_known:
        raise UsageError(f"{text!r} is not a mask: expected FIELD=RULE, {_EXAMPLE}")
    if name in {"last", "truncate"} and parse_int(argument, 0, _MAX_KEPT) is None:
        raise UsageError(
            f"mask {text!r}: expected {name}:N, where N is the number of characters to keep, from 0 to {_MAX_KEPT}"
        )
    body, path, _, wanted, *_ = named.groups()
    if body and not path and name == "null":
        raise UsageError(f"mask {text!r}: a body cannot be removed: replace it by another text with body=text:...")
    if wanted:
        return Mask(PROPERTY, (wanted,), name, argument)
    return Mask(field.partition(".")[0], tuple(path.split(".")[1:]) if path else (), name, argument)


def check_hash_key(masks: Sequence[Mask], key: bytes) -> None:
    """Raise an error if a masking rule needs a hash key and there is none.

    Raises:
        UsageError: if there is none. Without a key, the hash of a telephone number can be found by trying all
            numbers.
    """
    if not key and any(mask.rule == "hash" for mask in masks):
        raise UsageError(f"masks with the rule hash need a key: set {KEY_VARIABLE} in the environment")


def apply_masks(message: MaskableMessage, masks: Sequence[Mask], key: bytes) -> MaskableMessage:
    """Return a message with the fields that the rules name masked.

    Args:
        message: the message, decompressed.
        masks: the masks, applied in this order.
        key: key of the hashes.

    Raises:
        MaskError: if the message cannot be masked.
    """
    for mask in masks:
        message = _apply_mask(message, mask, key)
    return message


def _apply_mask(message: MaskableMessage, mask: Mask, key: bytes) -> MaskableMessage:
    body, keys, tags, properties = message.body, message.keys, message.tags, message.properties
    if mask.field == KEYS:
        # A masked key that is null or empty is left out, because KEYS cannot have empty keys.
        keys = [changed for value in keys if (changed := mask.mask_value(value, key))]
        if any(" " in value for value in keys):
            raise MaskError(
                "keys: a key contains a blank after it is masked, but blanks separate keys: use another mask"
            )
    elif mask.field == TAGS:
        tags = None if tags is None else mask.mask_value(tags, key)
    elif mask.field == PROPERTY:
        (name,) = mask.path
        values = ((own, mask.mask_value(value, key) if own == name else value) for own, value in properties.items())
        properties = {own: value for own, value in values if value is not None}
    else:
        body = _mask_body(body, mask, key)
    return MaskableMessage(body, keys, tags, properties)


def _mask_body(body: bytes, mask: Mask, key: bytes) -> bytes:
    try:
        if mask.path:
            return replace_values(body, mask.path, lambda value: mask.mask_value(value, key))
        return (mask.argument if mask.rule == "text" else str(mask.mask_value(body.decode(), key))).encode()
    except UnicodeDecodeError:
        raise MaskError("body: expected UTF-8, found other bytes, which this mask cannot change") from None
    except JsonError as error:
        raise MaskError(f"body: {error}") from None


class JsonError(CommitLakeError):
    """Error for a text that is not JSON, or is nested too deeply."""

    exit_code = ExitCode.DAMAGE


class _JsonNumber(str):
    """Number in JSON, kept as written: it may have more digits than a float, or than Python can parse."""

    __slots__ = ()


class _JsonObject(list[tuple[str, object]]):
    """JSON object as a list of names and values, so that order and repeated names are kept."""


def replace_values(body: bytes, path: Sequence[str], replace_value: Replace) -> bytes:
    """Replace the values at a path in a JSON body, and leave everything else byte for byte.

    Python's own scanner skips the other values one member at a time, and they stay byte for byte.

    Args:
        body: JSON, in UTF-8.
        path: names from the top; in a list, the path applies to each element.
        replace_value: called with the text of a string, the digits of a number, or the JSON of any other value except
            null.

    Returns:
        The JSON with only the values at the path changed.

    Raises:
        JsonError: if the body is not JSON.
    """
    edits: list[tuple[int, int, str]] = []
    try:
        text = body.decode()
        _check_no_extra_data(
            text, _skip_blanks(text, _read_value(text, _skip_blanks(text, 0), path, replace_value, edits))
        )
    except RecursionError:
        # Python's scanner and this one call themselves for each level.
        raise JsonError("expected JSON that is nested some hundred levels deep at most, found more levels") from None
    except ValueError as error:
        raise JsonError(f"expected JSON, found invalid JSON: {error}") from None
    if not edits:
        return body
    pieces, done = [], 0
    for start, end, new in edits:
        pieces += [text[done:start], new]
        done = end
    return "".join([*pieces, text[done:]]).encode("utf-8", "surrogatepass")


def _check_no_extra_data(text: str, position: int) -> None:
    if position != len(text):
        raise ValueError(f"expected the end of the JSON document at character {position:,}, found more data")


def _skip_blanks(text: str, position: int) -> int:
    found = _BLANKS.match(text, position)
    assert found is not None  # it also matches an empty text
    return found.end()


def _read_value(
    text: str, position: int, path: Sequence[str], replace_value: Replace, edits: list[tuple[int, int, str]]
) -> int:
    """Read a JSON value, add its replacement to `edits` if it is masked, and return the position after the value."""
    first = text[position : position + 1]
    if first == "[":
        return _read_list(text, position, path, replace_value, edits)
    if first == "{" and path:
        return _read_object(text, position, path, replace_value, edits)
    end = _find_value_end(text, position)
    # `null` stays: there is nothing to hide.
    if not path and first != "n":
        value = text[position:end]
        if first == '"':
            value = scanstring(text, position + 1)[0]
        elif first == "{":
            value = _compact_json(value)
        edits.append((position, end, json.dumps(replace_value(value), ensure_ascii=False)))
    return end


def _find_value_end(text: str, position: int) -> int:
    try:
        return int(_scan(text, position)[1])
    except StopIteration:
        raise ValueError(f"expected a JSON value at character {position:,}, found other text") from None


def _read_list(
    text: str, position: int, path: Sequence[str], replace_value: Replace, edits: list[tuple[int, int, str]]
) -> int:
    position = _skip_blanks(text, position + 1)
    if text[position : position + 1] == "]":
        return position + 1
    while True:
        position = _skip_blanks(text, _read_value(text, position, path, replace_value, edits))
        if text[position : position + 1] == "]":
            return position + 1
        position = _skip_blanks(text, _expect_character(text, position, ","))


def _read_object(
    text: str, position: int, path: Sequence[str], replace_value: Replace, edits: list[tuple[int, int, str]]
) -> int:
    position = _skip_blanks(text, position + 1)
    if text[position : position + 1] == "}":
        return position + 1
    while True:
        name, position = scanstring(text, _expect_character(text, position, '"'))
        position = _skip_blanks(text, _expect_character(text, _skip_blanks(text, position), ":"))
        position = (
            _read_value(text, position, path[1:], replace_value, edits)
            if name == path[0]
            else _find_value_end(text, position)
        )
        position = _skip_blanks(text, position)
        if text[position : position + 1] == "}":
            return position + 1
        position = _skip_blanks(text, _expect_character(text, position, ","))


def _expect_character(text: str, position: int, character: str) -> int:
    if text[position : position + 1] != character:
        raise ValueError(f"expected {character!r} at character {position:,}, found another character")
    return position + 1


def _compact_json(text: str) -> str:
    """Return JSON without whitespace, so that equal values have the same hash."""
    value = json.loads(
        text, object_pairs_hook=_JsonObject, parse_int=_JsonNumber, parse_float=_JsonNumber, parse_constant=_JsonNumber
    )
    return "".join(_to_json_pieces(value))


def _to_json_pieces(value: object) -> list[str]:
    if isinstance(value, _JsonNumber):
        return [value]
    if isinstance(value, _JsonObject):
        members = [[json.dumps(name, ensure_ascii=False), ":", *_to_json_pieces(member)] for name, member in value]
        return ["{", *_join_with_commas(members), "}"]
    if isinstance(value, list):
        return ["[", *_join_with_commas([_to_json_pieces(element) for element in value]), "]"]
    return [json.dumps(value, ensure_ascii=False)]


def _join_with_commas(parts: Sequence[Sequence[str]]) -> list[str]:
    found: list[str] = []
    for part in parts:
        found += [",", *part] if found else part
    return found
