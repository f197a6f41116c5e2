"""A job: work that the front gives to a forked child, so that heartbeats go on while it takes its time."""

import os
import signal

from .processes import close_all_but, die_with_parent, kill_quietly
from .pump import READABLE, Pump
from .sysfiles import write_all
from .wire import FrameBuffer, encode_frame

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Dict, Tuple

    Answer = Tuple[Dict[str, Any], bytes]

_command_of_job = []  # type: list[int]


def note_job_command(pid: int) -> None:
    """The command that this job waits for: it is ended with the job."""
    _command_of_job[:] = [pid]


def _end_job(*_: object) -> None:
    kill_quietly(_command_of_job)
    os._exit(1)


class Jobs:
    def __init__(self, pump: Pump) -> None:
        self.pump = pump
        self.pids = set()  # type: set[int]

    def run(self, work: "Callable[[], Answer]", done: "Callable[[dict[str, Any], bytes], object]") -> None:
        reader, writer = os.pipe()
        front = os.getpid()
        pid = os.fork()
        if pid == 0:
            try:
                close_all_but({0, 1, 2, writer})  # not the channel: it must end with the front, not with the job
                signal.signal(signal.SIGTERM, _end_job)
                die_with_parent(front, signal.SIGTERM)
                try:
                    message, blob = work()
                except Exception as error:  # noqa: BLE001  # crosses a process border: told to the controller
                    message, blob = {"error": "job", "detail": f"{type(error).__name__}: {error}"}, b""
                write_all(writer, encode_frame(message, blob))
            finally:
                os._exit(0)
        os.close(writer)
        self.pids.add(pid)
        buffer = FrameBuffer()
        answers = []  # type: list[tuple[dict[str, Any], bytes]]

        def read() -> None:
            data = os.read(reader, 1 << 20)
            if data:
                answers.extend(buffer.feed(data))
                return
            self.pump.remove(reader)
            os.close(reader)
            os.waitpid(pid, 0)
            self.pids.discard(pid)
            message, blob = answers[0] if answers else ({"error": "job", "detail": "the helper process died"}, b"")
            done(message, blob)

        self.pump.add(reader, READABLE, read)

    def end(self) -> None:
        kill_quietly(self.pids, signal.SIGTERM)
