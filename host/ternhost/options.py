"""Declares options of commands and functions.

One record declares an option; parsers, help texts and messages are made from it.
"""

import argparse
import csv
import io
import math
import operator
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import Field, asdict, dataclass, field, fields, replace
from decimal import Decimal, InvalidOperation
from numbers import Integral, Real
from pathlib import PurePath
from types import MappingProxyType
from typing import Any

from ternhost import words
from ternhost.errors import UsageError

Number = str | int | float | Decimal
"""How Python may write a number that is kept exactly, in decimal: 2, 0.5, "0.1", Decimal("0.1")."""

_KEY = "option"
KINDS: dict[Callable[[str], Any], str] = {
    int: "a whole number",
    float: "a finite number",
    bool: "True or False",
}
_LONGEST_SHOWN = 60  # characters of a wrong value in a message
_LARGEST = 2**63 - 1  # whole number of an option
_TYPES: dict[str, Callable[[str], Any]] = {"int": int, "float": float, "bool": bool}


@dataclass(frozen=True)
class Option:
    """An option: `--name` on the command line, and the keyword `name` in Python.

    - help: what the option does, for the help
    - type: turns the text of a command line into the value, or raises ValueError
    - metavar: the word for the value in the help
    - choices: the possible values, or a function that returns them; empty for any
    - default: the value if the option is left out
    - group: the heading under which the help lists the option
    - shown: the default in words, for the help; None for the value itself, "" for nothing
    - instead_of: the names of options that this one replaces
    - accepts: turns a value that Python hands over, such as bytes, into one of this option; it may
      raise TypeError, ValueError or UsageError. None: a value of the option's type is expected
    - takes_none: None is a value, although it is not the default
    """

    name: str
    help: str
    type: Callable[[str], Any] = str
    metavar: str | None = None
    choices: Callable[[], Iterable[str]] | Sequence[str] = ()
    default: Any = None
    group: str = ""
    shown: str | None = None
    instead_of: Sequence[str] = ()
    accepts: Callable[[Any], Any] | None = None
    takes_none: bool = False

    @property
    def values(self) -> tuple[str, ...]:
        """The possible values; empty if there is no fixed list."""
        if callable(self.choices):
            return tuple(self.choices())
        return tuple(self.choices)

    def read(self, text: str) -> Any:
        """Parse the text of a command line. Raises UsageError if it is no value of this option."""
        if self.values and text not in self.values:
            raise UsageError(
                f"{flag(self.name)} must be one of {', '.join(self.values)}, not {text!r}"
            )
        return self.value_of(text)

    def value_of(self, text: str) -> Any:
        """Turn the text of a command line into a value, which may be none of the choices.

        Raises UsageError if the text has another form.
        """
        try:
            return self.type(text)
        except ValueError:
            expected = KINDS.get(self.type) or self.metavar or "another value"
            message = f"{flag(self.name)} must be {expected}, not {text!r}"
            raise UsageError(message, hint=percent_hint(text)) from None

    def normalised(self, value: Any) -> Any:
        """Return a value that Python hands over, in the type of the option.

        A number may stand for a text, but a bool does not stand for a number, although Python
        counts it as an integer. Raises UsageError for a value of another type, for a number that is
        not finite, and for one that is not among the choices.
        """
        if value is None and (self.default is None or self.takes_none):
            return None
        try:
            if self.accepts is not None:
                result = self.accepts(value)
            else:
                result = _converted(self.type, value)
        except (TypeError, ValueError, OverflowError):
            expected = KINDS.get(self.type) or "a text or a number"
            raise UsageError(f"{flag(self.name)} must be {expected}, not {shown(value)}") from None
        if self.type is int and abs(result) > _LARGEST:
            raise UsageError(f"{flag(self.name)} is too large a number")
        is_choice = not self.values or result in self.values or result == self.default
        if not is_choice:
            text = f"{flag(self.name)} must be one of {', '.join(self.values)}, not {shown(result)}"
            raise UsageError(text)
        return result

    def is_default(self, value: Any) -> bool:
        """Return whether `value` means the same as leaving the option out."""
        if value is None:
            return True
        has_same_type = type(value) is type(self.default)  # False equals 0, but is not meant here
        return has_same_type and bool(value == self.default)

    def with_default(self, default: Any) -> "Option":
        """Return this option with another default."""
        return replace(self, default=default, shown=None)

    def add_to(
        self,
        parser: argparse.ArgumentParser | argparse._ArgumentGroup,
        hidden: bool = False,
        absent: str | None = None,
    ) -> None:
        """Add the option to an argparse parser.

        The parsed value is None if the option is left out, whatever its default. A switch is
        `--name`, or `--no-name` if it is on by default; both exist if it has no default.
        hidden: the parser takes the option, but its help does not show it. absent: the value for an
        option that is left out, or argparse.SUPPRESS if the namespace shall not have it then.
        """
        text = argparse.SUPPRESS if hidden else self.help_text()
        common: dict[str, Any] = {"help": text, "dest": self.name, "default": absent}
        if self.type is not bool:
            choices = self.values or None
            parser.add_argument(
                flag(self.name), type=self.value_of, metavar=self.metavar, choices=choices, **common
            )
        elif self.default is None:
            parser.add_argument(flag(self.name), action=argparse.BooleanOptionalAction, **common)
        elif self.default:
            parser.add_argument(f"--no-{flag(self.name)[2:]}", action="store_false", **common)
        else:
            parser.add_argument(flag(self.name), action="store_true", **common)

    def help_text(self) -> str:
        """Return the help text with the default, escaped for argparse."""
        default_text = self.shown
        if self.type is bool:
            default_text = self.shown or ""  # a switch shows its default by its name
        elif default_text is None and isinstance(self.default, float):
            default_text = f"{self.default:g}"
        elif default_text is None and self.default is not None:
            default_text = str(self.default)
        text = self.help
        if default_text:
            text += f" (default: {default_text})"
        return text.replace("%", "%%")


