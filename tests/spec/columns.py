"""Records of values by a schema, from arithmetic.md and storage.md alone, in integers of any size.

Imports nothing of the library that it checks. Numbers are decimal texts, and nothing is rounded
before its place.
"""

ONE = 16384
MOST = 65535  # steps between two bounds


def fraction(number):
    """The number of a decimal text as a numerator and a denominator."""
    text = str(number).lower()
    text, _, exponent = text.partition("e")
    whole, _, places = text.partition(".")
    power = int(exponent or 0) - len(places)
    numerator = int(whole + places)
    if power > 0:
        return numerator * 10**power, 1
    return numerator, 10**-power


def in_steps(number, times, per):
    """The number counted in steps, number * times / per, as a numerator and a denominator."""
    numerator, denominator = fraction(number)
    return numerator * times, denominator * per


def bounds(low, high):
    """L, H, times and per of a column with these bounds."""
    lowest, highest = fraction(low), fraction(high)
    if lowest[0] == -lowest[1] and highest[0] == highest[1]:  # -1 and 1
        return -ONE, ONE, ONE, 1
    digits = 400
    while True:
        times, per = 10 ** max(0, digits), 10 ** max(0, -digits)
        numerator, denominator = in_steps(low, times, per)
        first = numerator // denominator
        numerator, denominator = in_steps(high, times, per)
        last = -(-numerator // denominator)
        if last - first <= MOST:
            return first, last, times, per
        digits -= 1


def nearest_step(number, times, per):
    """The step that is nearest to a number; of two that are equally near, the even one."""
    numerator, denominator = in_steps(number, times, per)
    step = numerator // denominator
    twice_rest = 2 * (numerator - step * denominator)
    if twice_rest > denominator or (twice_rest == denominator and step % 2):
        step += 1
    return step


def scaled(number, first, last, times, per):
    """The feature of a number, in Q1.14."""
    step = nearest_step(number, times, per)
    step = max(first, min(last, step))
    return (2 * step - first - last) * ONE // (last - first)


def is_numeric(column):
    return len(column) == 5


def same(value, category):
    """Whether a value is this category: the same text, or the same number."""
    if str(value) == category:
        return True
    try:
        return float(value) == float(category)
    except ValueError:
        return False


def number_of(column, value):
    """The number of the category. Raises ValueError if there is none."""
    for number, category in enumerate(column[1]):
        if same(value, category):
            return number
    raise ValueError(column[0])


def features_of(column, value):
    """The features of a column; a missing value takes the middle."""
    if is_numeric(column):
        return [0 if value is None else scaled(value, *column[1:])]
    if value is None:
        return [0] * (len(column[1]) - 1)
    chosen = number_of(column, value)
    return [ONE if number == chosen else -ONE for number in range(len(column[1]) - 1)]


def label_of(schema, value):
    column = schema["label"]
    if is_numeric(column):
        return scaled(value, *column[1:])
    number = number_of(column, value)
    if schema["positive"] is None:
        return number
    return ONE if number == schema["positive"] else -ONE


def present(schema, value):
    """The value; None if it is a mark of a missing one."""
    if value is not None and any(same(value, str(mark)) for mark in schema["missing"]):
        return None
    return value


def record(schema, values):
    """The features and the label of these values; None if the record is left out.

    Raises ValueError for an unknown category.
    """
    values = [present(schema, value) for value in values]
    if schema["label"] is None:
        return record_to_collect(schema, values)
    assert len(values) == len(schema["features"]) + 1
    row = [ONE]
    for place, column in enumerate(schema["features"]):
        if values[place] is None and schema["rows_with_missing"] != "middle":
            return None
        row += features_of(column, values[place])
    if values[-1] is None:
        return None
    row.append(label_of(schema, values[-1]))
    return row


def record_to_collect(schema, values):
    """The numbers of the numeric columns, those of categories, and a label of 0."""
    assert len(values) == len(schema["features"])
    numbers, codes = [], []
    for place, column in enumerate(schema["features"]):
        value = values[place]
        if value is None and (schema["rows_with_missing"] != "middle" or not is_numeric(column)):
            return None
        if is_numeric(column):
            numbers += features_of(column, value)
        else:
            codes.append(number_of(column, value))
    codes.append(0)
    return numbers + codes
