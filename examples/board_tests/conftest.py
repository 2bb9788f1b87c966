"""What the tests share: the console of a board that has tern's library and the program."""

from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("vibration.py")


@pytest.fixture(scope="module")
def repl(dut):
    dut.deploy("features")  # with the module that the program imports
    with dut.repl() as repl:
        repl.files.write(f"/{PROGRAM.name}", PROGRAM.read_bytes())
        repl.run("import vibration")
        yield repl
