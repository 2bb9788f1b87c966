"""The public Python API: what `import ternhost` gives, options by keyword, and results."""

import json
import subprocess
import sys

import numpy as np
import pytest

import ternhost
from ternhost.run.status import END

pytestmark = pytest.mark.usefixtures("here")


def small(algorithm="fedsgd", **options):
    """A run of 1,000 simulated clients, each of which reports once."""
    fleet = {"fleet": "simulated:1000", "reports": 1000}
    return ternhost.train(algorithm, data="breast-cancer", **fleet, **options)


LIST_NEW_MODULES = """
import sys
before = set(sys.modules)
import ternhost
dir(ternhost)
new = set(sys.modules) - before
print(sorted(name for name in new if name.startswith(("tern", "numpy"))))
"""


def test_importing_ternhost_imports_nothing_else():
    words = [sys.executable, "-c", LIST_NEW_MODULES]
    printed = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert printed == (
        "['ternhost', 'ternhost.device_library', 'ternhost.errors', 'ternhost.text']\n"
    )


def test_everything_that_is_exported_is_there_and_described():
    for name in ternhost.__all__:
        assert getattr(ternhost, name).__doc__, name
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = ternhost.nothing
    assert ternhost.reach.fleet  # its modules can still be reached


def test_a_result_is_what_the_run_has_stored(tmp_path):
    result = small(epsilon=4, k=2, group=250, name="mine")
    assert result.directory.resolve() == tmp_path / "runs" / "mine"
    stored = json.loads((result.directory / "result.json").read_text())
    assert dict(result) == dict(ternhost.Result.load("mine")) == stored
    assert (result["options"]["epsilon"], result["epsilon_paid"]) == ("4", pytest.approx(4))


def test_a_result_has_weights_figures_and_a_history():
    statuses = []
    result = small(group=250, on_status=statuses.append)
    assert [status.round for status in statuses if status.event == END] == [1, 2, 3, 4]
    assert result.weights.tolist() == result["weights"]
    assert result["measures"] == ["accuracy", "auc", "log_loss"]
    assert {"auc", "auc_baseline", "auc_optimum"} <= result.figures.keys()
    assert result.history["reports"].tolist() == [250] * 4


def test_runs_are_listed_and_kept_in_the_directory_that_is_named(tmp_path):
    first = small(name="first", directory=tmp_path / "mine")
    listed = [(entry["run"], entry["status"]) for entry in ternhost.list_runs(tmp_path / "mine")]
    assert listed == [("first", "finished")]
    assert ternhost.list_runs() == []
    assert ternhost.Result.load("first", tmp_path / "mine")["weights"] == first["weights"]
    for missing in (lambda: ternhost.Result.load("first"), lambda: ternhost.list_runs("nowhere")):
        with pytest.raises(ternhost.UsageError):
            missing()


def test_a_run_that_stopped_is_resumed(tmp_path):
    """The first process stops in the second of four rounds. `resume` runs the rest."""

    class Stopped(Exception):
        pass

    def stop(status):
        assert ternhost.list_runs()[0]["status"] == "running"
        if status.event == END and status.round == 2:
            raise Stopped

    with pytest.raises(Stopped):
        small(name="cut", group=250, on_status=stop)
    assert ternhost.list_runs()[0]["status"] == "stopped", "no process has its store open"
    result = ternhost.resume("cut")
    assert result["reports"] == 1000
    assert result.history["round"].tolist() == [1, 2, 3, 4]


def test_the_attributes_of_a_collection_are_a_data_frame(tmp_path):
    result = ternhost.collect(fleet="simulated:500", data="wine", epsilon="4")
    frame = result.attributes
    assert frame.columns.tolist() == ["name", "mean", "low", "high", "reports", "true"]
    assert len(frame) == 13
    assert (frame["low"] <= frame["mean"]).all()
    squared_error = np.mean((frame["mean"] - frame["true"]) ** 2)
    assert squared_error == pytest.approx(result.figures["mean_squared_error"])
    assert result.weights is None


def test_a_card_may_be_a_design_or_bytes_or_a_file(tmp_path):
    design = ternhost.design("pm-sub", 2, 7)
    path = tmp_path / "mine.card"
    path.write_bytes(design.card)
    for card in (design, design.card, path, "mine.card"):
        assert small(card=card, epsilon=2)["card"] == design.card.hex()


@pytest.mark.parametrize(
    ("options", "error", "reason"),
    [
        ({"raports": 5}, TypeError, "did you mean 'reports'"),
        ({"local_rate": 2}, ternhost.UsageError, "--local-rate belongs to fedavg"),
        ({"seed": 1.5}, TypeError, "seed"),
        ({"seed": True}, TypeError, "seed"),
        ({"epsilon": 0}, ternhost.UsageError, "epsilon 0"),
        ({"card": b"x", "mechanism": "pm-sub"}, ternhost.UsageError, "exclude each other"),
        ({"algorithm": "values"}, ternhost.UsageError, "collect"),
    ],
)
def test_an_invalid_option_is_refused_and_no_run_begins(options, error, reason, tmp_path):
    with pytest.raises(error, match=reason):
        small(**options)
    assert not (tmp_path / "runs").exists()


def test_without_pandas_a_data_frame_names_the_extra_that_installs_it(monkeypatch):
    result = ternhost.Result({"history": [], "run": "mine"})
    monkeypatch.setitem(sys.modules, "pandas", None)  # as if it were not installed
    with pytest.raises(ternhost.UsageError, match="pandas is not installed") as caught:
        _ = result.history
    assert "tern-ldp[data]" in caught.value.hint
