"""The command line of a settings class, made from its fields and what they say about their options."""

from __future__ import annotations

import argparse
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass, replace
from functools import cache, partial
from itertools import islice
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from ranum_falsify.cli.usage import Parser
from ranum_falsify.errors import UsageError
from ranum_falsify.lazy import cached_property
from ranum_falsify.option import Argument, Group, Option, Switch, parse_whole

__all__ = ["OptionField", "Values", "add_fields", "all_options", "build", "list_options", "overlay", "read", "require"]

Values = dict[str, Any]
"""What is given, by the path of the field: `config.seed`."""


@dataclass(frozen=True)
class OptionField:
    """An option of a field, which may have several.

    Attributes:
        path: The field's name, after those of the fields that hold it.
        kinds: Types that its value may have, without None.
        default: Its default.
        text: Its line in the docstring of its class.
        mark: What it says about the option.
        group: The heading that the option stands below.
        exclusive: Whether the field has several options, which all are switches.
    """

    path: str
    kinds: tuple[Any, ...]
    default: Any
    text: str
    mark: Option | Switch | Argument
    group: str
    exclusive: bool

    @cached_property
    def names(self) -> list[str]:
        """All spellings; the path for an argument."""
        if isinstance(self.mark, Argument):
            return [self.path]
        return self.mark.names.split() or [f"--{self.path.rpartition('.')[2].replace('_', '-')}"]

    @cached_property
    def name(self) -> str:
        """The spelling that messages use."""
        return next((name for name in self.names if name.startswith("--")), self.names[-1])

    @cached_property
    def keyed(self) -> str:
        """How all spellings begin if there is one for each key: `--prop.`."""
        return self.name.removesuffix("NAME") if self.name.endswith(".NAME") else ""

    @property
    def help(self) -> str:
        """The field's text without its capital, unless that is an abbreviation's, and without its full stop."""
        text = (isinstance(self.mark, Switch) and self.mark.help) or self.text
        first = text.split(" ")[0]
        text = text if first[1:] != first[1:].lower() else text[:1].lower() + text[1:]
        shown = _describe_default(self.default) if isinstance(self.mark, Option) else ""
        return f"{text.removesuffix('.')}{f' (default: {shown})' if shown else ''}".replace("%", "%%")


@cache
def all_options(settings: type) -> tuple[OptionField, ...]:
    """Return the options of a settings class, and those of the settings in it."""
    return tuple(list_options(settings))


def list_options(settings: type, prefix: str = "", group: str = "", base: Any = None) -> Iterator[OptionField]:
    """Yield the options of the fields of a settings class, and those of the settings in it.

    Args:
        settings: The class.
        prefix: Fields that hold the settings, each with a dot.
        group: The heading of options that have no other.
        base: Settings with the defaults, where they are not those of the class.
    """
    hints, texts = get_type_hints(settings, include_extras=True), _read_attributes(settings)
    for each in fields(settings):
        hint, *marks = get_args(hints[each.name]) if get_origin(hints[each.name]) is Annotated else [hints[each.name]]
        title = next((mark.title for mark in marks if isinstance(mark, Group)), group)
        options = [mark for mark in marks if isinstance(mark, Option | Switch | Argument)]
        exclusive = len(options) > 1 and all(isinstance(mark, Switch) for mark in options)
        path, default = f"{prefix}{each.name}", _find_default(each, base)
        for mark in options:
            yield OptionField(path, _split_union(hint), default, texts.get(each.name, ""), mark, title, exclusive)
        if (nested := _find_nested(hint)) is not None:
            yield from list_options(nested, f"{path}.", title, None if default is MISSING else default)


def _find_default(each: Field[Any], base: Any) -> Any:
    """Return the default of a field, MISSING where it has none."""
    if base is not None:
        return getattr(base, each.name)
    return each.default if each.default_factory is MISSING else each.default_factory()


def build(settings: type, values: Mapping[str, Any], prefix: str = "", base: Any = None) -> Any:
    """Return the settings with the values given, and defaults for the others; see `list_options`."""
    hints, given = get_type_hints(settings), {}
    for each in fields(settings):
        path, nested = f"{prefix}{each.name}", _find_nested(hints[each.name])
        if path in values:
            given[each.name] = values[path]
        elif nested is not None and any(name.startswith(f"{path}.") for name in values):
            given[each.name] = build(nested, values, f"{path}.", _find_default(each, base))
    return settings(**given) if base is None else replace(base, **given)


def _describe_default(default: Any) -> str:
    """Return a default as the help shows it, empty where it says nothing."""
    if isinstance(default, tuple):
        return ", ".join(default)
    return f"{default:g}" if isinstance(default, float) else str(default) if isinstance(default, int | str) else ""


def _split_union(hint: Any) -> tuple[Any, ...]:
    parts = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    return tuple(part for part in parts if part is not NoneType)


def _find_nested(hint: Any) -> type | None:
    """Return the settings class that a type is, or may be."""
    return next((kind for kind in _split_union(hint) if isinstance(kind, type) and is_dataclass(kind)), None)


def _read_attributes(settings: type) -> dict[str, str]:
    """Return the lines about the attributes in the docstrings of a class and its bases."""
    texts = {}
    for base in reversed(settings.__mro__):
        section = inspect.cleandoc(base.__doc__ or "").partition("Attributes:\n")[2]
        for name, text in re.findall(r"^ {4}(\w+): (.+(?:\n {8}.+)*)", section, re.MULTILINE):
            texts[name] = " ".join(text.split())
    return texts


# the parser -----------------------------------------------------------------------------------------------------------


