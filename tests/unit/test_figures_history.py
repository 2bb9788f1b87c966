"""`python tests/figures.py --history`: the figures of the device library by commit."""

import json
import subprocess

import figures_history
import pytest

from ternhost.errors import UsageError


def git(folder, *arguments):
    identity = ["-c", "user.name=Test", "-c", "user.email=test@example.org"]
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


def commit(path, subject, us_per_report):
    figures = {
        "pico_emulated": {"us_per_report": us_per_report},
        "mpy_bytes": {"pico": {"tern.a": 100, "tern.b": 20}},
    }
    path.write_text(json.dumps(figures))
    git(path.parent, "add", path.name)
    git(path.parent, "commit", "-m", subject)


@pytest.fixture
def path(tmp_path):
    """A file of figures in a repository, with three commits."""
    git(tmp_path, "init", "--initial-branch=main")
    path = tmp_path / "figures.json"
    commit(path, "the first figures", 4000)
    commit(path, "a slower report", 4400)
    commit(path, "hardly faster", 4390)
    return path


def test_each_commit_has_its_figures(path):
    history = figures_history.commits(path)
    assert [each.figures["pico_emulated us_per_report"] for each in history] == [4000, 4400, 4390]


def test_the_sizes_of_modules_are_added(path):
    assert figures_history.commits(path)[0].figures["pico mpy_bytes"] == 120


def test_the_change_of_a_figure_is_printed_below_its_commit(path):
    heading, change = figures_history.changes(figures_history.commits(path))
    assert heading.endswith("a slower report")
    assert change == "    pico_emulated us_per_report: 4,000 -> 4,400 (+10.0%)"


def test_the_change_on_another_branch_is_not_counted_twice(path):
    git(path.parent, "switch", "-c", "branch", "HEAD~2")
    commit(path, "slower on a branch", 4100)
    git(path.parent, "merge", "--strategy=ours", "--no-commit", "main")
    commit(path, "Merge main, measured anew", 4500)
    changes = list(figures_history.changes(figures_history.commits(path)))
    assert {line.strip() for line in changes if line.startswith(" ")} == {
        "pico_emulated us_per_report: 4,000 -> 4,400 (+10.0%)",
        "pico_emulated us_per_report: 4,000 -> 4,100 (+2.5%)",
    }


def test_each_figure_has_a_panel(path):
    history = figures_history.commits(path)
    titles = [axes.get_title(loc="left") for axes in figures_history.draw(history).axes]
    assert titles == [
        "pico_emulated us_per_report: 4,390, best 4,000",
        "pico mpy_bytes: 120, best 120",
    ]


def test_a_folder_without_a_history_is_an_error(tmp_path):
    with pytest.raises(UsageError, match=r"figures\.json"):
        figures_history.commits(tmp_path / "figures.json")
