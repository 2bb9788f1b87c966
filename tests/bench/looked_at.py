"""How much slower reports come in while pages of the dashboard are open: the same ingest with and without, in turn."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from bench import ingest
from ternhost.errors import DeviceError, UsageError
from ternhost.learn.fedsgd import Options
from ternhost.run.options import RunOptions
from ternhost.store.boards import BoardRow
from ternhost.store.runs import RUNNING, StoredRun
from ternhost.store.store import Store

SECTIONS = ("learning", "fleet", "round", "privacy", "runs")
BOARDS = 10_000

_PAINTED = "performance.getEntriesByName('first-contentful-paint')[0].startTime"  # ms


def compare(reports: int, batch: int, qos: int, devices: int, pages: int, pairs: int) -> dict[str, Any]:
    """Reports a second with so many pages open, one section each in turn, beside none: medians of `pairs` pairs.

    slower: by which share, in the median of the pairs. first_paint_ms: the median of all pages, and the longest.
    Raises UsageError and DeviceError.
    """
    alone: list[float] = []
    looked_at: list[float] = []
    painted: list[float] = []
    for pair in range(pairs):
        order = (alone, looked_at) if pair % 2 else (looked_at, alone)
        for rates in order:
            beside = _served if rates is alone else lambda path: _open(path, pages, painted)
            found = ingest.measure(reports, batch, qos, devices, beside=beside)
            if any(found[name] for name in ingest.MISTAKES):
                raise DeviceError(f"reports were lost or counted twice: {found}")
            rates.append(found["reports_per_s"])
    slower = [1 - seen / unseen for seen, unseen in zip(looked_at, alone, strict=True)]
    return {
        "pages": pages,
        "reports": reports,
        "batch": batch,
        "boards": BOARDS,
        "first_paint_ms": [round(median(painted)), round(max(painted))],
        "reports_per_s": alone,
        "reports_per_s_with_pages": looked_at,
        "slower": round(median(slower), 4),
        "slower_each": [round(share, 4) for share in slower],
    }


@contextmanager
def _served(path: Path) -> Iterator[None]:
    """A store with what a served fleet has: a run, and boards."""
    asked = {
        **asdict(RunOptions("fedsgd", Options())),
        "directory": str(path.parent),
        "devices": None,
    }
    told = {"budget": 1_000_000, "heap": 100_000, "release": "0.1.0", "entropy": 1, "text": "rp2 1.25"}
    with Store(path) as store:
        store.begin_run(StoredRun("ingest", time.time(), RUNNING, asked, {"rounds": 0}))
        store.boards_seen(BoardRow(f"board-{i}", i, 1, True, time.time(), told) for i in range(1, BOARDS + 1))
    yield


@contextmanager
def _open(path: Path, pages: int, painted: list[float]) -> Iterator[None]:
    with _served(path):
        words = [sys.executable, "-m", "ternhost", "dashboard", str(path), "--port", "0", "--json"]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                raise DeviceError("the dashboard does not start", hint="see the messages above")
            # In a thread of its own: it has an event loop, and so has what is measured.
            ready, done = threading.Event(), threading.Event()
            with ThreadPoolExecutor(1) as pool:
                looking = pool.submit(_look, json.loads(line)["url"], pages, painted, ready, done)
                try:
                    while not ready.wait(0.1):
                        if looking.done():
                            looking.result()
                    yield
                finally:
                    done.set()
        finally:
            process.terminate()
            process.wait()


def _look(url: str, pages: int, painted: list[float], ready: threading.Event, done: threading.Event) -> None:
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        raise UsageError("playwright is not installed", hint="pip install playwright") from None
    chromium = shutil.which("chromium")
    if chromium is None:
        raise UsageError("there is no chromium", hint="apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        context = browser.new_context()
        for i in range(pages):
            page = context.new_page()
            page.goto(f"{url}?section={SECTIONS[i % len(SECTIONS)]}")
            page.wait_for_selector("main.tern .tile")
            painted.append(page.evaluate(_PAINTED))
        ready.set()
        done.wait()
        browser.close()
