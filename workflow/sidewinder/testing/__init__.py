"""Testing: public fakes for tests of Sidewinder and of what is built on it."""

from sidewinder.testing.clock import FakeClock
from sidewinder.testing.device import FakeDevice, Faults
from sidewinder.testing.disk import FakeDisk
from sidewinder.testing.simulation import Simulation, Violation
from sidewinder.testing.world import World

__all__ = ["FakeClock", "FakeDevice", "FakeDisk", "Faults", "Simulation", "Violation", "World"]
