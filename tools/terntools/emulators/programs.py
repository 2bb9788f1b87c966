"""Emulated boards that run a user's program beside tern, on a broker of this machine: for examples
and tests.

`micropython PROGRAM DIRECTORY SEED ...` runs with a Pico's heap and keeps its state as JSON in its
directory.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import numpy as np

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

_PATIENCE = 300  # seconds


class ProgramFleet:
    """A broker, and boards that run `program` with `arguments`, from entering the context until
    leaving it.
    """

    def __init__(
        self,
        folder: Path,
        program: Path,
        boards: int,
        features: int,
        policy: Policy,
        *arguments: object,
        tells: str,
        unit: int = 0,
        **network: Any,
    ) -> None:
        """Prepare a fleet of `boards` boards in a folder, which run a user's program.

        features: of a record, zeros at first. arguments: of the program. tells: the name of the
        file in which the program keeps its state. unit: records of a run that is protected; 0 for
        the device. network: options of `attach.write_network`.
        """
        self.broker = folder / "broker"
        self.directories = board_directories(folder, boards)
        self._folder = folder
        self._program = program.resolve()
        self._d = features
        self._policy = policy
        self._arguments = [str(argument) for argument in arguments]
        self._tells = tells
        self._unit = unit
        self._network = network
        self._stack = ExitStack()
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        """Start the broker if necessary, give the boards keys, and start them."""
        with self._stack:
            self._stack.enter_context(ensure_running(self.broker, warn))
            store_path = Access.load(host_file(self.broker)).store
            assert store_path is not None
            rows = np.zeros((len(self.directories), self._d + 1), np.int16)
            with Store(store_path, beside=True) as store:
                provision_fleet(store, self.directories, rows, self._policy, unit=self._unit)
            configuration.configure(self.broker)
            reload(self.broker)
            attach.attach(self.directories, self.broker, store_path, **self._network)
            for seed, directory in enumerate(self.directories, 1):
                close_to_others(directory)
                self._start(directory, seed)
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start(self, directory: Path, seed: int) -> None:
        """Start the program of a board. seed: of its random numbers."""
        command = device_command(
            find_micropython(), self._program, directory, str(seed), *self._arguments
        )
        module_path = os.pathsep.join([str(FIRMWARE), str(self._program.parent), ".frozen"])
        with open(directory / LOG_NAME, "ab", opener=private) as log:
            process = subprocess.Popen(
                command,
                cwd=directory,
                env={**os.environ, "MICROPYPATH": module_path},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the host
            )
        self._processes.append(process)
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)

    def states(self) -> list[dict[str, Any]]:
        """Return the last state of each board.

        It is empty while there is none, or while it is being written.
        """
        states: list[dict[str, Any]] = []
        for directory in self.directories:
            try:
                states.append(json.loads((directory / self._tells).read_text()))
            except (OSError, ValueError):
                states.append({})
        return states

    def wait_until(self, holds: Callable[[dict[str, Any]], bool]) -> list[dict[str, Any]]:
        """Wait until `holds` is true of each board's state, and return all states.

        Raises DeviceError if a program ends, or if it takes too long.
        """
        give_up_at = time.monotonic() + _PATIENCE
        while True:
            states = self.states()
            if all(state and holds(state) for state in states):
                return states
            for directory, process in zip(self.directories, self._processes, strict=True):
                if process.poll() is not None:
                    raise DeviceError(
                        "a board's program has ended", hint=f"see {directory / LOG_NAME}"
                    )
            if time.monotonic() > give_up_at:
                hint = f"see {LOG_NAME} in {self._folder}"
                raise DeviceError(f"not all boards got there within {_PATIENCE} s", hint)
            time.sleep(0.2)

    def tern(self, command: str, options: str) -> dict[str, Any]:
        """Run `tern train` or `tern serve` with these options, and return its result.

        Raises DeviceError if it fails.
        """
        arguments = [
            sys.executable,
            "-m",
            "ternhost",
            command,
            "--fleet",
            f"mqtt:{self.broker}",
            *options.split(),
            "--no-report",
            "--json",
        ]
        process = subprocess.run(arguments, cwd=self._folder, capture_output=True, text=True)
        if process.returncode:
            raise DeviceError(f"tern {command} failed: {process.stdout}{process.stderr}")
        result: dict[str, Any] = json.loads(process.stdout.splitlines()[-1])
        return result
