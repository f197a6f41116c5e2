"""Testing: public fakes for tests of Sidewinder and of what is built on it."""
