"""Cuts the power of the emulated device at every write of a ledger, records, a model and an update.

Functions of tests/device enumerate the cuts, and check what must hold after each.
"""

import subprocess
import tempfile
from pathlib import Path

from terntools.emulators.micropython import device_command, find_micropython
from terntools.emulators.unix_fleet import FIRMWARE

_TESTS = Path(__file__).parents[1]
_CUTS = {
    "steps of a round, in pairs": "test_ledger.cut_at_every_step_of_a_round()",
    "writes to LittleFS": "test_ledger.cut_at_every_write(False)",
    "writes to LittleFS, in place": "test_ledger.cut_at_every_write(True)",
    "writes to LittleFS between two reports": "test_between_reports.cut_between_two_reports()",
    "writes of an update": "test_update_power.cut_at_every_write()",
    "writes of a second update": "test_update_power.cut_at_every_write(True)",
    "steps of rounds paid ahead": "test_reserve.cut_at_every_step_of_several_rounds()",
    "writes of the model to LittleFS": "test_model.cut_at_every_write_of_models()",
    "a recorder's writes to LittleFS, and a ledger's between them": "test_recorder.cut_at_every_write()",
}


def cut_everywhere():
    """(number of cuts by kind, end of the error output by kind)."""
    cuts, errors = {}, {}
    for kind, call in _CUTS.items():
        program = f"import {call.partition('.')[0]}\nprint({call})"
        with tempfile.TemporaryDirectory(prefix="tern-power-") as directory:
            command = device_command(find_micropython(), "-c", program, heap="1M")
            env = {
                "MICROPYPATH": f"{FIRMWARE}:{_TESTS}/device:{_TESTS}"
            }  # tests beside the library
            done = subprocess.run(
                command, env=env, cwd=directory, capture_output=True, text=True, timeout=600
            )
        if done.returncode:
            errors[kind] = done.stderr[-2000:]
        else:
            cuts[kind] = int(done.stdout)
    return cuts, errors
