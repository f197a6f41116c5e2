"""Fit a model of the measured times: seconds = a + b * level, by device and data."""

import csv
import json
import sys
from collections import defaultdict

source, target = sys.argv[1:]
groups = defaultdict(list)
with open(source, newline="") as file:
    for row in csv.DictReader(file):
        if row["status"] == "ok":
            point = float(row["parameters.level"]), float(row["metrics.seconds"])
            groups[row["device"], row["parameters.data"]].append(point)

models = []
for (device, data), points in sorted(groups.items()):
    n = len(points)
    mean_x, mean_y = sum(x for x, _ in points) / n, sum(y for _, y in points) / n
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0
    models.append({"device": device, "data": data, "points": n, "a": mean_y - slope * mean_x, "b": slope})
with open(target, "w") as file:
    json.dump(models, file, indent=2)
print(f"{len(models)} models")
