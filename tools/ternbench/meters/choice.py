"""A meter as the option --meter names it: `NAME`, `NAME:PLACE`, or either with settings.

The place is the port or the file of the meter. Settings follow after commas, such as in
`ppk2:a1,volts=3.3,no-supply`. Each meter declares its own (`Meter.place`, `Meter.settings`).
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ternbench.meters import METERS
from ternbench.meters.base import Meter
from ternhost.errors import UsageError
from ternhost.options import Option

# The last setting of a text. Its value may have commas if it is in quotes.
_LAST_SETTING = re.compile(
    r""",\s*(?P<word>[\w-]+)(?:=(?P<value>"[^"]*"|'[^']*'|[^,]*))?\Z""", re.S
)


@dataclass(frozen=True)
class MeterChoice:
    """A meter that the user has chosen, before it is opened.

    meter: its class. place: its port or file; empty if it has none. settings: the values of the
    settings that were given, by name.
    """

    name: str
    meter: type[Meter]
    place: str
    settings: Mapping[str, Any]

    def open(self) -> Meter:
        """Return the meter, ready for use. Raises UsageError and DeviceError."""
        return self.meter.opened(self.place, self.settings)


def parse(text: str) -> MeterChoice:
    """Read a value of --meter.

    Raises UsageError for an unknown meter or setting, a value that a setting cannot have, and a
    place that is missing or that the meter does not have.
    """
    name = text.partition(",")[0].partition(":")[0]
    if Path(name).is_file() and name not in METERS:
        kind = "jls" if Path(name).suffix.lower() == ".jls" else "csv"
        problem = f"{name} is a file, and --meter needs the kind of the file before its name"
        raise UsageError(problem, hint=f"write it as --meter {kind}:{text}")
    meter = METERS.named(name)
    options = {_word(option): option for option in meter.settings}

    # Settings stand at the end. What is before them is the place, which may have commas, too.
    rest = text
    settings: dict[str, Any] = {}
    while match := _LAST_SETTING.search(rest):
        word = match["word"]
        if word not in options:
            break
        setting = options[word].name
        if setting in settings:
            raise UsageError(f"--meter {name} has the setting {word} twice", "leave one out")
        settings[setting] = _read(name, options[word], _without_quotes(match["value"] or ""))
        rest = rest[: match.start()]
    place = rest.removeprefix(name).removeprefix(":")
    if "," in rest and not Path(place).exists():
        word = rest.rpartition(",")[2].partition("=")[0]
        hint = f"it has {_words(meter)}; put a value that has a comma in quotes, and write 3.3 for a number"
        raise UsageError(f"--meter {name} has no setting {word!r}", hint)

    if meter.place and not place:
        text = f"--meter {name} needs a {meter.place.lower()}"
        raise UsageError(text, hint=f"such as --meter {name}:{meter.example}")
    if place and not meter.place:
        raise UsageError(f"--meter {name} takes no {place!r}", hint=f"leave it out: --meter {name}")
    return MeterChoice(name=name, meter=meter, place=place, settings=settings)


def _without_quotes(value: str) -> str:
    """Return the value of a setting without the quotes around it."""
    if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
        return value[1:-1]
    return value


def help_lines() -> list[str]:
    """Return what --meter can name: for each meter a line, and one for each of its settings."""
    lines = ["meters, each with its settings after commas, as in ppk2:a1,volts=3.3:"]
    options: dict[str, list[Option]] = {}  # settings of several meters may have one word
    for name, meter in _available():
        form = f"{name}:{meter.place}" if meter.place else name
        lines.append(f"  {form:14}{meter.about}")
        if meter.settings:
            lines.append(f"  {'':14}settings: {_words(meter)}")
        for option in meter.settings:
            same_word = options.setdefault(_word(option), [])
            if option not in same_word:
                same_word.append(option)
    lines.append("settings:")
    for word, same_word in options.items():
        for option in same_word:
            lines.append(f"  {_form(word, option):14} {option.help_text()}")
    return lines


def _available() -> Iterator[tuple[str, type[Meter]]]:
    """Yield each meter with its name, without those whose modules are missing."""
    for name in METERS:
        with suppress(ModuleNotFoundError):
            yield name, METERS[name]


def _read(name: str, option: Option, value: str) -> Any:
    """Return the value of a setting of the meter of that name. Raises UsageError."""
    if option.type is bool and not value:
        return True
    try:
        if option.type is bool or (option.values and value not in option.values):
            raise ValueError
        return option.type(value)
    except ValueError:
        word = _word(option)
        text = f"--meter {name} cannot have the setting {word} {value!r}"
        raise UsageError(text, hint=f"{_form(word, option)}: {option.help_text()}") from None


def _words(meter: type[Meter]) -> str:
    """Return the names of a meter's settings in words."""
    return ", ".join(map(_word, meter.settings)) or "no settings"


def _word(option: Option) -> str:
    """Return the name of a setting as users write it."""
    return option.name.replace("_", "-")


def _form(word: str, option: Option) -> str:
    """Return how a setting is written, such as volts=VOLTS."""
    return word if option.type is bool else f"{word}={option.metavar}"
