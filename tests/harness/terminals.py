"""Runs commands of the documentation, as readers do who copy them into terminals."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

from ternhost.reach.broker.mosquitto import free_port

ENVIRONMENT = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
SECONDS_TO_START = 100


def run(program, folder, seconds, **options):
    """Run a program of a page; return its exit code and the end of its outputs."""
    ended = subprocess.run(
        program,
        cwd=folder,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=seconds,
        **options,
    )
    return ended.returncode, ended.stdout[-3000:] + ended.stderr[-3000:]


class Terminals:
    """Programs of a page that stay, each as in a terminal of its own, in a folder."""

    def __init__(self, folder):
        self.folder = folder
        self.programs = []
        self._brokers = set()  # the directories of brokers that have a port of their own

    def start(self, code, expected):
        """Start a program in the background, wait until it has printed the expected text, and
        return it.
        """
        broker = re.match(r"tern broker run (\S+)", code)
        if broker and broker[1] not in self._brokers:  # at a port that nobody else uses
            self._brokers.add(broker[1])
            config = ["tern", "broker", "config", broker[1], "--port", str(free_port())]
            ended, said = run(config, self.folder, 60)
            assert ended == 0, said
        output = self.folder / f"terminal{len(self.programs)}.txt"
        with output.open("wb") as file:
            program = subprocess.Popen(
                ["sh", "-ec", code],
                cwd=self.folder,
                env=ENVIRONMENT,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.programs.append(program)
        until = time.monotonic() + SECONDS_TO_START
        while expected not in output.read_text():
            has_time = program.poll() is None and time.monotonic() < until
            assert has_time, f"{code}\n{output.read_text()}"
            time.sleep(0.1)
        return program

    def stop(self, program, number=signal.SIGINT):
        """Send a signal to a program that `start` has returned, and wait for its end."""
        os.killpg(program.pid, number)
        program.wait(60)

    def end(self):
        """End the programs, the last one first, as Ctrl-C does."""
        for program in reversed(self.programs):
            if program.poll() is None:
                os.killpg(program.pid, signal.SIGINT)
                program.wait(30)
