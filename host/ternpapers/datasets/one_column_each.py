"""The paper's way to make columns of a table (Hao, Wu, Wan, Sensors 2023, 23, 1115, section 6).

A category has a column of its own, so that an attribute of k categories becomes k columns. The data
sets of tern have k - 1, as in Wang et al.
"""

from collections.abc import Collection

import numpy as np

from tern.fixed import ONE
from ternhost.datasets import REGRESSION, Dataset, Fixed, Indices, Table, normalised
from ternhost.datasets.base import with_constant
from ternhost.errors import UsageError


def regression(table: Table, label: str, ordered: Collection[str] = ()) -> Dataset:
    """Return a data set whose task is to predict a number of the table from all other attributes.

    label: the name of the number. ordered: names of categorical attributes whose categories are
    numbers in an order: such an attribute is one column, of consecutive numbers from -1 to 1. In
    the columns of other categories 1 stands for the category, and -1 for any other one. Raises
    UsageError if there is no such number.
    """
    if label not in table.numeric_names:
        hint = f"it has: {', '.join(table.numeric_names)}"
        raise UsageError(f"{table.name} has no numeric attribute {label}", hint)
    labels = table.numeric[:, table.numeric_names.index(label)]
    names, columns = [], []
    for j, name in enumerate(table.numeric_names):
        if name != label:
            names.append(name)
            columns.append(table.numeric[:, j])
    for j, name in enumerate(table.categorical_names):
        assert table.codes is not None
        codes, categories = table.codes[:, j], table.categories[j]
        if name in ordered:
            names.append(name)
            columns.append(_consecutive(codes, categories))
            continue
        for code, category in enumerate(categories):
            names.append(f"{name}={category}")
            columns.append(np.where(codes == code, ONE, -ONE).astype(np.int16))
    features = np.stack(columns, axis=1)
    return with_constant(table.name, REGRESSION, names, features, labels)


def _consecutive(codes: Fixed, categories: tuple[str, ...]) -> Fixed:
    """Return an attribute (n) as consecutive numbers in the order of its categories, from -1 to 1.

    codes: positions in the categories (n). categories: numbers, as text; one that is no number,
    such as "missing", is the last.
    """
    import pandas

    values = pandas.to_numeric(np.array(categories), errors="coerce")
    ranks: Indices = np.argsort(np.argsort(values))
    return normalised(ranks[codes], 0, len(categories) - 1)
