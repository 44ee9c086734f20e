"""Rules for names in the oneDNN tree: exceptions to the general rule."""

from tools.zendnnify.rules.model import Edit, Phrase

KEPT: tuple[Phrase, ...] = (
    Phrase(
        name="keep-url",
        pattern=r"https?://[^\s\"'<>)\]}|]+",
        reason="a URL must still lead to upstream's page",
    ),
    Phrase(
        name="keep-repository",
        pattern=r"\b(?:oneapi-src|uxlfoundation|intel)(?:/|%2F)(?:oneDNN|mkl-dnn)\b",
        reason="the owner and name of upstream's repository",
    ),
)
"""Names that any of the trees may contain."""

PHRASES: tuple[Phrase, ...] = (
    *KEPT,
    Phrase(
        name="keep-cudnn",
        pattern=r"\b\w*[Cc]udnnL\w*",
        reason="cuDNN's own names (cudnnLRN…) contain the vocabulary by accident",
    ),
    Phrase(
        name="keep-xla",
        pattern=r"\b(?:OneDnnThreadPool\b|xla/backends/[\w/.]+)",
        reason="a class of XLA's and its header",
        versions=">=3.12",
    ),
)

EDITS: tuple[Edit, ...] = ()
