"""Upstream's own tests on our build: every test that passes on stock torch must pass."""
