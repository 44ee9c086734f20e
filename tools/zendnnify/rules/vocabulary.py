"""The source vocabulary and the general rule: each word in the few cases that a name can have."""

from tools.zendnnify.rules.model import Glued, Spelling

WORDS: tuple[str, ...] = ("mkldnn", "onednn", "dnnl", "ideep")
"""Every token that contains one of these, in any case, must be covered by a rule."""

NEW_WORD = "zendnn"
"""Followed by an L, as in ZENDNNLayerNorm, it only seems to have the vocabulary in it."""

SPELLINGS: tuple[Spelling, ...] = (
    Spelling("mkldnn", "zendnn"),
    Spelling("Mkldnn", "Zendnn"),
    Spelling("MKLDNN", "ZENDNN"),
    Spelling("dnnl", "zendnn"),
    Spelling("Dnnl", "Zendnn"),
    Spelling("DNNL", "ZENDNN"),
    Spelling("onednn", "zendnn"),
    Spelling("Onednn", "Zendnn"),
    Spelling("ONEDNN", "ZENDNN"),
    Spelling("oneDNN", "ZenDNN"),
    Spelling("OneDNN", "ZenDNN"),
    Spelling("ideep", "adeep"),
    Spelling("Ideep", "Adeep"),
    Spelling("IDEEP", "ADEEP"),
    Spelling("IDeep", "ADeep"),
)

GLUED: tuple[Glued, ...] = (
    Glued("DNNLROOT", "ZENDNNROOT", "an environment variable written as one word"),
    Glued("libdnnl", "libzendnn", "the file name of the library"),
    Glued("dnnld", "zendnnd", "the file name of the library's debug variant"),
)

FLAG_LETTERS = "Dl"
"""A compiler's -D and -l are written without a space: -DDNNL_X, -ldnnl."""
