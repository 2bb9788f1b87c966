"""Draws the pictures of the guides: `python docs/guide_pictures.py` rewrites them.

epsilon.svg and liars.svg come from the cards themselves; unit.svg from budgets in rho; sensors-*.svg
from the table of pins below.
"""

import math
from fractions import Fraction
from pathlib import Path

import liar_tables

import ternhost
from ternhost.privacy import cards, certify, guarantee, sums

FOLDER = Path(__file__).parents[1] / "shared_specs/figures"
EPSILONS = (0.1, 0.5, 1, 2, 4, 8)
PRIORS = (Fraction(1, 2), Fraction(1, 10), Fraction(1, 100))
COLOURS = ("#b5651d", "#cfcfcf", "#27566b")  # of the symbols -, 0, +
TOP, ROW, BAR, LEFT, GAP = 92, 44, 225, 104, 44


def rows(epsilon):
    """The probabilities of the symbols -, 0, + of Three-Outputs at the inputs -1 and 1: two lists
    of Fractions.
    """
    card = cards.decode(ternhost.design("three-outputs", epsilon).data)
    ends = [certify.at_knot(card, knot) for knot in (0, len(certify.knots(card)) - 1)]
    return [row if len(row) == 3 else [row[0], Fraction(0), row[1]] for row in ends]


def posterior(prior, epsilon):
    """The largest belief that an observer with this prior can have in "the input is 1" after one
    report.
    """
    low, high = rows(epsilon)
    ratio = max(b / a for a, b in zip(low, high, strict=True) if a)
    return prior * ratio / (prior * ratio + 1 - prior)


def percent(share):
    return f"{float(100 * share):.{4 if share > Fraction(99, 100) else 3}g} %"


def bars(x, y, row):
    for share, colour in zip(row, COLOURS, strict=True):
        width = float(share) * BAR
        yield f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="26" fill="{colour}"/>'
        if share > Fraction(1, 5):
            ink = "#222" if colour == COLOURS[1] else "#fff"
            yield f'<text x="{x + width / 2:.1f}" y="{y + 18}" fill="{ink}">{percent(share)}</text>'
        x += width


def opening(height, label):
    """The first elements of a picture 960 wide."""
    yield f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 960 {height}" role="img" aria-label="{label}"'
    yield '  font-family="Helvetica, Arial, sans-serif">'
    yield f'<rect width="960" height="{height}" fill="#fff"/>'


def epsilon_picture():
    """The picture as SVG: for each epsilon the two distributions, and what they turn each prior
    into.
    """
    second = LEFT + BAR + GAP
    columns = [second + BAR + 88 + 90 * i for i in range(len(PRIORS))]
    height = TOP + ROW * len(EPSILONS) + 34
    lines = [
        *opening(
            height, "Three-Outputs at six epsilons: the two distributions overlap less and less"
        ),
        '<g font-size="14" fill="#222" text-anchor="middle">',
        f'<text x="{LEFT - 60}" y="64" font-weight="bold">epsilon</text>',
        f'<text x="{LEFT + BAR / 2}" y="34" font-weight="bold">a device with the lowest value</text>',
        f'<text x="{second + BAR / 2}" y="34" font-weight="bold">a device with the highest value</text>',
        f'<text x="{columns[1]}" y="34" font-weight="bold">belief that it is the highest</text>',
    ]
    for x in (LEFT, second):
        texts = ((0, "sends −"), (BAR / 2, "0"), (BAR, "+"))
        anchors = ("start", "middle", "end")
        lines += [
            f'<text x="{x + dx}" y="64" text-anchor="{anchor}" fill="#555">{text}</text>'
            for (dx, text), anchor in zip(texts, anchors, strict=True)
        ]
    lines += [
        f'<text x="{x}" y="64" fill="#555">{percent(prior)} →</text>'
        for x, prior in zip(columns, PRIORS, strict=True)
    ]
    for i, epsilon in enumerate(EPSILONS):
        y = TOP + ROW * i
        low, high = rows(epsilon)
        lines.append(
            f'<text x="{LEFT - 60}" y="{y + 19}" font-size="18" font-weight="bold">{epsilon:g}</text>'
        )
        lines += [*bars(LEFT, y, low), *bars(second, y, high)]
        lines += [
            f'<text x="{x}" y="{y + 19}" font-size="16">{percent(posterior(prior, epsilon))}</text>'
            for x, prior in zip(columns, PRIORS, strict=True)
        ]
    foot = "Three-Outputs, from the integers of its cards; the belief is the largest that one report can cause"
    lines += [f'<text x="480" y="{height - 14}" fill="#555">{foot}</text>', "</g>", "</svg>", ""]
    return "\n".join(lines)


