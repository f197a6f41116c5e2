"""A front: the process at the device's end of the channel, which answers the controller and remembers nothing.

All it knows lies in records and in its links to runners, so it may be killed at any time.
"""

import os
import sys
import time

from .clocks import boot_id, stamp
from .digests import DigestCache
from .execution import execute, kill_and_prove, look
from .facts import device_facts
from .jobs import Jobs
from .launch import launch
from .links import ANSWER_S, Link, connect_to
from .pump import READABLE, Pump
from .records import RecordStore
from .runner import read_result
from .staging import Store, told
from .sysfiles import expand_path, os_error_code
from .takeover import take_over
from .wire import FrameBuffer, send_frame

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .records import Key

PROTOCOL = 1
_BEFORE_TAKEOVER = ("client", "ping", "bye")
_SMALL_RESULT_BYTES = 65536  # up to here a result comes with the news of the run's end: a round trip less
_PIECE_CAP_BYTES = 1 << 22
_REAP_S = 0.02


def state_folder(options: "dict[str, Any]") -> str:
    wanted = options.get("state_dir")
    if wanted:
        return expand_path(str(wanted))
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(cache, "sidewinder")


def _key(message: "dict[str, Any]") -> "Key":
    return (str(message["campaign"]), str(message["run_id"]), int(message["n"]))


