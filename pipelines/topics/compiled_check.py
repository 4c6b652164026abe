"""A compiled check that finds most documents that fit a schema, so that Python judges only the others.

It accepts a document only if `document_check.judge_body` accepts it unchanged, without a field that the schema does not
have. It leaves to the judge what is rare: escapes by number, exponents, integers of more than 18 digits, fields of any
type, the last days of a month. `tests/unit/pipelines/topics` compares the two.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from commitlake.connectors.numpy_arrays import Array
from commitlake.connectors.reading.kernel.compile_options import compiled
from commitlake.pipelines.topics.json_schema import MAX_DEPTH, JsonField, JsonKind, JsonType

_OBJECT, _LIST, _STRING, _TIME, _DATE, _INTEGER, _NUMBER, _BOOLEAN, _OTHER = range(9)
_KINDS = {
    JsonKind.OBJECT: _OBJECT, JsonKind.LIST: _LIST, JsonKind.STRING: _STRING, JsonKind.TIME: _TIME,
    JsonKind.DATE: _DATE, JsonKind.INTEGER: _INTEGER, JsonKind.NUMBER: _NUMBER, JsonKind.BOOLEAN: _BOOLEAN,
}  # fmt: skip
_MAX_INTEGER_DIGITS = 18
_MAX_NUMBER_CHARACTERS = 300  # fewer digits than the largest number of 64 bits has
_LEVELS = MAX_DEPTH + 2
_QUOTE, _BACKSLASH, _COLON, _COMMA, _MINUS, _PLUS, _DOT = (ord(each) for each in '"\\:,-+.')
_OPEN, _CLOSE, _OPEN_LIST, _CLOSE_LIST = (ord(each) for each in "{}[]")
_ZERO, _NINE, _N, _T, _F, _LOWER_U = (ord(each) for each in "09ntfu")
_ESCAPES = tuple(b'"\\/bfnrt')
_NO_END = -1


@dataclass(frozen=True)
class CompiledSchema:
    """A schema as arrays for compiled code. Node 0 is the document.

    Attributes:
        nodes: int64, for each type: its kind, whether it may be null, the node of its elements, its first field, the
            number of its fields, and that of the required ones.
        fields: int64, for each field: its node, whether it is required, and the start and length of its name.
        names: names of the fields, in UTF-8.
    """

    nodes: Array
    fields: Array
    names: Array

    @classmethod
    def compile_schema(cls, schema: JsonType) -> CompiledSchema:
        """Return a schema as arrays."""
        nodes: list[list[int]] = []
        fields: list[list[int]] = []
        names = bytearray()
        _add_node(schema, nodes, fields, names)
        shape = np.array(fields, np.int64).reshape(-1, 4)
        return cls(np.array(nodes, np.int64), shape, np.frombuffer(bytes(names), np.uint8))

    def find_fitting(self, bodies: pa.Array) -> Array:
        """Return, for each body, whether it certainly fits; False for a null, and for what the judge must decide.

        Args:
            bodies: binary array; the texts of its values are valid UTF-8.
        """
        _, offsets, data = bodies.buffers()
        ends = np.frombuffer(offsets, np.int32)[bodies.offset : bodies.offset + len(bodies) + 1]
        content = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8)
        fits = np.zeros(len(bodies), np.bool_)
        levels = np.zeros((_LEVELS, 4), np.int64)
        last_use = np.zeros(max(len(self.fields), 1), np.int64)
        check_documents(content, ends, self.nodes, self.fields, self.names, levels, last_use, fits)
        return fits


def _add_node(schema: JsonType, nodes: list[list[int]], fields: list[list[int]], names: bytearray) -> int:
    number = len(nodes)
    nodes.append([_KINDS.get(schema.kind, _OTHER), schema.is_nullable, 0, 0, 0, 0])
    if schema.element is not None:
        nodes[number][2] = _add_node(schema.element, nodes, fields, names)
    if schema.fields:
        first = len(fields)
        nodes[number][3:] = [first, len(schema.fields), sum(field.is_required for field in schema.fields)]
        fields += [_field_row(field, names) for field in schema.fields]
        for place, field in enumerate(schema.fields):
            fields[first + place][0] = _add_node(field.type, nodes, fields, names)
    return number


def _field_row(field: JsonField, names: bytearray) -> list[int]:
    name = field.name.encode()
    row = [0, field.is_required, len(names), len(name)]
    names += name
    return row


@compiled
def check_documents(
    data: Array, ends: Array, nodes: Array, fields: Array, names: Array, levels: Array, last_use: Array, fits: Array
) -> None:
    """Set `fits` for each document that fits the schema.

    Args:
        data: the documents, one after the other.
        ends: start of each document, and the end of the last.
        nodes: see `CompiledSchema`.
        fields: likewise.
        names: likewise.
        levels: working memory: for each open object or list its node, number, required fields seen, and next field.
        last_use: working memory: for each field the number of the object that last had it.
        fits: output.
    """
    objects = 0
    for row in range(len(fits)):
        fits[row], objects = _check_document(
            data, int(ends[row]), int(ends[row + 1]), nodes, fields, names, levels, last_use, objects
        )


@compiled
def _check_document(  # noqa: C901, PLR0911, PLR0912, PLR0915 (a loop over bytes, whose state would be the arguments)
    data: Array,
    at: int,
    end: int,
    nodes: Array,
    fields: Array,
    names: Array,
    levels: Array,
    last_use: Array,
    objects: int,
) -> tuple[bool, int]:
    """Return whether a document fits, and the number of objects that were opened so far."""
    at = _skip_blanks(data, at, end)
    if at >= end or data[at] != _OPEN:
        return False, objects
    at += 1
    objects += 1
    depth = 0
    levels[0, 0], levels[0, 1], levels[0, 2], levels[0, 3] = 0, objects, 0, nodes[0, 3]
    is_first = True
    while True:
        # Here an object expects a name or its end, and a list a value or its end.
        node = levels[depth, 0]
        is_object = nodes[node, 0] == _OBJECT
        at = _skip_blanks(data, at, end)
        if at >= end:
            return False, objects
        is_closed = data[at] == (_CLOSE if is_object else _CLOSE_LIST)
        if not is_closed:
            if not is_first:
                if data[at] != _COMMA:
                    return False, objects
                at = _skip_blanks(data, at + 1, end)
            is_first = False
            is_counted = False
            if is_object:
                field, at = _read_name(data, at, end, nodes, fields, names, levels, depth)
                if field < 0 or last_use[field] == levels[depth, 1]:
                    return False, objects
                last_use[field] = levels[depth, 1]
                child = fields[field, 0]
                is_counted = fields[field, 1] != 0
                may_be_null = nodes[child, 1] != 0 or not is_counted
            else:
                child = nodes[node, 2]
                may_be_null = nodes[child, 1] != 0
            if at >= end:
                return False, objects
            if data[at] == _N:
                if not may_be_null or end - at < 4 or data[at + 1] != _LOWER_U or not _is_ll(data, at + 2):
                    return False, objects
                at += 4
                levels[depth, 2] += is_counted
                continue
            levels[depth, 2] += is_counted
            kind = nodes[child, 0]
            if kind <= _LIST:  # or an object
                if data[at] != (_OPEN if kind == _OBJECT else _OPEN_LIST) or depth + 1 >= _LEVELS:
                    return False, objects
                at += 1
                objects += 1
                depth += 1
                levels[depth, 0], levels[depth, 1] = child, objects
                levels[depth, 2], levels[depth, 3] = 0, nodes[child, 3]
                is_first = True
                continue
            at = _read_value(data, at, end, kind)
            if at == _NO_END:
                return False, objects
            continue
        if is_object and levels[depth, 2] < nodes[node, 5]:
            return False, objects
        at += 1
        if depth == 0:
            return _skip_blanks(data, at, end) == end, objects
        depth -= 1
        is_first = False


@compiled
def _skip_blanks(data: Array, at: int, end: int) -> int:
    while at < end and (data[at] == 32 or data[at] == 10 or data[at] == 13 or data[at] == 9):
        at += 1
    return at


@compiled
def _is_ll(data: Array, at: int) -> bool:
    return bool(data[at] == 108 and data[at + 1] == 108)


@compiled
def _read_name(
    data: Array, at: int, end: int, nodes: Array, fields: Array, names: Array, levels: Array, depth: int
) -> tuple[int, int]:
    """Return the field whose name is at a place, or -1 for another name, and the start of its value."""
    if at >= end or data[at] != _QUOTE:
        return -1, at
    start = at + 1
    at = start
    while at < end and data[at] != _QUOTE:
        if data[at] == _BACKSLASH or data[at] < 32:
            return -1, at
        at += 1
    length = at - start
    node = levels[depth, 0]
    first, count = nodes[node, 3], nodes[node, 4]
    # Producers write the fields of an object in the same order each time.
    field = levels[depth, 3]
    found = -1
    for _ in range(count):
        if field >= first + count:
            field = first
        if fields[field, 3] == length:
            name, same = fields[field, 2], True
            for place in range(length):
                if names[name + place] != data[start + place]:
                    same = False
                    break
            if same:
                found = field
                break
        field += 1
    if found < 0 or at >= end:
        return -1, at
    levels[depth, 3] = found + 1
    at = _skip_blanks(data, at + 1, end)
    if at >= end or data[at] != _COLON:
        return -1, at
    return found, _skip_blanks(data, at + 1, end)


@compiled
def _read_value(data: Array, at: int, end: int, kind: int) -> int:  # noqa: C901, PLR0911 (a case for each kind)
    """Return the end of a value of a kind; -1 if there is none, or the judge must decide."""
    if _INTEGER <= kind <= _NUMBER:
        return _read_number(data, at, end, kind == _INTEGER)
    if kind == _BOOLEAN:
        if (
            end - at >= 4
            and data[at] == _T
            and data[at + 1] == 114
            and data[at + 2] == _LOWER_U
            and data[at + 3] == 101
        ):
            return at + 4
        if end - at >= 5 and data[at] == _F and data[at + 1] == 97 and _is_lse(data, at + 2):
            return at + 5
        return _NO_END
    if kind == _OTHER or data[at] != _QUOTE:
        return _NO_END
    start = at + 1
    at = start
    while at < end and data[at] != _QUOTE:
        if data[at] < 32:
            return _NO_END
        if data[at] == _BACKSLASH:
            if kind != _STRING or at + 1 >= end or not _is_plain_escape(data[at + 1]):
                return _NO_END
            at += 1
        at += 1
    if at >= end:
        return _NO_END
    if kind == _DATE and not (at - start == 10 and _is_date(data, start)):
        return _NO_END
    if kind == _TIME and not _is_time(data, start, at):
        return _NO_END
    return at + 1


@compiled
def _is_lse(data: Array, at: int) -> bool:
    return bool(data[at] == 108 and data[at + 1] == 115 and data[at + 2] == 101)


@compiled
def _is_plain_escape(letter: int) -> bool:
    """Return whether a letter after a backslash stands for one character: one of the escapes without a number."""
    return letter in _ESCAPES


@compiled
def _read_number(data: Array, at: int, end: int, is_integer: bool) -> int:
    start = at
    if at < end and data[at] == _MINUS:
        at += 1
    digits = at
    at = _skip_digits(data, at, end)
    if at == digits or (data[digits] == _ZERO and at - digits > 1):
        return _NO_END
    if is_integer:
        if at - digits > _MAX_INTEGER_DIGITS:
            return _NO_END
    elif at < end and data[at] == _DOT:
        fraction = at + 1
        at = _skip_digits(data, fraction, end)
        if at == fraction:
            return _NO_END
    # What follows must end the number: an exponent, or a fraction of an integer, is refused as a missing comma.
    return at if at - start <= _MAX_NUMBER_CHARACTERS else _NO_END


@compiled
def _skip_digits(data: Array, at: int, end: int) -> int:
    while at < end and _ZERO <= data[at] <= _NINE:
        at += 1
    return at


@compiled
def _two_digits(data: Array, at: int) -> int:
    """Return the number of two digits; 100 if these are none."""
    tens, ones = data[at] - _ZERO, data[at + 1] - _ZERO
    if tens < 0 or tens > 9 or ones < 0 or ones > 9:
        return 100
    number: int = tens * 10 + ones
    return number


@compiled
def _is_date(data: Array, at: int) -> bool:
    """Return whether ten bytes are a date, of the first 28 days of a month and the years from 1000."""
    month, day = _two_digits(data, at + 5), _two_digits(data, at + 8)
    years = 10 <= _two_digits(data, at) <= 99 and _two_digits(data, at + 2) <= 99
    return bool(years and data[at + 4] == _MINUS and data[at + 7] == _MINUS and 1 <= month <= 12 and 1 <= day <= 28)


@compiled
def _is_time(data: Array, start: int, end: int) -> bool:
    """Return whether bytes are a time such as 2026-11-20T14:00:00.123Z, or with an offset of full hours and minutes."""
    if end - start < 20 or not _is_date(data, start) or data[start + 10] != 84:
        return False
    hour, minute, second = _two_digits(data, start + 11), _two_digits(data, start + 14), _two_digits(data, start + 17)
    if hour > 23 or minute > 59 or second > 59 or data[start + 13] != _COLON or data[start + 16] != _COLON:
        return False
    at = start + 19
    if data[at] == _DOT:
        fraction = at + 1
        at = _skip_digits(data, fraction, end)
        if not 1 <= at - fraction <= 6:
            return False
    if end - at == 1:
        return bool(data[at] == 90)
    if end - at != 6 or (data[at] != _MINUS and data[at] != _PLUS) or data[at + 3] != _COLON:
        return False
    return bool(_two_digits(data, at + 1) <= 17 and _two_digits(data, at + 4) <= 59)
