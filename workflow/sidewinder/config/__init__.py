"""Config: YAML in, a checked `Plan` out; every message names file, line, key, value and rule."""
