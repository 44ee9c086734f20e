"""Rules for the oneDNN tree: the general rule, and what must not be touched."""

from tools.zendnnify.rules.model import Action, Edit, Phrase

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

_EXECUTE = "src/common/primitive_iface.cpp"

EDITS: tuple[Edit, ...] = (
    Edit(
        name="declare-execution-counter",
        file=_EXECUTE,
        anchor='#include "stack_checker.hpp"\n',
        action=Action.AFTER,
        text='#include "third_party/zendnn/execution_counters.h"\n',
        reason="the counter below is hand-written",
    ),
    Edit(
        name="count-execution",
        file=_EXECUTE,
        anchor="    auto stream = ctx.stream();\n    status_t status = success;\n",
        action=Action.AFTER,
        text="    zendnn_count_execution(\n"
        "            static_cast<int>(primitive_iface->pd()->impl()->kind()));\n",
        reason="every execution passes here, so that what ran can be asserted and reported",
    ),
)
