"""Turns upstream's oneDNN integration, and oneDNN itself, into their ZenDNN variants.

See ``docs/zendnnify.md`` for the rules and ``python -m tools.zendnnify --help`` for the command.
"""
