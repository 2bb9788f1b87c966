"""Estimate the means of 13 attributes that 178 clients on two emulated boards hold, and compare
them with the truth.
"""

import argparse

import ternhost
from ternhost import Values

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--fleet", default="emulated:2")
parser.add_argument("--epsilon", default="4")
args = parser.parse_args()

result = ternhost.collect(Values(epsilon=args.epsilon), args.fleet, data="wine")
means = result.to_frame()
means["inside"] = (means["low"] <= means["true"]) & (means["true"] <= means["high"])
print(means.round(3).to_string(index=False))
print(f"{means['inside'].sum()} of {len(means)} intervals hold the true mean")
for promised in result.guarantees:
    print(promised.run.words())
