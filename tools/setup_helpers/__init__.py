"""What setup.py calls: fetch and verify sources, check the machine, build, assemble wheels."""
