"""Declaration of a command's options, as the fields of a frozen dataclass.

    @dataclass(frozen=True, kw_only=True)
    class Shop(Command, Times, after={Times: "topic"}):
        topic: tuple[str, ...] = repeated("only this topic")
        limit: int = option("largest number of rows (default: 100)", parse=int, default=100, metavar="N")
        body: bool = flag("print the body", rules=not_with("count"))
        count: bool = flag("print only the number of rows")

A field is an option of the field's name, as `--topic`, unless its declaration has other names. From it follow the
parser with its help (`add_options`), the environment variable, the key in a settings file, and the completion; the
checks of combinations (`find_option_conflict`); and the values with which the command is made (`option_values`).

Commands share options by inheritance. The options of bases come first, then those of the fields. `after` moves the
options of a base behind a field. A field that is declared again replaces the option of the base, at its place; the
rules of the base still hold, in addition to its own.
"""

from __future__ import annotations

import argparse
import inspect
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields, replace
from typing import Any, ClassVar, Literal, NamedTuple, TypedDict, TypeVar, Unpack, cast, overload

ENVIRONMENT_PREFIX = "COMMITLAKE_"
_DECLARATION = "declaration"
_REPEATABLE_NOTE = "; may be repeated"
_DEFAULT_NOTE = " (default"
_Value = TypeVar("_Value")
_Options = TypeVar("_Options", bound="Options")


class StoreOnceAction(argparse.Action):
    """Argument action that stores a value, and refuses a second one, which argparse would silently put in its place.

    For options without a default that choose rows.
    """

    def __call__(
        self,
        parser: argparse.ArgumentParser,  # noqa: ARG002 (argparse's signature)
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,  # noqa: ARG002
    ) -> None:
        """Store the value; raise an error if the option already has one.

        Raises:
            argparse.ArgumentError: if the option has a value already.
        """
        if getattr(namespace, self.dest, None) is not None:
            raise argparse.ArgumentError(self, "expected one value, but it is given more than once")
        setattr(namespace, self.dest, values)


class AppendAction(argparse._AppendAction):  # noqa: SLF001 (configargparse reads lists from files for this class only)
    """Argument action that appends each value to a list; all jobs' parsers use it for the action "append".

    The help gets the words "may be repeated", before the default if it states one.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        if self.help and self.help != argparse.SUPPRESS:
            text, default, rest = self.help.partition(_DEFAULT_NOTE)
            self.help = text + _REPEATABLE_NOTE + default + rest


class Options:
    """Base class of dataclasses whose fields are command line options."""

    _after: ClassVar[Mapping[type, str]] = {}

    def __init_subclass__(cls, *, after: Mapping[type, str] | None = None) -> None:
        """Set where inherited options appear in the help: after a given field of this class, or else first."""
        cls._after = after or {}


@dataclass(frozen=True, slots=True, eq=False)
class Section:
    """A part of a command's help, with a title and a description."""

    title: str
    about: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class OneOf:
    """Group of options of which at most one, or exactly one, must be given."""

    required: bool = False


class Rule(NamedTuple):
    """Rule that refuses an option together with certain other options, or without them.

    Attributes:
        text: the error; `{this}` is the option with the rule, `{other}` the first given one of the others, or all of
            them if it needs one, and `{action}` the command's action.
        others: field names of the other options, optionally with values, as in `via hbase`.
        is_refused_with: True if the option must not be used together with any of the others; False if it needs one.
        hint: a hint on what to do.
        allows_variables: True if the rule only says that the option has no effect; environment variables may still set
            it, for other commands.
        values: values of the option with which the rule holds; if there are none, any but the default.
        is_order: True if the option's value must be less than that of the other one, where both are given.
    """

    text: str
    others: tuple[str, ...]
    is_refused_with: bool
    hint: str = ""
    allows_variables: bool = False
    values: tuple[str, ...] = ()
    is_order: bool = False


def requires_one_of(*others: str, hint: str = "") -> tuple[Rule, ...]:
    """Return the rule that an option may only be used together with another one, or with one of several."""
    return (Rule("{this} needs {other}", others, is_refused_with=False, hint=hint),)


