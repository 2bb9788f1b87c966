"""Quantiles, histograms and distributions of the numbers that devices hold."""
