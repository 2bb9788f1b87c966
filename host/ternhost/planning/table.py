"""The table of a plan, for people: a line for each number of devices or of rounds, and references."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ternhost.learn.models import judging
from ternhost.planning.cells import Row
from ternhost.planning.quality import baseline_name, loses_to_shares, measures
from ternhost.text import counted

WITHOUT_PRIVACY = "without privacy"
PUBLIC_ALONE = "public rows alone"

# A figure has three columns: the mean of all runs, its standard error, and the interval of a single
# run.
_GAP = "   "  # before the columns of a figure
_COLUMNS = "{:<6}  {:<6}  {:<16}"
_LABEL = "{:>17}"  # the first column of the table
_CELL = "{:<32}"  # of a figure that has no error


def heading(result: Mapping[str, Any], first: str) -> list[str]:
    """Return the two lines above the table of a plan.

    first: what the first column has, such as "devices".
    """
    names = _LABEL.format("")
    columns = _LABEL.format(first)
    for measure, _ in measures(result):
        names += _GAP + _CELL.format(judging.WORDS[measure])
        columns += _GAP + _COLUMNS.format("mean", "error", "a single run")
    if result["rarest"] is not None:
        columns += _GAP + "recall"
    return [names.rstrip(), columns.rstrip()]


def line_of_runs(result: Mapping[str, Any], label: str, row: Row) -> str:
    """Return a line of the table about several runs.

    label: what the first column has. row: as of `quality.of_runs`.
    """
    line = _LABEL.format(label)
    for _, prefix in measures(result):
        mean = f"{row[f'{prefix}mean']:.4f}"
        error = f"{row[f'{prefix}standard_error']:.4f}"
        interval = f"{row[f'{prefix}run_low']:.4f} to {row[f'{prefix}run_high']:.4f}"
        line += _GAP + _COLUMNS.format(mean, error, interval)
    if result["rarest"] in row.get("never_predicted", ()):
        line += _GAP + "never"
    elif result["rarest"] is not None:
        line += _GAP + _recall(row["recall"])
    return line.rstrip()


def line_of_optimum(result: Mapping[str, Any]) -> str:
    """Return the line of the table about the model without privacy."""
    line = _line_of_one(result, WITHOUT_PRIVACY, "optimum")
    if result["rarest"] is not None:
        line += _GAP + _recall(result["recall_optimum"])
    return line.rstrip()


def line_of_public_rows(result: Mapping[str, Any]) -> str:
    """Return the line of the table about the model that learns from public rows with labels."""
    line = _line_of_one(result, PUBLIC_ALONE, "public_alone")
    if result["rarest"] is not None:
        line += _GAP + _recall(result["recall_public_alone"])
    return line.rstrip()


def line_of_baseline(result: Mapping[str, Any]) -> str:
    """Return the line of the table about the answer that knows no features."""
    return _line_of_one(result, baseline_name(result), "baseline").rstrip()


def _line_of_one(result: Mapping[str, Any], label: str, kind: str) -> str:
    """Return a line of the table about a single model to compare with.

    label: what the first column has. kind: the name of its figures in the result of the plan.
    """
    line = _LABEL.format(label)
    for _, prefix in measures(result):
        line += _GAP + _CELL.format(f"{result[prefix + kind]:.4f}")
    return line


def _recall(recall: float | None) -> str:
    """Return the text of a recall; None if there was no record to find."""
    if recall is None:
        return "none"
    return f"{recall:.4f}"


def explanation(result: Mapping[str, Any]) -> list[str]:
    """Return lines that say what the columns of the table mean."""
    runs = counted(result["runs"], "run")
    lines = [
        f"  mean: of {runs}, with its standard error; a single run: where one more run lies (98 %)"
    ]
    if result["rarest"] is not None:
        share = f"{100 * result['rarest_share']:.3g} %"
        lines.append(
            f"  recall: of the class {result['rarest']}, {share} of the records; the share of them "
            "that the model finds"
        )
    return lines


def verdict(result: Mapping[str, Any], row: Row, subject: str = "A run") -> str:
    """Return a sentence that says whether the models of a run are better than no model.

    They are compared by their log-loss if they give probabilities, and else by their figure.

    row: the last one of the runs of a plan by rounds, as of `quality.of_runs`. subject: which runs
    they are, the beginning of the sentence.
    """
    measure, prefix = measures(result)[-1]
    baseline = result[f"{prefix}baseline"]
    worst_of_run, worst_of_mean, best_of_mean = "run_high", "high", "low"
    if judging.is_better(measure, 1, 0):
        worst_of_run, worst_of_mean, best_of_mean = "run_low", "low", "high"
    if judging.is_better(measure, row[prefix + worst_of_run], baseline):
        answer = "a single run is better than no model"
    elif judging.is_better(measure, row[prefix + worst_of_mean], baseline):
        answer = "on average better than no model, but a single run may be worse"
    elif judging.is_better(measure, baseline, row[prefix + best_of_mean]):
        answer = "worse than no model"
    else:
        answer = "noise hides whether this is better than no model"
    return (
        f"{subject} has {counted(row['rounds'], 'round')}, after which the {judging.WORDS[measure]} is "
        f"{row[f'{prefix}mean']:.4g}, and that of the {baseline_name(result)} {baseline:.4g}: {answer}."
    )


def warnings(
    result: Mapping[str, Any], rows: Sequence[Row], when: Callable[[Sequence[Row]], str]
) -> list[str]:
    """Return sentences about what is bad about the models of some rows, if anything is.

    rows: as of `quality.of_runs`. when: begins a sentence about some of these rows, such as "With
    20 devices".
    """
    sentences = []
    misleading = [row for row in rows if loses_to_shares(result, row)]
    if misleading:
        sentences.append(
            f"{when(misleading)}, the log-loss is worse than that of the class shares: the model's "
            "probabilities mislead."
        )
    for names, rows_of_names in _by_never_predicted(rows).items():
        remedy = ""
        if result["model"] == "logistic":
            remedy = " --threshold of tern train changes that."
        sentences.append(
            f"{when(rows_of_names)}, the model of most runs never predicts {' or '.join(names)}."
            f"{remedy}"
        )
    return sentences


def _by_never_predicted(rows: Sequence[Row]) -> dict[tuple[str, ...], list[Row]]:
    """Return those rows in which most runs never predict some classes, by these classes."""
    rows_by_names: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        names = tuple(row.get("never_predicted", ()))
        if names:
            rows_by_names.setdefault(names, []).append(row)
    return rows_by_names
