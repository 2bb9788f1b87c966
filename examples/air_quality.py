"""Writes a made-up table that looks like UCI's Air Quality data, to try your own data with.

    python examples/air_quality.py air.csv

Boxes with sensors stand in a few homes. Each writes a row every hour: the air, and whether a window
was open. As in UCI's file, cells are separated by semicolons, numbers have decimal commas, -200
stands for a missing value, each line ends with two empty cells, and empty lines end the file.

The same seed writes the same file.
"""

import argparse
import csv
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np

COLUMNS = [
    "Home",
    "Date",
    "Time",
    "CO(GT)",
    "PT08.S1(CO)",
    "C6H6(GT)",
    "PT08.S5(O3)",
    "T",
    "RH",
    "AH",
    "Window",
]
DIGITS = [1, 0, 1, 0, 1, 1, 4]  # after the comma, of the seven columns of numbers
BEGIN = datetime(2004, 3, 10, 18)
MISSING = "-200"
EMPTY_LINES = 20


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, help="the file to write")
    parser.add_argument("--homes", type=int, default=4, help="number of homes (default: 4)")
    parser.add_argument("--hours", type=int, default=600, help="rows of a home (default: 600)")
    parser.add_argument("--seed", type=int, default=1, help="seed of all numbers (default: 1)")
    args = parser.parse_args()
    rng = np.random.default_rng(args.seed)
    with args.file.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter=";", lineterminator="\r\n")
        writer.writerow([*COLUMNS, "", ""])
        usual_warmth = rng.normal(21, 1, args.homes)
        for hour in range(args.hours):
            for home in range(args.homes):
                writer.writerow(row_of(home, hour, usual_warmth[home], rng))
        for _ in range(EMPTY_LINES):
            writer.writerow([""] * (len(COLUMNS) + 2))


def row_of(home, hour, usual_warmth, rng):
    """The cells of a row: what the box in a home has measured in an hour, counted from 0.

    usual_warmth: the temperature of this home while its windows are closed.
    """
    moment = BEGIN + timedelta(hours=hour)
    outside = 13 + 6 * np.sin(2 * np.pi * (moment.hour - 9) / 24) + rng.normal(0, 1.5)
    by_day = 8 <= moment.hour <= 20
    is_open = rng.random() < (0.55 if by_day else 0.25)

    carbon_monoxide = rng.lognormal(0.1 if is_open else 0.8, 0.45)  # mg/m^3
    benzene = 4 * carbon_monoxide * rng.lognormal(0, 0.2)  # ug/m^3
    temperature = usual_warmth + rng.normal(0, 1)
    humidity = rng.normal(44, 6)
    if is_open:
        temperature = (temperature + outside) / 2
        humidity += 9
    saturation = 0.61 * np.exp(17.3 * temperature / (temperature + 237.3))  # kPa
    measured = [
        carbon_monoxide,
        900 + 160 * carbon_monoxide + rng.normal(0, 70),
        benzene,
        (1200 if is_open else 950) + rng.normal(0, 150),
        temperature,
        humidity,
        humidity / 100 * saturation,
    ]
    is_missing = np.full(len(measured), rng.random() < 0.03)  # the whole box
    is_missing[[0, 2]] |= rng.random() < 0.04  # the reference instruments alone
    cells = [
        MISSING if missing else f"{number:.{digits}f}".replace(".", ",")
        for number, digits, missing in zip(measured, DIGITS, is_missing, strict=True)
    ]
    date, time = moment.strftime("%d/%m/%Y"), moment.strftime("%H.%M.%S")
    window = "open" if is_open else "closed"
    return [f"home{home + 1}", date, time, *cells, window, "", ""]


if __name__ == "__main__":
    main()