class Front:
    def __init__(self, options: "dict[str, Any]", channel_in: int, channel_out: int) -> None:
        self.options = dict(options, state_dir=state_folder(options))
        self.nonce = str(options["nonce"])
        self.answer_s = float(options.get("answer_s") or ANSWER_S)
        self.channel_in, self.channel_out = channel_in, channel_out
        self.pump = Pump()
        self.jobs = Jobs(self.pump)
        self.buffer = FrameBuffer()
        self.store = RecordStore(self.options["state_dir"])
        self.links = {}  # type: dict[Key, Link]
        self.runners = {}  # type: dict[Key, int]  # pids of those that we started, to be reaped
        self.ending = set()  # type: set[int]  # those that said their last word
        self.boot = str(options.get("boot_id") or boot_id())  # a container has many lives in one boot of its node
        self.takeover_fd = None  # type: int | None
        self.client = ""
        self.leaving = False
        self.received_ns = 0

    # -- the channel -------------------------------------------------------------------------------------------------

    def serve(self) -> None:
        self.pump.add(self.channel_in, READABLE, self._read_channel)
        self.say(self._hello())
        while not self.leaving:
            self.pump.turn(self._patience_s())
            self._lose_the_silent()
            self._reap()
            self.store.empty_trash()  # after the answers: nobody waits for it
        self.jobs.end()

    def say(self, message: "dict[str, Any]", blob: bytes = b"") -> None:
        send_frame(self.channel_out, self.nonce, message, blob)

    def _hello(self) -> "dict[str, Any]":
        return {
            "op": "hello",
            "protocol": PROTOCOL,
            "version": self.options.get("version", ""),
            "python": sys.version.split()[0],
            "platform": sys.platform,
            "node": os.uname().nodename,
            "pid": os.getpid(),
            "uid": os.getuid(),
            "boot_id": self.boot,
            "state_dir": self.options["state_dir"],
            "stamp": stamp(),
        }

    def _read_channel(self) -> None:
        data = os.read(self.channel_in, 1 << 20)
        self.received_ns = time.time_ns()
        if not data:
            self.leaving = True  # a run stays with its runner until its lease ends
            return
        for message, blob in self.buffer.feed(data):
            self._answer(message, blob)
            if self.leaving:
                return

    def _answer(self, message: "dict[str, Any]", blob: bytes) -> None:
        op, frame_id = str(message.get("op")), message.get("id")
        handler = getattr(self, "op_" + op, None)
        try:
            if handler is None:
                answer = {"error": "unknown_op", "detail": op}  # type: dict[str, Any] | None
            elif self.takeover_fd is None and op not in _BEFORE_TAKEOVER:
                answer = {"error": "no_client", "detail": "the first frame must say whose front this is"}
            else:
                answer = handler(message, blob)
        except OSError as error:
            answer = {"error": os_error_code(error), "errno": error.errno, "detail": str(error)}
        except (ValueError, KeyError, TypeError) as error:
            answer = {"error": "bad_request", "detail": f"{type(error).__name__}: {error}"}
        if answer is not None:
            body = answer.pop("blob", b"")
            self.say(dict(answer, op=op, id=frame_id), body)

    def _later(self, message: "dict[str, Any]", work: "Any") -> None:
        op, frame_id = message["op"], message.get("id")
        self.jobs.run(work, lambda answer, blob: self.say(dict(answer, op=op, id=frame_id), blob))

    # -- who and when ------------------------------------------------------------------------------------------------

    def op_client(self, message: "dict[str, Any]", _blob: bytes) -> "dict[str, Any]":
        self.takeover_fd, ended = take_over(self.options["state_dir"], message["client"])
        self.client = message["client"]
        if self.takeover_fd is None:
            return {
                "error": "front_busy",
                "detail": "an older front of this controller cannot be ended",
                "front": ended,
            }
        forgotten = self.store.collect_garbage(self.boot)
        return {"ended_front": ended, "forgotten": len(forgotten)}

    def op_ping(self, _message: "dict[str, Any]", _blob: bytes) -> "dict[str, Any]":
        return {"t1_ns": self.received_ns, "t2_ns": time.time_ns()}

    def op_bye(self, _message: "dict[str, Any]", _blob: bytes) -> None:
        self.leaving = True

    # -- looking -----------------------------------------------------------------------------------------------------

    def op_facts(self, message: "dict[str, Any]", _blob: bytes) -> None:
        root, environment = str(self.options.get("root") or "/"), message.get("env") or {}
        self._later(message, lambda: (device_facts(root, environment), b""))

    def op_look(self, message: "dict[str, Any]", _blob: bytes) -> None:
        paths = message["paths"]
        self._later(message, lambda: ({"found": look(paths)}, b""))  # a stat on a dead NFS server never returns

    def op_digest(self, message: "dict[str, Any]", _blob: bytes) -> None:
        path, cache = expand_path(message["path"]), DigestCache(self.options["state_dir"])

        def work() -> "tuple[dict[str, Any], bytes]":
            try:
                return {"sha256": cache.sha256(path)}, b""
            except OSError as error:
                return {"unreadable": error.strerror or str(error), "absent": not os.path.lexists(path)}, b""

        self._later(message, work)

    def op_execute(self, message: "dict[str, Any]", blob: bytes) -> None:
        self._later(message, lambda: execute(message, blob))

    # -- files that are brought here ---------------------------------------------------------------------------------

    def op_stage_look(self, message: "dict[str, Any]", _blob: bytes) -> None:
        self._later(message, lambda: told(lambda: Store(self.options["state_dir"]).look(message["wanted"])))

    def op_stage_append(self, message: "dict[str, Any]", blob: bytes) -> "dict[str, Any]":
        """Here and not in a job: pieces come in order, and each is small."""
        store = Store(self.options["state_dir"])
        return store.append(message["sha256"], int(message["size"]), int(message["offset"]), blob)

    def op_stage_commit(self, message: "dict[str, Any]", _blob: bytes) -> None:
        store = Store(self.options["state_dir"])
        digest, size, executable = message["sha256"], int(message["size"]), bool(message["executable"])
        self._later(message, lambda: told(lambda: store.commit(digest, size, executable)))

    # -- runs --------------------------------------------------------------------------------------------------------

    def op_start(self, message: "dict[str, Any]", blob: bytes) -> "dict[str, Any] | None":
        key = _key(message)
        if self.store.exists(key):
            return self.op_attach(message, blob)  # the answer to an earlier start was lost: idempotent
        highest = self.store.highest(key[0], key[1])
        if key[2] <= highest:
            return {"outcome": "stale", "max_attempt": highest}
        answer, runner = launch(self.store, self.options, key, message, blob, self.boot)
        if runner is not None:
            self.runners[key] = runner[0]
            link = Link(key, runner[1])
            link.attached = link.answered = True  # one end of a socket pair: it ends when the runner does
            self._watch(link)
        elif answer["outcome"] == "exists":
            return self.op_attach(message, blob)
        return answer

    def op_status(self, message: "dict[str, Any]", _blob: bytes) -> "dict[str, Any] | None":
        return self._state_or_ask(_key(message), message)

    def op_attach(self, message: "dict[str, Any]", _blob: bytes) -> "dict[str, Any] | None":
        return self._state_or_ask(_key(message), message)

    def op_hb(self, _message: "dict[str, Any]", _blob: bytes) -> "dict[str, Any]":
        """A heartbeat renews the leases of all attached runs, and says which those are: silence proves nothing."""
        now_s = time.monotonic()
        runs = []
        for link in list(self.links.values()):
            if not link.attached:
                continue
            runs.append([link.key[1], link.key[2], round(now_s - link.heard_s, 3)])
            if not link.beat():
                self._ended(link)
        return {"runs": runs}

    def op_stop(self, message: "dict[str, Any]", _blob: bytes) -> None:
        key = _key(message)
        self._later(
            message, lambda: (kill_and_prove(self.store, key, self.boot, float(message.get("limit_s", 30))), b"")
        )

    def op_result(self, message: "dict[str, Any]", _blob: bytes) -> "dict[str, Any]":
        found = read_result(self.store.result_path(_key(message)))
        if found is None:
            return {"error": "no_result", "detail": "no finished run of this attempt is kept here"}
        return {"blob": found}

    def op_file(self, message: "dict[str, Any]", _blob: bytes) -> "dict[str, Any]":
        """Pieces ``[number, offset, size]`` of the files that the run was asked to bring home, one behind the other."""
        folder = self.store.folder(_key(message))
        pieces = []
        for number, offset, size in message["pieces"]:
            with open(os.path.join(folder, f"out.{int(number)}"), "rb", buffering=0) as file:
                file.seek(int(offset))
                pieces.append(file.read(min(int(size), _PIECE_CAP_BYTES)))
        return {"sizes": [len(piece) for piece in pieces], "blob": b"".join(pieces)}

    def op_ack(self, message: "dict[str, Any]", _blob: bytes) -> "dict[str, Any]":
        key = _key(message)
        if key in self.links and not self.store.has_result(key):
            return {"error": "running", "detail": "this attempt has not ended yet"}
        self.store.forget(key)
        return {}

    def op_purge(self, message: "dict[str, Any]", _blob: bytes) -> "dict[str, Any]":
        """Forget a whole campaign, unless something of it may still run."""
        campaign = str(message["campaign"])
        busy = [
            [key[1], key[2]]
            for key in self.store.keys(campaign)
            if not self.store.has_result(key) and (self.store.meta(key) or {}).get("boot_id") == self.boot
        ]
        if busy:
            return {"purged": False, "busy": busy}
        self.store.forget_campaign(campaign)
        return {"purged": True}

    # -- links -------------------------------------------------------------------------------------------------------

    def _told(self, key: "Key", state: str, why: str = "") -> "dict[str, Any]":
        answer = {"state": state, "max_attempt": self.store.highest(key[0], key[1])}  # type: dict[str, Any]
        if why:
            answer["why"] = why
        return answer

    def _state(self, key: "Key") -> "dict[str, Any] | None":
        """What files alone say; None: only a runner's answer can tell."""
        meta = self.store.meta(key)
        if meta is None:
            return self._told(key, "lost", "no_record") if self.store.exists(key) else self._told(key, "absent")
        if self.store.has_result(key):
            return self._told(key, "finished")
        if meta.get("boot_id") != self.boot:
            return self._told(key, "lost", "rebooted")
        return None

    def _state_or_ask(self, key: "Key", message: "dict[str, Any]") -> "dict[str, Any] | None":
        attach = message["op"] != "status"
        link = self.links.get(key)
        if link is None:
            known = self._state(key)
            if known is not None:
                return self._outcome(known, message["op"])
            connection = connect_to(self.store.folder(key))
            if connection is None:
                # It may have ended between the two looks; a result is there before its socket goes.
                known = self._state(key) or self._told(key, "lost", "runner_died")
                return self._outcome(known, message["op"])
            link = Link(key, connection)
            self._watch(link)
        link.attached = link.attached or attach
        link.answered, link.asked_s = False, time.monotonic()
        link.waiting.append((message.get("id"), message["op"]))
        if not link.beat():
            self._ended(link)
        return None

    @staticmethod
    def _outcome(known: "dict[str, Any]", op: str) -> "dict[str, Any]":
        return dict(known, outcome="exists") if op == "start" else known

    def _watch(self, link: Link) -> None:
        self.links[link.key] = link
        self.pump.add(link.connection.fileno(), READABLE, lambda: self._hear_link(link))

    def _hear_link(self, link: Link) -> None:
        if not link.hear():
            self._ended(link)
        elif link.waiting:
            self._reply_waiting(link, self._told(link.key, "running"))
            if not link.attached:
                self._drop(link)

    def _reply_waiting(self, link: Link, known: "dict[str, Any]") -> None:
        waiting, link.waiting = link.waiting, []
        for frame_id, op in waiting:
            self.say(dict(self._outcome(known, op), op=op, id=frame_id))

    def _drop(self, link: Link) -> None:
        self.links.pop(link.key, None)
        self.pump.remove(link.connection.fileno())
        link.connection.close()

    def _ended(self, link: Link) -> None:
        """The runner is gone, for whatever reason: say what the files say now."""
        if self.links.get(link.key) is not link:
            return
        self._drop(link)
        known = self._state(link.key) or self._told(link.key, "lost", "runner_died")
        self._reply_waiting(link, known)
        if link.attached:
            found = read_result(self.store.result_path(link.key), _SMALL_RESULT_BYTES)
            self.say(dict(known, op="ended", run_id=link.key[1], n=link.key[2]), found or b"")
        if link.key in self.runners:
            self.ending.add(self.runners.pop(link.key))

    def _reap(self) -> None:
        """A runner closes its sockets a moment before it is dead: look again until it is."""
        for pid in list(self.ending):
            if os.waitpid(pid, os.WNOHANG)[0]:
                self.ending.discard(pid)

    def _patience_s(self) -> "float | None":
        ends = [link.asked_s + self.answer_s for link in self.links.values() if link.waiting]
        patience_s = max(0.0, min(ends) - time.monotonic()) if ends else None
        if self.ending:
            return _REAP_S if patience_s is None else min(patience_s, _REAP_S)
        return patience_s

    def _lose_the_silent(self) -> None:
        now_s = time.monotonic()
        for link in list(self.links.values()):
            if link.waiting and now_s - link.asked_s >= self.answer_s:
                waiting, link.waiting = link.waiting, []
                for frame_id, op in waiting:
                    detail = (
                        f"the runner of {link.key[1]}#{link.key[2]} is there but did not answer in {self.answer_s:g} s"
                    )
                    self.say({"op": op, "id": frame_id, "error": "runner_silent", "detail": detail})
                if not link.attached:
                    self._drop(link)


def serve_channel(options: "dict[str, Any]") -> None:
    """Take the channel away from stdin and stdout, so that no stray print ever enters it, and serve."""
    import signal

    channel_in, channel_out = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)
    os.close(null)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the controller; it tells us what to do
    try:
        os.chdir(os.path.expanduser("~"))
    except OSError:
        os.chdir("/")
    try:
        Front(options, channel_in, channel_out).serve()
    except (OSError, BrokenPipeError):
        pass  # the controller is gone: so are we
