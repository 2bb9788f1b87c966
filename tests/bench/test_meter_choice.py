"""A value of --meter names a meter, its place, and its settings."""

import pytest

from ternbench.meters import choice
from ternhost.errors import UsageError


def test_a_meter_has_a_place_and_settings():
    chosen = choice.parse("ppk2:a1,volts=3.3,no-supply")
    assert (chosen.name, chosen.place) == ("ppk2", "a1")
    assert chosen.settings == {"volts": 3.3, "no_supply": True}


def test_a_meter_without_a_place_has_settings_too():
    chosen = choice.parse("joulescope,range=18mA,marker=4")
    assert (chosen.place, chosen.settings) == ("", {"range": "18mA", "marker": 4})


def test_the_name_of_a_file_may_have_commas(here):
    (here / "a,b.csv").touch()
    chosen = choice.parse("csv:a,b.csv,volts=5")
    assert (chosen.place, chosen.settings) == ("a,b.csv", {"volts": 5.0})


def test_a_value_in_quotes_may_have_commas(here):
    chosen = choice.parse('csv:a.csv,current="I, mA",marker=D0')
    assert (chosen.place, chosen.settings) == ("a.csv", {"current": "I, mA", "marker": "D0"})


def test_a_port_may_have_colons():
    assert choice.parse("ina226:id:1234,shunt=.1").place == "id:1234"


@pytest.mark.parametrize(
    "text",
    [
        "scale",  # no meter
        "ppk2",  # no port
        "model:a1",  # no place
        "ppk2:a1,shunt=1",  # of another meter
        "ppk2:a1,no-supply=yes",  # a switch
        "csv:export.csv,reports=0",
        "csv:export.csv,volts=nan",
        "csv:export.csv,volts=3,volts=5",  # twice
        "csv:export.csv,current=I, mA",  # without quotes
        "csv:export.csv,decimal=dot",
        "joulescope,range=1A",
    ],
)
def test_a_meter_that_does_not_exist_is_refused(text):
    with pytest.raises(UsageError):
        choice.parse(text)


@pytest.mark.parametrize(("name", "kind"), [("export.csv", "csv"), ("recording.jls", "jls")])
def test_a_file_without_its_kind_is_told_how_to_be_written(here, name, kind):
    (here / name).touch()
    with pytest.raises(UsageError) as raised:
        choice.parse(f"{name},volts=5")
    assert f"--meter {kind}:{name},volts=5" in raised.value.hint