def only_with(required_option: str, option_text: str = "{this}") -> tuple[Rule, ...]:
    """Return the rule that an option must not be given on the command line without another option.

    Args:
        option_text: name of the option in the error; by default the first one.
    """
    text, hint = f"{option_text} has no effect without {{other}}", "add {other}, or leave it out"
    return (Rule(text, (required_option,), is_refused_with=False, hint=hint, allows_variables=True),)


def conflicts_with(*others: str, hint: str = "") -> tuple[Rule, ...]:
    """Return the rule that an option cannot be used together with certain others."""
    return (Rule("{this} and {other} cannot be used together", others, is_refused_with=True, hint=hint),)


def overrides(*others: str, hint: str = "") -> tuple[Rule, ...]:
    """Return the rule that an option makes certain others ineffective."""
    return (Rule("{other} has no effect with {this}", others, is_refused_with=True, hint=hint),)


def only_for_actions(*actions: str) -> tuple[Rule, ...]:
    """Return the rule that an option may only be used with certain values of the command's argument `action`."""
    text, hint = "{this} cannot be used with {action}", f"it belongs to {_join_names(actions)}"
    return (Rule(text, (" ".join(("action", *actions)),), is_refused_with=False, hint=hint),)


def cannot_be_used_with(*others: str, hint: str = "") -> tuple[Rule, ...]:
    """Return the rule that certain other options cannot be used with an option, or with one of its values."""
    return (Rule("{other} cannot be used with {this}", others, is_refused_with=True, hint=hint),)


def must_be_less_than(end_option: str) -> tuple[Rule, ...]:
    """Return the rule that an option's value (the start of a range) must be less than another option's (its end)."""
    text = "{this} is not before {other}"
    return (Rule(text, (end_option,), is_refused_with=True, hint="exchange them", is_order=True),)


def rules_for_values(*values: str, rules: Sequence[Rule]) -> tuple[Rule, ...]:
    """Return rules that apply only if the option has one of certain values, given or by default."""
    return tuple(rule._replace(values=values) for rule in rules)


@dataclass(frozen=True, slots=True)
class Declaration:
    """Declaration of an option or a positional argument.

    Attributes:
        names: names on the command line: the shown name, then older names. If empty, the name is derived from the
            field.
        settings: further parameters of `ArgumentParser.add_argument`.
        section: section of the help that lists the option.
        one_of: group of options that exclude each other.
        rules: forbidden combinations with other options.
        is_argument: True for a positional argument.
        twin: help of an option with the argument's name that means the same; None if there is no such option.
    """

    names: tuple[str, ...]
    settings: Mapping[str, Any]
    section: Section | None = None
    one_of: OneOf | None = None
    rules: Sequence[Rule] = ()
    is_argument: bool = False
    twin: str | None = None

    def command_line_names(self, name: str) -> tuple[str, ...]:
        """Return the option's names on the command line, given the name of its field."""
        return self.names or (name if self.is_argument else f"--{name.replace('_', '-')}",)


class Shorthand(NamedTuple):
    """Option without a field: it sets another option's field, to a fixed value or one derived from its own value."""

    text: str
    name: str
    value: object
    section: Section | None = None
    parse: Callable[[str], object] | None = None


class OptionKeywords(TypedDict, total=False):
    """Keyword arguments of every function that declares an option."""

    section: Section | None
    one_of: OneOf | None
    rules: Sequence[Rule]


class ValueOptionKeywords(OptionKeywords, total=False):
    """Keyword arguments that declare an option with a value."""

    metavar: str
    choices: Iterable[Any]
    action: type[argparse.Action]


