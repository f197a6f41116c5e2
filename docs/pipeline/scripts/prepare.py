"""Make one file of test data: `text` compresses well, `noise` does not."""

import os
import random
import sys

kind, path = sys.argv[1:]
size = 1 << 20
if kind == "noise":
    data = os.urandom(size)
else:
    words = [b"device", b"point", b"record", b"sweep", b"lab", b"hole"]
    data = b" ".join(random.choices(words, k=size // 6))[:size]
with open(path, "wb") as file:
    file.write(data)
print(f"{kind}: {len(data)} bytes, made on {os.uname().nodename}")
