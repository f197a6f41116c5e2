"""The agent: what runs on a device, in standard library Python 3.7, shipped as one source over the channel's stdin.

``source.py`` alone belongs to the controller: it joins the other modules into that one source. The modules here import
nothing of Sidewinder but each other, always as ``from .module import name``, and define no top-level name twice.
See docs/agent.md.
"""
