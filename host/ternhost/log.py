"""The log of a command: what it says on standard error, by Python's `logging`.

A command that ends by itself prints plain messages: "tern: MESSAGE". A command that runs until it is
stopped begins each line with the time and the level, or prints a JSON object for each message.
"""

import contextlib
import json
import logging
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Self

from ternhost.text import fitting, visible

LOG = logging.getLogger("tern.command")
"""Gets all messages of commands."""

PRINTING = threading.RLock()
"""Is held while a line is printed, since several threads may print."""

PLAIN = "plain"
TEXT = "text"
JSON = "json"
FORMATS = (TEXT, JSON)
"""The formats that a user can choose."""

# The priorities of syslog, which systemd's journal reads from the beginning of a line.
_PRIORITIES = {
    logging.DEBUG: 7,
    logging.INFO: 6,
    logging.WARNING: 4,
    logging.ERROR: 3,
    logging.CRITICAL: 2,
}
_FIELDS = "fields"  # the attribute of a record with the fields of its message
_HINT = "hint"  # the field of an error that says what to do next


class Message(str):
    """A message with fields, such as the board that it is about, which a log in JSON shows."""

    fields: Mapping[str, Any]

    def __new__(cls, text: str, **fields: Any) -> Self:
        """Make a message from its text."""
        message = super().__new__(cls, text)
        message.fields = fields
        return message


def say(level: int, message: str, /, **fields: Any) -> None:
    """Log a message at a level of `logging`.

    fields: what a log in JSON shows beside the message. A `Message` has fields of its own.
    """
    own_fields = message.fields if isinstance(message, Message) else {}
    LOG.log(level, "%s", message, extra={_FIELDS: {**fields, **own_fields}})


def error(message: str, hint: str | None, exit_code: int) -> None:
    """Log the error with which a command ends.

    hint: how to put it right. exit_code: of the command.
    """
    say(logging.ERROR, message, hint=hint, exit_code=exit_code)


class _Handler(logging.Handler):
    """Prints messages on standard error, in one of the formats."""

    def __init__(self) -> None:
        """Print plain messages, until `use` says otherwise."""
        super().__init__(logging.INFO)
        self.style = PLAIN

    def emit(self, record: logging.LogRecord) -> None:
        """Print a message. A log that cannot be written does not end the command."""
        text = _FORMATTERS[self.style](record)
        with contextlib.suppress(OSError, ValueError), PRINTING:
            print(text, file=sys.stderr, flush=True)


_HANDLER = _Handler()
LOG.addHandler(_HANDLER)
LOG.setLevel(logging.INFO)


@contextlib.contextmanager
def printed() -> Iterator[None]:
    """Print plain messages while the context is open, unless `use` is called in it."""
    style, level = _HANDLER.style, _HANDLER.level
    use(PLAIN)
    try:
        yield
    finally:
        _HANDLER.style = style
        _HANDLER.setLevel(level)


def use(style: str, quiet: bool = False) -> None:
    """Print the further messages of the present command in another format.

    style: PLAIN, TEXT or JSON. quiet: print only warnings and errors.
    """
    _HANDLER.style = style
    _HANDLER.setLevel(logging.WARNING if quiet else logging.INFO)


def is_json() -> bool:
    """Return whether the present command prints its messages as JSON."""
    return _HANDLER.style == JSON


def _plain(record: logging.LogRecord) -> str:
    """Return a message as a command prints it that ends by itself."""
    text = visible(record.getMessage(), lines=True)
    if record.levelno >= logging.WARNING:
        text = f"tern: {text}"
    if record.levelno >= logging.ERROR:
        text = fitting(text, sys.stderr)
    hint = _fields_of(record).get(_HINT)
    if hint:  # it is not broken into lines, so that its command can be copied
        text += f"\n  {hint}"
    return text


def _text(record: logging.LogRecord) -> str:
    """Return a message for people, with the time and the level before each of its lines.

    The journal of systemd keeps the time and the level itself, and gets the level as a number.
    """
    level = record.levelname.lower()
    text = visible(record.getMessage(), lines=True)
    hint = _fields_of(record).get(_HINT)
    if hint:
        text += f"\n  {hint}"

    if is_journal():
        beginning = _priority(record)
        if record.levelno >= logging.WARNING:
            beginning += f"{level}: "
    else:
        beginning = f"{_time_of(record, 'seconds')} {level}: "
    return "\n".join(beginning + line for line in text.split("\n"))


def _json(record: logging.LogRecord) -> str:
    """Return a message as a JSON object in one line."""
    entry = {
        "time": _time_of(record, "milliseconds"),
        "level": record.levelname.lower(),
        "message": visible(record.getMessage(), lines=True),
    }
    for name, value in _fields_of(record).items():
        if value is not None:
            entry.setdefault(name, value)
    beginning = _priority(record) if is_journal() else ""
    return beginning + json.dumps(entry, default=str)


_FORMATTERS = {PLAIN: _plain, TEXT: _text, JSON: _json}


def _fields_of(record: logging.LogRecord) -> Mapping[str, Any]:
    """Return the fields of a message; none if another logger than `say` has made the record."""
    fields: Mapping[str, Any] = getattr(record, _FIELDS, {})
    return fields


def _time_of(record: logging.LogRecord, precision: str) -> str:
    """Return the time of a message as ISO 8601 in UTC. precision: as `isoformat` takes it."""
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec=precision).replace("+00:00", "Z")


def _priority(record: logging.LogRecord) -> str:
    """Return the level of a message as the journal of systemd reads it: "<4>" is a warning."""
    return f"<{_PRIORITIES.get(record.levelno, 6)}>"


def is_journal() -> bool:
    """Return whether standard error goes to the journal of systemd.

    The journal names its stream in the environment, by the numbers of device and inode.
    """
    named_stream = os.environ.get("JOURNAL_STREAM", "")
    if not named_stream:
        return False
    try:
        status = os.fstat(sys.stderr.fileno())
    except (OSError, ValueError):
        return False
    return named_stream == f"{status.st_dev}:{status.st_ino}"
