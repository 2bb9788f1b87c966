"""Certify any mechanism by its table of probabilities, in exact fractions.

A row for each input, a column for each output. Where inputs and outputs are numbers, the table also
has a bias and a variance.
"""

import csv
import itertools
import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

from tern.fixed import MAX_EPSILON
from ternhost.errors import UsageError
from ternhost.privacy.base import MICRO, exp_bound
from ternhost.privacy.cards import fraction
from ternhost.privacy.certify import Row, bisected, mean

Entry = int | str | Decimal | Fraction

FORMATS = (".csv", ".json")
_MOST_BYTES = 1 << 22  # of a file
_NUMBER = re.compile(
    r"[+-]?(\d{1,99}/0*[1-9]\d{,98}|(\d{1,50}(\.\d{,50})?|\.\d{1,50})([eE][+-]?\d\d?)?)", re.A
)


@dataclass(frozen=True)
class Certificate:
    """The exact privacy and accuracy of a table of probabilities.

    ratio: the largest ratio of the probabilities of one `output` at two inputs, `pair`; None if the
    second of them is 0, so that the mechanism keeps no epsilon. epsilon: ln(ratio) in millionths,
    rounded up as for cards; None above 20. bias, variance: the largest, and at which input; None
    unless outputs, and for the bias inputs, are numbers.
    """

    rows: tuple[Row, ...]
    ratio: Fraction | None
    epsilon: int | None
    pair: tuple[str, str]
    output: str
    bias: Fraction | None = None
    bias_at: str | None = None
    variance: Fraction | None = None
    variance_at: str | None = None

    def keeps(self, epsilon: int) -> bool:
        """Whether the mechanism keeps `epsilon` (micro), by the inequality of devices."""
        return self.ratio is not None and self.ratio <= exp_bound(epsilon)

    def delta(self, epsilon: int) -> Fraction:
        """The least delta for which the mechanism is (epsilon, delta)-private, rounded up.

        epsilon: micro.
        """
        bound = exp_bound(epsilon)  # below e**epsilon: delta is more
        denominators = [p.denominator for p in itertools.chain(*self.rows)]
        whole = math.lcm(*denominators)
        rows = []
        for row in self.rows:
            rows.append([int(p * whole) for p in row])
        worst = 0
        for first, second in itertools.permutations(rows, 2):
            excess = 0
            for p, q in zip(first, second, strict=True):
                excess += max(0, p * bound.denominator - q * bound.numerator)
            worst = max(worst, excess)
        return Fraction(worst, whole * bound.denominator)

    def as_json(self) -> dict[str, Any]:
        """For JSON: fractions as "num/den" and, named `..._decimal`, as decimals."""
        fields: dict[str, Any] = {
            "pair": self.pair,
            "output": self.output,
            "bias_at": self.bias_at,
            "variance_at": self.variance_at,
            "epsilon_certified": None if self.epsilon is None else self.epsilon / MICRO,
        }
        values = {"ratio": self.ratio, "bias": self.bias, "variance": self.variance}
        for name, value in values.items():
            fields[name] = None if value is None else fraction(value)
            fields[f"{name}_decimal"] = None if value is None else float(value)
        return fields


def certify(
    matrix: Sequence[Sequence[Entry]],
    values: Sequence[Entry] | None = None,
    inputs: Sequence[Entry] | None = None,
) -> Certificate:
    """Certify a mechanism by its probabilities: row i has those of each output at input i.

    Entries are integers, `Fraction`s, `Decimal`s, or texts such as "3/7" and "0.25", all taken
    exactly; a float is refused, since it is not the decimal that it shows. values: those of the
    outputs; inputs: those of the inputs. Both may also be names. Raises UsageError, for example for
    a row that does not sum to 1.
    """
    rows = []
    for entries in matrix:
        rows.append([_number(entry, "a probability") for entry in entries])
    lengths = {len(row) for row in rows}
    if len(rows) < 2 or len(lengths) > 1 or not rows[0]:
        text = "a table of probabilities has two rows or more, all of one length"
        raise UsageError(text, hint="give a row for each input, and a column for each output")
    names, xs = _labels(inputs, len(rows), "input")
    outputs, ys = _labels(values, len(rows[0]), "output")
    for name, row in zip(names, rows, strict=True):
        _require_law(name, row)

    ratio, most, least, output = _worst(rows)
    epsilon = None
    if ratio is not None and ratio <= exp_bound(MAX_EPSILON):
        epsilon = bisected(-1, MAX_EPSILON, lambda micro: ratio <= exp_bound(micro))
    accuracy: dict[str, Any] = {}
    if ys is not None:
        accuracy = _accuracy(rows, names, xs, ys)
    pair = (names[most], names[least])
    return Certificate(tuple(rows), ratio, epsilon, pair, outputs[output], **accuracy)