def add_fields(parser: Parser, settings: type) -> None:
    """Add the options of a settings class; what is not given is left out of the namespace."""
    groups: dict[str, argparse._ActionsContainer] = {"": parser}
    for option in list_options(settings):
        if option.group not in groups:
            groups[option.group] = parser.add_argument_group(option.group)
        if option.exclusive and option.path not in groups:
            groups[option.path] = groups[option.group].add_mutually_exclusive_group()
        target = groups[option.path if option.exclusive else option.group]
        target.add_argument(*option.names, help=option.help, **_describe_action(option))


def _describe_action(option: OptionField) -> dict[str, Any]:
    """Return what argparse is told about the words that an option takes."""
    mark = option.mark
    if isinstance(mark, Argument):  # argparse would convert the text that stands for no default
        return {"metavar": mark.metavar, "nargs": "*" if mark.many else "?", "type": _make_converter(option)}
    omitted: dict[str, Any] = {"dest": option.name, "default": argparse.SUPPRESS}
    if isinstance(mark, Switch):
        return {**omitted, "action": "store_const", "const": mark.value}
    if option.keyed:
        return {**omitted, "metavar": mark.metavar, "type": partial(_refuse_unnamed, option.name)}
    action = {**omitted, "type": _make_converter(option), "action": "append" if mark.gather else "store"}
    if all(get_origin(kind) is Literal for kind in option.kinds):
        return action | {"choices": [choice for kind in option.kinds for choice in get_args(kind)]}
    if mark.bare:
        action |= {"nargs": "?", "const": mark.bare}
    if mark.many or isinstance(mark.metavar, tuple):
        action["nargs"] = "+" if mark.many else len(mark.metavar)
    short = "N" if int in option.kinds else option.path.rpartition(".")[2].upper()
    return action | {"metavar": mark.metavar or short}


def _make_converter(option: OptionField) -> Callable[[str], Any]:
    """Return from a word to a value, with errors that argparse shows."""
    mark = option.mark if isinstance(option.mark, Option) else Option()
    of_text = Path if {Path, tuple[Path, ...]} & {*option.kinds} else str
    by_type = partial(parse_whole, least=mark.least) if int in option.kinds else of_text
    parse = mark.parse or by_type

    def convert(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return convert


def _refuse_unnamed(option: str, text: str) -> str:
    """Refuse the value of an option that lacks its key: `--prop.NAME`, abbreviated to `--prop`."""
    raise argparse.ArgumentTypeError(f"{text!r} has no name; write {option}=VALUE")


# from arguments to values ---------------------------------------------------------------------------------------------


def read(parser: Parser, settings: type, arguments: Sequence[str]) -> Values:
    """Return what arguments give.

    Raises:
        UsageError: They contradict each other, or do not exist.
    """
    options = all_options(settings)
    rest, found = _take_early(parser, options, arguments)
    found |= parser.read(rest)
    values: Values = {}
    said: dict[str, str] = {}
    for option in options:
        if option.name not in found or (isinstance(option.mark, Argument) and not found[option.name]):
            continue
        value = _gather(option, found[option.name])
        text = option.name if isinstance(option.mark, Switch) else f"{option.name} {value}"
        if option.path in values and values[option.path] != value:
            raise UsageError(f"{text} and {said[option.path]} contradict each other; give one of them")
        values[option.path], said[option.path] = value, text
    _refuse_details(values, said)
    return values


def require(settings: type, values: Values) -> None:
    """Check that arguments are given that are required.

    Raises:
        UsageError: One is not.
    """
    for option in list_options(settings):
        if isinstance(option.mark, Argument) and option.mark.missing and option.path not in values:
            raise UsageError(option.mark.missing)


def overlay(values: Values, over: Values) -> Values:
    """Return values but for those that others replace or contradict, and the others."""

    def is_replaced(path: str) -> bool:
        return any(path == other or path.startswith(f"{other}.") or other.startswith(f"{path}.") for other in over)

    return {path: value for path, value in values.items() if not is_replaced(path)} | over


def _refuse_details(values: Values, said: Mapping[str, str]) -> None:
    """Refuse settings of what is switched off."""
    for path in (path for path, value in values.items() if value is None):
        for other in values:
            if other.startswith(f"{path}."):
                text = said[other].split(" ")[0]
                raise UsageError(f"{said[path]} and {text} contradict each other; give one of them")


def _gather(option: OptionField, value: Any) -> Any:
    if isinstance(option.mark, Option) and option.mark.gather is not None:
        try:
            return option.mark.gather(value)
        except ValueError as error:
            raise UsageError(f"{option.name} {error}") from error
    return tuple(value) if isinstance(value, list) else value


def _take_early(parser: Parser, options: Sequence[OptionField], arguments: Sequence[str]) -> tuple[list[str], Values]:
    """Take out `--prop.NAME=VALUE` and `--prop.NAME VALUE`, and tie other values to their options that need it.

    That is before the others are read, because these values may start with a minus sign.

    Raises:
        UsageError: A value is missing.
    """
    keyed = [option for option in options if option.keyed]
    counts = {
        option.name: option.mark.count for option in options if isinstance(option.mark, Option) and option.mark.count
    }
    rest: list[str] = []
    found: Values = {}
    words = iter(arguments)
    for word in words:
        key = next((option for option in keyed if word.startswith(option.keyed)), None)
        count = counts.get(parser.complete(word)) if counts else None
        if word == "--":
            rest += [word, *words]
        elif key is not None:
            name, equals, value = word.removeprefix(key.keyed).partition("=")
            given = value if equals else next(words, None)
            if not name or given is None or (not equals and given.startswith("--")):
                raise UsageError(f"{word}: a value is missing; write {key.name}=VALUE")
            found.setdefault(key.name, []).append((name, given))
        elif count is not None and (first := next(words, None)) is not None:
            rest.append(f"{word}={','.join([first, *islice(words, count(first) - 1)])}")
        else:
            rest.append(word)
    return rest, found
