"""Sweeps: scenarios with every combination of parameters, played on Spark."""
