"""Commands and options of gateways refuse what makes no sense, and say what helps."""

import pytest

from ternhost import errors

ACCOUNT = "card account duchi --epsilon 1 --reports 900 --delta 1e-6"


@pytest.mark.parametrize(
    "words",
    [
        "train --fleet gateways:no",
        "gateway run no",
        "gateway server no",
        "gateway status no",
    ],
)
def test_a_directory_that_is_not_there_is_bad_input_with_a_remedy(words, here, tern):
    refused = tern(*words.split(), code=errors.USAGE).err
    *_, message, remedy = refused.split("\n", 1 + words.count("gateways:"))
    assert message.startswith("tern: ")
    assert remedy.startswith("  ")
    assert list(here.iterdir()) == []


def test_the_first_directory_needs_a_site(here, tern):
    assert "--site north" in tern("gateway", "init", "sites", code=errors.USAGE).err


@pytest.mark.parametrize(
    ("words", "reason", "hint"),
    [
        ("--fleet simulated:100 --toward-server 1", "is about gateways", "--fleet gateways:DIR"),
        ("--fleet gateways:sites --toward-server 0", "toward-server", ""),
        ("--fleet gateways:sites --toward-server 1 --honest 0", "--honest must be", ""),
        ("--fleet gateways:sites --toward-server 1 --delta 1", "delta", ""),
    ],
)
def test_options_of_a_bound_are_checked(here, tern, words, reason, hint):
    refused = tern("train", *words.split(), code=errors.USAGE)
    assert reason in refused.err
    assert hint in refused.err


def test_an_account_behind_a_gateway_holds_toward_the_host(tern):
    account = tern(*ACCOUNT.split(), "--json").json
    assert account["needs"].endswith("a gateway that its devices trust")
    toward_the_host = {"ports": False, "broker": False, "gateway": True}
    assert account["holds_toward_the_host"] == toward_the_host


def test_the_table_of_an_account_names_the_gateway(tern):
    text = tern(*ACCOUNT.split(), "--rounds", "1").out
    assert "     rounds   local pure  local exact  behind the gateway\n" in text
