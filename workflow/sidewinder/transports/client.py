"""An agent client: the controller's end of one channel to one agent front, with every wait bounded.

A lost channel raises ``TransportError`` in everything that waits; ``connect()`` opens a new one, and ``wait`` on it
attaches to what still runs. The client decides nothing: whether to retry, to give up or to kill is its caller's affair.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

from sidewinder.agent import source
from sidewinder.errors import DeviceFault, InternalError, TransportError
from sidewinder.model import EMPTY, Device, Failure, Json, RawResult, Task

from . import scope
from .base import Channel, Transport
from .fetching import Receiver, fetch_files
from .frames import BadFrame, Frame, FrameStream, encode
from .messages import (
    ClockOffset,
    Executed,
    Hello,
    Looked,
    Started,
    Status,
    holder_text,
    raw_result,
    split_result,
    status_of,
    streams_of,
    task_message,
)
from .staging import Stager
from .whose import this_controller

HELLO_S = 60.0
CALL_S = 30.0
FACTS_S = 60.0
STOP_S = 30.0
BYE_S = 2.0
HEARTBEAT_PATIENCE_S = 15.0  # at least so long a heartbeat may take before the link counts as lost
DEVICE_ERRORS = {
    "disk_full": "its disk is full",
    "read_only": "its file system is read-only",
    "permission": "the account may not write there",
}


@dataclass(slots=True)
class _Session:
    """One channel and all that waits on it."""

    channel: Channel
    frames: FrameStream
    calls: dict[int, asyncio.Future[Frame]] = field(default_factory=dict)
    runs: dict[tuple[str, int], asyncio.Future[Status]] = field(default_factory=dict)
    waiting: dict[tuple[str, int], int] = field(default_factory=dict)  # how many wait for each run
    results: dict[tuple[str, int], bytes] = field(default_factory=dict)  # that came with the news of the end
    hello: asyncio.Future[dict[str, Any]] | None = None
    reader: asyncio.Task[None] | None = None
    heart: asyncio.Task[None] | None = None
    lost: str | None = None


class AgentClient:
    """Speaks to the agent on one device. Methods may be used concurrently; they raise ``TransportError`` (the link, or
    the device could not look), ``DeviceFault`` (the device is unfit), nothing else on purpose."""

    def __init__(
        self, transport: Transport, *, campaign: str, client_id: str, heartbeat_s: float = 5.0, lease_s: float = 60.0
    ) -> None:
        self.transport = transport
        self.device: Device = transport.device
        self.campaign = campaign
        self.client_id = client_id
        self.heartbeat_s = heartbeat_s
        self.lease_s = lease_s
        self.hello: Hello | None = None
        self._session: _Session | None = None
        self._number = 0
        self._boots: dict[tuple[str, int], str] = {}  # in which boot of the device each attempt was started by us
        self._connecting = asyncio.Lock()
        self._stager = Stager(self)

    @property
    def connected(self) -> bool:
        return self._session is not None and self._session.lost is None

    @property
    def _point_of(self) -> str:
        return f"device {self.device.id!r}"

    # -- the channel -------------------------------------------------------------------------------------------------

    async def connect(self) -> Hello:
        """Open a channel if there is no live one, take over from older fronts of ``client_id``, read the facts."""
        async with self._connecting:
            if self.connected and self.hello is not None:
                return self.hello
            await self._close_session()
            channel = await self.transport.open()
            nonce = secrets.token_hex(8)
            session = _Session(channel, FrameStream(nonce))
            self._session = session
            try:
                self.hello = await self._introduce(session, nonce)
            except BaseException:
                await self._close_session()
                raise
            return self.hello

    async def _introduce(self, session: _Session, nonce: str) -> Hello:
        session.hello = asyncio.get_running_loop().create_future()
        session.reader = asyncio.create_task(self._read(session), name=f"agent reader {self.device.id}")
        told: dict[str, Any] = {}
        try:
            async with asyncio.timeout(HELLO_S):
                with suppress(TransportError):  # a front that died at once: its exit code says more than the pipe
                    await session.channel.write(source.shipment(nonce, **self.agent_options))
                told = await session.hello
        except TimeoutError:
            session.frames.end()  # few words wait for the rest of a marker; they may say what it hangs in
            raise TransportError(
                f"{self._point_of}: the agent did not answer within {HELLO_S:g} s. {self._said(session)}"
            ) from None
        if told["op"] == "fatal":
            if told.get("error") == "python_too_old":
                raise DeviceFault(
                    f"{self._point_of}: its Python is {told.get('python')}, the agent needs 3.7 or newer. "
                    f"Name a newer interpreter: devices.{self.device.id}.python"
                )
            raise DeviceFault(f"{self._point_of}: the agent refused to start: {told}")
        answer, _ = await self.call("client", client=self.client_id)
        facts: Mapping[str, Json]
        if self.hello is not None and self.hello.boot_id == told["boot_id"] and self.hello.node == told["node"]:
            facts = self.hello.facts
        else:
            facts = _without(await self.call("facts", wait_s=FACTS_S, env=dict(self.device.env)))
            if hasattr(self.transport, "check"):
                self.transport.check(facts)
        known: Mapping[str, Json] = getattr(self.transport, "facts", EMPTY)  # by the way there alone: the pod, its node
        if known:
            facts = {**facts, **known}
        return Hello(
            told["version"],
            told["python"],
            told["platform"],
            told["node"],
            told["boot_id"],
            told["state_dir"],
            facts,
            answer.get("ended_front"),
        )

    @property
    def agent_options(self) -> dict[str, Any]:
        """Options that the transport gives the agent (``state_dir``)."""
        options: dict[str, Any] = getattr(self.transport, "agent_options", {})
        return options

    async def close(self) -> None:
        """Leave. Runs on the device go on until their lease ends."""
        session = self._session
        if session is not None and session.lost is None:
            with suppress(TransportError, TimeoutError):
                async with asyncio.timeout(BYE_S):  # behind what a full link has not taken yet
                    await session.channel.write(encode({"op": "bye"}))
        await self._close_session()

    async def _close_session(self) -> None:
        session, self._session = self._session, None
        if session is None:
            return
        self._lose(session, "closed by us")
        tasks = [task for task in (session.reader, session.heart) if task is not None]
        for task in tasks:
            if task is not asyncio.current_task():
                task.cancel()
        await asyncio.gather(*(task for task in tasks if task is not asyncio.current_task()), return_exceptions=True)
        await session.channel.close()

    def _said(self, session: _Session) -> str:
        noise = bytes(session.frames.noise[-600:]).decode("utf-8", "replace").strip()
        said = " | ".join(part for part in (noise, session.channel.diagnostics().strip()[-1200:]) if part)
        return f"It said: {said}" if said else "It said nothing."

    def _because(self, what: str, why: str) -> str:
        """The transport's own errors name the device and say what happened already."""
        return why if why.startswith(self._point_of) else f"{self._point_of}: {what}: {why}"

    def _lose(self, session: _Session, why: str) -> None:
        """Whoever waits on this channel hears of its end, once."""
        if session.lost is not None:
            return
        session.lost = why
        text = self._because("link lost", why)
        waiting: Iterable[asyncio.Future[Any]] = [*session.calls.values(), *session.runs.values()]
        for future in waiting:
            if not future.done():
                future.set_exception(TransportError(text))
                future.exception()  # seen: a caller that was cancelled meanwhile must not make asyncio complain
        session.calls.clear()
        session.runs.clear()

    async def _read(self, session: _Session) -> None:
        why = "the agent's front ended"
        try:
            while True:
                data = await session.channel.read()
                if not data:
                    break
                for message, blob in session.frames.feed(data):
                    self._take(session, message, blob)
        except TransportError as error:
            why = str(error)
        except BadFrame as error:
            why = f"the agent's answers cannot be read: {error}"
        session.frames.end()
        if session.hello is not None and not session.hello.done():
            session.hello.set_exception(await self._stillborn(session, why))
        self._lose(session, why)

    async def _stillborn(self, session: _Session, why: str) -> Exception:
        """Why no front came to life: an exit code of the far command is the device's fault, its absence the link's."""
        code = await session.channel.exit_code()
        if code is not None and code >= 0 and scope.wrapper(self.device):
            return DeviceFault(
                f"{self._point_of}: the agent did not start, exit code {code}. {self._said(session)} "
                f"{scope.refusal(self.device)}"
            )
        if code is not None and code >= 0:
            python = self.device.python or "its Python"
            meaning = {127: f"{python} is not there", 126: f"{python} cannot be executed"}.get(
                code, "it is no Python 3 or its login shell refuses commands"
            )
            return DeviceFault(
                f"{self._point_of}: the agent did not start, exit code {code}: {meaning}. {self._said(session)} "
                f"Name an interpreter: devices.{self.device.id}.python"
            )
        return TransportError(f"{self._point_of}: the agent did not start: {why}. {self._said(session)}")

    def _take(self, session: _Session, message: dict[str, Any], blob: bytes) -> None:
        op = message.get("op")
        if op in ("hello", "fatal"):
            if session.hello is not None and not session.hello.done():
                session.hello.set_result(message)
        elif op == "ended":
            key = (message["run_id"], message["n"])
            future = session.runs.get(key)
            if future is not None and not future.done():
                if blob:
                    session.results[key] = blob
                future.set_result(status_of(message))
        else:
            call = session.calls.pop(message.get("id", -1), None)
            if call is not None and not call.done():
                call.set_result((message, blob))

    async def call(self, op: str, *, blob: bytes = b"", wait_s: float = CALL_S, **values: Any) -> Frame:
        """One op of the agent (docs/agent.md) and its answer. Raises ``TransportError``, ``DeviceFault``."""
        session = self._session
        if session is None or session.lost is not None:
            why = (session.lost if session is not None else None) or "not connected"
            raise TransportError(self._because("no link", why))
        self._number += 1
        number = self._number
        future: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
        session.calls[number] = future
        try:
            async with asyncio.timeout(wait_s):
                await session.channel.write(encode({"op": op, "id": number, **values}, blob))
                message, answer = await future
        except TimeoutError:
            raise TransportError(f"{self._point_of}: no answer to {op!r} within {wait_s:g} s") from None
        finally:
            session.calls.pop(number, None)
        if "error" in message:
            self._raise(op, message)
        return message, answer

    def _raise(self, op: str, message: Mapping[str, Any]) -> NoReturn:
        code, detail = message["error"], message.get("detail", "")
        if code in DEVICE_ERRORS:
            # before it could say hello it could not say where: the default, and what moves it
            asked = self.agent_options.get("state_dir") or "~/.cache/sidewinder, or where XDG_CACHE_HOME is there"
            where = self.hello.state_dir if self.hello else asked
            raise DeviceFault(
                f"{self._point_of}: {DEVICE_ERRORS[code]} ({where}): {detail}. "
                f"Another folder: devices.{self.device.id}.workdir"
            )
        if code in ("unknown_op", "bad_request", "no_client"):
            raise InternalError(f"{self._point_of}: the agent did not understand {op!r}: {code}: {detail}")
        raise TransportError(f"{self._point_of}: {op!r} failed: {code}: {detail}")

    def _attempt(self, run_id: str, n: int) -> dict[str, Any]:
        return {"campaign": self.campaign, "run_id": run_id, "n": n}

    # -- looking around ----------------------------------------------------------------------------------------------

    async def look(self, paths: Sequence[str]) -> list[Looked]:
        """Each path as the device sees it (``~`` allowed), all in one round trip."""
        message, _ = await self.call("look", paths=list(paths))
        return [
            Looked(
                entry["path"],
                entry["real"],
                entry["kind"],
                entry.get("size_bytes"),
                entry.get("mtime_ns"),
                bool(entry.get("executable")),
                entry.get("detail") or "",
            )
            for entry in message["found"]
        ]

    async def digest(self, path: str, *, timeout_s: float = 3600.0) -> str:
        """SHA-256 of a file on the device. ``FileNotFoundError`` when it is absent."""
        message, _ = await self.call("digest", path=path, wait_s=timeout_s)
        if "sha256" in message:
            return str(message["sha256"])
        if message.get("absent"):
            raise FileNotFoundError(f"{path} is not on {self._point_of}")
        raise TransportError(f"{self._point_of}: could not read {path}: {message.get('unreadable')}")

    async def execute(
        self,
        argv: Sequence[str],
        stdin: bytes = b"",
        timeout_s: float = 60.0,
        env: Mapping[str, str] | None = None,
    ) -> Executed:
        """A short command that is not measured. ``FileNotFoundError`` when argv[0] is absent."""
        message, blob = await self.call(
            "execute",
            blob=stdin,
            wait_s=timeout_s + CALL_S,
            argv=list(argv),
            timeout_s=timeout_s,
            env=dict(env or {}),
        )
        if message.get("spawn_error") == "not_found":
            raise FileNotFoundError(f"{self._point_of}: {message.get('detail')}")
        if "spawn_error" in message:
            raise DeviceFault(f"{self._point_of}: {message.get('detail')}")
        if message["returncode"] is None:
            raise TransportError(f"{self._point_of}: {argv[0]} did not end within {timeout_s:g} s and was killed")
        out, err = streams_of(message, blob)
        return Executed(message["returncode"], out.head + out.tail, err.head + err.tail)

    async def clock(self, probes: int = 10) -> ClockOffset:
        """Offset of the device's clock: the probe with the shortest round trip bounds it best."""
        import time

        best: tuple[int, float] | None = None
        for _ in range(max(1, probes)):
            sent = time.time_ns()
            start = time.monotonic_ns()
            message, _ = await self.call("ping")
            trip = time.monotonic_ns() - start
            held = message["t2_ns"] - message["t1_ns"]
            offset = ((message["t1_ns"] - sent) + (message["t2_ns"] - (sent + trip))) / 2
            rtt = max(0, trip - held)
            if best is None or rtt < best[0]:
                best = (rtt, offset)
        assert best is not None
        return ClockOffset(best[1] / 1e9, best[0] / 2e9, max(1, probes))

    # -- files that are brought there --------------------------------------------------------------------------------

    async def stage(self, source: Path, sha256: str, *, progress: Callable[[int], None] | None = None) -> str:
        """Make the content of this machine's file ``source``, whose digest is ``sha256``, be on the device; its path
        there. Idempotent; those who want one digest at once share one transfer.

        ``progress`` is told how many of its bytes are there: first what lay there already, at last all. Raises
        ``ConfigError`` too: the file here is missing or changes."""
        return await self._stager.stage(source, sha256, progress)

    def store_path(self, sha256: str) -> str:
        """Where the device keeps this content once it is staged. Known from the first connection on."""
        if self.hello is None:
            raise TransportError(f"{self._point_of}: not connected")
        return f"{self.hello.state_dir}/store/{sha256}"

    async def staged(self, sha256s: Sequence[str]) -> dict[str, str]:
        """Which of these contents are on the device whole, with their paths there. One round trip."""
        return await self._stager.staged(sha256s)

    # -- runs --------------------------------------------------------------------------------------------------------

    def boot_of(self, run_id: str, n: int) -> str | None:
        """The boot of the device that this attempt began in, or begins in if it begins now. None: it is not connected,
        or remembers by itself what ran in an earlier boot, as a machine does and a pod does not."""
        if not hasattr(self.transport, "death_of"):
            return None
        now = self.hello.boot_id if self.connected and self.hello is not None else None
        return self._boots.get((run_id, n), now)

    def began_in(self, run_id: str, n: int, boot: str) -> None:
        """An earlier controller claimed or started this attempt in that boot."""
        self._boots[run_id, n] = boot
        if hasattr(self.transport, "ran_in"):
            self.transport.ran_in(boot)  # it uses no later life before what ran in that one is over

    async def death_of(self, run_id: str, n: int) -> Failure | None:
        """How what this attempt ran in ended, and that it did, by what the way there knows; None: nothing says so.
        Needs no connection. Raises ``TransportError``, ``DeviceFault``, ``ConfigError``."""
        boot = self._boots.get((run_id, n))
        return await self.death_in(boot) if boot is not None else None

    async def death_in(self, boot: str) -> Failure | None:
        """The same of a boot of the device."""
        if not hasattr(self.transport, "death_of"):
            return None
        found: Failure | None = await self.transport.death_of(boot)
        return found

    async def status(self, run_id: str, n: int) -> Status:
        message, _ = await self.call("status", **self._attempt(run_id, n))
        return await self._believed(run_id, n, status_of(message))

    async def _believed(self, run_id: str, n: int, status: Status) -> Status:
        """A device that forgot what it had begun (a container that was made anew) has rebooted: its "absent" does not
        mean that the attempt never reached it."""
        boot, now = self._boots.get((run_id, n)), self.hello.boot_id if self.hello is not None else None
        if status.state == "running" and now is not None:
            self._boots[run_id, n] = now
        elif status.state in ("absent", "lost") and boot is not None and now is not None and boot != now:
            death = await self.death_of(run_id, n)
            return Status("lost", "rebooted", max(n, status.max_attempt), death)
        return status

    async def start(self, run_id: str, n: int, task: Task, slot: int = 0) -> Started:
        """Start an attempt. Idempotent: where the device has it already, the outcome is ``exists``."""
        if task.inline is not None:
            raise InternalError("a task without a process does not go to a device")
        session, key = self._session, (run_id, n)
        if session is not None and session.lost is None and key not in session.runs:
            # The front watches what it starts: its end may be told before anybody waits for it.
            session.runs[key] = asyncio.get_running_loop().create_future()
        if self.hello is not None and self.connected:
            self._boots.setdefault(key, self.hello.boot_id)  # before the answer, which may be lost with the boot
        try:
            started = await self._start(run_id, n, task, slot)
        except BaseException:
            self._unsubscribe(session, key)
            raise
        if started.outcome != "started":
            self._unsubscribe(session, key)
        if started.outcome in ("started", "exists") and self.hello is not None:
            self._boots[key] = self.hello.boot_id
        else:
            self._boots.pop(key, None)  # it never began
        return started

    @staticmethod
    def _unsubscribe(session: _Session | None, key: tuple[str, int]) -> None:
        if session is not None and key not in session.waiting:
            session.results.pop(key, None)
            future = session.runs.pop(key, None)
            if future is not None:
                future.cancel()

    async def _start(self, run_id: str, n: int, task: Task, slot: int) -> Started:
        message, _ = await self.call(
            "start",
            blob=task.stdin,
            wait_s=CALL_S + len(task.stdin) / 100_000,  # a slow link must be able to carry a large input
            client=self.client_id,
            who=this_controller(),
            lock=self.device.lock,
            slot=slot,
            lease_s=self.lease_s,
            since_utc=datetime.now(UTC).isoformat(timespec="milliseconds"),
            task=task_message(task),
            **self._attempt(run_id, n),
        )
        outcome = message["outcome"]
        if outcome == "busy":
            holder = message.get("holder") or {}
            held_by = (holder.get("campaign", ""), holder.get("run_id", ""), int(holder.get("n") or 0))
            return Started(
                "busy",
                holder=holder_text(holder),
                mine=holder.get("client") == self.client_id,
                held_by=held_by if holder else None,
            )
        status = status_of(message) if "state" in message else Status("")
        return Started(outcome, status.state, status.why, message.get("max_attempt", 0))

    async def wait(self, run_id: str, n: int) -> Status:
        """Wait for the end of an attempt, sending heartbeats: ``finished``, ``lost`` or ``absent``, never ``running``.

        Bounded by the device: the runner ends the run at its time-out, heartbeats prove that it is still there.
        """
        session = self._session
        if session is None or session.lost is not None:
            raise TransportError(f"{self._point_of}: no link to wait on")
        key = (run_id, n)
        ended = session.runs.get(key)
        watched = ended is not None  # started on this channel, or waited for already: the front tells its end
        if ended is None:
            ended = asyncio.get_running_loop().create_future()
            session.runs[key] = ended
        session.waiting[key] = session.waiting.get(key, 0) + 1
        try:
            if not watched:
                # The subscription stands before the question: an end between the two cannot be missed.
                message, _ = await self.call("attach", **self._attempt(run_id, n))
                status = await self._believed(run_id, n, status_of(message))
                if status.state != "running":
                    if not ended.done():
                        ended.set_result(status)  # also for those who began to wait meanwhile
                    return status
            if session.heart is None or session.heart.done():
                session.heart = asyncio.create_task(self._beat(session), name=f"heartbeats {self.device.id}")
            return await asyncio.shield(ended)
        finally:
            session.waiting[key] -= 1
            if not session.waiting[key]:  # the last who waits ends the subscription, not the first who leaves
                del session.waiting[key]
                if session.runs.get(key) is ended:
                    del session.runs[key]
                ended.cancel()

    async def _beat(self, session: _Session) -> None:
        """Heartbeats while anything is waited for. Their answer names the runs that the front watches: a run that it
        does not know has ended unheard and is asked for again."""
        patience_s = max(3 * self.heartbeat_s, HEARTBEAT_PATIENCE_S)
        missing: dict[tuple[str, int], int] = {}
        while session.waiting and session.lost is None:
            await asyncio.sleep(self.heartbeat_s)
            if not session.waiting:
                return
            try:
                message, _ = await self.call("hb", wait_s=patience_s)
            except TransportError as error:
                self._lose(session, str(error))
                await session.channel.close()
                return
            watched = {(run_id, n): silent_s for run_id, n, silent_s in message["runs"]}
            for key, future in list(session.runs.items()):
                if key in watched:
                    missing.pop(key, None)
                    if watched[key] > max(self.lease_s, patience_s) and not future.done():
                        text = f"the runner of {key[0]}#{key[1]} is there but silent for {watched[key]:.0f} s"
                        future.set_exception(TransportError(f"{self._point_of}: {text}"))
                        future.exception()
                elif not future.done():
                    missing[key] = missing.get(key, 0) + 1
                    if missing[key] >= 2:  # once may be an `ended` that is on its way
                        await self._ask_again(session, key, future)

    async def _ask_again(self, session: _Session, key: tuple[str, int], future: asyncio.Future[Status]) -> None:
        try:
            message, _ = await self.call("attach", **self._attempt(*key))
        except TransportError as error:
            if not future.done():
                future.set_exception(error)
                future.exception()
            return
        status = status_of(message)
        if status.state != "running" and not future.done():
            future.set_result(status)

    async def fetch(self, run_id: str, n: int) -> RawResult:
        """The raw result of a finished attempt; what it left in files is ``fetch_files``."""
        result = self._session.results.pop((run_id, n), None) if self._session is not None else None
        if result is None:
            _, result = await self.call("result", wait_s=120.0, **self._attempt(run_id, n))
        document, streams = split_result(result)
        return raw_result(document, streams, self.hello.facts if self.hello else EMPTY)

    async def fetch_files(self, run_id: str, n: int, entries: Sequence[Mapping[str, Json]], to: Receiver) -> None:
        """Bring the ``files`` of a raw result home. Raises what ``to`` raises, too."""
        await fetch_files(self, self._attempt(run_id, n), entries, to)

    async def ack(self, run_id: str, n: int) -> None:
        """The result is safe here: the device may forget it."""
        self._unsubscribe(self._session, (run_id, n))
        self._boots.pop((run_id, n), None)
        await self.call("ack", **self._attempt(run_id, n))

    async def stop(self, run_id: str, n: int, *, wait_s: float = STOP_S) -> bool:
        """End an attempt, however it lives. True: proven dead, another attempt may start."""
        message, _ = await self.call("stop", wait_s=wait_s + CALL_S, limit_s=wait_s, **self._attempt(run_id, n))
        if message["dead"]:
            self._boots.pop((run_id, n), None)
        return bool(message["dead"])

    async def purge(self) -> bool:
        """Forget all of this campaign on the device. False: something of it may still run there."""
        message, _ = await self.call("purge", wait_s=300.0, campaign=self.campaign)
        return bool(message["purged"])


def _without(frame: Frame) -> dict[str, Json]:
    return {name: value for name, value in frame[0].items() if name not in ("op", "id")}
