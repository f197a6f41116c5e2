"""Engine: the one owner of asyncio; carries instructions out and turns what happens into events."""
