"""Rules that change what oneDNN does: each says why, and each module which tests show it."""

from tools.zendnnify.rules.changes import additions, faults, instruction_sets, nan
from tools.zendnnify.rules.model import Edit, Phrase

PHRASES: tuple[Phrase, ...] = (*faults.PHRASES, *instruction_sets.PHRASES, *nan.PHRASES)
EDITS: tuple[Edit, ...] = (*additions.EDITS, *faults.EDITS, *nan.EDITS)
