"""Compress a file once and say how long it took: what a point of the sweep runs on its device."""

import json
import sys
import time
import zlib

path, level = sys.argv[1:]
with open(path, "rb") as file:
    data = file.read()
start = time.perf_counter()
packed = zlib.compress(data, int(level))
print(json.dumps({"seconds": time.perf_counter() - start, "ratio": len(packed) / len(data)}))
