"""A link: the front's connection to one runner, trusted only after the runner answered on it."""

import os
import socket
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .records import Key

ANSWER_S = 5.0


class Link:
    def __init__(self, key: "Key", connection: socket.socket) -> None:
        self.key = key
        self.connection = connection
        self.attached = False  # heartbeats of the controller go to the runner, its end is told
        self.answered = False
        self.asked_s = time.monotonic()
        self.heard_s = self.asked_s
        self.waiting = []  # type: list[tuple[object, str]]  # (frame id, op) that wait for the first answer
        connection.setblocking(False)

    def beat(self) -> bool:
        """Ask the runner for a sign of life, which also renews the lease. False: it is gone."""
        try:
            self.connection.send(b"hb\n")
        except BlockingIOError:
            pass  # its buffer is full of heartbeats that it did not read: its silence shows in `heard_s`
        except OSError:
            return False
        return True

    def hear(self) -> bool:
        """False at the end of the runner."""
        try:
            data = self.connection.recv(65536)
        except BlockingIOError:
            return True
        except OSError:
            return False
        if data:
            self.answered = True
            self.heard_s = time.monotonic()
        return bool(data)


def listen_in(folder: str) -> socket.socket:
    """A listening socket ``ctl`` in a record folder, bound by a relative name: AF_UNIX paths end after 104 bytes."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    back = os.open(".", os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.chdir(folder)
        listener.bind("ctl")
        listener.listen(8)
    except OSError:
        listener.close()
        raise
    finally:
        os.fchdir(back)
        os.close(back)
    return listener


def connect_to(folder: str) -> "socket.socket | None":
    """A connection to the runner of a record, None when nobody listens. Says nothing about life yet: while a killed
    process is torn down its listener can still accept."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    back = os.open(".", os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.chdir(folder)
        connection.setblocking(False)
        connection.connect("ctl")
    except OSError:
        connection.close()
        return None
    finally:
        os.fchdir(back)
        os.close(back)
    return connection
