"""The same models by scikit-learn, from the raw cells of a table, to compare tern's with."""

from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import accuracy_score, log_loss, mean_squared_error, roc_auc_score

from foreign.sets import ForeignSet
from ternhost.datasets import held_out
from ternhost.datasets.schemas.schema import Categorical, Schema
from ternhost.learn.models.training import TrainingPlan

_TIME = "time_hour"


def in_order_of_tern(records: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of a table in the order of time, if they have one."""
    if _TIME in records:
        return records.sort_values(_TIME, kind="stable")
    return records


def figures(foreign: ForeignSet, table: Path) -> dict[str, float]:
    """Return how good the model of scikit-learn is on the records that tern holds out, too."""
    schema = Schema.of_text(foreign.schema, foreign.name)
    records = in_order_of_tern(pd.read_csv(table))
    features = _features(schema, records)
    labels = records[schema.label]
    is_held_out = held_out(len(records))
    if not isinstance(schema.label_column, Categorical):
        return _of_numbers(schema, features, labels, is_held_out)

    # C divides the sum of the losses of all records, and the penalty of tern is beside their mean.
    penalty = TrainingPlan.regularisation * (~is_held_out).sum()
    model = LogisticRegression(C=1 / penalty, max_iter=5000)
    model.fit(features[~is_held_out], labels[~is_held_out])
    probabilities = model.predict_proba(features[is_held_out])
    truth = labels[is_held_out]
    found = {
        "accuracy": accuracy_score(truth, model.predict(features[is_held_out])),
        "log_loss": log_loss(truth, probabilities, labels=model.classes_),
    }
    if len(model.classes_) == 2:
        found["auc"] = roc_auc_score(truth == model.classes_[1], probabilities[:, 1])
    return found


def _of_numbers(schema, features, labels, is_held_out) -> dict[str, float]:
    """Return the squared error of linear regression, of labels from -1 to 1."""
    low, high = float(schema.label_column.low), float(schema.label_column.high)
    scaled = (2 * labels - low - high) / (high - low)
    model = LinearRegression().fit(features[~is_held_out], scaled[~is_held_out])
    predicted = model.predict(features[is_held_out])
    return {"squared_error": mean_squared_error(scaled[is_held_out], predicted)}


def _features(schema: Schema, records: pd.DataFrame) -> np.ndarray:
    """Return the features of a table: numbers within their bounds, and categories one by one."""
    columns = []
    for column in schema.features:
        values = records[column.name]
        if isinstance(column, Categorical):
            for category in column.categories:
                columns.append((values.astype(str) == category).to_numpy(float))
        else:
            low, high = float(column.low), float(column.high)
            middle = (low + high) / 2
            columns.append(
                (values.fillna(middle).clip(low, high) - middle).to_numpy() / (high - middle)
            )
    return np.stack(columns, axis=1)
