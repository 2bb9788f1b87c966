"""The notebook of the documentation: its code runs, and it is kept without outputs.

Its cells are executed one after the other in one namespace, as Jupyter does, but without Jupyter,
which tern does not need otherwise. What the last expression of a cell shows is made, too.
"""

import ast
import json
from pathlib import Path

import pytest
from matplotlib.figure import Figure

pytestmark = pytest.mark.usefixtures("here")

NOTEBOOK = json.loads((Path(__file__).parents[2] / "docs/python.ipynb").read_text())
CODE = [cell for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]


def shown(cell, namespace):
    """Execute a cell, and return the value of its last expression; None if there is none."""
    *statements, last = ast.parse("".join(cell["source"])).body
    if not isinstance(last, ast.Expr):
        statements.append(last)
        last = None
    exec(compile(ast.Module(statements, []), "a cell", "exec"), namespace)
    if last is None:
        return None
    return eval(compile(ast.Expression(last.value), "a cell", "eval"), namespace)


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    """The namespace after all cells, and what each of them shows."""
    namespace = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("notebook"))
        values = [shown(cell, namespace) for cell in CODE]
    return namespace, values


def test_each_cell_shows_something(executed):
    _namespace, values = executed
    assert all(value is not None for value in values)


def test_pictures_are_shown(executed):
    _namespace, values = executed
    assert sum(isinstance(value, Figure) for value in values) == 3


def test_objects_of_tern_are_shown_as_tables(executed):
    namespace, _values = executed
    for name in ("result", "card"):
        assert namespace[name]._repr_html_().startswith("<table>")


def test_the_model_is_better_than_the_baseline(executed):
    namespace, _values = executed
    result = namespace["result"]
    assert result.accuracy > result.figures["accuracy_baseline"]


def test_the_card_keeps_its_epsilon_and_no_smaller_one(executed):
    namespace, _values = executed
    assert namespace["kept"]
    assert not namespace["exceeded"]


def test_reports_together_cost_less_than_their_sum(executed):
    namespace, _values = executed
    assert namespace["account"].epsilon < namespace["account"].pure


def test_the_notebook_is_kept_without_outputs():
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in CODE)
