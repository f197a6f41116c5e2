"""An energy counter: the millijoules that an NVIDIA GPU has used since its driver was loaded, read before and after.

It is asked in the driver's own library; ``nvidia-smi`` has no such field. GPUs before Volta have no such counter.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LIBRARY = "libnvidia-ml.so.1"
_SUCCESS = 0
_UUID_BYTES = 96


class NvmlCounters:
    """Of every GPU by its UUID. What is not to be had is not there; nothing here raises."""

    def __init__(self, library: str = LIBRARY) -> None:
        self.handles = {}  # type: dict[str, Any]
        self.before = {}  # type: dict[str, int]
        self.after = {}  # type: dict[str, int]
        self.lib, self.ctypes = _load(library)
        try:
            if self.lib is not None:
                self._find()
        except AttributeError:
            self.lib = None

    def _find(self) -> None:
        ctypes = self.ctypes
        count = ctypes.c_uint(0)
        if self.lib.nvmlDeviceGetCount_v2(ctypes.byref(count)) != _SUCCESS:
            return
        for index in range(count.value):
            handle = ctypes.c_void_p()
            uuid = ctypes.create_string_buffer(_UUID_BYTES)
            if self.lib.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(handle)) != _SUCCESS:
                continue
            if self.lib.nvmlDeviceGetUUID(handle, uuid, ctypes.c_uint(_UUID_BYTES)) == _SUCCESS:
                self.handles[uuid.value.decode("ascii", "replace")] = handle

    def _read(self) -> "dict[str, int]":
        found = {}  # type: dict[str, int]
        millijoules = self.ctypes.c_ulonglong(0)
        try:
            for uuid, handle in self.handles.items():
                if self.lib.nvmlDeviceGetTotalEnergyConsumption(handle, self.ctypes.byref(millijoules)) == _SUCCESS:
                    found[uuid] = millijoules.value
        except AttributeError:
            pass  # a driver that is older than this counter
        return found

    def begin(self) -> None:
        if self.lib is not None:
            self.before = self._read()

    def end(self) -> None:
        if self.lib is not None:
            self.after = self._read()
            self.lib.nvmlShutdown()
            self.lib = None

    def joules(self, uuid: "str | None") -> "float | None":
        """What this GPU used between ``begin`` and ``end``; None: not known. A counter that fell (the driver was loaded
        anew) says nothing."""
        if uuid is None or uuid not in self.before or uuid not in self.after:
            return None
        used = self.after[uuid] - self.before[uuid]
        return used / 1000.0 if used >= 0 else None


def _load(library: str) -> "Any":
    """The library and ctypes; None and None where there is no driver, where it refuses (it was updated and not loaded
    anew) or is older than these functions, and in a Python that was built without ctypes."""
    try:
        import ctypes

        lib = ctypes.CDLL(library)
        return (lib, ctypes) if lib.nvmlInit_v2() == _SUCCESS else (None, None)
    except (ImportError, OSError, AttributeError):
        return None, None
