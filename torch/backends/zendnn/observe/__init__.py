"""What has run: events of operators, calls and charts of them, and routes between kernels."""
