"""A quantity: an amount of CPU, memory or another resource as Kubernetes writes it (``500m``, ``2``, ``1.5Gi``).

Amounts are exact: two texts are compared by what they mean, and each amount has one spelling, the one that the API
server gives back.
"""

from __future__ import annotations

import re
from decimal import Decimal
from fractions import Fraction
from typing import Final

_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_TEXT: Final = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]{1,2}|[numkMGTPE]|[KMGTPE]i)?")
_MAX_CHARS: Final = 40


def parse(text: str) -> Fraction:
    """The amount, exactly. Raises ``ValueError`` where it is no quantity; one with a sign is none."""
    found = _TEXT.fullmatch(text) if len(text) <= _MAX_CHARS else None
    if found is None:
        raise ValueError(f"{text!r} is no quantity")
    digits, suffix = found[1], found[2] or ""
    if suffix in _BINARY:
        return Fraction(Decimal(digits)) * Fraction(1 << _BINARY[suffix])
    exponent = f"e{_DECIMAL[suffix]}" if suffix in _DECIMAL else suffix
    return Fraction(Decimal(digits + exponent))


def canonical(text: str) -> str:
    """The one spelling of the amount: a whole number and the largest suffix of the family that was used."""
    amount = parse(text)
    if text.endswith("i") and amount.denominator == 1:
        for suffix, power in reversed(_BINARY.items()):
            if amount and amount % 2**power == 0:
                return f"{amount // 2**power}{suffix}"
        return str(amount)
    for suffix, power in reversed(_DECIMAL.items()):
        scaled = amount / Fraction(Decimal(f"1e{power}"))
        if amount and scaled.denominator == 1:
            return f"{scaled}{suffix}"
    return "0" if not amount else text
