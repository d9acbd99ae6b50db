"""Errors of the pipeline; each message is one line."""

from __future__ import annotations

from coopgroup.errors import CoopgroupError

__all__ = ["PipelineError"]


class PipelineError(CoopgroupError):
    """A requirement of a job is missing, or the tables cannot be used as they are."""
