"""Errors of the pipeline; each message is one line."""

from __future__ import annotations

from coopgroup.errors import CoopgroupError

__all__ = ["PipelineError"]


class PipelineError(CoopgroupError):
    """Something that a job needs is not there, or the tables cannot be used as they are."""
