"""Plans for statistics: the interval to expect of a mean, a share, a quantile or a histogram.

For each number of devices the plan says how long the 95 % interval of each estimate will be, which
number of devices makes it half as long, how many a goal needs, and from how many on lying devices
matter more than noise. The values that devices hold are assumed (`assumed.py`).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ternhost.planning.assumed import Assumed, assumptions_of
from ternhost.planning.expected import Expected, expected, reports_of
from ternhost.planning.statistic_options import MEAN, QUANTILE, Options, is_simulated
from ternhost.planning.statistics import enough, rounded_up
from ternhost.privacy.units import name_of, parse_unit, protected
from ternhost.text import counted

_STEP = 4  # between numbers of devices: as much as halves most intervals
_POINTS = 3  # of a curve, at least
_SHOWN = 24  # estimates, for people


class _Curve:
    """What to expect of the estimates from increasing numbers of devices."""

    def __init__(
        self, options: Options, assumed: Assumed, tell: Callable[[str], None] = lambda text: None
    ) -> None:
        """Begin without any number of devices. tell: called with a line about each new one."""
        self._options = options
        self._assumed = assumed
        self._tell = tell
        self._points: dict[int, list[Expected]] = {}

    def at(self, devices: int) -> list[Expected]:
        """Return what to expect of all estimates from so many devices."""
        if devices not in self._points:
            self._points[devices] = expected(self._options, self._assumed, devices)
            self._tell(f"{counted(devices, 'device')}, {self._assumed.words}")
        return self._points[devices]

    def points(self, place: int) -> list[dict[str, Any]]:
        """Return what to expect of an estimate from all numbers of devices so far, for a picture."""
        points = []
        for devices in sorted(self._points):
            point = self._points[devices][place]
            points.append(
                {
                    "devices": devices,
                    "half": _or_none(point.half),
                    "moved": _or_none(point.moved),
                }
            )
        return points

    def needed(self, place: int, first: int, shortfall: Callable[[Expected], float]) -> int | None:
        """Return from how many devices on an estimate has what it lacks, rounded to two digits.

        Further numbers of devices are tried until one is enough.

        place: of the estimate. first: the least number of devices. shortfall: what the estimate
        lacks; 0 or less is enough.
        Returns None if it needs more devices than a plan tries.
        """
        while True:
            tried = [devices for devices in sorted(self._points) if devices >= first]
            lacking = [shortfall(self._points[devices][place]) for devices in tried]
            if lacking[-1] <= 0:
                break
            more = _STEP * tried[-1]
            if more > self._options.most_devices:
                return None
            self.at(more)
        number = enough(tried, lacking)
        assert number is not None
        if number <= first:
            return first
        return rounded_up(number)


def plan(
    options: Options,
    devices: Sequence[int] | None = None,
    progress: Callable[[str], None] = lambda message: None,
) -> dict[str, Any]:
    """Return the intervals to expect, as a result for JSON and for `text_lines`.

    devices: the numbers of devices to try; None for the usual ones. progress: called with a line of
    text after each part of the work. Raises UsageError.
    """
    numbers = options.checked_devices(tuple(devices or options.ladder))
    estimates = []
    kinds = assumptions_of(options)
    for assumed in kinds:
        curve = _Curve(options, assumed, progress)
        for number in _to_try(numbers, options.most_devices):
            curve.at(number)
        for place in range(len(curve.at(numbers[0]))):
            estimates.append(_estimate(options, curve, place, numbers))

    of_records = options.is_of_records
    simulated = is_simulated(options.statistic, of_records=of_records)
    return {
        "statistic": options.statistic,
        "data": options.data or None,
        "assumed": [{"name": assumed.name, "words": assumed.words} for assumed in kinds],
        "unit": parse_unit(options.unit),
        "epsilon": None if of_records else float(options.epsilon),
        "run_epsilon": float(options.run_epsilon) if of_records else None,
        "delta": float(options.delta) if of_records else 0.0,
        "records": options.most_records if of_records else 1,
        "devices": list(numbers),
        "most_devices": options.most_devices,
        "confidence": 0.95,
        "method": "simulated" if simulated else "computed",
        "runs": options.simulated_runs if simulated else None,
        "goal": options.goal,
        "liars": float(options.share_of_liars) if options.share_of_liars else None,
        "report": _report(options, kinds[0], numbers[0]),
        "estimates": estimates,
    }


def _to_try(numbers: Sequence[int], most: int) -> list[int]:
    """Return the numbers of devices to try: more than the user names, if these are no curve.

    most: the largest number that a plan tries.
    """
    to_try = list(numbers)
    while len(to_try) < _POINTS and _STEP * to_try[-1] <= most:
        to_try.append(_STEP * to_try[-1])
    return to_try


def _estimate(
    options: Options, curve: _Curve, place: int, numbers: Sequence[int]
) -> dict[str, Any]:
    """Return what to expect of one estimate, for JSON: a row for each number of devices.

    place: of the estimate among those of `curve`. numbers: of devices.
    """
    rows = []
    for devices in numbers:
        of_devices = curve.at(devices)[place]
        rows.append(
            {
                "devices": devices,
                "statistic": of_devices.statistic,
                "half": _or_none(of_devices.half),
                "half_in_unit": of_devices.half_in_unit,
                "worst": of_devices.worst,
                "moved": _or_none(of_devices.moved),
                "halved_by": _halved_by(curve, place, devices),
            }
        )
    first = curve.at(numbers[0])[place]
    result: dict[str, Any] = {
        "name": first.attribute,
        "statistic": first.statistic,
        "assumed": first.assumed,
        **first.unit,
        "curve": rows,
    }
    goal = options.goal
    if goal is not None:
        result["goal_devices"] = curve.needed(
            place, numbers[0], lambda point: _logarithm(point.half / goal)
        )
    if options.share_of_liars:
        result["liars_matter_from"] = curve.needed(place, numbers[0], _noise_over_lies)
    result["tried"] = curve.points(place)
    return result


def _halved_by(curve: _Curve, place: int, devices: int) -> int | None:
    """Return how many devices make the interval of an estimate half as long as `devices` do.

    Returns None if the interval has no end, or if a plan does not try so many devices.
    """
    half = curve.at(devices)[place].half
    if not math.isfinite(half) or half == 0:
        return None
    return curve.needed(place, devices, lambda point: _logarithm(2 * point.half / half))


def _noise_over_lies(point: Expected) -> float:
    """Return by how much the noise of an estimate is more than what liars can do, as a logarithm."""
    assert point.moved is not None
    if point.moved == math.inf:  # all reports may be lies
        return -1.0
    return _logarithm(point.half / point.moved)


def _logarithm(ratio: float) -> float:
    """Return a logarithm, on which interpolation is exact for errors that fall with a power."""
    return math.log(ratio)


def _or_none(length: float | None) -> float | None:
    """Return a length for JSON: None if it is infinite."""
    if length is None or not math.isfinite(length):
        return None
    return length


def _report(options: Options, assumed: Assumed, devices: int) -> dict[str, Any]:
    """Return what each report costs, for JSON: its epsilon, bytes, and mechanisms."""
    reports = reports_of(options, assumed, devices)
    of_device = 1
    if options.is_of_records:
        of_device = len(reports)  # one for each of them
    return {
        "reports_of_device": of_device,
        "bytes": max(report["bytes_per_report"] for report in reports),
        "request_bytes": max(report["bytes_per_request"] for report in reports),
        "mechanisms": sorted({report["mechanism"] for report in reports}),
    }


# For people


class _Column(NamedTuple):
    """A column of the table: its heading, and the text of a cell."""

    heading: str
    cell: Callable[[Mapping[str, Any], Mapping[str, Any]], str]  # of an estimate and its row


def text_lines(result: Mapping[str, Any]) -> list[str]:
    """Return the result of `plan` as lines of text: a table, what it means, and what a report costs."""
    estimates = result["estimates"]
    shown = estimates[:_SHOWN]
    lines = [
        f"what to expect of a {result['statistic']}, {_protection_in_words(result)}:",
        *_table(result, shown),
    ]
    if len(estimates) > len(shown):
        lines.append(f"  and {len(estimates) - len(shown)} more, which --json has")
    lines += [*_explanation(result), *_report_lines(result)]
    return lines


def _protection_in_words(result: Mapping[str, Any]) -> str:
    """Say what is protected, and by which epsilon."""
    if result["run_epsilon"] is None:
        return f"from devices that report once at epsilon {result['epsilon']:g}"
    return (
        f"from devices of {counted(result['records'], 'record')}, where (epsilon "
        f"{result['run_epsilon']:g}, delta {result['delta']:g}) protects {protected(result['unit'])}"
    )


def _table(result: Mapping[str, Any], estimates: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the table of the estimates, with aligned columns."""
    columns = [
        _Column("values", lambda estimate, row: str(estimate["assumed"])),
        _Column("of", lambda estimate, row: str(estimate["name"])),
        _Column("statistic", lambda estimate, row: str(row["statistic"])),
        _Column("devices", lambda estimate, row: f"{row['devices']:,}"),
        _Column("+-", lambda estimate, row: _percent(row["half"])),
    ]
    if any(estimate["curve"][0]["worst"] is not None for estimate in estimates):
        columns.append(_Column("at worst", lambda estimate, row: _percent(row["worst"])))
    if any(estimate["curve"][0]["half_in_unit"] is not None for estimate in estimates):
        columns.append(_Column("in its unit", _in_unit))
    if result["liars"]:
        columns.append(_Column("liars move it by", lambda estimate, row: _percent(row["moved"])))
    most = result["most_devices"]
    columns.append(
        _Column("half of +- with", lambda estimate, row: _number(row["halved_by"], most))
    )
    if result["liars"]:
        columns.append(_Column("liars beat noise from", _of_estimate("liars_matter_from", most)))
    if result["goal"] is not None:
        heading = f"+-{_percent(result['goal'])} with"
        columns.append(_Column(heading, _of_estimate("goal_devices", most)))

    cells = [[column.heading for column in columns]]
    for estimate in estimates:
        for row in estimate["curve"]:
            cells.append([column.cell(estimate, row) for column in columns])
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for row_of_cells in cells:
        padded = [cell.ljust(width) for cell, width in zip(row_of_cells, widths, strict=True)]
        lines.append(f"  {'   '.join(padded)}".rstrip())
    return lines


