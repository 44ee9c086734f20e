"""Where programs run: the machine's layout, the binding of threads and memory, and the launcher."""
