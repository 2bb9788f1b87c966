"""Experiments: each runs small, its files are whole, and what it says holds."""

import csv
import json
import math
from pathlib import Path

import pytest

from ternhost import experiments
from ternhost.cli import main
from ternhost.errors import StorageError, UsageError
from ternhost.experiments import Options, base, coordinates, variance

SMALL = {
    "mean": "breast-cancer",
    "erm": "breast-cancer",
    "discretisation": "breast-cancer",
    "pldp": "breast-cancer",
    "inference": "iris",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", experiments.NAMES)
def test_an_experiment_runs_and_writes_its_files(name: str, tmp_path: Path) -> None:
    heard: list[str] = []
    outcome = experiments.run(name, Options(SMALL.get(name), 1, True, progress=heard.append))
    assert heard
    assert outcome.lines
    assert experiments.summary(name)
    paths = experiments.write(outcome, tmp_path / "out")
    assert {path.suffix for path in paths} == {".csv", ".json", ".png"}
    whole = json.loads((tmp_path / "out" / f"{name}.json").read_text())
    assert whole["experiment"] == name
    for table, rows in outcome.tables.items():
        with (tmp_path / "out" / f"{table}.csv").open(newline="") as file:
            assert len(list(csv.DictReader(file))) == len(rows) == len(whole["tables"][table])
    for path in paths:
        assert path.stat().st_size > (5000 if path.suffix == ".png" else 50)
    for figure in outcome.figures.values():
        for axes in figure.axes:
            if axes.has_data():
                assert axes.get_xlabel()
                assert axes.get_ylabel()
                assert axes.get_title()
        assert len(figure.legends[0].get_texts()) == len(
            {text.get_text() for text in figure.legends[0].get_texts()}
        )


def test_crossings_of_tables_1_and_2() -> None:
    found = [round(variance.crossing(*row), 3) for row in variance.CROSSINGS]
    assert found == [1.290, 2.324, 1.193, 2.561, 3.269]


def test_the_wide_rule_loses_little() -> None:
    for name, law in coordinates.VARIANCES.items():
        if name != "duchi":
            losses = [coordinates._losses(law, epsilon, 16) for epsilon in (1.0, 3.0, 4.99, 6.0, 7.49)]
            assert max(row["wide_loss"] for row in losses) < 0.06
            assert max(row["paper_loss"] for row in losses) > 0.3


def test_runs_and_seeds_that_cannot_be() -> None:
    for wrong in ({"runs": 0}, {"seed": -1}):
        with pytest.raises(UsageError):
            Options(**wrong)
    with pytest.raises(UsageError, match="no experiment"):
        experiments.run("weather", Options())
    with pytest.raises(UsageError, match="no data set"):
        experiments.run("variance", Options("iris"))
    for name in ("discretisation", "pldp", "coordinates"):
        with pytest.raises(UsageError, match="two classes"):
            experiments.run(name, Options("diabetes", quick=True, runs=1))


def test_nan_is_null_in_json(tmp_path: Path) -> None:
    outcome = base.Outcome("x", {}, {"x": [{"a": math.nan, "b": [math.inf, 1.5]}]}, {})
    experiments.write(outcome, tmp_path)
    assert json.loads((tmp_path / "x.json").read_text())["tables"]["x"] == [{"a": None, "b": [None, 1.5]}]


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError):
        experiments.write(base.Outcome("x", {}, {}, {}), tmp_path / "file" / "below")


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "inference"
    arguments = ["--dataset", "iris", "--runs", "1", "--quick", "--output", str(out), "--json"]
    assert main(["experiment", "inference", *arguments]) == 0
    result = json.loads(capsys.readouterr().out)
    assert sorted(Path(path).name for path in result["files"]) == [
        "inference.csv", "inference.json", "inference.png",
    ]  # fmt: skip
    assert main(["experiment", "erm", "--dataset", "nowhere", "--quick"]) == 2
    assert "no data set" in capsys.readouterr().err
