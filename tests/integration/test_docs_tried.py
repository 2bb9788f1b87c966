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
    assert {path.stem for path in PAGES} >= {"tutorial", "runs", "extend"}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_the_blocks_end_with_their_exit_codes(page, tmp_path):
    """A comment above a block of code in the documentation says what to do with it: write it to a
    file, or run it, and with which exit code it ends. All blocks of a page run in one folder, one
    after the other, so that what readers copy works.
    """
    for kind, argument, language, code in BLOCK.findall(page.read_text()):
        if kind == "file":
            (tmp_path / argument).write_text(code)
            continue
        for size in ("2000 ", "20000 ", "300000 "):  # of fleets: smaller ones take less time
            code = code.replace(size, "500 ")
        program = ["sh", "-ec", code] if language == "sh" else [sys.executable, "-c", code]
        ended, said = run(program, tmp_path, 300)
        assert ended == (int(argument) if argument.isdecimal() else 0), code + said


# README, read from top to bottom by somebody with one machine and no board.

SITES = """cd my-sites
tern gateway run south --fleet simulated:1000 --ids 1001-2000 &
tern gateway run north --fleet simulated:1000"""
# (what README says, a regular expression, and what this test does instead): smaller numbers, and
# what other tests do.
INSTEAD = (
    (r"^make .*", ":"),  # the demo: test_demo.py
    (r"^pip install -e .*", ":"),  # by the set-up of the tests
    (r".*\ba0\b.*", ":"),  # a board: test_up.py, test_deploy.py, test_device_records.py
    (r"^tern (plan|bench latency) .*", r"tern \1 --help"),  # test_planning.py, tests/bench
    (r"--fleet emulated:8 --reports 20000", "--fleet emulated:2 --reports 500"),
    (r"--fleet simulated:1000000 --reports 1000000", "--fleet simulated:5000 --reports 5000"),
    (r"--fleet simulated:300000", "--fleet simulated:5000"),
    (r"--fleet simulated:20000$", "--fleet simulated:5000"),
    (r"--reports 500 --group 100", "--reports 100 --group 50"),
    (r"--clients 500", "--clients 50"),
    (r"--rounds 20 --toward-server 1", "--rounds 2 --toward-server 1"),
    # Pages are drawn by unit tests; the run named "first" has one here.
    (r"^(tern (?:train|collect|infer) (?!.*\bfirst\b).*)", r"\1 --no-report"),
    (r"\bgateways\.example\.org\b", "localhost"),
    (r"^tern gateway run north --fleet \S+", SITES),
)
# Commands that go on until Ctrl-C, and what they say once the next line may follow. After None they
# end in a while.
UNTIL_CTRL_C = {
    "tern broker run": "the broker listens",
    "tern fleet emulate": "on the broker of my-broker: 2 boards",
    "tern gateway server": "the NATS server runs",
    "cd my-sites": "connected",
    "tern serve": None,
    "tern watch": None,
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


def add_lines(script, lines):
    """Add the shell commands that run these lines of a block of README."""
    for line in lines.replace("\\\n", " ").splitlines():
        command, _, comment = line.partition(" #")
        for said, instead in INSTEAD:
            command = re.sub(said, instead, command.strip())
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
def test_readme_works_from_top_to_bottom_in_one_shell(tmp_path, micropython):
    """All commands of README become one shell script, with smaller numbers (INSTEAD): no line
    fails, and none spends what a later one needs, such as a budget or a name.
    """
    pytest.importorskip("terngateway", reason="a part of README is about gateways")
    from harness.running_gateways import with_nats

    with_nats()
    (tmp_path / ".venv").symlink_to(sys.prefix)
    (tmp_path / "examples").symlink_to(ROOT / "examples")

    script = [AROUND]
    readme = (ROOT / "README.md").read_text()
    for language, code in re.findall(r"^```(sh|python)\n(.*?)^```", readme, re.M | re.S):
        if language == "sh":
            add_lines(script, code)
        elif code.startswith("import ternhost"):  # the other is a part of examples/minimal.py
            script.append(f"python - <<'END'\n{code}END")
    (tmp_path / "readme.sh").write_text("\n".join(script) + "\n")

    # In a session of its own: its end ends all that it began.
    ended, said = run(["sh", "readme.sh"], tmp_path, 2700, start_new_session=True)
    assert ended == 0, said
