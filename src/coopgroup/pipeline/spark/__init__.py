"""Spark itself: sessions, jars, workers, and the causes of errors."""
