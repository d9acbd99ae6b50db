"""Incremental cooperative rebalancing for Kafka consumer groups.

The public names are imported on first use, so that `import coopgroup` (and with it every
command of the command line) stays quick and pulls in only what is used.
"""

__all__ = ["__version__"]

__version__ = "0.1.0"
