"""The command line of a settings class, made from its fields by cyclopts."""

from __future__ import annotations

import inspect
import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import MISSING, dataclass, fields
from functools import cache, reduce
from operator import or_
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from cyclopts import App, CycloptsError, Group, Parameter, UnusedCliTokensError

from ranum_falsify.cli.options.shared import CommonOptions, Values
from ranum_falsify.errors import UsageError
from ranum_falsify.lazy import cached_property
from ranum_falsify.option_marks import Argument, Option, parse_whole

if TYPE_CHECKING:
    from cyclopts import Token

_DNNF = {
    *("--help", "--long-help", "--version", "--seed", "--debug", "--verbose", "--quiet", "--network", "--vnnlib"),
    *("--save-violation", "--processors", "--n_proc", "--n_starts", "--cuda", "--backend", "--set"),
}
"""Options of DNNF, whose abbreviations mean the same here: `--n_st` is `--n_starts`, in spite of `--n_steps`."""


_GROUPS = (
    "arguments",
    "question",
    "options",
    "search",
    "repair",
    "suite",
    "verification",
    "training",
    "proof",
    "output",
    "general",
)
"""Headings of the help, in order."""


@dataclass(frozen=True)
class OptionField:
    """A field with its option.

    Attributes:
        field: The field's name.
        kinds: Types that its value may have, without None.
        default: Its default, MISSING where it has none.
        text: Its line in the docstring of its class.
        mark: What it says about the option.
    """

    field: str
    kinds: tuple[Any, ...]
    default: Any
    text: str
    mark: Option | Argument

    @cached_property
    def names(self) -> list[str]:
        """All spellings; the metavar of an argument."""
        if isinstance(self.mark, Argument):
            return [self.mark.metavar]
        return self.mark.names.removesuffix(".NAME").split() or [f"--{self.field.replace('_', '-')}"]

    @property
    def name(self) -> str:
        """The spelling that messages use."""
        return next((name for name in self.names if name.startswith("--")), self.names[-1])

    @property
    def off(self) -> list[str]:
        """The spellings that say no."""
        return self.mark.off.split() if isinstance(self.mark, Option) else []

    @property
    def is_keyed(self) -> bool:
        """Whether there is a spelling for each key: `--prop.NAME`."""
        return isinstance(self.mark, Option) and self.mark.names.endswith(".NAME")

    @property
    def chooses(self) -> bool:
        """Whether its values are a few words."""
        return all(get_origin(kind) is Literal for kind in self.kinds)

    @property
    def parameters(self) -> Iterator[inspect.Parameter]:
        """The parameters of a function that takes this from cyclopts."""
        default = None if self.default is MISSING else self.default
        if isinstance(self.mark, Argument):
            kind = reduce(or_, self.kinds)
            said = Parameter(
                name=self.mark.metavar,
                help=self.text,
                show_default=False,
                converter=None if self.chooses else self._converter,
            )
            yield inspect.Parameter(
                self.field, inspect.Parameter.POSITIONAL_ONLY, default=default, annotation=Annotated[kind, said]
            )
            return
        for name, annotation in self._annotations(self.mark):
            yield inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)

    def _annotations(self, mark: Option) -> Iterator[tuple[str, Any]]:
        shows = not isinstance(self.default, bool) and bool(_describe_default(self.default))
        said: dict[str, Any] = {"help": self.text, "group": _make_group(mark.group)}
        said["show_default"] = _describe_default if shows else False
        words = mark.metavar if isinstance(mark.metavar, tuple) else (mark.metavar or self.field.upper(),)
        kind: Any = str
        if self.kinds == (bool,):
            kind, said["negative"] = bool if self.default is not None else bool | None, mark.off.split()
        elif self.is_keyed:
            kind, said["allow_leading_hyphen"], said["metavar"] = dict[str, str], True, "VALUE"
        elif self.chooses:
            kind = reduce(or_, self.kinds)
        else:
            several = mark.gather is not None or mark.many
            kind = list[str] if several else str
            said |= {"n_tokens": len(words), "consume_multiple": mark.many, "converter": self._converter}
            said |= {"metavar": " ".join(words), "allow_leading_hyphen": len(words) > 1 or mark.count is not None}
        once = bool(mark.presets) or bool(mark.off and mark.gather is None and self.default is None)
        yield self.field, Annotated[kind, Parameter(name=self.names, allow_repeating=not once, **said)]
        for preset, value in mark.presets.items():
            text = f"The same as {self.name} {value}."
            flag = Parameter(name=preset, help=text, group=said["group"], show_default=False)
            yield preset.lstrip("-").replace("-", "_"), Annotated[bool | None, flag]

    @property
    def _converter(self) -> Callable[[Any, Sequence[Token]], Any]:
        """What cyclopts calls with the type and the words; it would take a method for one of the type."""
        return lambda _, tokens: self._convert([token.value for token in tokens])

    def _convert(self, words: Sequence[str]) -> Any:
        """Return the value of the field from all words that were given to it."""
        mark = self.mark
        of_text: Callable[[str], Any] = Path if {Path, tuple[Path, ...]} & {*self.kinds} else str
        if isinstance(mark, Argument):
            return tuple(map(of_text, words)) if mark.many else of_text(words[0])
        if mark.parse is not None:
            of_text = mark.parse
        elif int in self.kinds:
            least = mark.least
            of_text = lambda word: parse_whole(word, least)  # noqa: E731
        elif float in self.kinds:
            of_text = float
        if isinstance(mark.metavar, tuple):
            count = len(mark.metavar)
            parsed: list[Any] = [tuple(words[i : i + count]) for i in range(0, len(words), count)]
        else:
            parsed = list(map(of_text, words))
        if mark.gather is None:
            return tuple(parsed) if mark.many else parsed[-1]
        try:
            return mark.gather(parsed)
        except ValueError as error:
            raise ValueError(f"{self.name}: {error}") from error


