"""The options that every command takes, at any place of the command line: --json, --quiet, --with.

They are taken out of the command line before the command is parsed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from ternhost.errors import UsageError

JSON = "--json"
QUIET = "--quiet"
WITH = "--with"

HELP = {
    JSON: "print the result, and an error, as JSON on standard output",
    QUIET: "print no progress, only results and warnings",
    f"{WITH} FILE.py": "register the learners, mechanisms, fleets, links and others that FILE.py "
    "defines; may be repeated",
}


@dataclass(frozen=True)
class Everywhere:
    """What the options of every command say, and the words that remain of the command line."""

    words: Sequence[str]
    json: bool = False
    quiet: bool = False
    files: Sequence[str] = field(default_factory=tuple)  # of --with


def taken_from(argv: Sequence[str]) -> Everywhere:
    """Take the options of every command out of a command line.

    Words after "--" are left alone. Raises UsageError if --with names no file.
    """
    words: list[str] = []
    files: list[str] = []
    as_json = quiet = False
    remaining = list(argv)
    while remaining:
        word = remaining.pop(0)
        name, equals_sign, value = word.partition("=")
        if word == "--":
            words += [word, *remaining]
            break
        if word == JSON:
            as_json = True
        elif word == QUIET:
            quiet = True
        elif name == WITH:
            if not equals_sign:
                value = remaining.pop(0) if remaining else ""
            if not value:
                raise UsageError(
                    f"{WITH} needs a file", hint=f"such as tern {WITH} FILE.py COMMAND"
                )
            files.append(value)
        else:
            words.append(word)
    return Everywhere(words=words, json=as_json, quiet=quiet, files=files)
