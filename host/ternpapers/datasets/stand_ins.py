"""Bundled data sets that stand in for those of the papers, which tern may not or does not bring."""

# A table with categories, like the census records of Zhao et al., Wang et al. and Hao et al., and
# the motions of Zhao et al. (WISDM).
TABLE = "flights-table"
# Tables of numbers alone, like the vehicles of Zhao et al. The first one has an age.
PATIENTS = "diabetes"
TUMOURS = "breast-cancer"
# Records with labels of two classes, and with labels that are numbers.
TWO_CLASSES = ("synthetic-logistic", TUMOURS)
NUMBERS = ("synthetic-linear", PATIENTS)
# Pictures of ten classes, like MNIST.
PICTURES = "digits"
