"""An admission webhook of one test: a server in a pod that the API server asks about the pods of that namespace alone.

It is reached by its service, as webhooks are everywhere, with a certificate of an authority made for that test alone.
"""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Iterator

from e2e.kubernetes.helpers_certificates import server
from e2e.kubernetes.helpers_cluster import Namespace, until
from e2e.kubernetes.helpers_sweeps import inside
from sidewinder.transports.kubernetes_errors import Refused
from sidewinder.transports.kubernetes_spec import MANAGED_BY, OURS

NAME = "hook"
PORT = 8443
HOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
SAYS = "the lab is closed on Sundays"
SERVER = f"""
import http.server, json, os, ssl, threading
class Hook(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["request"]
        with open("/tmp/asked", "a") as file:
            file.write(asked["name"] + "\\n")
        if self.path.startswith("/silent"):
            threading.Event().wait()
        response = {{"uid": asked["uid"], "allowed": False, "status": {{"code": 403, "message": {SAYS!r}}}}}
        body = json.dumps({{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}})
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())
open("/tmp/asked", "w").close()
open("/tmp/pem", "w").write(os.environ["PEM"])
server = http.server.ThreadingHTTPServer(("", {PORT}), Hook)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("/tmp/pem")
server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
server.serve_forever()
"""


class Hook:
    """``path`` of its URL decides what it does: ``deny``, or ``silent`` (no answer at all)."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace, self._api = namespace, namespace.api
        self._authority, pem = server(f"{NAME}.{namespace.name}.svc")
        container = {
            "name": "agent",
            "image": namespace.cluster.image,
            "imagePullPolicy": namespace.cluster.pull_policy,
            "command": ["python3", "-c", SERVER],
            "env": [{"name": "PEM", "value": pem}],
            "readinessProbe": {"tcpSocket": {"port": PORT}, "periodSeconds": 1},
        }
        pod = {
            "metadata": {"name": NAME, "labels": {"app": NAME}},
            "spec": {"containers": [container], "terminationGracePeriodSeconds": 0},
        }
        self._api("POST", f"{namespace.path}/pods", pod)
        service = {"metadata": {"name": NAME}, "spec": {"selector": {"app": NAME}, "ports": [{"port": PORT}]}}
        self._api("POST", f"{namespace.path}/services", service)

    @contextlib.contextmanager
    def asked(self, path: str) -> Iterator[None]:
        """As long as this lasts the API server asks it about every pod of ours in this namespace, and only there."""
        name = self._namespace.name
        configuration = {
            "metadata": {"name": name},
            "webhooks": [
                {
                    "name": "hours.lab.example",
                    "admissionReviewVersions": ["v1"],
                    "sideEffects": "None",
                    "failurePolicy": "Fail",
                    "timeoutSeconds": 1 if path == "silent" else 10,
                    "clientConfig": {
                        "service": {"namespace": name, "name": NAME, "path": f"/{path}", "port": PORT},
                        "caBundle": base64.b64encode(self._authority.encode()).decode(),
                    },
                    "rules": [
                        {
                            "apiGroups": [""],
                            "apiVersions": ["v1"],
                            "resources": ["pods"],
                            "operations": ["CREATE"],
                        }
                    ],
                    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}},
                    "objectSelector": {"matchLabels": {MANAGED_BY: OURS}},
                }
            ],
        }
        self._api("POST", HOOKS, configuration)
        try:
            until(lambda: self._answer(), "the API server asks it")
            yield
        finally:
            self._api("DELETE", f"{HOOKS}/{name}")

    def _answer(self) -> str:
        """What becomes of a pod that is tried, once the webhook is asked; empty before."""
        container = {"name": "c", "image": "i"}
        tried = {
            "metadata": {"name": "tried", "labels": {MANAGED_BY: OURS}},
            "spec": {"containers": [container]},
        }
        with contextlib.suppress(Refused):
            self._api("POST", f"{self._namespace.path}/pods", tried, dryRun="All")
        return "tried" if "tried" in self.names() else ""

    def names(self) -> list[str]:
        """The pods that it was asked about, each time that it was."""
        return inside(self._namespace, "print(open('/tmp/asked').read())", NAME).split()
