"""Commands and options of gateways refuse what makes no sense, and say what helps."""

import pytest

from ternhost import errors


@pytest.mark.parametrize(
    "words",
    [
        "train --fleet gateways:no",
        "gateway run no",
        "gateway server no",
    ],
)
def test_a_directory_that_is_not_there_is_bad_input_and_is_not_made(words, here, tern):
    tern(*words.split(), code=errors.USAGE)
    assert list(here.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("--fleet simulated:100 --toward-server 1", "--fleet gateways:DIR"),
        ("--fleet gateways:sites --toward-server 1 --honest 0", "--honest"),
    ],
)
def test_options_of_a_bound_are_checked(here, tern, words, reason):
    assert reason in tern("train", *words.split(), code=errors.USAGE).err


def test_an_account_behind_a_gateway_holds_toward_the_host(tern):
    words = "card account duchi:1 --shuffled 900 --delta 1e-6 --json"
    account = tern(*words.split()).json
    toward_the_host = {"ports": False, "broker": False, "gateway": True}
    assert account["holds_toward_the_host"] == toward_the_host


@pytest.mark.parametrize("words", ["gateway server my-sites", "gateway run north --fleet mqtt:b"])
def test_the_server_and_a_gateway_can_be_services(here, tern, words):
    unit = tern("service", "show", "x", "--json", "--", *words.split()).json["text"]
    assert f"-m ternhost {words}\n" in unit
