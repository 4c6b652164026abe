"""Options that select messages: each is declared once, and commands inherit those that they need.

    class QueryOptions(Command, LakeArguments, Topics, Keys, TimeRange): ...

    command.selection  # Selection(topics=("orders",), ...)

Each of them may be repeated, but for the times and the predicate; a message must meet all options, and one value of
each. A command that inherits an option may declare it again, with its own help or rules; the option's meaning as a
condition remains. An option of the same name that is not inherited, such as the name of the only store in `--broker`,
is no condition.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from commitlake.jobs.arguments.stores import make_integer_parser
from commitlake.jobs.arguments.times import parse_time
from commitlake.jobs.cli.options import Options, Section, must_be_less_than, option, repeated
from commitlake.schemas.layouts.rocketmq.topics import Kind
from commitlake.schemas.selection import Selection

WHICH = Section("which messages")


class SelectionOptions(Options):
    """Base class of the option classes that select messages.

    Attributes:
        CONDITIONS: names of a selection's conditions, by the name of the option field that sets them.
    """

    CONDITIONS: ClassVar[Mapping[str, str]] = {}

    @property
    def selection(self) -> Selection:
        """Selection with the values of the command's options; a condition without an option stays empty."""
        declared = (vars(base).get("CONDITIONS", {}) for base in type(self).__mro__)
        return Selection(**{name: getattr(self, field) for each in declared for field, name in each.items()})


@dataclass(frozen=True, kw_only=True)
class Brokers(SelectionOptions):
    """Option that selects messages by store."""

    CONDITIONS: ClassVar = {"broker": "brokers"}
    broker: tuple[str, ...] = repeated("only of this store", section=WHICH)


@dataclass(frozen=True, kw_only=True)
class Topics(SelectionOptions):
    """Option that selects messages by topic."""

    CONDITIONS: ClassVar = {"topic": "topics"}
    topic: tuple[str, ...] = repeated("only of this topic, as stored", section=WHICH)


@dataclass(frozen=True, kw_only=True)
class Queues(SelectionOptions):
    """Option that selects messages by queue id."""

    CONDITIONS: ClassVar = {"queue": "queue_ids"}
    queue: tuple[int, ...] = repeated("only of the queue with this id", parse=make_integer_parser(0), section=WHICH)


@dataclass(frozen=True, kw_only=True)
class Kinds(SelectionOptions):
    """Option that selects messages by kind."""

    CONDITIONS: ClassVar = {"kind": "kinds"}
    kind: tuple[str, ...] = repeated("only of this kind of record", choices=[str(kind) for kind in Kind], section=WHICH)


@dataclass(frozen=True, kw_only=True)
class Tags(SelectionOptions):
    """Option that selects messages by tag."""

    CONDITIONS: ClassVar = {"tag": "tags"}
    tag: tuple[str, ...] = repeated("only with this tag", "--tag", "--tags", section=WHICH)


@dataclass(frozen=True, kw_only=True)
class Keys(SelectionOptions):
    """Option that selects messages by business key."""

    CONDITIONS: ClassVar = {"key": "keys"}
    key: tuple[str, ...] = repeated("only with this business key", section=WHICH)


@dataclass(frozen=True, kw_only=True)
class Ids(SelectionOptions):
    """Option that selects messages by message id."""

    CONDITIONS: ClassVar = {"id": "ids"}
    id: tuple[str, ...] = repeated("only with this offset message id, or client message id (UNIQ_KEY)", section=WHICH)


@dataclass(frozen=True, kw_only=True)
class Groups(SelectionOptions):
    """Option that selects offsets or dead letters by consumer group."""

    CONDITIONS: ClassVar = {"group": "groups"}
    group: tuple[str, ...] = repeated("only of this consumer group", section=WHICH)


@dataclass(frozen=True, kw_only=True)
class Predicate(SelectionOptions):
    """Option that selects messages by an SQL condition."""

    CONDITIONS: ClassVar = {"where": "where"}
    where: str | None = option("any predicate over the columns of messages", metavar="SQL", section=WHICH)


@dataclass(frozen=True, kw_only=True)
class TimeRange(SelectionOptions):
    """Options that select messages by the time at which they were stored."""

    CONDITIONS: ClassVar = {"start": "start", "end": "end"}
    start: datetime.datetime | None = option(
        "only messages stored at or after this time: 2026-11-20T14:00, 2026-11-20, ms since 1970, now, or -2h",
        "--from",
        parse=parse_time,
        metavar="TIME",
        section=WHICH,
        rules=must_be_less_than("end"),
    )
    end: datetime.datetime | None = option(
        "only messages stored before this time", "--to", parse=parse_time, metavar="TIME", section=WHICH
    )
