"""A connection to a pod, and the refusal of one."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from e2e.kubernetes.helpers_cluster import Namespace
from sidewinder.errors import SidewinderError, TransportError
from sidewinder.model import Device
from sidewinder.transports.client import AgentClient
from sidewinder.transports.kubernetes import KubernetesTransport

TRIES = 5
READY_S = 8.0  # of pods that are never ready


def first_node(namespace: Namespace) -> str:
    """Which takes pods, and which no test ever hurts."""
    nodes = namespace.api("GET", "/api/v1/nodes")["items"]
    return min(node["metadata"]["name"] for node in nodes if not node["spec"].get("taints"))


@contextlib.asynccontextmanager
async def connected(device: Device, said: list[str] | None = None) -> AsyncIterator[AgentClient]:
    transport = KubernetesTransport(device)
    if said is not None:
        transport.tell = said.append
    client = AgentClient(transport, campaign="c", client_id="me")
    try:
        await client.connect()
        yield client
    finally:
        await client.close()
        await transport.close()


def connect(device: Device, said: list[str] | None = None) -> dict[str, Any]:
    """Connects once and leaves; what is known of the pod."""

    async def body() -> dict[str, Any]:
        async with connected(device, said) as client:
            assert client.hello is not None
            return dict(client.hello.facts["pod"])

    return asyncio.run(body())


def refused(device: Device, kind: type[SidewinderError], said: list[str] | None = None) -> str:
    # On a busy machine an answer may not come in time, which says nothing of the device: the next try does.
    for _ in range(TRIES):
        with pytest.raises(SidewinderError) as caught:
            connect(device, said)
        if kind is TransportError or not isinstance(caught.value, TransportError):
            break
    assert type(caught.value) is kind, "the very class: each says something else"
    assert f"{device.id!r}" in str(caught.value), "it names the device"
    return str(caught.value)
