"""`tern serve` for the fleet of an arena, as a process, and what it prints."""

import json
import subprocess

import warm


def serve(arena, *words, **options):
    command = [*arena.host_command(**options), *words]
    return warm.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=arena.directory
    )


def finish(process, code=0):
    """Wait for the end of a host; return the JSON objects that it printed."""
    out, err = process.communicate(timeout=180)
    assert process.returncode == code, err
    return [json.loads(line) for line in out.splitlines()]


def ends(lines):
    """The lines about the ends of rounds."""
    return [line for line in lines if line.get("event") == "end"]
