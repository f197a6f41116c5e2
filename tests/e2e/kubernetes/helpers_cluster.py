"""A test cluster: one that a person names, or the one that can be started beside the project, for the whole session.

A person's cluster is taken by ``KUBECONFIG`` and ``SIDEWINDER_TEST_CLUSTER=1`` together, never by accident. Else, where
a folder beside the project holds ``cluster/cluster.py`` and we are root on Linux, the processes of one test session
start one cluster and share it; the last one takes it down. Every test works in a namespace that was made for it.

Tests that hurt nodes have a second cluster, one test at a time: what they cut is nobody else's.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp

from sidewinder.files.holder import start_of
from sidewinder.model import Device
from sidewinder.transports.kubernetes_cluster import Cluster
from sidewinder.transports.kubernetes_errors import Refused

PATIENCE_S = 180.0
PROJECT = Path(__file__).resolve().parents[3]
OPT_IN = "SIDEWINDER_TEST_CLUSTER"
HOW = (
    f"needs a cluster: with kind, `kind create cluster && {OPT_IN}=1 KUBECONFIG=~/.kube/config make test`; k3s and "
    "others likewise (SIDEWINDER_TEST_IMAGE and SIDEWINDER_TEST_BARE_IMAGE name images with and without Python that "
    "its nodes can have)"
)
CONTROL = ("scheduler", "kcm")  # what talks to the API server beside the nodes
OUTSIDE = dict(os.environ)  # as the session began: a cluster's files lie in the cache folder of who started it
PROGRAMS = ("etcd", "containerd", "runc", "iptables", "busybox", "ip", "openssl", "gcc")


def script() -> Path | None:
    """What starts a cluster on this machine."""
    found = sorted(PROJECT.parent.glob("*/cluster/cluster.py"))
    return found[0] if found and sys.platform == "linux" else None


def why_not() -> str | None:
    """Why there can be no cluster here; None: there can."""
    if os.environ.get(OPT_IN) == "1":
        return None if os.environ.get("KUBECONFIG") else f"{OPT_IN}=1 needs KUBECONFIG"
    if script() is None:
        return HOW
    return None if os.geteuid() == 0 else f"to start a cluster here takes root; else it {HOW}"


def until(condition: Callable[[], Any], what: str, limit_s: float = PATIENCE_S) -> Any:
    end_s = time.monotonic() + limit_s
    while not (found := condition()):
        assert time.monotonic() < end_s, f"never: {what}"
        time.sleep(0.1)
    return found


class Api:
    """Plain requests to the API server, for what a person or the cluster does meanwhile."""

    def __init__(self, kubeconfig: str) -> None:
        self.kubeconfig = kubeconfig

    def __call__(self, method: str, path: str, body: Any = None, **query: str) -> Any:
        async def ask() -> Any:
            cluster = Cluster(self.kubeconfig, None)
            try:
                return await cluster.request(method, path, query=query, body=body)
            except Refused as error:
                if error.status == 404:
                    return None
                raise
            finally:
                await cluster.close()

        return asyncio.run(ask())


class Namespace:
    """A namespace of one test."""

    def __init__(self, cluster: TestCluster, labels: dict[str, str] | None = None) -> None:
        self.cluster, self.api = cluster, cluster.api
        self.name = f"sidewinder-test-{secrets.token_hex(5)}"
        self.path = f"/api/v1/namespaces/{self.name}"
        metadata = {"name": self.name, "labels": {"sidewinder-test": "yes", **(labels or {})}}
        self.api("POST", "/api/v1/namespaces", {"metadata": metadata})  # refused where it exists: never a stranger's
        until(lambda: self.api("GET", f"{self.path}/serviceaccounts/default"), "its service account")

    def device(self, name: str = "k8s", **settings: Any) -> Device:
        more = {key: settings.pop(key) for key in ("python", "lock", "env") if key in settings}
        found = {
            "image": self.cluster.image,
            "image_pull_policy": self.cluster.pull_policy,
            "kubeconfig": self.cluster.kubeconfig,
            "namespace": self.name,
            "cpu": "500m",
            "memory": "128Mi",
            "ready_timeout_s": PATIENCE_S,
            **settings,
        }
        found = {key: value for key, value in found.items() if value is not None}
        return Device(name, "kubernetes", settings=found, **{"lock": "slot", **more})

    def pod(self, name: str = "sidewinder-k8s") -> Any:
        return self.api("GET", f"{self.path}/pods/{name}")

    def make_pod(self, name: str, **spec: Any) -> Any:
        one = {"name": "c", "image": self.cluster.image, "imagePullPolicy": self.cluster.pull_policy}
        sleeps = "import signal;signal.signal(signal.SIGTERM,lambda *_:None);signal.pause();signal.pause()"
        one["command"] = ["python3", "-c", sleeps]
        body = {"metadata": {"name": name}, "spec": {"containers": [one], **spec}}
        return self.api("POST", f"{self.path}/pods", body)

    def delete_pod(self, name: str = "sidewinder-k8s", *, grace_s: int | None = None) -> None:
        query = {} if grace_s is None else {"gracePeriodSeconds": str(grace_s)}
        self.api("DELETE", f"{self.path}/pods/{name}", **query)

    def close(self) -> None:
        for pod in (self.api("GET", f"{self.path}/pods") or {"items": []})["items"]:
            self.delete_pod(pod["metadata"]["name"], grace_s=0)
        self.api("DELETE", f"/api/v1/namespaces/{self.name}")


class TestCluster:
    """What tests need of a cluster. ``node`` is there only where we started it."""

    __test__ = False

    def __init__(self, kubeconfig: str, own: tuple[Path, str] | None) -> None:
        self.kubeconfig, self._own = kubeconfig, own
        self.api = Api(kubeconfig)
        here = own is not None
        self.image = os.environ.get("SIDEWINDER_TEST_IMAGE") or (
            "k8s.local/python:3.11" if here else "python:3.11-slim"
        )
        self.bare_image = os.environ.get("SIDEWINDER_TEST_BARE_IMAGE") or (
            "k8s.local/busybox:1" if here else "busybox:1"
        )
        self.pull_policy = "Never" if here else "IfNotPresent"
        self._is_over = threading.Event()
        self._keeper: threading.Thread | None = None

    @property
    def is_own(self) -> bool:
        return self._own is not None

    def node(self, name: str, action: str) -> None:
        """``cut``, ``heal``, ``stop-kubelet``, ``start-kubelet``, ``power-off``, ``power-on``."""
        assert self._own is not None
        _run(self._own[0], self._own[1], "node", name.removeprefix("node"), action)

    def make_image(self, name: str, *packages: str) -> str:
        """An image with Python and these of PyPI's, on every node."""
        assert self._own is not None
        _run(*self._own, "image", name, *(word for package in packages for word in ("--pip", package)))
        return name

    def mend(self, node: str) -> None:
        """Whatever a test did to it, and however that test ended."""
        assert self._own is not None
        number = node.removeprefix("node")
        status = dict(line.split()[:2] for line in _run(*self._own, "status").splitlines())
        self.node(node, "heal")
        is_known = self.api("GET", f"/api/v1/nodes/{node}") is not None
        if not status.get(f"holder{number}", "dead").isdigit():
            self.node(node, "power-on")
        elif not status.get(f"kubelet{number}", "dead").isdigit():
            self.node(node, "start-kubelet")
        elif not is_known:  # it makes itself known when it starts
            self.node(node, "stop-kubelet")
            self.node(node, "start-kubelet")
        until(lambda: self.has_ready(node), f"{node} is well again")

    def has_ready(self, node: str) -> bool:
        found = self.api("GET", f"/api/v1/nodes/{node}")
        return found is not None and any(
            one["type"] == "Ready" and one["status"] == "True" for one in found["status"]["conditions"]
        )

    @contextlib.contextmanager
    def without_api_server(self) -> Iterator[None]:
        """It is killed; it is there again, with its arguments, when this ends. So are those who serve the cluster by
        way of it: they would wait up to a minute before they look for it again."""
        assert self._own is not None
        self._keep({name: self._argv(name) for name in CONTROL})
        argv = self._argv("apiserver")
        _python(*self._own, "c.end('apiserver', cluster.signal.SIGKILL)")
        try:
            yield
        finally:
            self._spawn("apiserver", argv)
            until(self._answers, "the API server is there again")
            for name in CONTROL:  # by its pid alone: whoever keeps it starts it again
                before = self._pid(name)
                _python(*self._own, f"if p := c.pid({name!r}): cluster.os.kill(p, cluster.signal.SIGKILL)")
                until(lambda name=name, before=before: self._pid(name) != before, f"{name} is started again")

    def _pid(self, name: str) -> int:
        path = Path(self.kubeconfig).parent / "pids" / name
        found: str = until(lambda: path.read_text(), f"the pid of {name}")  # empty while it is being written
        return int(found.split()[0])

    def _argv(self, name: str) -> list[str]:
        try:
            return Path(f"/proc/{self._pid(name)}/cmdline").read_bytes().decode().split("\0")[:-1]
        except OSError:
            return []  # it ended

    def _spawn(self, name: str, argv: list[str]) -> None:
        assert self._own is not None
        _python(*self._own, "c.spawn(*sys.argv[3:], prefix=c.in_cp)", name, *argv)

    def _keep(self, wanted: dict[str, list[str]]) -> None:
        """Starts them again when they end, as every control plane does: a scheduler ends itself when an API server that
        was killed has told it two things of one pod ("cache is corrupted")."""

        def keep() -> None:
            while not self._is_over.wait(0.5):
                for name, argv in wanted.items():
                    with alone(Path(self.kubeconfig).parent / "keeper"):  # another worker may keep it, too
                        if start_of(self._pid(name)) in (None, "ended"):
                            self._spawn(name, argv)

        if self._keeper is None and all(wanted.values()):
            self._keeper = threading.Thread(target=keep, name="keeper of the control plane", daemon=True)
            self._keeper.start()

    def close(self) -> None:
        self._is_over.set()
        if self._keeper is not None:
            self._keeper.join()

    def _answers(self) -> bool:
        try:
            return self.api("GET", "/api/v1/nodes") is not None
        except (aiohttp.ClientError, OSError, Refused):
            return False

    @contextlib.contextmanager
    def namespace(self, **labels: str) -> Iterator[Namespace]:
        one = Namespace(self, {key.replace("__", "/"): value for key, value in labels.items()})
        try:
            yield one
        finally:
            one.close()


