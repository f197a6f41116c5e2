"""Engine: the one owner of asyncio; carries instructions out and turns what happens into events."""

from .callbacks import Callbacks, Key
from .engine import Engine
from .once import Outcome, run_points
from .rulefiles import RuleFiles
from .rulejob import shell_task

__all__ = ["Callbacks", "Engine", "Key", "Outcome", "RuleFiles", "run_points", "shell_task"]
