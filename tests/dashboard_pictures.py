"""Takes the pictures of the live page that the guides show: `python tests/dashboard_pictures.py`
writes them into docs/pictures, in light and in dark colours, 1280 and 400 pixels wide. Chromium
encodes them as WebP.
"""

import base64
import contextlib
import json
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import sample_store
from playwright.sync_api import sync_playwright
from warm import TERN

from ternhost.learn.distributions.quantile_options import Options
from ternhost.run.begin import Place
from ternhost.run.options import RunOptions
from ternhost.run.run import Run
from ternhost.store import store_file
from ternhost.store.store import Store

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "docs" / "pictures"
BOARDS, ROUNDS, PLANNED = 20_000, 32, 40
HEIGHT = 900  # pixels
# Which section each picture shows, by the colours and the width.
SECTIONS = {
    ("light", 1280): "learning",
    ("dark", 1280): "fleet",
    ("light", 400): "fleet",
    ("dark", 400): "learning",
}
# The same of a run that collects quantiles.
SECTIONS_OF_QUANTILES = {("light", 1280): "quantiles", ("dark", 400): "quantiles"}
MOST_BYTES = 150_000

# Refrigerators, whose temperatures are drawn at random.
DEVICES = 20_000
SCHEMA = """
[columns.temperature]
low = -10
high = 30
unit = "°C"
"""


def main():
    with tempfile.TemporaryDirectory() as directory:
        runs = Path(directory) / "runs"
        options = {"data": "flights-planned", "epsilon": "4"}
        training = sample_store.make(runs, BOARDS, rounds=ROUNDS, planned=PLANNED, **options)
        draw_page_of(training, SECTIONS)
        draw_page_of(quantiles(Path(directory)), SECTIONS_OF_QUANTILES)


def quantiles(directory):
    """The directory of a run of quantiles."""
    temperatures = np.random.default_rng(1).normal(4.5, 2.5, DEVICES)
    table = directory / "temperatures.csv"
    table.write_text("\n".join(["temperature", *(f"{each:.2f}" for each in temperatures)]))
    table.with_suffix(".toml").write_text(SCHEMA, encoding="utf-8")
    with contextlib.chdir(directory):  # the page shows the name of the table as it is here
        learning = Options(data=table.name, epsilon="4")
        options = RunOptions("quantiles", learning, f"simulated:{DEVICES}")
        with Run.begin(options, Place("refrigerators", directory / "runs")) as run:
            run.run()
            return run.directory


def draw_page_of(run, sections):
    """Take the pictures of a run's page. sections: as SECTIONS."""
    command = [*TERN, "dashboard", str(run), "--port", "0", "--json"]
    with Store(run / store_file.NAME):  # open, as that of a run under way
        dashboard = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            draw(json.loads(dashboard.stdout.readline())["url"], sections)
        finally:
            dashboard.terminate()
            dashboard.wait()


def draw(url, sections):
    PICTURES.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        for (scheme, width), section in sections.items():
            size = {"width": width, "height": HEIGHT}
            context = browser.new_context(viewport=size, color_scheme=scheme)
            page = context.new_page()
            page.goto(f"{url}?section={section}")  # an unknown one is the first, Learning
            page.wait_for_selector("main.tern .tile")
            page.wait_for_timeout(3000)
            if width < 640 and section == "fleet":  # the boards are below the figures
                page.evaluate("document.querySelector('.q-tabs').scrollIntoView()")
                page.wait_for_timeout(500)
            write(context, page, PICTURES / f"dashboard-{section}-{scheme}-{width}.webp")
            context.close()
        browser.close()


def write(context, page, path):
    """Write the visible part of a page to a file of at most MOST_BYTES."""
    session = context.new_cdp_session(page)
    for quality in (90, 80, 70, 50):
        shot = session.send("Page.captureScreenshot", {"format": "webp", "quality": quality})
        data = base64.b64decode(shot["data"])
        if len(data) <= MOST_BYTES:
            break
    path.write_bytes(data)
    print(f"{path.relative_to(ROOT)}: {len(data):,} bytes")


if __name__ == "__main__":
    main()
