"""A small file: read or written whole, absent things being an answer and not an accident."""

import errno
import json
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FULL_DISK = (errno.ENOSPC, errno.EDQUOT)


def read_text(path: str) -> "str | None":
    """The text of a small file, None where it is absent or cannot be read (sysfs answers EIO, EINVAL, ...)."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        chunks = []  # type: list[bytes]
        while True:
            chunk = os.read(fd, 65536)
            if not chunk:
                return b"".join(chunks).decode("utf-8", "replace")
            chunks.append(chunk)
    except OSError:
        return None
    finally:
        os.close(fd)


def read_number(path: str) -> "int | None":
    text = read_text(path)
    try:
        return int(text) if text else None
    except ValueError:
        return None


def rooted(root: str, path: str) -> str:
    """``path`` below another root, so that recorded /sys and /proc trees can stand in for the machine's."""
    return path if root == "/" else root + path


def read_json(path: str) -> "Any":
    text = read_text(path)
    try:
        return json.loads(text) if text else None
    except ValueError:
        return None


def write_json(path: str, value: "Any") -> None:
    """Replace a small file at once. Not synced: after a power cut the boot id differs and nothing here is trusted."""
    temporary = f"{path}.{os.getpid()}.new"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        write_all(fd, json.dumps(value).encode())
    except OSError:
        os.unlink(temporary)
        raise
    finally:
        os.close(fd)
    os.rename(temporary, path)


def create_json(path: str, value: "Any") -> None:
    """A small file that nobody looks for yet, or takes for absent while it is half there."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        write_all(fd, json.dumps(value).encode())
    finally:
        os.close(fd)


def write_all(fd: int, data: "bytes | bytearray | memoryview") -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def expand_path(path: str) -> str:
    """``~`` as a shell of this device would read it."""
    return os.path.expanduser(path) if path.startswith("~") else path


def remove_tree(path: str) -> None:
    """Remove a folder and all below it; follows no link, minds no folder that its owner made read-only."""
    try:
        names = os.listdir(path)
    except PermissionError:
        os.chmod(path, 0o700)
        names = os.listdir(path)
    except FileNotFoundError:
        return
    for name in names:
        below = os.path.join(path, name)
        try:
            if stat.S_ISDIR(os.lstat(below).st_mode):
                remove_tree(below)
            else:
                os.unlink(below)
        except PermissionError:
            os.chmod(path, 0o700)
            if stat.S_ISDIR(os.lstat(below).st_mode):
                remove_tree(below)
            else:
                os.unlink(below)
        except FileNotFoundError:  # ack and the runner may clean up at the same time
            pass
    try:
        os.rmdir(path)
    except FileNotFoundError:
        pass


def os_error_code(error: OSError) -> str:
    """The protocol's word for what the device's own file system said."""
    if error.errno in FULL_DISK:
        return "disk_full"
    return {errno.EROFS: "read_only", errno.EACCES: "permission", errno.EPERM: "permission"}.get(error.errno or 0, "os")
