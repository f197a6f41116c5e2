"""Whatever stands in a config: it is a plan, or it is told what is wrong with it. Never a traceback."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sidewinder import config
from sidewinder.config.blocks import ALIASES
from sidewinder.config.schema import BlockSection, Document, KubernetesSection, ModelSection, SshSection, known_keys
from sidewinder.errors import ConfigError

SCALAR = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 10**30),
    st.floats(),
    st.text(max_size=5),
    st.sampled_from(["a", "m", "1e-3", "1e999", "{x}", "(", "never", "auto", "\ud800", "latency", b"x"]),
)
VALUE = st.recursive(
    SCALAR,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3),
    max_leaves=4,
)
PLACES = [
    *[(key,) for key in known_keys(Document)],
    *[("policy", key) for key in ("retry", "breaker", "order", "busy_wait_s", "points_per_job")],
    *[("policy", "retry", "jitter"), ("policy", "breaker", "give_up_after_s"), ("policy", "order", "by")],
    *[("devices", "a", key) for key in {*known_keys(SshSection), *known_keys(KubernetesSection), "llama"}],
    *[("models", "m", key) for key in known_keys(ModelSection)],
    *[("defaults", key) for key in (*known_keys(BlockSection), *ALIASES)],
    *[("matrix", 0, key) for key in (*known_keys(BlockSection), *ALIASES)],
    *[("matrix", 0, "exclude", 0, key) for key in ("devices", "threads", "x")],
    *[("matrix", 0, "parameters", key) for key in ("x", "n-gpu", "threads")],
]
GOOD: dict[str, Any] = {
    "devices": {"a": {}},
    "models": {"m": {"path": "m.gguf"}},
    "defaults": {},
    "policy": {"retry": {}, "breaker": {}, "order": {}},
    "matrix": [{"devices": "a", "backend": "noop", "parameters": {"x": [1, 2]}, "exclude": [{"x": 2}]}],
}


@settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.tuples(st.sampled_from(PLACES), VALUE), max_size=3))
def test_any_value_anywhere(changes: list[tuple[tuple[Any, ...], Any]]) -> None:
    asked = copy.deepcopy(GOOD)
    for (*parents, last), value in changes:
        node: Any = asked
        try:
            for part in parents:
                node = node[part]
            node[last] = value
        except (TypeError, KeyError, IndexError):
            continue  # an earlier change took the place away
    try:
        plan = config.load(asked, environ={})
    except ConfigError as error:
        told = str(error)
    else:
        told = ", ".join(plan.points)
    assert told
