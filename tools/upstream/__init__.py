"""Upstream's own tests on our build: nothing may fail that passes on stock torch."""
