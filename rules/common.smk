def open_marker(marker):
    """Nothing, a marker newer than what it stands beside, or one that has said its piece."""
    if marker is None:
        return []
    return ancient(marker.path) if marker.settled else marker.path
