"""Rules for ideep, the C++ wrapper that PyTorch uses: it needs only oneDNN's."""

from tools.zendnnify.rules.model import Edit, Phrase
from tools.zendnnify.rules.onednn import PHRASES as _ONEDNN

PHRASES: tuple[Phrase, ...] = tuple(rule for rule in _ONEDNN if rule.name != "keep-cudnn")

EDITS: tuple[Edit, ...] = ()
