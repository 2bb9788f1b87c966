"""`tern device records`: the records on a board, for its owner at the desk."""

import argparse
import sys
from pathlib import Path
from typing import Any

from ternhost.command import add_command, add_option, print_result
from ternhost.datasets import own
from ternhost.errors import OK, DeviceError, UsageError
from ternhost.files import storage_errors, write_file
from ternhost.provision.boards import Rows
from ternhost.reach.ports import names
from ternhost.text import counted
from terntools.boards import deploy, devices, records
from terntools.boards.repl import Repl
from terntools.terminal import Bar


def add_actions(actions: Any) -> None:
    summary = "read the records on a board as CSV, remove or add records; the board's program is interrupted "
    summary += "and restarted"
    example = (
        "tern device records a0 --output mine.csv\ntern device records a0 --clear --fill mine.csv"
    )
    parser = add_command(
        actions, "records", summary, example, _run, "print one JSON object, and no records"
    )
    devices.add_board(parser)
    add_option(
        parser, "--output FILE", "write the records to this CSV file (default: standard output)"
    )
    add_option(
        parser,
        "--clear",
        "after reading, remove the records that the board's program has collected",
    )
    text = "append the records of a CSV file: a row holds features, then the label, in [-1, 1]"
    add_option(parser, "--fill FILE", text)
    add_option(parser, "--classes", "labels are class numbers from 0")


def _run(args: argparse.Namespace) -> int:
    rows = own.read_csv(args.fill, classes=args.classes) if args.fill else None
    if rows is not None:
        records.check_fits(rows)
    port = names.resolve(args.board)
    # It may just have been started again, by this command: what is written there is checked all the
    # same.
    speaks = rows is not None and devices.identify(port, deploy.HELLO_WAIT).tern is not None
    with records.opened(port) as repl:
        with Bar("reading records") as bar:
            try:
                held = records.read(repl, bar.update)
            except UsageError:
                if args.output or not args.clear:
                    raise
                held = records.Held(None, None)  # damaged, and to be removed
        if args.output:
            _write(Path(args.output), held.rows, args.classes)
        if rows is not None:
            _check_width(repl, rows, held)
        if args.clear:
            repl.remove_tree(records.FOLDER)
        if rows is not None:
            with Bar("writing records") as bar:
                files = records.segments(rows, 0 if args.clear else held.last)
                deploy.apply(repl, deploy.Changes(files, ()), bar.update)
    if speaks and rows is not None:
        _wait(port, rows)
    count = 0 if held.rows is None else len(held.rows)
    features = None if held.rows is None else held.rows.shape[1] - 1
    result = {"port": port, "source": held.source, "records": count, "features": features}
    result |= {
        "output": args.output,
        "cleared": args.clear,
        "filled": 0 if rows is None else len(rows),
    }
    if not (args.output or args.clear or args.fill or args.json) and held.rows is not None:
        sys.stdout.write(records.csv_of(held.rows, classes=args.classes))
        print(_summary(result), file=sys.stderr)
    else:
        print_result(result, _summary(result), args.json)
    return OK


def _check_width(repl: Repl, rows: Rows, held: records.Held) -> None:
    # A program whose Recorder finds records of another size does not start.
    collected = held.rows if held.source == records.FOLDER else None
    if collected is not None and collected.shape[1] != rows.shape[1]:
        raise UsageError(
            f"the board on {repl.name} holds records of {collected.shape[1] - 1} features, and the file of "
            f"{rows.shape[1] - 1}",
            hint=f"where its program's Recorder is of {rows.shape[1] - 1}, remove the others first: --clear alone",
        )


def _wait(port: str, rows: Rows) -> None:
    try:
        deploy.wait_for_hello(port)
    except DeviceError as error:
        hint = f"its Recorder must be of {rows.shape[1] - 1} features, as the file is; this removes what was "
        hint += f"put there, and what was collected: tern device records {port} --clear"
        raise DeviceError(f"{error.message}; before, it answered", hint) from error


def _write(path: Path, rows: Rows | None, classes: bool) -> None:
    with storage_errors("name another --output", f"cannot write {path}"):
        write_file(
            path,
            b"" if rows is None else records.csv_of(rows, classes=classes).encode(),
            secret=True,
        )


def _summary(result: dict[str, Any]) -> str:
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
