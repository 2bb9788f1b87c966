"""Learners of linear models, and what they share: training, judging, optimisers."""
