"""Rules for the oneDNN tree: the general rule, and what must not be touched."""

from tools.zendnnify.rules.model import Edit, Phrase

PHRASES: tuple[Phrase, ...] = (
    Phrase(
        name="keep-url",
        pattern=r"https?://[^\s\"'<>)\]}|]+",
        reason="an address on the web leads to upstream's page, and to no other",
    ),
    Phrase(
        name="keep-repository",
        pattern=r"\b(?:oneapi-src|uxlfoundation|intel)/(?:oneDNN|mkl-dnn)\b",
        reason="the owner and name of upstream's repository",
    ),
    Phrase(
        name="keep-cudnn",
        pattern=r"\b\w*[Cc]udnnL\w*",
        reason="cuDNN's own names (cudnnLRN…), in which the vocabulary only seems to occur",
    ),
)

EDITS: tuple[Edit, ...] = ()
