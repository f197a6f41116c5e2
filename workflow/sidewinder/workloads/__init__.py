"""Workloads: what runs on a device and how its output is read. They know no kind of device."""
