"""An error for a person: a message alone, below which Snakemake does not print where in here it was raised."""

from __future__ import annotations

from snakemake_interface_common.exceptions import WorkflowError


class SidewinderError(WorkflowError):
    """What happened and what to do, in the words of its message."""

    # what Snakemake reads; a property, because contextlib assigns to it on the way
    __traceback__ = property(lambda self: None, lambda self, frames: None)
