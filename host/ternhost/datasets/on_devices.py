"""The records that only the devices know, as the option --data names them.

The text is `devices:FEATURES` or `devices:FEATURES:CLASSES`. Any other text is the name of a data
set (`datasets.load`).
"""

from typing import NamedTuple

from tern.wire import MAX_DIMENSION
from ternhost.errors import UsageError

KIND = "devices"
_HINT = "such as devices:29, or devices:29:3 for labels of 3 classes"


class DeviceRecords(NamedTuple):
    """What the host knows of records that are on the devices alone."""

    features: int  # of a record, the constant included
    classes: int | None  # that labels tell apart, if they are numbers of classes, from 0


def parse(data: str) -> DeviceRecords | None:
    """Read a value of --data. Returns None for the name of a data set.

    Raises UsageError for a text that begins with `devices` and says no numbers after it, or numbers
    that no device can have.
    """
    kind, _, numbers = data.partition(":")
    if kind != KIND:
        return None
    features_text, colon_of_classes, classes_text = numbers.partition(":")
    features = _number(data, features_text, "features", least=1)
    classes = None
    if colon_of_classes:
        classes = _number(data, classes_text, "classes", least=2)
    return DeviceRecords(features, classes)


def _number(data: str, text: str, what: str, least: int) -> int:
    """Read the number of features or of classes. Raises UsageError.

    data: the whole text, for the message. what: the word for what is counted. least: the smallest
    possible number.
    """
    if not text.isdecimal():
        raise UsageError(f"--data {data} does not say the number of {what}", _HINT)
    number = int(text)
    if not least <= number <= MAX_DIMENSION:
        must = f"a device takes {least} to {MAX_DIMENSION} {what}"
        raise UsageError(f"--data {data} has {number:,} {what}, and {must}", _HINT)
    return number


def in_words(data: str | None) -> str:
    """Return a value of --data in words: the name of a data set, or that there is none."""
    if not data or parse(data) is not None:
        return "records of the devices"
    return data