def _require_law(name: str, row: Row) -> None:
    """Raise UsageError where the probabilities of an input are not from 0 to 1, and 1 in all."""
    if min(row) < 0:
        text = f"input {name} has the probability {min(row)}"
        raise UsageError(text, "give probabilities from 0 to 1")
    total = sum(row)
    if total != 1:
        text = f"the probabilities of input {name} sum to {total} ({float(total):.9g}), not to 1"
        raise UsageError(text, "write 1/3, not 0.333; a table with names has an empty first cell")


def _accuracy(rows: Sequence[Row], names: Sequence[str], xs: Row | None, ys: Row) -> dict[str, Any]:
    """The largest variance and, where the inputs are numbers, the largest bias."""
    squares = [y * y for y in ys]
    means = [mean(row, ys) for row in rows]
    variances = [mean(row, squares) - m**2 for row, m in zip(rows, means, strict=True)]
    worst = max(variances)
    accuracy = {"variance": worst, "variance_at": names[variances.index(worst)]}
    if xs is not None:
        biases = [abs(m - x) for m, x in zip(means, xs, strict=True)]
        largest = max(biases)
        accuracy |= {"bias": largest, "bias_at": names[biases.index(largest)]}
    return accuracy


def read(path: str | Path) -> Certificate:
    """Certify the table in a file, CSV or JSON by its name. Raises UsageError or OSError."""
    path = Path(path)
    with path.open("rb") as file:
        data = file.read(_MOST_BYTES + 1)
    try:
        if len(data) > _MOST_BYTES:
            raise ValueError(f"it is longer than {_MOST_BYTES} bytes")
        text = data.decode("utf-8-sig")
        parse = _json if path.suffix.lower() == ".json" else _csv
        return certify(*parse(text))
    except UsageError as error:
        raise UsageError(f"{path}: {error.message}", hint=error.hint) from error
    except (ValueError, TypeError, KeyError, RecursionError, csv.Error) as error:
        hint = 'such as the two lines 0.7,0.3 and 0.3,0.7 of CSV; in JSON [["0.7", "0.3"], ["0.3", "0.7"]]'
        raise UsageError(f"{path} is no table of probabilities: {error}", hint=hint) from error


def _csv(text: str) -> tuple[Any, ...]:
    """(matrix, values, inputs).

    A table whose first cell is not a number has a row and a column of names.
    """
    lines = text.splitlines() or [""]
    mark = max(",;\t", key=lines[0].count)
    rows = []
    for row in csv.reader(lines, delimiter=mark):
        if any(cell.strip() for cell in row):
            rows.append(row)
    if not rows or _NUMBER.fullmatch(rows[0][0].strip()):
        return rows, None, None
    return [row[1:] for row in rows[1:]], rows[0][1:], [row[0] for row in rows[1:]]


def _json(text: str) -> tuple[Any, ...]:
    """(matrix, values, inputs) of a list of rows, or of an object with those as named fields.

    The object has `rows`, `outputs` and `inputs`.
    """
    table = json.loads(text, parse_float=str, parse_int=str, parse_constant=str)
    if isinstance(table, dict):
        return table["rows"], table.get("outputs"), table.get("inputs")
    return (table,)


def _number(entry: Entry, what: str) -> Fraction:
    if isinstance(entry, Decimal | int | Fraction) and not isinstance(entry, bool):
        return Fraction(entry)
    if not isinstance(entry, str) or not _NUMBER.fullmatch(entry.strip()):
        hint = 'write it as a decimal, "0.25", or as a fraction, "3/7"'
        raise UsageError(f"{entry!r} is not {what} that can be taken exactly", hint=hint)
    return Fraction(entry.strip())


def _labels(labels: Sequence[Entry] | None, count: int, what: str) -> tuple[list[str], Row | None]:
    """The names of inputs or outputs, and their values if all of them are numbers."""
    if labels is None:
        return [str(i + 1) for i in range(count)], None
    names = [str(label).strip() for label in labels]
    if len(names) != count or len(set(names)) < count:
        text = f"the table has {count} {what}s, and their names are {', '.join(names)}"
        raise UsageError(text, hint=f"give each {what} a name of its own")
    if not all(_NUMBER.fullmatch(name) for name in names):
        return names, None
    return names, [_number(label, "a value") for label in labels]


def _worst(rows: Sequence[Row]) -> tuple[Fraction | None, int, int, int]:
    """The largest ratio of the probabilities of an output at two inputs; None for a ratio to 0.

    Gives (ratio, input of the larger probability, input of the smaller one, output).
    """
    worst = Fraction(0), 0, 0, 0
    for output, column in enumerate(zip(*rows, strict=True)):
        most, least = column.index(max(column)), column.index(min(column))
        if not column[most]:
            continue
        if not column[least]:
            return None, most, least, output
        ratio = column[most] / column[least]
        if ratio > worst[0]:
            worst = ratio, most, least, output
    return worst
