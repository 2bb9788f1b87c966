"""The commands that talk to boards, as processes, over ptys with real MicroPython."""

import json
import signal
import subprocess

import pytest
import rig
import warm


def tern(*arguments, cwd, code=0):
    done = rig.tern(*arguments, cwd=cwd)
    assert done.code == code, done.err
    return done


class Emulate:
    """`tern fleet emulate` while the context is open."""

    def __init__(self, *arguments, cwd):
        command = [*warm.TERN, "fleet", "emulate", *map(str, arguments), "--json"]
        self._process = warm.Popen(command, stdout=subprocess.PIPE, text=True, cwd=cwd)

    def __enter__(self):
        found = json.loads(self._process.stdout.readline())
        self.ports, self.store = found["ports"], found["store"]
        self.fleet = "port:" + ",".join(self.ports)
        return self

    def __exit__(self, *_):
        self._process.send_signal(signal.SIGINT)
        out, _ = self._process.communicate(timeout=120)
        assert (self._process.returncode, out) == (0, "")


def test_a_fleet_that_stays_and_is_trained_on(tmp_path, micropython):
    arguments = (2, "--clients", 80, "--budget", 4, "--largest", 2, "--dir", tmp_path / "fleet")
    train = ("--reports", 80, "--group", 40, "--no-report", "--json")
    with Emulate(*arguments, cwd=tmp_path) as boards:
        (first, second) = json.loads(
            tern("device", "info", "--fleet", boards.fleet, "--json", cwd=tmp_path).out
        )["boards"]
        assert (first["first_device"], first["clients"], second["first_device"]) == (1, 40, 41)
        assert (first["epsilon_left"], first["port"]) == (4, boards.ports[0])
        assert first["entropy"] == "CTR_DRBG AES-256"
        train = ("train", "--fleet", boards.fleet, "--store", boards.store, *train)
        done = tern(*train, cwd=tmp_path)
        result = json.loads(done.out)
        assert (result["reports"], result["epsilon_spent"]) == (80, [])
        with_card = tern(*train, "--epsilon", 3, cwd=tmp_path, code=4)
        assert "more than the epsilon of 2 that they allow" in with_card.err
    with Emulate(*arguments, cwd=tmp_path) as boards:  # the same boards, and what they have spent
        left = json.loads(tern("device", "info", "--fleet", boards.fleet, "--json", cwd=tmp_path).out)
        assert [round(board["epsilon_left"], 3) for board in left["boards"]] == [2, 2]


def test_a_round_that_nobody_can_answer_does_not_end_a_run(tmp_path, micropython):
    train = ("--reports", 6, "--group", 1, "--no-report", "--json")
    with Emulate(1, "--clients", 6, "--dir", tmp_path / "fleet", cwd=tmp_path) as boards:
        (damaged,) = tmp_path.glob("fleet/**/ledger/00000003")
        damaged.write_bytes(damaged.read_bytes()[:-1])
        done = tern("train", "--fleet", boards.fleet, "--store", boards.store, *train, cwd=tmp_path, code=4)
    assert "1 of 1 devices refuse: their ledger cannot be read or written" in done.err
    assert "1 of 6 reports that were asked for are missing: 1 were refused" in done.err
    result = json.loads(done.out)
    assert (result["reports"], result["rounds"]) == (5, 6)


def test_device_commands_of_an_emulated_board(tmp_path, micropython):
    pinged = json.loads(
        tern("device", "ping", "--fleet", "emulated:1", "--count", 3, "--json", cwd=tmp_path).out
    )
    assert pinged["boards"][0]["ms"]["n"] == 3
    told = tern("device", "info", "--fleet", "emulated:1", cwd=tmp_path).out
    assert "; tern " in told.splitlines()[0]
    assert told.splitlines()[1].startswith("  device 1; epsilon left 1; heap free ")


@pytest.mark.parametrize(
    ("action", "fleet", "code", "message"),
    [
        ("info", "port:/dev/nothing", 3, "there is no port"),
        ("ping", "port:/dev/null", 3, "is not a serial port"),
        ("ping", "port:gopher://x", 2, "is not a port"),
        ("info", "nobody", 2, "there is no fleet"),
    ],
)
def test_boards_that_are_not_there(tmp_path, action, fleet, code, message):
    done = tern("device", action, "--fleet", fleet, cwd=tmp_path, code=code)
    assert done.out == ""
    assert message in done.err
    assert "Traceback" not in done.err


def test_the_demo_in_small(tmp_path, micropython):
    done = tern("demo", "--boards", 2, "--reports", 1000, "--json", cwd=tmp_path)
    result = json.loads(done.out)
    assert result["accuracy"] > 0.8
    directory = tmp_path / result["directory"]
    assert {"report.html", "result.json", "auc.png", "card.png", "epsilon.png", "bytes.png"} <= {
        path.name for path in directory.iterdir()
    }
    page = (directory / "report.html").read_text()
    assert 'src="http' not in page
    assert "data:image" in page
