"""Rules for ideep, the C++ wrapper that PyTorch uses: it needs only oneDNN's."""

from tools.zendnnify.rules.model import Edit, Phrase
from tools.zendnnify.rules.names.onednn import KEPT

PHRASES: tuple[Phrase, ...] = KEPT

EDITS: tuple[Edit, ...] = ()