def percent_hint(text: str) -> str | None:
    """Return how to write a text such as "24%", which options take as 0.24; None for another."""
    try:
        number = Decimal(text.strip().removesuffix("%"))
    except InvalidOperation:
        return None
    if not text.strip().endswith("%") or not number.is_finite():
        return None
    return f"write it as a number: {number / 100:f}"


def _converted(wanted_type: Any, value: Any) -> Any:
    """Return a value in another type, without changing what it means.

    Raises TypeError, ValueError or OverflowError if that is not possible.
    """
    is_numpy_bool = type(value).__module__ == "numpy" and type(value).__name__.startswith("bool")
    is_bool = isinstance(value, bool) or is_numpy_bool
    if is_bool != (wanted_type is bool):
        raise TypeError
    if wanted_type is bool:
        return bool(value)
    if wanted_type is int:
        return operator.index(value)  # raises TypeError unless it is an integer
    if wanted_type is float:
        return _finite(value)
    if isinstance(value, str | PurePath):
        return _encodable(str(value))
    return _decimal(value)


def _encodable(text: str) -> str:
    """Return a text that can be written to a file, or be the name of one. Raises ValueError."""
    text.encode()  # raises UnicodeEncodeError, which is a ValueError, for a half of a character
    if "\0" in text:
        raise ValueError
    return text


def _finite(value: Any) -> float:
    """Return a number as a float. Raises TypeError unless it is one, ValueError if not finite."""
    if not isinstance(value, Real | Decimal):
        raise TypeError
    number = float(value)
    if not math.isfinite(number):
        raise ValueError
    return number


def _decimal(value: Any) -> str:
    """Return a number as a text in decimal. Raises TypeError for anything else."""
    if not isinstance(value, Real | Decimal):
        raise TypeError
    _finite(value)
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, Integral):
        return str(int(value))
    return repr(float(value))


def shown(value: Any) -> str:
    """Return a wrong value as messages show it: in one line, which is not too long."""
    try:
        text = repr(value)
    except Exception:  # an object of the user's own
        text = f"a {type(value).__name__}"
    text = " ".join(text.split())
    if len(text) > _LONGEST_SHOWN:
        text = text[:_LONGEST_SHOWN] + "..."
    return text


def joined(value: Any) -> str:
    """Return one text for a list that Python hands over, as the command line has it: "a,b".

    An element with a comma is put in quotes, as in a CSV file.

    value: a text, which is taken as it is; a number; or a list, tuple or array of texts and numbers.
    Raises TypeError or ValueError for anything else.
    """
    if isinstance(value, str | Real | Decimal):
        return str(_converted(str, value))
    if hasattr(value, "tolist"):  # an array of NumPy
        value = value.tolist()
    if not isinstance(value, list | tuple):
        raise TypeError
    texts = [str(_converted(str, element)) for element in value]
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(texts)
    return line.getvalue()


