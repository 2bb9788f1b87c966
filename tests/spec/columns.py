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


def in_steps(number, digits):
    """The number divided by the step 10**-digits, as a numerator and a denominator."""
    numerator, denominator = fraction(number)
    if digits < 0:
        return numerator, denominator * 10**-digits
    return numerator * 10**digits, denominator


def bounds(low, high):
    """The first and the last step of a column, and its digits."""
    digits = 400
    while True:
        numerator, denominator = in_steps(low, digits)
        first = numerator // denominator
        numerator, denominator = in_steps(high, digits)
        last = -(-numerator // denominator)
        if last - first <= MOST:
            return first, last, digits
        digits -= 1


def nearest_step(number, digits):
    """The step that is nearest to a number; of two that are equally near, the even one."""
    numerator, denominator = in_steps(number, digits)
    step = numerator // denominator
    twice_rest = 2 * (numerator - step * denominator)
    if twice_rest > denominator or (twice_rest == denominator and step % 2):
        step += 1
    return step


def scaled(number, first, last, digits):
    step = nearest_step(number, digits)
    step = max(first, min(last, step))
    return (2 * step - first - last) * ONE // (last - first)


def features_of(column, value):
    """The features of a column; a missing value takes the middle."""
    if len(column) == 4:
        return [0 if value is None else scaled(value, *column[1:])]
    categories = column[1]
    if value is None:
        return [0] * (len(categories) - 1)
    return [ONE if str(value) == category else -ONE for category in categories[:-1]]


def label_of(column, value):
    if len(column) == 4:
        return scaled(value, *column[1:])
    number = column[1].index(str(value))
    if len(column[1]) > 2:
        return number
    return (-ONE, ONE)[number]


def record(schema, values):
    """The constant, the features and the label of these values; None if the record is left out.

    Raises ValueError for an unknown category.
    """
    columns = schema["features"] + [schema["label"]] * (schema["label"] is not None)
    for column, value in zip(columns, values, strict=True):
        if len(column) == 2 and value is not None and str(value) not in column[1]:
            raise ValueError(column[0])
    row = [ONE]
    for column, value in zip(schema["features"], values, strict=False):
        if value is None and schema["missing"] != "middle":
            return None
        row += features_of(column, value)
    if schema["label"] is not None:
        if values[-1] is None:
            return None
        row.append(label_of(schema["label"], values[-1]))
    return row