DELTA, LIVES, HELD = 1e-6, (1, 4), 500  # of the picture of units
WHATS = (  # what is believed, the steps between neighbours (ledger.md), the colour of its bars
    ("one record was there", 1, "#27566c"),
    ("what one record says", 2, "#4f7587"),
    ("an event changed two records", 4, "#7d97a5"),
    (f"what all {HELD} records say", 2 * HELD, "#b5651d"),
)


def believed(prior, epsilon):
    """The belief after reports that change the odds by exp(epsilon)."""
    return guarantee.believed(float(prior), epsilon)


def unit_picture():
    """What budgets for life that protect a record turn beliefs into: about a record, and about more
    of a device.
    """
    wide, left = 170, 250
    height = 92 + len(LIVES) * (len(WHATS) * 38 + 46) + 10
    lines = [
        *opening(
            height, "Beliefs about one record, two records and a whole device, before and after"
        ),
        '<g font-size="14" fill="#222">',
        '<text x="480" y="34" text-anchor="middle" font-weight="bold">The unit is a record: what an observer can '
        "believe about ... after all reports for life</text>",
    ]
    for i, prior in enumerate(PRIORS):
        lines.append(
            f'<text x="{left + i * 230}" y="64" fill="#555">it believed {percent(prior)} before</text>'
        )
    y = 84
    for life in LIVES:
        rho = sums.rho_of(life, DELTA)
        lines.append(
            f'<text x="24" y="{y + 18}" font-weight="bold">({life}, 1e-6) for life, rho {rho / 1e6:.3g}</text>'
        )
        y += 34
        for what, steps, colour in WHATS:
            epsilon = sums.group(rho, steps, DELTA)
            lines.append(f'<text x="{left - 14}" y="{y + 18}" text-anchor="end">{what}</text>')
            for i, prior in enumerate(PRIORS):
                share, x = believed(prior, epsilon), left + i * 230
                text = "all but certain" if share > 0.9999 else percent(share)
                lines.append(f'<rect x="{x}" y="{y}" width="{wide}" height="26" fill="#eee"/>')
                lines.append(
                    f'<rect x="{x}" y="{y}" width="{wide * share:.1f}" height="26" fill="{colour}"/>'
                )
                lines.append(
                    f'<path d="M{x + wide * float(prior):.1f} {y - 2}v30" stroke="#222" stroke-width="1.5"/>'
                )
                ink = "#fff" if share > 0.45 else "#222"
                at = x + 8 if share > 0.45 else x + wide - 8
                anchor = "start" if share > 0.45 else "end"
                lines.append(
                    f'<text x="{at}" y="{y + 18}" text-anchor="{anchor}" fill="{ink}">{text}</text>'
                )
            y += 38
        y += 12
    return "\n".join([*lines, "</g>", "</svg>", ""])


RED, BLACK, BLUE, GREEN, AMBER = "#a33", "#333", "#27466c", "#2d6a3f", "#8a6100"
POWER = {"pico": "3V3 (pin 36)", "esp32": "3V3"}
GROUND = {"pico": "GND (pin 38)", "esp32": "GND"}
SENSORS = {  # sensor -> its pin -> (colour, the board's pin by board)
    "MPU-6050, acceleration": {
        "VCC": (RED, POWER),
        "GND": (BLACK, GROUND),
        "SDA": (BLUE, {"pico": "GP4 (pin 6)", "esp32": "19 (C3: 5)"}),
        "SCL": (GREEN, {"pico": "GP5 (pin 7)", "esp32": "18 (C3: 6)"}),
    },
    "SHT31, temperature and humidity": {
        "VIN": (RED, POWER),
        "GND": (BLACK, GROUND),
        "SDA": (BLUE, {"pico": "GP4 (pin 6), shared", "esp32": "19 (C3: 5), shared"}),
        "SCL": (GREEN, {"pico": "GP5 (pin 7), shared", "esp32": "18 (C3: 6), shared"}),
    },
    "light: LDR above, 10 kOhm below": {
        "LDR's other end": (RED, POWER),
        "between the two": (AMBER, {"pico": "GP26 (pin 31), ADC0", "esp32": "34 (C3: 1), ADC1"}),
        "resistor's other end": (BLACK, {"pico": "AGND (pin 33)", "esp32": "GND"}),
    },
    "HC-SR501, movement": {
        "VCC": (RED, {"pico": "VBUS, 5 V (pin 40)", "esp32": "5V"}),
        "OUT": (AMBER, {"pico": "GP16 (pin 21)", "esp32": "27 (C3: 7)"}),
        "GND": (BLACK, GROUND),
    },
}
TITLES = {"pico": "Pico, Pico W, Pico 2", "esp32": "ESP32 DevKitC (ESP32-C3)"}


