"""The sockets of gateways, and LocalPost, which needs nothing else."""

import os
import stat
import threading
import time

import pytest
from harness.local_gateways import LocalPost
from harness.raw_client import wait_for

from ternhost.errors import DeviceError, RefusedError, UsageError
from ternhost.reach.gateway.post import MOST_TEXT, SOCKET, Reply, call, check_site, serve_locally

LATE = 60.0  # seconds that a busy machine may take


@pytest.fixture
def site(tmp_path):
    """The directory of a site."""
    directory = tmp_path / "north"
    directory.mkdir()
    return directory


def received(post, count):
    """The next `count` replies."""
    replies = []
    wait_for(lambda: replies.extend(post.receive(1.0)) or len(replies) == count)
    return replies


def test_only_its_owner_may_use_the_socket_which_ends_with_the_gateway(site):
    with serve_locally(site / SOCKET, bytes):
        assert stat.S_IMODE(os.stat(site / SOCKET).st_mode) == 0o600
    assert not list(site.iterdir())


def test_a_question_and_an_answer_may_be_empty_or_long(site):
    long = os.urandom(5_000_000)
    with serve_locally(site / SOCKET, bytes):
        assert call(site / SOCKET, b"", LATE) == b""
        assert call(site / SOCKET, long, LATE) == long


def test_a_socket_may_have_a_path_beyond_the_limit_of_the_system(tmp_path):
    directory = tmp_path / ("x" * 120)
    directory.mkdir()
    with serve_locally(directory / SOCKET, bytes):
        assert call(directory / SOCKET, b"here", LATE) == b"here"


def test_several_questions_are_answered_at_once(site):
    both = threading.Barrier(2, timeout=LATE)

    def handler(payload):
        both.wait()  # neither continues before the other has arrived
        return payload

    with serve_locally(site / SOCKET, handler), LocalPost(site.parent) as post:
        post.send("north", b"1")
        post.send("north", b"2")
        assert {reply.payload for reply in received(post, 2)} == {b"1", b"2"}


@pytest.mark.parametrize("message", ["the budget is spent", "é" * 1_000_000], ids=["short", "long"])
def test_an_error_of_the_gateway_is_passed_on_up_to_a_length(site, message):
    def handler(payload):
        raise RefusedError(message)

    with serve_locally(site / SOCKET, handler), LocalPost(site.parent) as post:
        post.send("north", b"")
        assert received(post, 1) == [Reply("north", None, message[:MOST_TEXT])]
        with pytest.raises(DeviceError, match=message[:MOST_TEXT]):
            call(site / SOCKET, b"", LATE)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_gateway_reports_its_own_fault_and_continues(site):
    def handler(payload):
        return {b"good": payload}[payload]

    with serve_locally(site / SOCKET, handler):
        with pytest.raises(DeviceError, match="a fault of the gateway: KeyError"):
            call(site / SOCKET, b"bad", LATE)
        assert call(site / SOCKET, b"good", LATE) == b"good"


def test_a_gateway_that_does_not_run_is_reported_at_once(site):
    with serve_locally(site / SOCKET, bytes), LocalPost(site.parent) as post:
        assert post.sites() == {"north": True}
        os.link(site / SOCKET, site / "kept")
    os.rename(site / "kept", site / SOCKET)  # a killed gateway leaves its socket
    with LocalPost(site.parent) as post:
        assert post.sites() == {"north": False}
        post.send("north", b"")
        (reply,) = received(post, 1)
        assert reply.payload is None
        assert "no gateway answers" in reply.error
    with serve_locally(site / SOCKET, bytes):  # the next one replaces it
        assert call(site / SOCKET, b"again", LATE) == b"again"


def test_a_call_to_a_slow_gateway_ends_at_its_timeout(site):
    go = threading.Event()
    with serve_locally(site / SOCKET, lambda _: bytes(go.wait(LATE))):
        with pytest.raises(DeviceError, match=r"has not answered within 0\.2 s"):
            call(site / SOCKET, b"", 0.2)
        go.set()


def test_two_gateways_do_not_run_in_one_directory(site):
    with (
        serve_locally(site / SOCKET, bytes),
        pytest.raises(UsageError, match="served already"),
        serve_locally(site / SOCKET, bytes),
    ):
        pass


def test_stop_wakes_receive(site):
    with LocalPost(site.parent) as post:
        threading.Timer(0.1, post.stop).start()
        began = time.monotonic()
        assert post.receive(LATE) == []
        assert time.monotonic() - began < LATE / 2


@pytest.mark.parametrize("name", ["", "server", "../etc", "-x", "a b", "x" * 33, "north\n"])
def test_invalid_names_of_sites_are_refused(name):
    with pytest.raises(UsageError):
        check_site(name)
