"""Emulated boards that run a user's program, on a broker of this machine: for examples and tests.

Each board is a process `micropython PROGRAM DIRECTORY SEED ...` with as much heap as a Pico has.
The program uses tern to take part in training, and keeps its own state as JSON in its directory.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from ternhost import child_processes
from ternhost.command import warn
from ternhost.errors import DeviceError
from ternhost.files import close_to_others, private
from ternhost.privacy.accounting import Policy
from ternhost.provision.boards import board_directories, provision_fleet
from ternhost.reach.broker import configuration
from ternhost.reach.broker.access import Access, host_file
from ternhost.reach.broker.mosquitto import ensure_running, reload
from ternhost.store.store import Store
from terntools.boards import attach
from terntools.emulators.micropython import device_command, find_micropython
from terntools.emulators.unix_fleet import FIRMWARE, LOG_NAME

_PATIENCE = 300  # seconds that wait_until() waits


@dataclass(frozen=True)
class UserProgram:
    """A MicroPython program that boards run.

    path: its file. state_file: the name of the file, in a board's directory, in which the program
    keeps its state as JSON. arguments: of the program, after the board's directory and seed.
    """

    path: Path
    state_file: str
    arguments: Sequence[object] = ()


class ProgramFleet:
    """A broker and boards that run a user's program, from entering the context until leaving it."""

    def __init__(
        self,
        folder: Path,
        program: UserProgram,
        boards: int,
        features: int,
        policy: Policy,
        unit: int = 0,
        **network: Any,
    ) -> None:
        """Prepare a fleet; nothing is started or written yet.

        folder: for the files of the broker and of the boards. boards: how many there are. features:
        of a record. policy: the limits of each board's privacy budget. unit: how many consecutive
        records of a board a guarantee protects; 0: all records of the board. network: options of
        `attach.write_network`, such as wake_s.
        """
        self.broker = folder / "broker"
        self.directories = board_directories(folder, boards)
        self._folder = folder
        self._program = program
        self._features = features
        self._policy = policy
        self._unit = unit
        self._network = network
        self._stack = ExitStack()
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        """Start the broker if necessary, give the boards keys, and start them."""
        with self._stack:  # ends what has started, if something fails
            self._stack.enter_context(ensure_running(self.broker, warn))
            self._provision()
            for seed, directory in enumerate(self.directories, start=1):
                close_to_others(directory)
                self._start(directory, seed)
            self._stack = self._stack.pop_all()  # nothing failed: it ends with the context
        return self

    def _provision(self) -> None:
        """Give each board keys, a record of zeros and the address of the broker.

        The broker gets the keys, too.
        """
        store_path = Access.load(host_file(self.broker)).store
        assert store_path is not None  # a broker that was just made has one
        rows = np.zeros((len(self.directories), self._features + 1), np.int16)
        with Store(store_path, beside=True) as store:
            provision_fleet(store, self.directories, rows, self._policy, unit=self._unit)
        configuration.configure(self.broker)
        reload(self.broker)
        attach.attach(self.directories, self.broker, store_path, **self._network)

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start(self, directory: Path, seed: int) -> None:
        """Start the program on the board of a directory. seed: of the program's random numbers."""
        program = self._program.path.resolve()
        arguments = [str(argument) for argument in self._program.arguments]
        command = device_command(find_micropython(), program, directory, str(seed), *arguments)
        # Where MicroPython looks for modules: the device library, beside the program, what is built in.
        module_path = os.pathsep.join([str(FIRMWARE), str(program.parent), ".frozen"])
        with open(directory / LOG_NAME, "ab", opener=private) as log:
            process = child_processes.start(
                command,
                cwd=directory,
                env={**os.environ, "MICROPYPATH": module_path},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the host
            )
        self._processes.append(process)
        # Callbacks run in the reverse order: kill, then wait.
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)

    def states(self) -> list[dict[str, Any]]:
        """Return the last state of each board's program.

        A state is empty while there is none, or while it is being written.
        """
        states: list[dict[str, Any]] = []
        for directory in self.directories:
            try:
                text = (directory / self._program.state_file).read_text()
                states.append(json.loads(text))
            except (OSError, ValueError):
                states.append({})
        return states

    def wait_until(self, holds: Callable[[dict[str, Any]], bool]) -> list[dict[str, Any]]:
        """Wait until `holds` is true of the state of each board's program; return the states.

        Raises DeviceError if a program ends, or if it takes longer than _PATIENCE.
        """
        give_up_at = time.monotonic() + _PATIENCE
        while True:
            states = self.states()
            if all(state and holds(state) for state in states):
                return states
            self._require_running()
            if time.monotonic() > give_up_at:
                hint = f"see {LOG_NAME} in {self._folder}"
                raise DeviceError(f"not all boards were ready within {_PATIENCE} s", hint)
            time.sleep(0.2)

    def _require_running(self) -> None:
        """Raise DeviceError if the program of a board has ended."""
        for directory, process in zip(self.directories, self._processes, strict=True):
            if process.poll() is not None:
                hint = f"see {directory / LOG_NAME}"
                raise DeviceError("a board's program has ended", hint=hint)

    def tern(self, command: str, options: str) -> dict[str, Any]:
        """Run `tern train` or `tern serve` on this fleet, and return its result.

        command: "train" or "serve". options: of the command, separated by spaces. Raises DeviceError
        if it fails.
        """
        arguments = [sys.executable, "-m", "ternhost", command, "--fleet", f"mqtt:{self.broker}"]
        arguments += [*options.split(), "--no-report", "--json"]
        process = subprocess.run(arguments, cwd=self._folder, capture_output=True, text=True)
        if process.returncode != 0:
            raise DeviceError(f"tern {command} failed: {process.stdout}{process.stderr}")
        last_line = process.stdout.splitlines()[-1]
        result: dict[str, Any] = json.loads(last_line)
        return result
