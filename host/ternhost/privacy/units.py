"""The unit of privacy: a client with all that it ever holds, or a run of consecutive records.

ledger.md, Measure, defines both.
"""

from ternhost.errors import UsageError
from ternhost.text import whole_number

DEVICE = 0


def parse_unit(unit: str | int) -> int:
    """Return how many records the unit of --unit has; 0 stands for a whole device.

    unit: "device", "record" or a number of records. Raises UsageError.
    """
    text = str(unit)
    named = {"device": DEVICE, "record": 1}
    if text in named:
        return named[text]
    most_records = 65535  # a card has 16 bits for it
    number = whole_number(text)
    if number is not None and 1 <= number <= most_records:
        return number
    must = "--unit must be device, record, or a number of records"
    raise UsageError(f"{must}, not {text!r}", "such as 60")


def name_of(unit: int) -> str:
    """Return a unit as users name it with --unit: device, record, or a number of records."""
    names = {DEVICE: "device", 1: "record"}
    return names.get(unit, str(unit))


def covers(unit_of_report: int, unit: int) -> bool:
    """Whether a report protects `unit` at its price (ledger.md, Unit).

    It does if it protects the whole device, or runs of just as many records.
    """
    return unit_of_report in (DEVICE, unit)


def protected(unit: int) -> str:
    """Return in words what is protected: a device, or so many consecutive records."""
    if unit == DEVICE:
        return "a device with all of its records"
    if unit == 1:
        return "one record of a device"
    return f"one run of {unit:,} consecutive records of a device"