def _percent(share: float | None) -> str:
    """Return the text of a share of the range, or of a difference of shares."""
    if share is None:
        return "no bound"
    return f"{100 * share:.3g} %"


def _in_unit(estimate: Mapping[str, Any], row: Mapping[str, Any]) -> str:
    """Return half the length of an interval in the unit of a number."""
    if row["half_in_unit"] is None:
        return ""
    return f"{row['half_in_unit']:.3g} {estimate['unit']}".rstrip()


def _of_estimate(name: str, most: int) -> Callable[[Mapping[str, Any], Mapping[str, Any]], str]:
    """Return a cell with a number of devices that is the same for all rows of an estimate.

    name: of the number in the estimate. A number that is not above the fewest devices of the plan
    was not searched for any further. most: as of `_number`.
    """

    def cell(estimate: Mapping[str, Any], _row: Mapping[str, Any]) -> str:
        first = estimate["curve"][0]["devices"]
        if estimate[name] is not None and estimate[name] <= first:
            return f"{first:,} or fewer"
        return _number(estimate[name], most)

    return cell


def _number(devices: int | None, most: int) -> str:
    """Return a number of devices; None if it is larger than `most`, the largest that a plan tries."""
    if devices is None:
        return f"none up to {most:,}"
    return f"{devices:,}"


