"""The registry: which transport reaches a device of which kind."""

from __future__ import annotations

from typing import Any

from sidewinder.errors import DeviceFault
from sidewinder.model import Device

from .base import Transport


def open(device: Device, **options: Any) -> Transport:
    """The transport for ``device.kind``; nothing is connected yet. ``options`` go to the transport (``state_dir``)."""
    if device.kind == "local":
        from .local import LocalTransport

        return LocalTransport(device, **options)
    if device.kind == "ssh":
        from .ssh import SshTransport

        return SshTransport(device, **options)
    if device.kind == "kubernetes":
        from .kubernetes import KubernetesTransport

        return KubernetesTransport(device, **options)
    raise DeviceFault(f"device {device.id!r}: no transport for kind {device.kind!r}")
