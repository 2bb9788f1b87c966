"""Certify any mechanism by its table of probabilities, in exact fractions.

A row for each input, a column for each output. Where inputs and outputs are numbers, the table also
has a bias and a variance.
"""

import itertools
import json
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

from tern.fixed import MAX_EPSILON
from ternhost.datasets.tables import reading
from ternhost.errors import UsageError
from ternhost.options import shown
from ternhost.privacy.base import MICRO, exp_bound
from ternhost.privacy.cards import fraction
from ternhost.privacy.certify import Row, bisected, mean

Entry = int | str | Decimal | Fraction  # a number that can be taken exactly, or a name

FORMATS = (".csv", ".json")
_MOST_BYTES = 1 << 22  # of a file, which is 4 MB
# A fraction such as "3/7" (with a denominator that is not 0), or a decimal such as "0.25" or "1e-3",
# with few enough digits that nobody can keep this program busy with one number.
_NUMBER = re.compile(
    r"[+-]?(\d{1,99}/0*[1-9]\d{,98}|(\d{1,50}(\.\d{,50})?|\.\d{1,50})([eE][+-]?\d\d?)?)", re.A
)


@dataclass(frozen=True)
class Certificate:
    """The exact privacy and accuracy of a table of probabilities.

    rows: the probabilities of each output, a row for each input.
    ratio: the largest ratio of the probabilities of one output at two inputs; None if the second of
    them is 0, so that the mechanism keeps no epsilon.
    epsilon: ln(ratio) in millionths, rounded up as for cards; None above 20.
    pair, output: the names of the two inputs and of the output that have this ratio.
    bias, variance: the largest over all inputs; None unless the outputs, and for the bias also the
    inputs, are numbers.
    bias_at, variance_at: the names of the inputs that have them.
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
        """Whether the mechanism keeps `epsilon` (in millionths), by the devices' own inequality."""
        return self.ratio is not None and self.ratio <= exp_bound(epsilon)

    def delta(self, epsilon: int) -> Fraction:
        """Return the least delta at which the mechanism is (epsilon, delta)-private, rounded up.

        It is the largest sum over the outputs of max(0, P - e**epsilon Q), where P and Q are the
        probabilities at two inputs. epsilon: in millionths.
        """
        exp_epsilon = exp_bound(epsilon)  # rounded down, so delta is rounded up
        # All probabilities are turned into integers over their common denominator, since sums of
        # integers are much faster than sums of fractions.
        denominators = [p.denominator for row in self.rows for p in row]
        common = math.lcm(*denominators)
        integer_rows = []
        for row in self.rows:
            integer_rows.append([int(p * common) for p in row])

        largest = 0
        for first, second in itertools.permutations(integer_rows, 2):
            excess = 0  # in units of 1 / (common * exp_epsilon.denominator)
            for p, q in zip(first, second, strict=True):
                excess += max(0, p * exp_epsilon.denominator - q * exp_epsilon.numerator)
            largest = max(largest, excess)
        return Fraction(largest, common * exp_epsilon.denominator)

    def as_json(self) -> dict[str, Any]:
        """Return the certificate for JSON.

        Fractions appear as "num/den" and, with names that end in `_decimal`, as decimals.
        """
        epsilon = None
        if self.epsilon is not None:
            epsilon = self.epsilon / MICRO
        fields: dict[str, Any] = {
            "pair": self.pair,
            "output": self.output,
            "bias_at": self.bias_at,
            "variance_at": self.variance_at,
            "epsilon_certified": epsilon,
        }
        values = {"ratio": self.ratio, "bias": self.bias, "variance": self.variance}
        for name, value in values.items():
            fields[name] = None
            fields[f"{name}_decimal"] = None
            if value is not None:
                fields[name] = fraction(value)
                fields[f"{name}_decimal"] = float(value)
        return fields