def _make_group(title: str) -> Group:
    return Group(title, sort_key=_GROUPS.index(title) if title in _GROUPS else len(_GROUPS))


def list_options(settings: type) -> tuple[OptionField, ...]:
    """Return the options of a settings class."""
    known: Any = settings  # mypy takes no class with a hash of its instances for hashable
    return _list_options(known)


@cache
def _list_options(settings: Any) -> tuple[OptionField, ...]:
    hints, texts, found = get_type_hints(settings, include_extras=True), _read_attributes(settings), []
    for each in fields(settings):
        hint, *marks = get_args(hints[each.name]) if get_origin(hints[each.name]) is Annotated else [hints[each.name]]
        default = each.default if each.default_factory is MISSING else each.default_factory()
        kinds = tuple(part for part in _split_union(hint) if part is not NoneType)
        found += [
            OptionField(each.name, kinds, default, texts.get(each.name, ""), mark)
            for mark in marks
            if isinstance(mark, Option | Argument)
        ]
    return tuple(found)


def _split_union(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def _read_attributes(settings: type) -> dict[str, str]:
    """Return the lines about the attributes in the docstrings of a class and its bases."""
    texts = {}
    for base in reversed(settings.__mro__):
        section = inspect.cleandoc(base.__doc__ or "").partition("Attributes:\n")[2]
        for name, text in re.findall(r"^ {4}(\w+): (.+(?:\n {8}.+)*)", section, re.MULTILINE):
            texts[name] = " ".join(text.split())
    return texts


def unwrap(text: str) -> str:
    """Return a text whose paragraphs are a line each; lines with a space in front stay."""
    return re.sub(r"(?<=\S)\n(?=\S)", " ", text)


def _describe_default(default: Any) -> str:
    """Return a default as the help shows it, empty where it says nothing."""
    if isinstance(default, tuple):
        return ", ".join(map(str, default))
    return (
        f"{default:g}" if isinstance(default, float) else str(default) if isinstance(default, int | str | Path) else ""
    )


class Parser:
    """Reads the arguments of one command.

    Attributes:
        options: The options that it takes.
    """

    def __init__(self, settings: type[CommonOptions], *, epilog: Callable[[], str] | None = None, **about: Any) -> None:
        """Make the parser.

        Args:
            settings: The class of the options.
            epilog: Returns what the help ends with; by default what the class says.
            about: What the help says beside them, and other settings of a `cyclopts.App`.
        """
        self.options = list_options(settings)
        self._epilog = epilog or (lambda: settings.epilog)
        self._about = {"version_flags": (), **about}

    @cached_property
    def app(self) -> App:
        """What cyclopts makes of all options."""
        return self._make_app(self.options, help_epilogue=unwrap(self._epilog()) or None)

    def _make_app(self, options: Sequence[OptionField], **about: Any) -> App:
        def take(*args: object, **kwargs: object) -> None:
            """Stand for the command: what it is called with is read from its signature."""

        take.__doc__ = None
        found = [parameter for option in options for parameter in option.parameters]
        found.sort(key=lambda parameter: parameter.kind)
        take.__signature__ = inspect.Signature(found)  # type: ignore[attr-defined]
        app = App(
            default_parameter=Parameter(negative=()),
            help_format="plaintext",
            group_arguments=_make_group("arguments"),
            group_commands=_make_group("general"),
            **self._about,
            **about,
        )
        app.default(take)
        return app

    def read(self, arguments: Sequence[str]) -> Values:
        """Return what arguments give.

        Raises:
            UsageError: They contradict each other, do not exist, or have the wrong form.
            SystemExit: They asked for help or the version, which has been printed.
        """
        words = list(self._tie(arguments))
        try:
            with suppress(CycloptsError):  # all options are taken apart for messages and for the help alone
                if not {"--help", "-h"} & {*words}:
                    return self._parse(self._make_app(self._find_named(words)), words)
            return self._parse(self.app, words)
        except CycloptsError as error:
            raise UsageError(self._explain(error)) from error

    def _find_named(self, words: Sequence[str]) -> Sequence[OptionField]:
        """Return the options that words name."""
        named = {word.partition("=")[0].partition(".")[0] for word in words if word.startswith("-")}
        return [
            one
            for one in self.options
            if isinstance(one.mark, Argument) or named & {*one.names, *one.off, *one.mark.presets}
        ]

    def _parse(self, app: App, words: Sequence[str]) -> Values:
        function, given, _ = app.parse_args(words, exit_on_error=False, print_error=False)
        if function != app.default_command:
            function(*given.args, **given.kwargs)
            raise SystemExit(0)
        return self._settle({name: value for name, value in given.arguments.items() if value is not None})

    def _explain(self, error: CycloptsError) -> str:
        keyed = error.argument is not None and error.argument.name.startswith("--prop")
        hint = f"; write {error.argument.name}.NAME=VALUE" if keyed and error.argument is not None else ""
        text = " ".join(str(error).split()).removesuffix(".")
        if isinstance(error, UnusedCliTokensError):
            text = f"unexpected arguments: {' '.join(error.unused_tokens or ())}"
        return f"{text}{hint}; {self._about['name']} --help lists the options"

    def _settle(self, values: Values) -> Values:
        """Put values that have an option of their own into the field that they are of."""
        for option in self.options:
            for preset, value in option.mark.presets.items() if isinstance(option.mark, Option) else ():
                if values.pop(preset.lstrip("-").replace("-", "_"), False):
                    if values.setdefault(option.field, value) != value:
                        text = f"{option.name} {values[option.field]}"
                        raise UsageError(f"{preset} and {text} contradict each other; give one of them")
        return values

    @property
    def flags(self) -> list[str]:
        """All spellings of all options."""
        own = ["--help"]
        for option in self.options:
            if isinstance(option.mark, Option) and not option.is_keyed:
                own += [*option.names, *option.off, *option.mark.presets]
        return [*own, *self._about["version_flags"]]

    def _tie(self, arguments: Sequence[str]) -> Iterator[str]:
        """Yield arguments with options in full, and values tied to options that would be mistaken for others."""
        marks = {name: one.mark for one in self.options for name in one.names if isinstance(one.mark, Option)}
        keyed = tuple(f"{one.name}." for one in self.options if one.is_keyed)
        seen: set[str] = set()
        words = deque(arguments)
        while words:
            word = words.popleft()
            if word == "--":
                yield from (word, *words)
                return
            if keyed and word.startswith(keyed):
                yield _tie_key(word, words, seen)
                continue
            word = self._complete(word)
            mark = marks.get(word)
            if mark is not None and mark.count is not None and words:
                first = words.popleft()
                rest = [words.popleft() for _ in range(min(mark.count(first) - 1, len(words)))]
                yield f"{word}={','.join([first, *rest])}"
            elif mark is not None and mark.bare:
                yield f"{word}={words.popleft() if words and not words[0].startswith('--') else mark.bare}"
            elif mark is not None and words and words[0] == "-":
                yield f"{word}={words.popleft()}"
            else:
                yield word

    def _complete(self, word: str) -> str:
        """Return a word with its option in full."""
        name, equals, value = word.partition("=")
        flags = self.flags
        if not name.startswith("--") or name == "--" or name in flags or "." in name:
            return word
        found = _narrow([flag for flag in flags if flag.startswith(name)])
        if len(found) > 1:
            raise UsageError(f"ambiguous option: {name} could match {', '.join(found)}")
        return f"{found[0]}{equals}{value}" if found else word


def _tie_key(word: str, following: deque[str], seen: set[str]) -> str:
    """Return `--prop.NAME=VALUE`, given `--prop.NAME`, what follows, and the names that were seen."""
    name, equals, value = word.partition("=")
    if name.endswith(".") or not (equals or (following and not following[0].startswith("--"))):
        raise UsageError(f"{word}: a value is missing; write {name.partition('.')[0]}.NAME=VALUE")
    if name in seen:
        raise UsageError(f"{name}: is given twice; give each name once")
    seen.add(name)
    return f"{name}={value if equals else following.popleft()}"


def _narrow(flags: list[str]) -> list[str]:
    """Return the one of DNNF among several options, all of them where there are several of its."""
    of_dnnf = [flag for flag in flags if flag in _DNNF]
    return of_dnnf if len(of_dnnf) == 1 else flags