def elements_of(text: str, name: str) -> list[str]:
    """Return the elements of a list such as "a,b", without the blanks around them.

    It is the inverse of `joined`. An empty text is an empty list.

    name: that of the option. Raises UsageError if quotes are wrong, or if an element is empty.
    """
    if not text.strip():
        return []
    try:
        (row,) = csv.reader([text], skipinitialspace=True, strict=True)
    except (csv.Error, ValueError):
        row = [""]
    elements = [element.strip() for element in row]
    must = "a list with commas, and in double quotes what has a comma itself"
    require(all(elements), name, must, shown(text))
    return elements


def option(default: Any, text: str = "", *, kind: Callable[[str], Any] = str, **more: Any) -> Any:
    """Return a dataclass field that also declares an `Option` of the same name and default.

    text: the help; left out for a name of `words.HELP`, which has its help there. kind: the type of
    the option, unless the field has the type int, float or bool, which then is the type of the
    option, too. more: other fields of `Option`.
    """
    declared = Option(name="", help=text, type=kind, default=default, **more)  # named in `_named`
    return field(default=default, metadata={_KEY: declared})


@dataclass(frozen=True)
class OptionGroup:
    """The base of groups of options: frozen dataclasses of `option` fields.

    Values are first brought into the types of their options: an epsilon of 2, 2.0 or Decimal(2) is
    kept as a text. A group refuses wrong values in a method `check`. The options of an algorithm are one dataclass
    that combines several groups: `class Options(MechanismOptions, BudgetOptions)`. All of its
    groups are checked when it is made, the last one that it names first.
    """

    def __post_init__(self) -> None:
        """Call `check` of each class of the options, the base classes first.

        A class calls only the method that it defines itself, so that none is called twice.
        """
        normalise(self)
        for group in reversed(type(self).__mro__):
            own_members = vars(group)
            if "check" in own_members:
                own_members["check"](self)


def normalise(options: Any) -> None:
    """Bring the values of an options dataclass into the types that its options declare.

    options: it may be frozen. Raises UsageError for a value of another type.
    """
    for declared in options_of(options):
        value = getattr(options, declared.name)
        # A frozen dataclass refuses ordinary assignment, also while it is made.
        object.__setattr__(options, declared.name, declared.normalised(value))


def options_of(cls: Any) -> list[Option]:
    """Return the options that a dataclass declares, in order."""
    return [_named(each) for each in fields(cls) if _KEY in each.metadata]


def _named(declared: Field[Any]) -> Option:
    """Return the option that a field declares, with the name of the field and its type."""
    made: Option = declared.metadata[_KEY]
    # The annotation is a type or a text, such as "float | None", which counts as float.
    annotation = getattr(declared.type, "__name__", str(declared.type))
    first_type, _, _ = annotation.partition(" |")
    return replace(
        made,
        name=declared.name,
        help=made.help or words.HELP[declared.name],
        type=_TYPES.get(first_type, made.type),
        takes_none=annotation.endswith("| None"),
    )


def names_of(cls: Any) -> set[str]:
    """Return the names of the options that a dataclass declares."""
    return {each.name for each in options_of(cls)}


def values_of(options: Any) -> dict[str, Any]:
    """Return the values of options by name.

    They are the fields of an options dataclass, and those of its attribute `derived`, if it has
    one: values that follow from other options, for options that were left out.
    """
    return asdict(options) | getattr(options, "derived", {})


_OTHER_GROUP = "other options"  # the heading of options that declare no group


def flag(name: str) -> str:
    """Return the name of an option on the command line: "--name"."""
    return "--" + name.replace("_", "-")


