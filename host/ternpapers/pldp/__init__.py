"""The figures of Shen et al. about PLDP-FL, one job a file.

`means` has the errors of means, `averaging` the training of models, and `models` the figures about
them.
"""