@overload
def option(text: str, *names: str, required: Literal[True], **parts: Unpack[ValueOptionKeywords]) -> str: ...
@overload
def option(
    text: str,
    *names: str,
    parse: Callable[[str], _Value],
    required: Literal[True],
    **parts: Unpack[ValueOptionKeywords],
) -> _Value: ...
@overload
def option(text: str, *names: str, default: str, **parts: Unpack[ValueOptionKeywords]) -> str: ...
@overload
def option(text: str, *names: str, **parts: Unpack[ValueOptionKeywords]) -> str | None: ...
@overload
def option(
    text: str, *names: str, parse: Callable[[str], _Value], default: _Value, **parts: Unpack[ValueOptionKeywords]
) -> _Value: ...
@overload
def option(
    text: str, *names: str, parse: Callable[[str], _Value], **parts: Unpack[ValueOptionKeywords]
) -> _Value | None: ...
def option(text: str, *names: str, **parts: Any) -> Any:
    """Declare an option with a value.

    Args:
        text: its help; `argparse.SUPPRESS` for an option that is not shown.
        names: see `Declaration`.
        parts: further parts of the declaration; `parse` makes the value of a text.
    """
    return _declare_field(names, parts, {"help": text, "default": None})


@overload
def repeated(text: str, *names: str, required: bool = ..., **parts: Unpack[ValueOptionKeywords]) -> tuple[str, ...]: ...
@overload
def repeated(
    text: str, *names: str, parse: Callable[[str], _Value], **parts: Unpack[ValueOptionKeywords]
) -> tuple[_Value, ...]: ...
def repeated(text: str, *names: str, **parts: Any) -> Any:
    """Declare an option that may be given several times."""
    return _declare_field(names, parts, {"help": text, "default": [], "action": "append"})


def flag(text: str, *names: str, **parts: Unpack[OptionKeywords]) -> bool:
    """Declare an option without a value."""
    return cast("bool", _declare_field(names, parts, {"help": text, "default": False, "action": "store_true"}))


def switch(text: str, *names: str, **parts: Unpack[OptionKeywords]) -> bool | None:
    """Declare an option with the forms `--name` and `--no-name`; its value is None if neither is given."""
    settings = {"help": text, "default": None, "action": argparse.BooleanOptionalAction}
    return cast("bool | None", _declare_field(names, parts, settings))


def argument(
    text: str,
    *,
    is_optional: bool = True,
    equivalent_option_help: str | None = None,
    default: str | None = None,
    **parts: Any,
) -> Any:
    """Declare a positional argument.

    Args:
        text: its help.
        is_optional: True if it may be missing.
        equivalent_option_help: see `Declaration.twin`.
    """
    nargs = {"nargs": "?"} if is_optional else {}
    return _declare_field(
        (), parts, {"help": text, "default": default, **nargs}, is_argument=True, twin=equivalent_option_help
    )


def _declare_field(
    names: Sequence[str], keywords: Mapping[str, Any], parser_settings: dict[str, Any], **more: Any
) -> Any:
    of_declaration = {name: value for name, value in keywords.items() if name in OptionKeywords.__annotations__}
    of_parser = {name: value for name, value in keywords.items() if name not in of_declaration}
    if "parse" in of_parser:
        of_parser["type"] = of_parser.pop("parse")
    parser_settings = {**parser_settings, **of_parser}
    metadata = {_DECLARATION: Declaration(tuple(names), parser_settings, **of_declaration, **more)}
    default = parser_settings["default"]
    if parser_settings.get("required"):
        return field(metadata=metadata)
    return field(default=tuple(default) if isinstance(default, list) else default, metadata=metadata)


def shorthand_option(text: str, section: Section | None = None, **sets: object) -> Shorthand:
    """Declare an option that sets the field of another option; assign it to a class variable with the option's name."""
    ((name, value),) = sets.items()
    return Shorthand(text, name, value, section)


def deprecated_option(name: str, parse: Callable[[str], object], section: Section | None = None) -> Shorthand:
    """Declare a hidden, older option that sets the field of another one, for example in another unit."""
    return Shorthand(argparse.SUPPRESS, name, None, section, parse)


def option_declarations(options_class: type[Options]) -> dict[str, Declaration | Shorthand]:
    """Return the declared options of a class by the names of their fields, in the order of the help."""
    declared = {each.name: _declaration_with_rules(options_class, each) for each in fields(cast("Any", options_class))}
    found = (
        (name, declared.get(name) or getattr(options_class, name, None))
        for name in dict.fromkeys(_ordered_field_names(options_class))
    )
    return {name: entry for name, entry in found if isinstance(entry, Declaration | Shorthand)}


