"""`tern board records`: the records on a board, for its owner at the desk."""

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ternhost.command import add_command, add_option, print_result
from ternhost.datasets import own
from ternhost.errors import OK, DeviceError, UsageError
from ternhost.files import storage_errors, write_file
from ternhost.provision.boards import Rows
from ternhost.reach.patience import MOST_WAIT
from ternhost.reach.ports import names
from ternhost.text import counted
from terntools.boards import devices, file_changes, records, starting
from terntools.boards.files import FileProgress
from terntools.boards.repl import Repl
from terntools.boards.slot import slot_of
from terntools.terminal import Bar

_ABOUT_FILES = """\
A row of a file is a record: its features in [-1, 1], then its label. Labels are class numbers if
the last column is named class or if a label is 2 or more."""


def add_parser(subparsers: Any) -> None:
    """Add `tern board records`."""
    summary = (
        "read the records on a board as CSV, remove or add records; its program is interrupted and "
        "restarted"
    )
    example = """tern board records a0 --output mine.csv
        tern board records a0 --clear --data mine.csv"""
    as_json = "print one JSON object, and no records"
    parser = add_command(subparsers, "records", summary, example, _run, as_json)
    parser.epilog = f"{_ABOUT_FILES}\n\n{parser.epilog}"
    devices.add_board(parser)
    add_option(parser, "--output FILE", shown="standard output")
    add_option(
        parser,
        "--clear",
        "after reading, remove the records that the board's program has collected",
    )
    add_option(parser, "--data FILE.csv", "the records: a CSV file to add to those on the board")


@dataclass(frozen=True)
class RecordsDone:
    """The records that were on a board, and what was done to them.

    - port: the board's; before: the records that it had
    - cleared: whether those that its program had collected were removed
    - added: how many records were put there
    """

    port: str
    before: records.BoardRecords
    cleared: bool
    added: int

    @property
    def count(self) -> int:
        """The number of records that the board had."""
        return 0 if self.before.rows is None else len(self.before.rows)

    @property
    def features(self) -> int | None:
        """The number of features of a record, the constant one included; None: no records."""
        if self.before.rows is None:
            return None
        return int(self.before.rows.shape[1]) - 1  # the last column is the label

    def save(self, path: Path) -> None:
        """Write the records that the board had to a CSV file that only the user can read.

        Raises StorageError.
        """
        _write(path, self.before.rows)

    def as_json(self, output: str | None) -> dict[str, Any]:
        """Return what `tern board records --json` prints. output: where they were written."""
        return {
            "port": self.port,
            "source": self.before.source,
            "records": self.count,
            "features": self.features,
            "output": output,
            "cleared": self.cleared,
            "filled": self.added,
        }


def handle(
    board: str,
    rows: Rows | None = None,
    clear: bool = False,
    output: Path | None = None,
    progress: FileProgress | None = None,
) -> RecordsDone:
    """Read the records of a board; then remove those that its program collected, and add others.

    The board's program is stopped meanwhile, and starts again.

    - board: its name, as of `ternhost.reach.ports.names`
    - rows: records to add, as integers: a row for each, its features and then its label
    - clear: remove what the program has collected, after it was read; what is damaged, too
    - output: a CSV file that gets the records that were read, before any are removed
    - progress: called with the bytes that are read or written so far, and those in all

    Raises TernError.
    """
    if rows is not None:
        records.check_fits(rows)  # raises if a device cannot hold them
    port = names.resolve(board)
    answered_before = False
    if rows is not None:
        # A program may not start with the new records. Whether it does can only be checked if it
        # answers now; it may be starting still, so it gets its time.
        answered_before = devices.identify(port, starting.HELLO_WAIT, MOST_WAIT).tern is not None

    with records.opened(port) as repl:
        only_removes = clear and output is None
        before = _read(repl, only_removes, progress)
        if output is not None:
            _write(output, before.rows)
        if rows is not None:
            _check_width(repl, rows, before)
        if clear:
            repl.files.remove_tree(records.FOLDER)
        if rows is not None:
            last_segment = 0 if clear else before.last
            files = records.segments(rows, last_segment)
            file_changes.apply(repl, file_changes.Changes(files, ()), progress)
        slot = slot_of(repl)
    if answered_before and rows is not None:
        _require_answer(port, slot, rows)
    return RecordsDone(port, before, clear, added=0 if rows is None else len(rows))


def _run(args: argparse.Namespace) -> int:
    """Read the records of a board; then remove or add records, as the options say.

    Prints the records, unless an option says what else to do with them.
    """
    new_rows = None
    if args.data:
        new_rows = own.load(args.data).records()
    output = Path(args.output) if args.output else None
    with Bar("records") as bar:
        done = handle(args.board, new_rows, args.clear, output, bar.update)
    result = done.as_json(args.output)
    only_shown = not (args.output or args.clear or args.data or args.json)
    if only_shown and done.before.rows is not None:
        sys.stdout.write(records.csv_of(done.before.rows))
        print(_summary(result), file=sys.stderr)
    else:
        print_result(result, _summary(result), args.json)
    return OK


def _read(repl: Repl, may_be_damaged: bool, progress: FileProgress | None) -> records.BoardRecords:
    """Read the records of the board. Raises UsageError if they are damaged.

    may_be_damaged: return no records then instead, since they are only to be removed.
    """
    try:
        return records.read(repl, progress)
    except UsageError:
        if may_be_damaged:
            return records.BoardRecords(None, None)
        raise


def _check_width(repl: Repl, rows: Rows, board_records: records.BoardRecords) -> None:
    """Raise UsageError if the board has collected records of another size than `rows`.

    A program that collects records does not start if it finds records of another size.
    """
    collected = board_records.rows
    if collected is None or board_records.source != records.FOLDER:
        return
    if collected.shape[1] == rows.shape[1]:
        return
    features = rows.shape[1] - 1  # the last column is the label
    raise UsageError(
        f"the board on {repl.name} holds records of {collected.shape[1] - 1} features, and the "
        f"file of {features}",
        hint=f"where its program's Recorder is of {features}, remove the others first: "
        "--clear alone",
    )


def _require_answer(port: str, slot: float, rows: Rows) -> None:
    """Raise DeviceError if the board does not answer with the new records.

    slot: that of the board, in seconds. rows: the new records, to which its program must fit.
    """
    try:
        starting.wait_for_hello(port, slot)
    except DeviceError as error:
        hint = (
            f"its Recorder must be of {rows.shape[1] - 1} features, as the file is; this removes "
            f"what was put there, and what was collected: tern board records {port} --clear"
        )
        raise DeviceError(f"{error.message}; before, it answered", hint) from error


def _write(path: Path, rows: Rows | None) -> None:
    """Write records to a CSV file that only the user can read. Raises StorageError.

    rows: None for an empty file.
    """
    text = ""
    if rows is not None:
        text = records.csv_of(rows)
    with storage_errors("name another --output", f"cannot write {path}"):
        write_file(path, text.encode(), secret=True)


def _summary(result: dict[str, Any]) -> str:
    """Describe in one line for people what was read, removed and written. result: for JSON."""
    parts = []
    if result["records"]:
        features = counted(result["features"], "feature")
        parts.append(f"{counted(result['records'], 'record')} of {features} in {result['source']}")
        if result["output"]:
            parts[0] += f", written to {result['output']}"
    elif not result["cleared"] or result["output"]:
        parts.append("no records")
    if result["cleared"]:
        parts.append("the records that its program had collected are removed")
    if result["filled"]:
        parts.append(f"{counted(result['filled'], 'record')} put there")
    return f"{result['port']}: " + "; ".join(parts)
