"""What the commands for boards do, for programs of your own.

    from terntools.boards import api

    up = api.up("a0", api.MemberOptions(7, "flights", store="fleet.sqlite"))
    print(up, up.hello)

`up`, `update` and `records` do what `tern board up`, `update` and `records` do, ask nothing, and
print nothing. Each raises TernError.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ternhost.api import arguments
from ternhost.datasets import own
from ternhost.errors import UsageError
from ternhost.provision import keys
from terntools.boards import device_records, member_options, program, update_command
from terntools.boards import up as board_up
from terntools.boards.device_records import RecordsDone
from terntools.boards.firmware import read_firmware
from terntools.boards.flash_options import FlashOptions
from terntools.boards.member_options import MemberOptions
from terntools.boards.records import BoardRecords
from terntools.boards.up import Up
from terntools.boards.update_command import BoardUpdate, Updated, UpdateOptions

__all__ = [
    "BoardRecords",
    "BoardUpdate",
    "MemberOptions",
    "RecordsDone",
    "Up",
    "UpdateOptions",
    "Updated",
    "records",
    "up",
    "update",
]


def up(
    board: str,
    options: MemberOptions,
    *,
    firmware: str | Path | None = None,
    volume: str | Path | None = None,
    main: str | Path | None = None,
    schema: str | Path | None = None,
) -> Up:
    """Make a board a member of a fleet: flash, deploy and provision it, as far as necessary.

    - board: its name, such as "a0", "auto", a path or a socket:// URL
    - options: what it is to become
    - firmware: a file with MicroPython, for a board that has to be flashed
    - volume: the folder of the drive of a Pico's boot loader; None: it is looked for
    - main: the program that becomes main.py; None: tern's own, which only serves the host
    - schema: that of the data, by which the program makes its records

    Raises TernError.
    """
    name = arguments.text(board, "board")
    if not isinstance(options, MemberOptions):
        raise UsageError("options must be MemberOptions, such as MemberOptions(7, 'flights')")
    member = options.member
    if main is not None:
        main = arguments.path(main, "main")
    if schema is not None:
        schema = arguments.path(schema, "schema")
    member = replace(member, program=program.of_options(main, schema))
    store = member_options.store_of(options, member)
    image = None
    if firmware is not None:
        image = read_firmware(arguments.path(firmware, "firmware"))
    if volume is not None:
        volume = arguments.path(volume, "volume")
    flash_options = FlashOptions(volume=volume)
    return board_up.bring_up(name, member, store, image, flash_options)


def update(devices: Sequence[int] | None, options: UpdateOptions) -> Updated:
    """Bring a program to boards in the field, which start it, or roll it back if it fails.

    - devices: their ids; None: every board that is connected and does not sleep
    - options: the program, and how the boards are reached

    Raises TernError if no board can be updated; what became of each says the result.
    """
    if not isinstance(options, UpdateOptions):
        raise UsageError("options must be UpdateOptions, such as UpdateOptions('product.py')")
    if devices is None:
        return update_command.update_boards((), options)
    if not isinstance(devices, Sequence) or isinstance(devices, str | bytes) or not devices:
        raise UsageError("devices must be a list of ids, or None for all")
    ids = keys.parse_ids([str(arguments.whole(device, "devices")) for device in devices])
    return update_command.update_boards(ids, options)


def records(
    board: str,
    *,
    add: npt.NDArray[Any] | str | Path | None = None,
    clear: bool = False,
    output: str | Path | None = None,
) -> RecordsDone:
    """Read the records of a board; then remove those that its program collected, and add others.

    - board: its name, such as "a0"
    - add: records to put there: the path of a table, or an array with a row of integers for each,
      its features and then its label, in units of 1/16384
    - clear: remove what the program has collected, after it was read
    - output: a CSV file that gets the records that were read, before any are removed

    Raises TernError.
    """
    name = arguments.text(board, "board")
    if not isinstance(clear, bool):
        raise UsageError("clear must be True or False")
    rows = None
    if add is not None:
        rows = _rows_of(add)
    place = None
    if output is not None:
        place = Path(arguments.path(output, "output"))
    return device_records.handle(name, rows, clear, place)


def _rows_of(records: npt.NDArray[Any] | str | Path) -> npt.NDArray[np.int16]:
    """Return records to put on a board as integers, the label last. Raises UsageError.

    records: an array, or the path of a table, as of `records`.
    """
    if isinstance(records, np.ndarray):
        is_table = records.ndim == 2 and np.issubdtype(records.dtype, np.integer)
        if not is_table or np.abs(records.astype(np.int64)).max(initial=0) >= 1 << 15:
            raise UsageError("add must have two dimensions, and integers of 16 bits")
        return records.astype(np.int16)
    path = arguments.path(records, "add")
    if not Path(path).is_file():
        raise UsageError(f"there is no file {path}", "give the path of a table")
    return own.load(path).records()