def _declaration_with_rules(options_class: type[Options], option_field: Field[Any]) -> Declaration | None:
    """Return a field's declaration, with the rules of all bases that declare the field, too; None if it has none."""
    declaration: Declaration | None = option_field.metadata.get(_DECLARATION)
    if declaration is None:
        return None
    of_classes = [vars(each).get("__dataclass_fields__", {}).get(option_field.name) for each in options_class.__mro__]
    declarations = [each.metadata[_DECLARATION] for each in of_classes if each and _DECLARATION in each.metadata]
    return replace(declaration, rules=tuple(dict.fromkeys(rule for each in declarations[::-1] for rule in each.rules)))


def options_with_fields(options_class: type[Options]) -> list[tuple[str, Declaration]]:
    """Return pairs of field name and declaration for the declared options that have a field of their own."""
    return [
        (name, entry) for name, entry in option_declarations(options_class).items() if isinstance(entry, Declaration)
    ]


def _ordered_field_names(options_class: type[Options]) -> Iterator[str]:
    placed = {base: list(_ordered_field_names(base)) for base in options_class._after}  # noqa: SLF001 (its own class)
    elsewhere = {name for names in placed.values() for name in names}
    for base in options_class.__bases__:
        if base not in placed and issubclass(base, Options):
            yield from (name for name in _ordered_field_names(base) if name not in elsewhere)
    own = vars(options_class).get("__dataclass_fields__", {})
    declared = {name for name, each in own.items() if _DECLARATION in each.metadata}
    for name in inspect.get_annotations(options_class):
        if name not in elsewhere and (name in declared or isinstance(vars(options_class).get(name), Shorthand)):
            yield name
        for base, place in options_class._after.items():  # noqa: SLF001
            if place == name:
                yield from placed[base]


def add_options(
    parser: argparse._ActionsContainer,
    options_class: type[Options],
    *,
    excluded_class: type[Options] | None = None,
    help_texts: Mapping[str, str] | None = None,
) -> None:
    """Add the declared options of a class to a parser.

    Args:
        excluded_class: class whose options the parser already has.
        help_texts: other help texts of some fields.
    """
    known = set() if excluded_class is None else option_declarations(excluded_class).keys()
    containers: dict[object, Any] = {None: parser}
    for name, entry in option_declarations(options_class).items():
        if name in known:
            continue
        section, one_of = entry.section, getattr(entry, "one_of", None)
        if section not in containers and section is not None:
            containers[section] = parser.add_argument_group(section.title, section.about)
        if one_of not in containers and one_of is not None:
            containers[one_of] = containers[section].add_mutually_exclusive_group(required=one_of.required)
        _add_option(
            containers[section if one_of is None else one_of], name, _replace_help(entry, (help_texts or {}).get(name))
        )


def _replace_help(entry: Declaration | Shorthand, help_text: str | None) -> Declaration | Shorthand:
    if help_text is None or isinstance(entry, Shorthand):
        return entry
    return replace(entry, settings={**entry.settings, "help": help_text})


def _add_option(container: argparse._ActionsContainer, name: str, entry: Declaration | Shorthand) -> None:
    if isinstance(entry, Shorthand):
        option_name = f"--{name.replace('_', '-')}"
        how: dict[str, Any] = {"action": "store_const", "const": entry.value}
        if entry.parse is not None:
            how = {"type": entry.parse}
        container.add_argument(option_name, dest=entry.name, default=argparse.SUPPRESS, help=entry.text, **how)
    elif not entry.is_argument:
        container.add_argument(*entry.command_line_names(name), dest=name, **entry.settings)
    elif entry.twin is None:
        container.add_argument(name, **entry.settings)
    else:
        container.add_argument(name, **{**entry.settings, "default": argparse.SUPPRESS})
        container.add_argument(f"--{name}", default=entry.settings["default"], metavar="PATH", help=entry.twin)