def certify(
    matrix: Sequence[Sequence[Entry]],
    values: Sequence[Entry] | None = None,
    inputs: Sequence[Entry] | None = None,
) -> Certificate:
    """Certify the privacy and accuracy of a mechanism from its table of probabilities.

    matrix: a row for each input, with the probability of each output. Entries are integers,
    `Fraction`s, `Decimal`s, or texts such as "3/7" and "0.25", all taken exactly; a float is
    refused, since it is not the decimal that it shows.
    values: the value, or else a name, of each output; None: they are numbered.
    inputs: the same of each input.

    Raises UsageError, for example for a row that does not sum to 1.
    """
    rows = []
    for entries in _items(matrix, "a table of probabilities"):
        row = _items(entries, "a row of probabilities")
        rows.append([_number(entry, "a probability") for entry in row])
    lengths = {len(row) for row in rows}
    if len(rows) < 2 or len(lengths) > 1 or not rows[0]:
        text = "a table of probabilities has two rows or more, all of one length"
        raise UsageError(text, hint="give a row for each input, and a column for each output")
    input_names, input_values = _labels(inputs, len(rows), "input")
    output_names, output_values = _labels(values, len(rows[0]), "output")
    for name, row in zip(input_names, rows, strict=True):
        _require_law(name, row)

    worst = _worst(rows)
    ratio = worst.ratio
    epsilon = None
    if ratio is not None and ratio <= exp_bound(MAX_EPSILON):
        # The least micro-epsilon that keeps the ratio, from 0 on.
        epsilon = bisected(-1, MAX_EPSILON, lambda micro: ratio <= exp_bound(micro))
    accuracy: dict[str, Any] = {}
    if output_values is not None:
        accuracy = _accuracy(rows, input_names, input_values, output_values)
    return Certificate(
        rows=tuple(rows),
        ratio=ratio,
        epsilon=epsilon,
        pair=(input_names[worst.likely_input], input_names[worst.unlikely_input]),
        output=output_names[worst.output],
        **accuracy,
    )


def _items(sequence: Any, what: str) -> list[Any]:
    """Return the items of a sequence. Raises UsageError, which calls it `what`, if it is none."""
    is_sequence = not isinstance(sequence, str | bytes | Mapping)
    try:
        items = list(sequence)
    except TypeError:
        is_sequence = False
    if not is_sequence:
        raise UsageError(f"{what} must be a list, not {type(sequence).__name__}")
    return items


def _require_law(name: str, row: Row) -> None:
    """Raise UsageError if the probabilities of an input are negative or do not sum to 1.

    name: the input's name, for the message. row: the probability of each output.
    """
    if min(row) < 0:
        text = f"input {name} has the probability {min(row)}"
        raise UsageError(text, "give probabilities from 0 to 1")
    total = sum(row)
    if total != 1:
        text = f"the probabilities of input {name} sum to {total} ({float(total):.9g}), not to 1"
        raise UsageError(text, "write 1/3, not 0.333; a table with names has an empty first cell")


def _accuracy(
    rows: Sequence[Row], input_names: Sequence[str], input_values: Row | None, output_values: Row
) -> dict[str, Any]:
    """Return the largest variance and, if the inputs are numbers, the largest bias.

    They come with the names of the inputs that have them, as fields of `Certificate`. rows: the
    probability of each output, a row for each input.
    """
    squares = [value * value for value in output_values]
    means = []
    variances = []
    for row in rows:
        row_mean = mean(row, output_values)
        means.append(row_mean)
        variances.append(mean(row, squares) - row_mean**2)
    largest_variance = max(variances)
    variance_at = input_names[variances.index(largest_variance)]
    accuracy = {"variance": largest_variance, "variance_at": variance_at}

    if input_values is not None:
        biases = []
        for row_mean, value in zip(means, input_values, strict=True):
            biases.append(abs(row_mean - value))
        largest_bias = max(biases)
        bias_at = input_names[biases.index(largest_bias)]
        accuracy |= {"bias": largest_bias, "bias_at": bias_at}
    return accuracy


def read(path: str | Path) -> Certificate:
    """Certify the table of probabilities in a file, which is JSON if its name says so, else CSV.

    Raises OSError, or UsageError if the file is too long, does not parse, or has no valid table.
    """
    path = Path(path)
    parse = _of_table
    if path.suffix.lower() == ".json":
        parse = _of_json
    with path.open("rb") as file:
        data = file.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise UsageError(f"{path} is no table of probabilities: it has over {_MOST_BYTES} bytes")
    matrix, values, inputs = parse(path)
    try:
        return certify(matrix, values, inputs)
    except UsageError as error:
        raise UsageError(f"{path}: {error.message}", hint=error.hint) from error


