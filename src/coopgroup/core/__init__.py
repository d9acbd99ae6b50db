"""The core: all decisions, pure. No clock, no network; of other packages only attrs and NumPy."""
