"""A label: the few words that tell a point from its neighbours, made of the axes that the plan really varies.

``q4_1 t2 p64/n16`` where model, threads and tokens differ between points; an axis that is the same everywhere is left
out. Points that differ in what no word can say (their command, say) get the end of their run id besides, so that a
message never leaves open which point it is about. The device is not part of a label: every display names it beside.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from .model import Plan, Point

# axis of Point, how it is written; in the order in which people read them
_AXES: tuple[tuple[str, str], ...] = (
    ("backend", "{}"),
    ("mode", "{}"),
    ("model", "{}"),
    ("quantization", "{}"),
    ("threads", "t{}"),
    ("context_tokens", "d{}"),
    ("batch_size", "b{}"),
    ("kv_quantization", "kv {}"),
    ("flash_attention", "fa {}"),
    ("governor", "{}"),
    ("freq_khz", "{} kHz"),
    ("repetitions", "r{}"),
    ("sample_power", "power {}"),
)
# what tells points apart, too, and has no short form
_WORDLESS = ("command", "stage", "metrics", "extra", "prepare", "warmup", "sample_hz", "failover_from")
_RUN_ID_HASH = 12


class Labeller:
    """Makes labels for the points of one plan."""

    def __init__(self, points: Iterable[Point]) -> None:
        seen: dict[str, set[object]] = {name: set() for name, _ in _AXES}
        tokens: set[tuple[int | None, int | None]] = set()
        parameters: dict[str, set[str]] = {}
        points = list(points)
        count = len(points)
        wordless = False
        for point in points:
            for name, _ in _AXES:
                seen[name].add(getattr(point, name))
            tokens.add((point.prompt_tokens, point.output_tokens))
            for key, value in point.parameters.items():
                values = parameters.setdefault(key, set())
                if len(values) < 2:  # it varies: how many there are does not matter, and may be tens of thousands
                    values.add(repr(value))
            # shared values are the same objects in a plan, so this costs next to nothing where they do not vary
            wordless = wordless or any(getattr(point, name) != getattr(points[0], name) for name in _WORDLESS)
        self._axes = [(name, text) for name, text in _AXES if len(seen[name]) > 1]
        # a model's quantization says nothing that the model does not
        if len(seen["model"]) > 1:
            self._axes = [axis for axis in self._axes if axis[0] != "quantization"]
        self._tokens = len(tokens) > 1
        self._parameters = [key for key, values in parameters.items() if len(values) > 1 or count == 1]
        said = Counter((point.device, self._words(point)) for point in points) if wordless else {}
        self._shared = {words for words, times in said.items() if times > 1}

    @classmethod
    def of(cls, plan: Plan) -> Labeller:
        return cls(plan.points.values())

    def label(self, point: Point) -> str:
        """Never empty: a plan of one point is named by its backend."""
        words = self._words(point)
        return f"{words} {point.run_id[-_RUN_ID_HASH:]}" if (point.device, words) in self._shared else words

    def _words(self, point: Point) -> str:
        words = [text.format(value) for name, text in self._axes if (value := getattr(point, name)) is not None]
        if self._tokens:
            words.append("/".join(_tokens(point)))
        words += [f"{key}={point.parameters[key]}" for key in self._parameters if key in point.parameters]
        return " ".join(word for word in words if word) or point.model or point.backend


def _tokens(point: Point) -> list[str]:
    pairs = (("p", point.prompt_tokens), ("n", point.output_tokens))
    return [f"{letter}{count}" for letter, count in pairs if count is not None]