def sensors_picture(board):
    """The wires from a board to each sensor as SVG: a row for each wire."""
    height = 66 + sum(38 + 26 * len(pins) for pins in SENSORS.values())
    lines = [
        *opening(height, f"{TITLES[board]} and four sensors: which pin goes where"),
        '<g font-size="14" fill="#222">',
        f'<rect x="120" y="46" width="260" height="{height - 62}" rx="8" fill="#eef3f7" stroke="#5b7a91"/>',
        f'<text x="250" y="34" text-anchor="middle" font-weight="bold">{TITLES[board]}</text>',
    ]
    y = 60
    for sensor, pins in SENSORS.items():
        box = f'height="{26 * len(pins) + 8}" rx="8" fill="#f6f1e7" stroke="#a08350"'
        lines.append(
            f'<text x="700" y="{y + 12}" text-anchor="middle" font-weight="bold">{sensor}</text>'
        )
        lines.append(f'<rect x="560" y="{y + 20}" width="280" {box}/>')
        y += 24
        for pin, (colour, places) in pins.items():
            lines.append(f'<text x="370" y="{y + 18}" text-anchor="end">{places[board]}</text>')
            lines.append(f'<path d="M380 {y + 13}H560" stroke="{colour}" stroke-width="2.4"/>')
            lines.append(f'<text x="570" y="{y + 18}">{pin}</text>')
            y += 26
        y += 14
    return "\n".join([*lines, "</g>", "</svg>", ""])


LIARS = {  # the colour of each line
    "mean, laplace": ("#b5651d", "laplace"),
    "mean, pm-sub": ("#8a6fb0", "pm-sub"),
    "mean, duchi": ("#27566b", "duchi"),
    "median": ("#3c8d40", None),
}
LIAR_EPSILONS = (0.5, 0.7, 1, 1.4, 2, 2.8, 4, 5.7, 8)
PLOT = (110, 60, 560, 330)  # left, top, width, height
MOST_MOVED, LEAST_MOVED = 1, 0.005  # of the axis, which is logarithmic


def liars_picture():
    """The picture as SVG: how far 1 % of 10,000 devices can move an estimate, by epsilon."""
    left, top, width, height = PLOT

    def place(epsilon, moved):
        across = math.log(epsilon / LIAR_EPSILONS[0]) / math.log(
            LIAR_EPSILONS[-1] / LIAR_EPSILONS[0]
        )
        down = math.log(MOST_MOVED / moved) / math.log(MOST_MOVED / LEAST_MOVED)
        return f"{left + across * width:.1f} {top + down * height:.1f}"

    lines = [
        *opening(460, "How far 1 % of the devices can move an estimate falls with epsilon"),
        '<g font-size="14" fill="#222">',
        f'<text x="{left}" y="36">how far 1 % of the devices can move an estimate, scaled to [-1, 1]</text>',
        f'<text x="{left + width / 2}" y="{top + height + 48}" text-anchor="middle">epsilon</text>',
    ]
    for moved in (1, 0.1, 0.01):
        x, y = place(LIAR_EPSILONS[0], moved).split()
        lines.append(f'<path d="M{x} {y}h{width}" stroke="#ddd"/>')
        lines.append(
            f'<text x="{left - 10}" y="{float(y) + 5:.1f}" text-anchor="end">{moved:g}</text>'
        )
    for epsilon in (0.5, 1, 2, 4, 8):
        x, y = place(epsilon, LEAST_MOVED).split()
        lines.append(
            f'<text x="{x}" y="{float(y) + 22:.1f}" text-anchor="middle">{epsilon:g}</text>'
        )
    legend = top + 20
    for words, (colour, mechanism) in LIARS.items():
        points = []
        for epsilon in LIAR_EPSILONS:
            if mechanism is None:
                moved = liar_tables.of_median(epsilon)
            else:
                moved = liar_tables.of_mean(mechanism, epsilon)
            points.append(place(epsilon, moved))
        path = "L".join(points)
        lines.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2.4"/>')
        lines.append(f'<path d="M700 {legend - 5}h30" stroke="{colour}" stroke-width="2.4"/>')
        lines.append(f'<text x="740" y="{legend}">{words}</text>')
        legend += 26
    return "\n".join([*lines, "</g>", "</svg>", ""])


PICTURES = {
    "epsilon.svg": epsilon_picture,
    "unit.svg": unit_picture,
    "liars.svg": liars_picture,
    "sensors-pico.svg": lambda: sensors_picture("pico"),
    "sensors-esp32.svg": lambda: sensors_picture("esp32"),
}

if __name__ == "__main__":
    for name, draw in PICTURES.items():
        (FOLDER / name).write_text(draw())
