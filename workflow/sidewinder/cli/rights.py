"""A pod device's rights as `sidewinder doctor` finds them: what this account may do where the pod lives.

The API server is asked, nothing is tried: so a person is told all that is missing at once, and before a pod is made.
"""

from __future__ import annotations

from sidewinder.model import Device

from .finding import Finding
from .pods import life_of


async def rights(device: Device) -> list[Finding]:
    """What it comes to, and one finding for each right that is missing. Raises ``SidewinderError``."""
    from sidewinder.transports import kubernetes_access as access

    async with life_of(device) as life, life.translated():
        namespace = await life.namespace()
        missing = await life.missing_rights()
        who = await access.account(life.cluster)
        place = f"in namespace {namespace}, {life.cluster}"
    if missing is None:
        text = f"the cluster does not tell what {who or 'this account'} may do {place}: access reviews are refused"
        return [Finding(device.id, "rights", "warn", text)]
    needed = any(right.is_needed for right in missing)
    local = [right for right in missing if not right.everywhere]
    text = f"{who or 'this account'} may {'not ' if needed else ''}do all that is needed {place}"
    if local:
        text += f". What is missing is granted by: {access.grant_command(namespace, who)}"
    found = [Finding(device.id, "rights", "fail" if needed else "ok", text)]
    for right in missing:
        verdict = "fail" if right.is_needed else "ok" if right.everywhere else "warn"
        how = access.grant_command(namespace, who, nodes=True)
        if not right.everywhere:
            how = f"a rule of a Role there: {access.lines([right])}"
        found.append(Finding(device.id, f"right to {right}", verdict, f"missing, {right.without}. Granted by {how}"))
    return found
