"""Advice on a finding: a sentence, and the commands in it.

One declaration gives both, so that a sentence and the command beside it cannot say different things. What shows an
advice (a page, a table, JSON) fills in the places that it knows, such as the store. A command is complete, and can be
copied and run, if all its places are known; in a sentence, the others are names in capitals.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

Places = Mapping[str, str | Sequence[str]]
"""What stands for the places of an advice, by their names: one word, or any number of words."""
_PLACE = re.compile(r"\{(\w+)\}")


class Command(NamedTuple):
    """Command line in an advice, which a user can copy and run.

    Attributes:
        words: The program and its arguments.
        is_complete: Whether it can be run as it is.
    """

    words: tuple[str, ...]
    is_complete: bool

    @property
    def to_shell_line(self) -> str:
        """The command as a line for a shell."""
        return shlex.join(self.words)


class FilledAdvice(NamedTuple):
    """Advice whose placeholders are replaced by actual values.

    Attributes:
        parts: The sentence in pieces: plain texts and commands, in order.
        others: The same commands for further places, such as other stores.
    """

    parts: tuple[str | Command, ...] = ()
    others: tuple[Command, ...] = ()

    @property
    def sentence(self) -> str:
        """The advice as one sentence without a full stop; commands are in quotes."""
        return "".join(part if isinstance(part, str) else _quote_command(part.to_shell_line) for part in self.parts)

    @property
    def commands(self) -> tuple[Command, ...]:
        """The commands without open placeholders, which can be run as they are."""
        own = (part for part in self.parts if isinstance(part, Command))
        return tuple(command for command in (*own, *self.others) if command.is_complete)


class Advice(NamedTuple):
    """Advice on what to do. Its commands may have placeholders, for example for the path of a store or lake.

    Attributes:
        text: A sentence without a full stop, in which `{}` stands for each command, in order.
        commands: The commands, without the program. A name in braces, such as `{store}`, is a placeholder. If it is a
            word of its own, it may be replaced by several words, or by none.
    """

    text: str
    commands: tuple[str, ...] = ()

    def fill_placeholders(self, values: Places | None = None) -> FilledAdvice:
        """Return the advice with values in place of its placeholders.

        >>> advice = Advice("{} makes it from the log", ("rebuild {store} --out {out}",))
        >>> print(advice.fill_placeholders({"store": "/a b"}).sentence)
        "commitlake rebuild '/a b' --out OUT" makes it from the log
        >>> [command.words for command in advice.fill_placeholders({"store": "/a b", "out": "c"}).commands]
        [('commitlake', 'rebuild', '/a b', '--out', 'c')]
        """
        first, *texts = self.text.split("{}")
        parts: list[str | Command] = [first]
        for command, text in zip(self.commands, texts, strict=True):
            parts += [_fill_command(command, values or {}), text]
        return FilledAdvice(tuple(part for part in parts if part))

    def fill_for_each_place(self, values_by_place: Sequence[Places]) -> FilledAdvice:
        """Return the advice with the first store or lake in its sentence, and with a command for each store or lake."""
        if not values_by_place:
            return self.fill_placeholders()
        first, *others = (self.fill_placeholders(each) for each in values_by_place)
        return first._replace(others=tuple(command for other in others for command in other.commands))

    def with_prefix(self, text: str) -> Advice:
        """Return the advice with a text put in front of its sentence."""
        return Advice(text + self.text, self.commands)


NO_ADVICE = FilledAdvice()


def _fill_command(template: str, values: Places) -> Command:
    words = tuple(filled for word in shlex.split(template) for filled in _fill_placeholder(word, values))
    return Command(("commitlake", *words), set(_PLACE.findall(template)) <= values.keys())


def _fill_placeholder(word: str, values: Places) -> Iterator[str]:
    alone = _PLACE.fullmatch(word)
    value = values.get(alone[1]) if alone else None
    if value is not None and not isinstance(value, str):
        yield from value
    else:
        yield _PLACE.sub(lambda found: str(values.get(found[1], found[1].upper())), word)


def _quote_command(line: str) -> str:
    quote = '"' if "'" in line else "'"
    return f"{quote}{line}{quote}"