def option_values(options_class: type[Options], arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the values of a class's fields in parsed arguments."""
    found = {
        each.name: getattr(arguments, each.name)
        for each in fields(cast("Any", options_class))
        if hasattr(arguments, each.name)
    }
    return {name: tuple(value) if isinstance(value, list) else value for name, value in found.items()}


def find_option_conflict(options: Options) -> tuple[str, str] | None:
    """Return the error and the hint for the first combination of options that is refused; None if there is none."""
    for name, entry in options_with_fields(type(options)):
        variables = {environment_variable_of(each) for each in entry.command_line_names(name)} & os.environ.keys()
        for rule in entry.rules:
            if (rule.allows_variables and variables) or not _is_violated(rule, options, name):
                continue
            given = [other for other in rule.others if rule.is_refused_with and _is_option_given(options, other)]
            others = given[:1] or rule.others
            if rule.is_order:
                others = (f"{rule.others[0]} {getattr(options, rule.others[0])}",)
            names = {
                "this": _format_option(
                    options, f"{name} {getattr(options, name)}" if rule.values or rule.is_order else name
                ),
                "other": _format_alternatives([_format_option(options, other) for other in others]),
                "action": _format_option(options, f"action {getattr(options, 'action', '')}"),
            }
            return rule.text.format(**names), rule.hint.format(**names)
    return None


def _is_violated(rule: Rule, options: Options, option_name: str) -> bool:
    """Return True if an option's rule forbids its combination with the other options."""
    if rule.is_order:
        start, end = getattr(options, option_name), getattr(options, rule.others[0])
        return start is not None and end is not None and bool(start >= end)
    given = [
        other for other in rule.others if _is_option_given(options, other, counts_empty_values=not rule.is_refused_with)
    ]
    return _is_option_given(options, " ".join((option_name, *rule.values))) and bool(given) == rule.is_refused_with


def _is_option_given(options: Options, option_and_values: str, *, counts_empty_values: bool = False) -> bool:
    """Return True if an option differs from its default or, for "FIELD VALUE …", has one of the listed values.

    Args:
        counts_empty_values: True if a value that chooses nothing, such as False or 0, counts. Such a value has no
            effect where the option must not be used: a settings file may state it for all actions.
    """
    name, *values = option_and_values.split(" ")
    found = getattr(options, name)
    if values:
        return str(found) in values
    default = next(each.default for each in fields(cast("Any", options)) if each.name == name)
    return found != default and (counts_empty_values or found not in (None, False, 0, (), []))


def _format_option(options: Options, option_and_value: str) -> str:
    """Return an option as on a command line, with its value if one is given: `--via hbase`, or `'evidence key'`."""
    name, space, value = option_and_value.partition(" ")
    declared = option_declarations(type(options))
    entry = declared.get(name)
    if not isinstance(entry, Declaration):
        return ""
    if entry.is_argument:
        return f"'{getattr(options, 'NAME', '')} {value}'" if value else str(entry.settings.get("metavar", name))
    if entry.settings["help"] == argparse.SUPPRESS:
        for other, short in declared.items():
            if isinstance(short, Shorthand) and (short.name, short.value) == (name, value):
                return f"--{other}"
    return entry.command_line_names(name)[0] + space + value


def _format_alternatives(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"one of {_join_names(names)}"


def _join_names(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]


def drop_conflicting_variable(options: _Options, preferred_option: str, excluded_option: str) -> _Options:
    """Reset an option that only the environment sets, if an option that excludes it is given.

    Args:
        preferred_option: name of the option that is preferred, without the dashes, or of a positional argument.
        excluded_option: name of the option that it excludes; its value is a string.
    """
    name_of_field = excluded_option.replace("-", "_")
    is_set = getattr(options, name_of_field) is not None and getattr(options, name_of_field) == os.environ.get(
        environment_variable_of(excluded_option)
    )
    if (
        is_set
        and getattr(options, preferred_option.replace("-", "_"))
        and environment_variable_of(preferred_option) not in os.environ
    ):
        return cast("_Options", replace(cast("Any", options), **{name_of_field: None}))
    return options


def environment_variable_of(option_name: str) -> str:
    """Return the environment variable that sets an option."""
    return ENVIRONMENT_PREFIX + option_name.strip("-").upper().replace("-", "_")
