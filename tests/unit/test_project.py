"""The project file tern.toml: its settings are the defaults of commands."""

from pathlib import Path

import pytest

from ternhost import errors

RUN = ("train", "--no-report")


@pytest.fixture
def project(here):
    """`project(text)` writes the project file of the working directory."""
    return lambda text: Path("tern.toml").write_text(text)


def in_force(tern, *command):
    """What `tern config COMMAND` says of each option: its value, and what sets it."""
    rows = tern("config", *command, "--json").json["options"]
    return {row["option"]: (row["value"], row["from"]) for row in rows}


def test_a_shared_setting_holds_for_each_command_with_the_option(project, tern):
    project('fleet = "simulated:300"')
    for command in ("train", "collect", "infer", "serve"):
        assert in_force(tern, command)["--fleet"] == ("simulated:300", "tern.toml")


def test_a_table_holds_for_its_command_alone(project, tern):
    project('[collect]\nfleet = "simulated:300"')
    assert in_force(tern, "collect")["--fleet"] == ("simulated:300", "tern.toml [collect]")
    assert in_force(tern, "train")["--fleet"] == ("emulated:8", "default")


def test_the_table_of_a_learner_goes_before_that_of_its_command(project, tern):
    project("[train]\nepsilon = 1\n[train.fedsgd]\nepsilon = 4")
    assert in_force(tern, "train", "fedsgd")["--epsilon"] == (4, "tern.toml [train.fedsgd]")
    assert in_force(tern, "train", "fedavg")["--epsilon"] == (1, "tern.toml [train]")


def test_a_run_takes_its_options_from_the_project_file(project, tern):
    project('data = "iris"\nfleet = "simulated:100"\n[train.fedsgd]\nreports = 100')
    result = tern(*RUN, "fedsgd", "--json").json
    assert (result["options"]["data"], result["options"]["fleet"], result["reports"]) == (
        "iris",
        "simulated:100",
        100,
    )


def test_an_option_overrides_the_project_file(project, tern):
    project('data = "iris"\nfleet = "simulated:100"\nepsilon = 1')
    assert tern(*RUN, "fedsgd", "--epsilon", "3", "--json").json["options"]["epsilon"] == "3"


def test_a_setting_that_does_not_suit_the_unit_is_left_out(project, tern):
    """Quantiles of devices have --epsilon, and those of records have --run-epsilon."""
    project('data = "wine"\nfleet = "simulated:3"\nepsilon = 1\nrun_epsilon = 3')
    quantiles = ("collect", "quantiles", "--no-report", "--json")
    of_records = tern(*quantiles, "--unit", "record", "--records", "40").json
    assert of_records["options"]["run_epsilon"] == "3"
    of_devices = tern(*quantiles).json
    assert of_devices["options"]["epsilon"] == "1"


def test_an_option_overrides_the_setting_that_it_excludes(project, tern):
    """--mechanism and --card exclude each other."""
    tern("card", "design", "duchi", "--epsilon", "2", "--output", "duchi.card")
    project('data = "iris"\nfleet = "simulated:100"\nmechanism = "pm-sub"')
    assert tern(*RUN, "fedsgd", "--card", "duchi.card", "--json").json["mechanism"] != "pm-sub"


def test_a_shared_setting_does_not_select_a_learner(project, tern):
    """Only learners with many rounds have a mechanism."""
    project('data = "flights"\nfleet = "simulated:1000"\nmechanism = "pm-sub"')
    assert tern(*RUN, "--json").json["algorithm"] == "direct"


def test_what_is_protected_is_never_ignored(project, tern):
    """fedsgd protects devices, and the project wants its records protected."""
    project('data = "iris"\nfleet = "simulated:100"\nunit = "record"')
    refused = tern(*RUN, "fedsgd", "--json", code=errors.USAGE).json
    assert "--unit" in refused["error"]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("fleet = ", "tern.toml"),
        ('fleeet = "simulated:9"', "fleet"),
        ('[train]\nfleeet = "simulated:9"', "--fleeet"),
        ("[train]\nanew = 3", "anew"),
        ('[train]\nseed = "many"', "seed"),
        ("[train]\nseed = true", "seed"),
        ("[trian]\nseed = 3", "trian"),
    ],
    ids=["no TOML", "unknown", "unknown in a table", "switch", "number", "bool", "no command"],
)
def test_a_wrong_project_file_is_refused_with_what_is_wrong(project, tern, text, named):
    project(text)
    refused = tern("config", "--json", code=errors.USAGE).json
    assert named in refused["error"] + refused["hint"]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[trian]\nunit = 'record'", "trian"),
        ("[fedsgd]\nepsilon = 1", "fedsgd"),
        ("[train.fedsdg]\nepsilon = 1", "fedsdg"),
        ("[train.fedsgd.more]\nepsilon = 1", "more"),
        ("epsilon = {E = 1}", "epsilon"),
        ("epsilon = [1, 2]", "epsilon"),
        ("max-epsilon = 1\nmax_epsilon = 2", "max_epsilon"),
        ("[train]\nseed = 1.5", "tern.toml [train]: seed"),
    ],
    ids=["typo", "learner", "its typo", "below", "table", "list", "twice", "form"],
)
def test_a_run_does_not_begin_with_a_setting_that_nothing_takes(project, tern, text, named):
    project(text)
    refused = tern(*RUN, "fedsgd", "--fleet", "simulated:9", "--json", code=errors.USAGE).json
    assert "tern.toml" in refused["error"]
    assert named in refused["error"]


def test_a_project_file_that_is_a_directory_is_not_taken_for_none(here, tern):
    Path("tern.toml").mkdir()
    tern("config", code=errors.STORAGE)


def test_the_project_file_may_begin_with_a_byte_order_mark(here, tern):
    Path("tern.toml").write_bytes(b"\xef\xbb\xbfseed = 3\r\n")
    assert in_force(tern, "train")["--seed"] == (3, "tern.toml")


def test_config_suggests_a_word_for_a_typo(here, tern):
    refused = tern("config", "train", "fedsdg", "--json", code=errors.USAGE).json
    assert "did you mean fedsgd?" in refused["hint"]


def test_the_value_of_an_option_is_not_taken_for_a_learner(project, tern):
    """The run is called "fedavg"; the learner is chosen by the data."""
    project("[train.fedavg]\nlocal_epochs = 1")
    words = (*RUN, "--name", "fedavg", "--fleet", "simulated:100", "--json")
    assert tern(*words).json["algorithm"] != "fedavg"


@pytest.mark.parametrize(
    ("table", "command", "suggestion"),
    [
        ("board.provisoin", ("board", "list", "--no-ask"), "provision"),
        ("keys.lisst", ("keys", "list"), "list"),
        ("train.fedsdg", ("train",), "fedsgd"),
        ("card.design.dushi", ("card", "list"), "duchi"),
    ],
)
def test_a_table_of_a_wrong_verb_is_refused_by_each_verb(project, tern, table, command, suggestion):
    project(f"[{table}]\nseed = 1")
    refused = tern(*command, "--json", code=errors.USAGE).json
    assert table in refused["error"]
    assert suggestion in refused["hint"]


def test_a_table_of_another_verb_of_a_group_is_no_mistake(project, tern):
    project('[board.provision]\nbudget = "4"')
    tern("board", "list", "--no-ask")