def _explanation(result: Mapping[str, Any]) -> list[str]:
    """Return lines that say what was assumed, and what the columns mean."""
    lines = []
    for assumed in result["assumed"]:
        lines.append(f"  {assumed['name']}: {assumed['words']}")
    of_what = "a difference of shares, on average over all of them"
    if result["statistic"] in (MEAN, QUANTILE):
        of_what = "a share of the public range of the number"
    how = "computed from the cards"
    if result["method"] == "simulated":
        how = f"the mean of {counted(result['runs'], 'simulated estimate')}, fewer where bins are many"
    lines += [
        f"  +-: half the length of the 95 % interval, {of_what}; {how}",
        "  half of +- with: so many devices",
    ]
    if result["statistic"] == QUANTILE:
        lines.append("  intervals of quantiles end at edges of bins, and are no shorter than a bin")
    if result["estimates"][0]["curve"][0]["worst"] is not None:
        lines.append("  at worst: +-, whatever values the devices hold")
    if result["liars"]:
        share = f"{100 * result['liars']:g} %"
        lines += [
            f"  liars: {share} of the devices, at least one, which report whatever they like",
            "  liars beat noise from: so many devices on, liars can do more than half the interval",
        ]
    return lines


def _report_lines(result: Mapping[str, Any]) -> list[str]:
    """Return a line about what a report costs."""
    report = result["report"]
    mechanisms = " or ".join(report["mechanisms"])
    if result["run_epsilon"] is None:
        return [
            f"A report costs a device epsilon {result['epsilon']:g} and {report['bytes']} bytes ({mechanisms})."
        ]
    reports = counted(report["reports_of_device"], "report")
    return [
        f"A device sends {reports} of at most {report['bytes']} bytes ({mechanisms}), which together cost "
        f"epsilon {result['run_epsilon']:g} for the unit {name_of(result['unit'])}."
    ]