def add_arguments(
    parser: argparse.ArgumentParser,
    *classes: Any,
    only: Collection[str] | None = None,
    leave_out: Collection[str] = (),
    hidden: bool = False,
    absent: str | None = None,
    defaults: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Add the options of these dataclasses under their headings, each name once.

    only: names of the options that are added; None for all. leave_out: names of options that are
    not. hidden, absent: as in `Option.add_to`. defaults: by its name the default of
    an option here, if it is another than the declared one. A name of several dataclasses is added as the
    first declares it, with the choices of all. The parser gets no defaults, so that `given` can
    tell which options the command line names.
    """
    groups = {group.title: group for group in parser._action_groups}
    for option in _joined(classes):
        if option.name in leave_out or (only is not None and option.name not in only):
            continue
        if option.name in defaults:
            option = option.with_default(defaults[option.name])
        if hidden:
            option.add_to(parser, hidden=True, absent=absent)
            continue
        heading = option.group or _OTHER_GROUP
        if heading not in groups:
            groups[heading] = parser.add_argument_group(heading)
        option.add_to(groups[heading], absent=absent)


def _joined(classes: Iterable[Any]) -> Iterable[Option]:
    """Return the options that these dataclasses declare, one for each name, to be parsed together.

    If several dataclasses declare an option, the first declaration counts; but any value that one
    of them allows is allowed.
    """
    by_name: dict[str, Option] = {}
    for cls in classes:
        for declared in options_of(cls):
            if declared.name not in by_name:
                by_name[declared.name] = declared
                continue
            first = by_name[declared.name]
            if first.values:  # else any value is allowed anyway
                all_choices = dict.fromkeys(
                    (*first.values, *declared.values)
                )  # each once, in order
                by_name[declared.name] = replace(first, choices=tuple(all_choices))
    return by_name.values()


def given(args: argparse.Namespace, *classes: Any) -> dict[str, Any]:
    """Return the values of those options of these dataclasses that the command line names."""
    values = {}
    for cls in classes:
        for option in options_of(cls):
            value = getattr(args, option.name, None)
            if value is not None:
                values[option.name] = value
    return values


def require(condition: bool, name: str, must: str, value: object) -> None:
    """Raise UsageError, "--NAME must be MUST, not VALUE", unless the condition holds."""
    if not condition:
        raise UsageError(f"{flag(name)} must be {must}, not {value}")


_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def seconds_of(text: Number, name: str) -> float:
    """Return how many seconds a time is, such as 15m, 1h, 1d, 1w or 900.

    name: that of the option. Raises UsageError if the text is no time, or a very long one.
    """
    number = str(text)
    unit = 1
    if number[-1:] in _SECONDS:
        unit = _SECONDS[number[-1]]
        number = number[:-1]
    try:
        seconds = float(number) * unit
    except ValueError:
        seconds = -1.0  # refused below
    require(0 <= seconds < 1e9, name, "a time, such as 15m, 1h, 1d, 1w or 900", text)
    return seconds


def require_port(port: int | None, name: str) -> None:
    """Raise UsageError unless a port is None, 0 (for any free port) or the number of a port."""
    require(port is None or 0 <= port < 65536, name, "0 (any) to 65535", port)


def exclude(named: Iterable[str], *alternatives: str) -> None:
    """Raise UsageError if more than one of these alternatives is named."""
    both = [name for name in alternatives if name in named]
    if len(both) > 1:
        text = f"{flag(both[0])} and {flag(both[1])} exclude each other"
        raise UsageError(text, hint="give one of them")


def check_named(cls: Any, named: Mapping[str, Any]) -> None:
    """Raise UsageError if the named options of a dataclass do not go together.

    named: the options that somebody has named, with their values. An attribute `ONLY_WITH` of the
    class lists options that need a value of another option: name -> (other, value). An attribute
    `NOT_WITH` lists options that need any other value of it.
    """
    for option in options_of(cls):
        for other in option.instead_of:
            exclude(named, option.name, other)
    for name in named:
        error = misfit(cls, name, named)
        if error is not None:
            raise error


def misfit(cls: Any, name: str, named: Mapping[str, Any]) -> UsageError | None:
    """Return the error if a named option needs another value of another one; None if it does not.

    name: that of the option. The rest as of `check_named`.
    """
    other, value = getattr(cls, "ONLY_WITH", {}).get(name, ("", None))
    if other and named.get(other, getattr(cls, other)) != value:
        text = f"{flag(name)} needs {flag(other)} {value}"
        return UsageError(text, hint="give both, or neither")
    other, value = getattr(cls, "NOT_WITH", {}).get(name, ("", None))
    if other and named.get(other, getattr(cls, other)) == value:
        text = f"{flag(name)} does not go with {flag(other)} {value}"
        return UsageError(text, hint=f"name another {flag(other)}, or leave {flag(name)} out")
    return None
