"""The tables from which the compiler, the C++ and the documents get what they list."""
