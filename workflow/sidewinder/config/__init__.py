"""Config: YAML in, a checked `Plan` out; every message names file, line, key, value and rule."""

from .loader import json_schema, load, load_files
from .selection import select

__all__ = ["json_schema", "load", "load_files", "select"]