def _run(program: Path, name: str, *arguments: str) -> str:
    done = subprocess.run(
        [program, "--name", name, *arguments], capture_output=True, text=True, check=False, env=OUTSIDE
    )
    assert done.returncode == 0, f"cluster {name} {arguments}: {done.stdout[-1000:]} {done.stderr[-3000:]}"
    return done.stdout


def _python(program: Path, name: str, code: str, *arguments: str) -> None:
    """By the cluster's own means, for what it has no verb for."""
    begin = "import sys; sys.path.insert(0, sys.argv[1]); import cluster; c = cluster.Cluster(sys.argv[2])\n"
    argv = [sys.executable, "-c", begin + code, str(program.parent), name, *arguments]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=OUTSIDE)
    assert done.returncode == 0, f"cluster {name}: {code}: {done.stderr[-3000:]}"


@contextlib.contextmanager
def cluster(purpose: str = "") -> Iterator[TestCluster]:
    """One for each purpose of a session; a person's is there once."""
    if os.environ.get(OPT_IN) == "1":
        yield TestCluster(os.environ["KUBECONFIG"], None)
        return
    program = script()
    assert program is not None
    with _shared(program, purpose) as (name, kubeconfig):
        one = TestCluster(kubeconfig, (program, name))
        try:
            yield one
        finally:
            one.close()


