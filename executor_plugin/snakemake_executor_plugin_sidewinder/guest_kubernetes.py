"""A guest in pods: what snakemake-executor-plugin-kubernetes (0.5.1) needs to work on a shared folder.

It mounts PersistentVolumeClaims where the person says; the run folder must lie in one of them, under the very path that
it has here. Of a pod that failed it asks the log of the container before, which a pod that is never restarted does not
have: here it is given the log of the one that failed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from snakemake_interface_executor_plugins.executors.real import RealExecutor

from sidewinder.sweep import bound
from snakemake_executor_plugin_sidewinder.errors import SidewinderError


def refuse(settings: Any, workflow: Any) -> None:
    """Raises SidewinderError naming the option: jobs in pods could not find their files, or their Sidewinder."""
    mounted = [os.path.normpath(str(volume.path)) for volume in getattr(settings, "persistent_volumes", ())]
    needed = {"working directory": workflow.workdir_init, "Snakefile": workflow.main_snakefile}
    needed |= {f"config file {index}": path for index, path in enumerate(workflow.overwrite_configfiles, 1)}
    for what, path in needed.items():
        path = os.path.abspath(path)
        if not _is_in(path, mounted):
            raise SidewinderError(
                f"kubernetes-persistent-volumes: jobs in pods would not find the {what} {path}: "
                f"{'only ' + ', '.join(mounted) if mounted else 'nothing'} is mounted there. Name a claim whose volume "
                "holds it, to be mounted under that same path: `CLAIM:FOLDER`."
            )
    image = str(workflow.remote_execution_settings.container_image)
    if image.startswith("snakemake/snakemake:") and bound(workflow):
        raise SidewinderError(
            f"container-image: jobs in pods read this workflow's Snakefile, which loads Sidewinder, and the default "
            f"image {image} has none. Name one with snakemake-executor-plugin-sidewinder installed."
        )


def _is_in(path: str, folders: Iterable[str]) -> bool:
    return any(os.path.commonpath((path, folder)) == folder for folder in folders if os.path.isabs(folder))


class InPods(RealExecutor):  # type: ignore[misc]  # the interface has no types
    """What is put over its executor."""

    _api: Any = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self._api is None:
            raise SidewinderError("this version of snakemake-executor-plugin-kubernetes is not known; install 0.5.1")

    @property
    def kubeapi(self) -> Any:
        return self._api

    @kubeapi.setter
    def kubeapi(self, api: Any) -> None:
        """Set by the plugin, again whenever its token ran out."""
        read = api.read_namespaced_pod_log
        api.read_namespaced_pod_log = lambda *names, **options: read(*names, **{**options, "previous": False})
        self._api = api