def _of_table(path: Path) -> tuple[Any, Any, Any]:
    """Read a table as text, such as CSV, into the arguments (matrix, values, inputs) of `certify`.

    A table whose first cell is not a number has the outputs' names in its first row and the inputs'
    names in its first column. A table of numbers alone has no names (None). Numbers stay texts,
    since floats would not be exact. Raises UsageError.
    """
    table = reading.read(path, header=False)
    columns = []
    for name in table.columns:
        cells = table.texts(name)
        columns.append([table.style.plain(cell) or cell for cell in cells])
    heading, *body = zip(*columns, strict=True)
    if _NUMBER.fullmatch(heading[0]):
        return [heading, *body], None, None
    output_names = heading[1:]
    input_names = [row[0] for row in body]
    matrix = [row[1:] for row in body]
    return matrix, output_names, input_names


def _of_json(path: Path) -> tuple[Any, Any, Any]:
    """Read JSON into the arguments (matrix, values, inputs) of `certify`.

    It is a list of rows, or an object with `rows` and, optionally, `outputs` and `inputs`. Numbers
    stay texts, since floats would not be exact. Raises UsageError.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
        table = json.loads(text, parse_float=str, parse_int=str, parse_constant=str)
        if isinstance(table, dict):
            return table["rows"], table.get("outputs"), table.get("inputs")
    except (ValueError, KeyError, RecursionError) as error:
        raise UsageError(
            f"{path} is no table of probabilities: {error}",
            hint='such as [["0.7", "0.3"], ["0.3", "0.7"]]',
        ) from error
    return table, None, None


def _number(entry: Entry, what: str) -> Fraction:
    """Return an entry as an exact fraction.

    what: what the entry should be, for the message. Raises UsageError if it is no exact number.
    """
    text = ""  # which is no number
    if isinstance(entry, str):
        text = entry.strip()
    elif isinstance(entry, Decimal | int | Fraction) and not isinstance(entry, bool):
        with suppress(ValueError):  # so many digits that Python refuses to write them
            text = str(entry)
    if not _NUMBER.fullmatch(text):
        hint = 'write it as a decimal, "0.25", or as a fraction, "3/7"'
        raise UsageError(f"{shown(entry)} is not {what} that can be taken exactly", hint=hint)
    return Fraction(text)


def _labels(labels: Sequence[Entry] | None, count: int, what: str) -> tuple[list[str], Row | None]:
    """Return the names of all inputs or outputs, and their values if all names are numbers.

    labels: the names as given; None: they are numbered from 1 and have no values. count: how many
    there must be. what: "input" or "output", for messages. Raises UsageError.
    """
    if labels is None:
        numbers = [str(number) for number in range(1, count + 1)]
        return numbers, None
    labels = _items(labels, f"the names of {what}s")
    names = []
    for label in labels:
        if not isinstance(label, str):
            _number(label, f"the name of an {what}")
        names.append(str(label).strip())
    all_differ = len(set(names)) == len(names)
    if len(names) != count or not all_differ:
        text = f"the table has {count} {what}s, and their names are {', '.join(names)}"
        raise UsageError(text, hint=f"give each {what} a name of its own")
    if not all(_NUMBER.fullmatch(name) for name in names):
        return names, None
    return names, [_number(label, "a value") for label in labels]


class _Worst(NamedTuple):
    """The output that discloses most, and at which two inputs (as indices).

    ratio: of the output's probabilities at the two inputs; None if the smaller one is 0.
    """

    ratio: Fraction | None
    likely_input: int
    unlikely_input: int
    output: int


def _worst(rows: Sequence[Row]) -> _Worst:
    """Return the output whose probabilities at two inputs have the largest ratio.

    The larger this ratio, the more the output tells the two inputs from each other. The search ends
    at the first output that is possible at one input and impossible at another, where the ratio is
    infinite (None).

    rows: the probability of each output, a row for each input.
    """
    largest_ratio = Fraction(0)
    worst = _Worst(largest_ratio, likely_input=0, unlikely_input=0, output=0)
    for output, column in enumerate(zip(*rows, strict=True)):
        likely_input = column.index(max(column))
        unlikely_input = column.index(min(column))
        if not column[likely_input]:
            continue  # an output that never occurs
        if not column[unlikely_input]:
            return _Worst(None, likely_input, unlikely_input, output)
        ratio = column[likely_input] / column[unlikely_input]
        if ratio > largest_ratio:
            largest_ratio = ratio
            worst = _Worst(ratio, likely_input, unlikely_input, output)
    return worst
