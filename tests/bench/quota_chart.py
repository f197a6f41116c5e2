"""The chart of docs/kubernetes.md: decode rate against CPU quota, and how often the records say it was used up."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
from bench_kubernetes_quota import QUOTAS, Run, explained

COLOURS = ("#3b6fb6", "#c8553d")
SIZE = {"width": 300, "height": 220}


def draw(runs: Sequence[Run], free: Mapping[int, Run]) -> str:
    """``free``: of each number of threads the run that no quota held back."""
    values = [
        {
            "quota": QUOTAS[one.device],
            "threads": f"{one.threads} thread{'s' if one.threads > 1 else ''}",
            "decode": one.decode_tps,
            "explained": explained(one, free[one.threads]),
            "periods": 100 * one.periods,
        }
        for one in runs
    ]
    base = alt.Chart(alt.Data(values=values)).encode(
        x=alt.X("quota:N", sort=list(QUOTAS.values()), title="CPU limit of the pod", axis=alt.Axis(labelAngle=0)),
        color=alt.Color("threads:N", title=None, scale=alt.Scale(range=list(COLOURS)), legend=alt.Legend(orient="top")),
        xOffset=alt.XOffset("threads:N", scale=alt.Scale(paddingOuter=0.4)),
    )
    rate = base.mark_circle(size=55, opacity=0.9).encode(y=alt.Y("decode:Q", title="decode, tokens/s"))
    by_record = base.mark_tick(thickness=2, width=26).encode(y="median(explained):Q")
    throttled = base.mark_bar(opacity=0.85).encode(
        y=alt.Y("median(periods):Q", title="periods with the quota used up, %", scale=alt.Scale(domain=[0, 100]))
    )
    chart: Any = (rate + by_record).properties(
        **SIZE, title="Dots: runs. Lines: what their CPU time is worth in the 2-CPU pod"
    ) | throttled.properties(**SIZE, title="Throttle count of the same records")
    chart = chart.configure(background="white", font="sans-serif").configure_view(stroke=None)
    chart = chart.configure_title(fontSize=11, fontWeight="normal")
    buffer = io.StringIO()
    chart.save(buffer, format="svg")
    return buffer.getvalue()