@contextlib.contextmanager
def _shared(program: Path, purpose: str) -> Iterator[tuple[str, str]]:
    """One for the processes of this session: the first one starts it, the last one ends it."""
    session = os.environ.get("PYTEST_XDIST_TESTRUNUID") or secrets.token_hex(4)
    name = f"sw{session[:6]}{purpose}"
    base = Path(tempfile.gettempdir()) / f"sidewinder-test-clusters-{os.getuid()}"
    folder = base / name
    me = folder / str(os.getpid())
    with _locked(base):
        _bury(program, base)
        folder.mkdir(exist_ok=True)
        me.write_text(json.dumps(start_of(os.getpid())))
        kubeconfig = _up(program, name)
    try:
        yield name, kubeconfig
    finally:
        with _locked(base):
            me.unlink()
            _bury(program, base)


def _up(program: Path, name: str) -> str:
    """Where its kubeconfig lies. On a busy machine a node may be there too late to be waited for: then once more."""
    missing = [one for one in PROGRAMS if shutil.which(one) is None]
    for is_last in (False, False, True):
        try:
            return _run(program, name, "up", "--nodes", "2", *(["--install"] if missing else [])).split()[-1]
        except AssertionError:
            _run(program, name, "down")
            if is_last:
                raise
    raise AssertionError("unreachable")


@contextlib.contextmanager
def _locked(base: Path) -> Iterator[None]:
    base.mkdir(mode=0o700, exist_ok=True)
    with alone(base / "lock"):
        yield


@contextlib.contextmanager
def alone(path: Path) -> Iterator[None]:
    """One test, or one process, at a time."""
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _bury(program: Path, base: Path) -> None:
    """Take down the clusters that nobody uses any more, those of a session that was killed included."""
    for folder in [one for one in base.iterdir() if one.is_dir()]:
        for user in folder.iterdir():
            if start_of(int(user.name)) != json.loads(user.read_text()):
                user.unlink()
        if not any(folder.iterdir()):
            _run(program, folder.name, "down")
            folder.rmdir()
