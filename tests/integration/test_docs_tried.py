"""Runs the marked blocks of the documentation, in the order of each page.

`<!-- tried -->` before a block: run it; `<!-- tried: 4 -->`: it must end with this exit code; `<!--
file: mine.py -->`: write it to this file for the next blocks.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from spec.files import uf2_file

from ternhost import cache
from terntools.emulators.pico import FIRMWARE

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"<!-- (tried|file)(?:: ([\w.]+))? -->\n```(\w+)\n(.*?)```", re.DOTALL)
MARKDOWN = sorted((*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")))
PAGES = [path for path in MARKDOWN if BLOCK.search(path.read_text())]


def run(program, folder, seconds, **options):
    """Run a program of a page; return its exit code and the end of its outputs."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    ended = subprocess.run(
        program,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=seconds,
        **options,
    )
    return ended.returncode, ended.stdout[-3000:] + ended.stderr[-3000:]


def test_there_are_pages_to_try():
    assert {path.stem for path in PAGES} >= {"tutorial", "runs", "CONTRIBUTING"}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_the_blocks_end_with_their_exit_codes(page, tmp_path):
    for kind, argument, language, code in BLOCK.findall(page.read_text()):
        if kind == "file":
            (tmp_path / argument).write_text(code)
            continue
        code = code.replace("--reports 2000 ", "--reports 200 ")  # emulated boards take long
        program = ["sh", "-ec", code] if language == "sh" else [sys.executable, "-c", code]
        ended, said = run(program, tmp_path, 300)
        assert ended == (int(argument) if argument.isdecimal() else 0), code + said


# README, read from top to bottom by somebody with one machine and no board.

# README's numbers take ten minutes. Without --exhaustive, these show the same in fewer rounds.
SMALLER = (
    ("--fleet emulated:8 --reports 20000", "--fleet emulated:2 --reports 500"),
    ("--fleet simulated:1000000 --reports 1000000", "--fleet simulated:10000 --reports 10000"),
    ("--fleet simulated:300000", "--fleet simulated:10000"),
    ("--reports 500 --group 100", "--reports 100 --group 50"),
    ("--clients 500", "--clients 50"),
    # tests/unit/test_planning.py runs it.
    ("tern plan --years 2 --every 1h --life 10 --delta 1e-6", "tern plan --help"),
    (" --runs 2", " --runs 2 --reports 500,1000"),
    ("tern bench latency --fleet emulated:1", "tern bench latency --help"),  # by tests/bench
    # Pages are drawn by unit tests; the run named "first" has one here.
    (r"^(tern (?:train|collect|infer) (?!.*\bfirst\b).*)", r"\1 --no-report"),
    ("--rounds 20 --toward-server 1", "--rounds 2 --toward-server 1"),
    # A board that takes minutes: test_up.py, test_deployed.py and test_device_records.py have one.
    (r".*cat a0\.port.*", ":"),
)
PORT = "$(cat a0.port)"
SITES = """cd my-sites
tern gateway run south --fleet simulated:1000 --first-id 1001 &
tern gateway run north --fleet simulated:1000"""
# (what README says, what this test does instead): only a machine's place, or something that takes
# minutes.
INSTEAD = (
    (r"^make demo\b.*", ":"),  # the run named "first" is as long, on the same flights and boards
    (r"^make test\b.*", ":"),  # these tests
    (r"^pip install -e .*", ":"),  # by the set-up of the tests
    (r"^(tern plan --dataset .*)", r"\1 --runs 2"),  # by default a plan takes minutes
    (
        r"--firmware \S+",
        "--firmware a0.uf2 --volume a0.volume --yes",
    ),  # an emulated Pico has a folder for its volume
    (r"\ba0\b(?!\.)", PORT),
    (r"\bgateways\.example\.org\b", "localhost"),
    (r"^tern gateway run north --fleet \S+", SITES),
    # The emulated Pico has no accelerometer, which is said if the program comes so far in three
    # seconds.
    (r"^(tern deploy .*minimal\.py)", r"\1 2> minimal.log || grep -q ETIMEDOUT minimal.log"),
)
# Commands that go on until Ctrl-C, and what they say once the next line may follow. After None they
# end in a while.
UNTIL_CTRL_C = {
    "tern emulator run": "socket:",
    "tern broker run": "the broker listens",
    "tern fleet emulate": "on the broker of my-broker: 2 boards",
    "tern gateway server": "the NATS server runs",
    "cd my-sites": "connected",
    "tern serve": None,
    "tern watch": None,
    "tern monitor": None,
}
AROUND = """
set -e
trap 'trap "" TERM; kill 0; wait' EXIT
await() {
    for i in $(seq 300); do grep -q "$2" "$1" && return; sleep 0.2; done
    echo "$1 does not say: $2"; cat "$1"; exit 1
}
for_a_while() { rc=0; timeout -s INT 5 "$@" || rc=$?; test $rc = 124; }
"""


def add_lines(script, lines, smaller):
    """Add the shell commands that run these lines of a block of README.

    smaller: (what a command says, a regular expression, and what it is to say).
    """
    for line in lines.replace("\\\n", " ").splitlines():
        command, _, comment = line.partition(" #")
        for said, instead in INSTEAD:
            command = re.sub(said, instead, command.strip())
        for said, instead in smaller:
            command = re.sub(said, instead, command)
        if not command:
            continue
        script.append(f"echo '$ {line}'")
        awaited = [text for begin, text in UNTIL_CTRL_C.items() if command.startswith(begin)]
        if awaited == [None]:
            script.append(f"for_a_while {command}")
        elif awaited:
            log = f"{len(script)}.log"
            script += [f"({command}) > {log} 2>&1 &", f"await {log} '{awaited[0]}'"]
        else:
            code = re.match(r" *exit (\d)", comment)
            script.append(f"rc=0; {command} || rc=$?; test $rc = {code[1] if code else 0}")


@pytest.mark.slow
def test_readme_works_from_top_to_bottom_in_one_shell(tmp_path, micropython, pytestconfig):
    """No line fails, and none spends what a later one needs."""
    pytest.importorskip("terngateway", reason="a part of README is about gateways")
    from harness.running_gateways import with_nats

    with_nats()
    (tmp_path / ".venv").symlink_to(sys.prefix)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    script, smaller = [AROUND], SMALLER
    if pytestconfig.getoption("exhaustive"):
        smaller = ()
        image = cache.find_entry(FIRMWARE) / "firmware.bin"
        (tmp_path / "a0.uf2").write_bytes(uf2_file(image.read_bytes()))
        add_lines(script, "tern emulator run --flash a0.bin --blank --volume a0.volume", smaller)
        script.append("head -1 2.log > a0.port")
    readme = (ROOT / "README.md").read_text()
    for language, code in re.findall(r"^```(sh|python)\n(.*?)^```", readme, re.M | re.S):
        if language == "sh":
            add_lines(script, code, smaller)
        elif code.startswith("import ternhost"):  # the other is a part of examples/minimal.py
            script.append(f"python - <<'END'\n{code}END")
    (tmp_path / "readme.sh").write_text("\n".join(script) + "\n")
    # In a session of its own: its end ends all that it began.
    ended, said = run(["sh", "readme.sh"], tmp_path, 2700, start_new_session=True)
    assert ended == 0, said
