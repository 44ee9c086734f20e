"""The source vocabulary and the general rule: the spellings of each word, by case."""

from tools.zendnnify.rules.model import Glued, Spelling

WORDS: tuple[str, ...] = ("mkldnn", "onednn", "dnnl", "ideep")
"""A rule must cover every token that contains one of these, in any case."""

NEW_WORD = "zendnn"
"""Before an L, as in ZENDNNLayerNorm, it contains "dnnl" only by accident."""

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
"""A compiler's -D and -l take no space: -DDNNL_X, -ldnnl."""
