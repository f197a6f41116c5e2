"""The entry: the last lines of the shipped source, which turn options into a serving front or a refusal."""

import gc
import sys

from .front import serve_channel
from .wire import send_frame

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def run_agent(options: "dict[str, Any]") -> None:
    if sys.version_info < (3, 7):  # noqa: UP036  # 3.6 must be able to say so by a frame
        import platform

        told = {"op": "fatal", "error": "python_too_old", "python": platform.python_version()}
        send_frame(1, str(options["nonce"]), told)
        sys.exit(65)
    gc.freeze()  # what is loaded by now stays: a collection must not touch (and so copy) its pages in every fork
    serve_channel(options)
