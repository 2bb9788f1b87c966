"""Compares the mechanisms of the papers in floats.

They estimate means and frequencies of tables, and train models by LDP-FedSGD. A client has d
numbers and a total epsilon, which it spends as in Wang et al. (ICDE 2019) and Zhao et al. (2021):

- Laplace, SCDF and Staircase noise: all numbers, at epsilon / d each
- Duchi's mechanism for tuples: all numbers at once
- the others: k of the numbers, chosen at random, at epsilon / k each

Of a table with d_n numbers and some categorical attributes, d in all, the first two ways report the
numbers at d_n epsilon / d, and optimised unary encoding (OUE) reports each categorical attribute at
epsilon / d. The others report k of all d attributes.
"""
