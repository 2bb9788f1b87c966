"""Compares the mechanisms of the papers in floats.

They estimate means and frequencies of tables, and train models by LDP-FedSGD. Errors of means and
of frequencies are computed exactly. Models need noise, and so several runs.

A client has d numbers and a total epsilon, which it spends as in Wang et al. (ICDE 2019) and Zhao et
al. (2021):

- Laplace, SCDF and Staircase noise: all numbers, at epsilon / d each
- Duchi's mechanism for tuples: all numbers at once
- the others: k of the numbers, chosen at random, at epsilon / k each

A table may have categorical attributes, too: d_n numbers among d attributes. The two papers differ
in how epsilon is divided then.

- Wang et al.: The first two ways report the numbers at d_n epsilon / d, and optimised unary encoding
  (OUE) reports each categorical attribute at epsilon / d. The others report k of all d attributes.
- Zhao et al., section VIII-A: All ways report the numbers at d_n epsilon / d, in the third way k of
  the d_n numbers. Their figures have no categorical attributes.
"""
