"""`tern board records`: the records on a board, for its owner at the desk."""

import argparse
import sys
from pathlib import Path
from typing import Any

from ternhost.command import add_command, add_option, print_result
from ternhost.errors import OK, DeviceError, UsageError
from ternhost.files import storage_errors, write_file
from ternhost.provision.boards import Rows
from ternhost.reach.ports import names
from ternhost.text import counted
from terntools.boards import deploy, devices, member_options, records
from terntools.boards.repl import Repl
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


def _run(args: argparse.Namespace) -> int:
    """Read the records of a board; then remove, replace or add records, as the options say.

    Prints the records, unless an option says what else to do with them.
    """
    new_rows = None
    if args.data:
        new_rows = member_options.records_of_file(args.data)
        records.check_fits(new_rows)  # raises if a device cannot hold them
    port = names.resolve(args.board)
    answered_before = False
    if new_rows is not None:
        # A program may not start with the new records. Whether it does can only be checked if it
        # answers now; it may be starting still, so it gets its time.
        answered_before = devices.identify(port, deploy.HELLO_WAIT).tern is not None

    with records.opened(port) as repl:
        only_removes = args.clear and not args.output
        board_records = _read(repl, may_be_damaged=only_removes)
        if args.output:
            _write(Path(args.output), board_records.rows)
        if new_rows is not None:
            _check_width(repl, new_rows, board_records)
        if args.clear:
            repl.remove_tree(records.FOLDER)
        if new_rows is not None:
            last_segment = 0
            if not args.clear:
                last_segment = board_records.last
            files = records.segments(new_rows, last_segment)
            with Bar("writing records") as bar:
                deploy.apply(repl, deploy.Changes(files, ()), bar.update)
    if answered_before and new_rows is not None:
        _require_answer(port, new_rows)

    result = _result(args, port, board_records, new_rows)
    only_shown = not (args.output or args.clear or args.data or args.json)
    if only_shown and board_records.rows is not None:
        sys.stdout.write(records.csv_of(board_records.rows))
        print(_summary(result), file=sys.stderr)
    else:
        print_result(result, _summary(result), args.json)
    return OK


def _read(repl: Repl, may_be_damaged: bool) -> records.BoardRecords:
    """Read the records of the board. Raises UsageError if they are damaged.

    may_be_damaged: return no records then instead, since they are only to be removed.
    """
    with Bar("reading records") as bar:
        try:
            return records.read(repl, bar.update)
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


def _require_answer(port: str, rows: Rows) -> None:
    """Raise DeviceError if the board does not answer with the new records.

    rows: the new records, to which its program must fit.
    """
    try:
        deploy.wait_for_hello(port)
    except DeviceError as error:
        hint = (
            f"its Recorder must be of {rows.shape[1] - 1} features, as the file is; this removes "
            f"what was put there, and what was collected: tern board records {port} --clear"
        )
        raise DeviceError(f"{error.message}; before, it answered", hint) from error


def _result(
    args: argparse.Namespace, port: str, board_records: records.BoardRecords, new_rows: Rows | None
) -> dict[str, Any]:
    """Return what was read from the board and what was done there, for JSON."""
    record_count = 0
    feature_count = None
    if board_records.rows is not None:
        record_count = len(board_records.rows)
        feature_count = board_records.rows.shape[1] - 1  # the last column is the label
    filled_count = 0
    if new_rows is not None:
        filled_count = len(new_rows)
    return {
        "port": port,
        "source": board_records.source,
        "records": record_count,
        "features": feature_count,
        "output": args.output,
        "cleared": args.clear,
        "filled": filled_count,
    }


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
    """Describe in one line for people what was read, removed and written. result: of `_result`."""
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
