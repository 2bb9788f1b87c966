"""Benchmarks of the host."""

import argparse
import os
import platform
import resource
from pathlib import Path


def positive_count(text):
    """The whole number, 1 or more, that an option of a benchmark gives.

    Raises argparse.ArgumentTypeError for any other text.
    """
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"must be a whole number, 1 or more, not {text!r}")
    return int(text)


def resident(process="self"):
    """The resident memory of a process, in bytes. Raises OSError."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * resource.getpagesize()


def cpu_seconds(process):
    """The CPU time that a process has used so far, user and system. Raises OSError."""
    after_name = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    user, system = map(int, after_name[11:13])  # fields 14 and 15 of the file
    return (user + system) / os.sysconf("SC_CLK_TCK")


def machine():
    """The processor and the software with which figures were measured, in words."""
    processor = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            processor = line.partition(":")[2].strip()
            break
    return (
        f"{os.cpu_count()} cores, {processor}, {platform.system()}, Python "
        f"{platform.python_version()}"
    )
