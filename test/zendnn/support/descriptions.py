"""Descriptions with each operator of a plan, their inputs and constants, and random changes of all
three, for code that must refuse or run them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from hypothesis import strategies as st
from torch import Tensor

from test.drawing import Draw, one_of
from test.mutations import changed, changed_lines

BF16 = torch.bfloat16


@dataclass(frozen=True)
class Case:
    """A plan's description and constants, and its inputs."""

    text: str
    constants: tuple[Tensor, ...]
    tensors: tuple[Tensor, ...]
    numbers: tuple[int, ...]


def case(*nodes: str, **operands: Tensor | int) -> Case:
    """A plan that returns ``%y``, and ``%z`` if there is one.

    Upper-case operands are constants, the others inputs.
    """
    inputs = {name: x for name, x in operands.items() if name.islower()}
    constants = {name: x for name, x in operands.items() if not name.islower()}
    lines = [
        "zendnn-plan 3",
        *(
            f"%{name} = input {'tensor' if isinstance(x, Tensor) else 'number'}"
            for name, x in inputs.items()
        ),
        *(f"%{name} = constant {i}" for i, name in enumerate(constants)),
        *nodes,
        "return %y, %z" if any(node.startswith("%z = ") for node in nodes) else "return %y",
    ]
    return Case(
        "\n".join(lines) + "\n",
        tuple(x for x in constants.values() if isinstance(x, Tensor)),
        tuple(x for x in inputs.values() if isinstance(x, Tensor)),
        tuple(x for x in inputs.values() if not isinstance(x, Tensor)),
    )


def random(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=generator).to(dtype)


def ids(*shape: int, below: int = 4) -> Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randint(below, shape, generator=generator)


IMAGE = "stride=1,1 padding=1,1 dilation=1,1 groups=1"
WINDOW = "kernel=3,3 stride=2,2 padding=1,1 dilation=1,1 ceil=0"


def samples() -> dict[str, Case]:
    """Cases that a plan accepts."""
    x, image = random(3, 8), random(2, 16, 6, 6)
    bag = {"TABLE": random(5, 8), "i": ids(6), "o": torch.tensor([0, 2, 2])}
    head, mask = random(2, 2, 3, 8), random(3, 3)
    return {
        "numbers": case(
            "%a = size(%x, 1)",
            "%b = numel(%x)",
            "%c = number_mul(%n, %a)",
            "%d = number_floordiv(%b, %c)",
            "%e = number_remainder(%d, 7)",
            "%f = number_sub(%e, %e)",
            "%g = number_add(%f, -1)",
            "%y = view(%x, %g, 4)",
            "%z = power(%n) exponent=0.5",
            x=x,
            n=2,
        ),
        "views": case(
            "%a = transpose(%x, 1, 2)",
            "%b = permute(%a, 0, 3, 1, 2)",
            "%c = flatten(%b, 1, 2)",
            "%d = unflatten(%c, 1, 6, -1)",
            "%e = unsqueeze(%d, 0)",
            "%f = squeeze(%e, 0)",
            "%g = select(%f, 1, -1)",
            "%h = slice(%g, 1, 1, none, 2)",
            "%i = expand(%h, 2, -1, -1, -1)",
            "%j = expand_as(%i, %i)",
            "%y = contiguous(%j)",
            "%z = eltwise(%i) algorithm=relu alpha=0.0 beta=0.0",
            x=image,
        ),
        "splits": case(
            "%a, %b = split(%x) dim=1 chunks=2",
            "%c, %d = split(%a) dim=0 sizes=1,1",
            "%e, %f = split(%b) dim=0 sizes=1",
            "%g = cat(%c, %d, %e, %f) dim=0",
            "%y = stack(%g, %g) dim=1",
            "%z = cat(%b, %a, %b) dim=1",
            x=image,
        ),
        "images": case(
            f"%a = convolution(%x, %W, %B) {IMAGE} post=relu:0.0:0.0 # first",
            f"%b = convolution(%a, %W, none, %x) {IMAGE} post=add@3;clip:0.0:6.0",
            "%c = prelu(%b, %B)",
            "%d = batch_norm(%c, %B, none, %B, %V) eps=1e-05 post=relu",
            "%e = group_norm(%d, %B, %B) eps=1e-05 groups=4",
            f"%f = max_pool(%e) {WINDOW}",
            f"%g = avg_pool(%e) {WINDOW} include_pad=1",
            "%h = binary(%f, %g, %f) algorithm=add post=mul@2",
            "%y = adaptive_avg_pool(%f) sizes=1,1",
            "%z = mean(%e) dims=2,3 keep=1",
            x=image,
            W=random(16, 16, 3, 3),
            B=random(16),
            V=random(16).abs(),
        ),
        "transposed": case(
            "%a = convolution(%x, %W, %B) stride=2,2 padding=1,1 dilation=1,1 groups=1 "
            "transposed=1 output_padding=1,1",
            "%b = resample(%a, 5, none) algorithm=linear scale_height=0.0 scale_width=1.5 "
            "align_corners=0",
            "%y = resample(%a, %n, none) algorithm=nearest scale_height=0.0 scale_width=2.0 "
            "align_corners=0",
            "%z = roll(%b) shifts=1,-2 dims=2,3",
            x=image,
            n=9,
            W=random(16, 8, 3, 3),
            B=random(8),
        ),
        "writes": case(
            "%a = slice(%x, 1, %n, 4, 1)",
            "%b = write(%x, %a, %v)",
            "%y = write(%b, %b, %w, %r) dim=0 wraps=1",
            "%z = eltwise(%y) algorithm=abs alpha=0.0 beta=0.0",
            x=x,
            n=2,
            v=random(3, 1),
            w=random(2, 8),
            r=torch.tensor([2, -3]),
        ),
        "indices": case(
            "%a = topk(%x) dim=1 k=2 largest=1 sorted=1",
            "%b = take_along(%x, %a) dim=1",
            "%c = index(%b, %r)",
            "%y = logsumexp(%c) dims=1 keep=0",
            "%z = index(%x, none, %r)",
            x=x,
            r=torch.tensor([1, -1]),
        ),
        "depthwise": case(
            "%a = convolution(%x, %D, %B) stride=2,2 padding=0,1 padding_end=1,1 dilation=1,1 "
            "groups=16",
            "%b = pad(%a, 1, 0, 0, 2) value=-0.5",
            "%y = mean(%b) dims=1 keep=0",
            "%z = softmax(%b) dim=1 log=1",
            x=image,
            D=random(16, 1, 3, 3),
            B=random(16),
        ),
        "sequences": case(
            "%y = convolution(%x, %W, none) stride=1 padding=2 dilation=2 groups=2",
            x=random(2, 8, 9),
            W=random(4, 4, 3),
        ),
        "layers": case(
            "%a = linear(%x, %W, %B) post=gelu:0.0:0.0",
            "%J = cat(%W, %W) dim=0",
            "%b = linear(%a, %J, none)",
            "%c, %d = layer_norm(%a, %B, %B, %x) eps=1e-05 dims=1 sizes=8",
            "%e = rms_norm(%d, %B, none, none) eps=1e-06 dims=1",
            "%f = matmul(%c, %e, %x) post=add@2;affine:0.5:0.0",
            "%y = binary(%b, %b) algorithm=max",
            "%z = softmax(%f) dim=-1 log=0",
            x=random(8, 8),
            W=random(8, 8),
            B=random(8),
        ),
        "narrow": case(
            "%a = to(%x) dtype=bfloat16 floating=1",
            "%b = linear(%a, %W, none) dtype=float32",
            "%c = to_like(%b, %a)",
            "%y = matmul(%c, %c)",
            "%z = eltwise(%b) algorithm=affine alpha=-1.5 beta=0.25",
            x=random(8, 8),
            W=random(8, 8, dtype=BF16),
        ),
        "attention": case(
            "%a = attention(%q, %k, %k, %m) scale=0.0 causal=1 grouped=0",
            "%b = nonzero(%m)",
            "%c = where(%b, %m, none) value=-1.5",
            "%d = attention(%q, %q, %q, %c, %b) scale=0.25 fill=-1.0 fill_where=1 additive=1",
            "%y = attention(%a, %d, %d, none) scale=0.5 swapped=1",
            "%z = contiguous(%d)",
            q=head,
            k=head,
            m=mask,
        ),
        "embeddings": case(
            "%a = embedding(%TABLE, %i)",
            "%b = embedding_bag(%TABLE, %i, %o, %w) mode=sum last_offset=0",
            "%c, %d = embedding_bags(%TABLE, %TABLE, %i, %i, %o, %o) count=2 mode=max",
            "%e, %f = embedding_bags(%TABLE, %TABLE, %i, %i) count=2 mode=each last_offset=0",
            "%y = cat(%b, %c, %d) dim=1",
            "%z = binary(%a, %e) algorithm=sub",
            w=random(6),
            **bag,
        ),
        "pairs": case(
            "%a = pairwise_dot(%x, %R, %C)",
            "%b = matmul(%x, %t)",
            "%c = gather_pairs(%b, %R, %C)",
            "%y = cat(%a, %c) dim=1",
            x=random(2, 4, 16),
            t=random(2, 16, 4),
            R=ids(5),
            C=ids(5).flip(0),
        ),
    }


def single_nodes() -> dict[str, Case]:
    """Cases with one operator, on inputs and constants, that a plan accepts."""
    x, image = random(3, 8), random(1, 4, 5, 5)
    values = {
        "x": x,
        "u": x,
        "X": x,
        "i": image,
        "I": image,
        "q": random(1, 2, 3, 8),
        "m": x > 0,
        "K": random(1, 2, 3, 8),
        "W": random(4, 4, 3, 3),
        "D": random(4, 1, 3, 3),
        "n": 2,
        "L": random(5, 8),
        "B": random(4),
        "E": random(8),
        "T": random(5, 8),
        "k": ids(6),
        "J": ids(6),
        "o": torch.tensor([0, 2, 6]),
        "O": torch.tensor([0, 2, 6]),
        "w": random(6),
        "s": random(2, 4, 8),
        "R": ids(3),
        "S": random(2, 1, 3, 3),
        "M": random(3, 3),
        "z": random(8, 3),
        "Z": random(1, 2, 8, 3),
        "C": random(4, 1, 1),
    }
    nodes = [
        *("view(%X, %n, -1, 4)", "view(%x, 24)", "flatten(%i, 1, -1)", "unflatten(%x, 1, 2, -1)"),
        *("transpose(%X, 0, 1)", "permute(%I, 0, 2, 3, 1)", "unsqueeze(%x, %n)", "squeeze(%i, 0)"),
        *("expand(%M, 2, 3, 3)", "expand_as(%M, %S)", "select(%X, 1, %n)", "slice(%x, 1, 1, 7, 2)"),
        *("power(%n) exponent=-0.5", "contiguous(%x)", "to_like(%x, %X)", "to(%x) dtype=bfloat16"),
        *("linear(%x, %L, none)", "linear(%x, %L, none) post=tanh", "matmul(%x, %z) post=relu"),
        *("matmul(%q, %Z)", "prelu(%i, %B)", "nonzero(%x)", "where(%m, %x, %X) filled=1"),
        *("where(%m, none, %x) value=3.0", "softmax(%i) dim=1 log=0", "softmax(%x) dim=-1 log=1"),
        *(f"eltwise(%x) algorithm={name} alpha=0.5 beta=0.75" for name in ("clip", "gelu", "elu")),
        *(f"binary(%x, %X) algorithm={name}" for name in ("add", "div", "max")),
        "binary(%i, %C, %I) algorithm=sub post=mul@2;sigmoid",
        "convolution(%i, %W, %B) stride=1,1 padding=1,1 dilation=1,1 groups=1",
        "convolution(%i, %D, none) stride=2,1 padding=0,1 padding_end=1,0 dilation=1,2 groups=4",
        "convolution(%i, %W, %B, %I) stride=1 padding=1 dilation=1 groups=1 post=add@3;relu",
        "convolution(%i, %W, %B) stride=2 padding=1 dilation=1 groups=1 transposed=1 "
        "output_padding=1",
        "layer_norm(%x, %E, %E, none) eps=1e-05 dims=1 sizes=8",
        "layer_norm(%x, none, none, %X) eps=1e-05 dims=2",
        "rms_norm(%x, %E, none, none) eps=1e-05 dims=1 dtype=float32",
        "rope(%q, %E, %K)",
        "rope(%q, %B, %B) interleaved=1",
        "group_norm(%i, %B, %B) eps=1e-05 groups=2",
        "batch_norm(%i, %B, %B, %B, %B) eps=1e-05 post=relu",
        "attention(%q, %K, %K, none) scale=0.5 causal=1 grouped=1",
        "attention(%q, %q, %q, %M) scale=0.0 swapped=1",
        "attention(%q, %K, %K, %M) scale=0.0 additive=1",
        "embedding(%T, %k)",
        "embedding(%T, %J)",
        "embedding_bag(%T, %k, %O) mode=max last_offset=1",
        "embedding_bag(%T, %J, %o, %w) mode=sum last_offset=0",
        "embedding_bags(%T, %k, %o) count=1 mode=mean last_offset=0",
        "embedding_bags(%T, %J) count=1 mode=each last_offset=0",
        "gather_pairs(%s, %R, %R)",
        "pairwise_dot(%s, %R, %R)",
        "max_pool(%i) kernel=2,3 stride=2,1 padding=0,1 dilation=2,1 ceil=1",
        "avg_pool(%i) kernel=3,2 stride=1,2 padding=1,1 ceil=1 include_pad=0",
        "adaptive_avg_pool(%i) sizes=1,5",
        "resample(%i, 7, none) algorithm=linear scale_height=1.4 scale_width=0.5 align_corners=1",
        "resample(%I, none, %n) algorithm=nearest scale_height=2.0 scale_width=0.0 align_corners=0",
        "mean(%i) dims=2,3 keep=1",
        "mean(%x) dims=0 keep=0",
        "cat(%x, %X, %u) dim=0",
        "cat(%i, %I) dim=1",
        "stack(%x, %X) dim=2",
        "pad(%x, 1, 2, %n, 0) value=0.5",
        "roll(%i) shifts=1,-7 dims=3,0",
    ]
    return {
        node: case(
            f"%y = {node}",
            **{name: x for name, x in values.items() if f"%{name}" in _VALUE.findall(node)},
        )
        for node in nodes
    }


_NUMBER = re.compile(r"(?<![\w%.])-?\d+(?:\.\d+)?(?:e-?\d+)?")
_VALUE = re.compile(r"%\w+")
_ATTRIBUTE = re.compile(r" (\w+=[^ #\n]+)")
_OPERATOR = re.compile(r"= (\w+)\(")

SAMPLES = samples() | single_nodes()

EXTREMES = (
    *("0", "-1", "1", "2", "-2", "3", "7", "8", "16", "17", "64", "65", "255", "1024", "65536"),
    *("2147483647", "2147483648", "-2147483648", "4294967296", "4611686018427387904"),
    *("9223372036854775807", "-9223372036854775808", "18446744073709551616", "72057594037927936"),
    *("nan", "inf", "-inf", "1e-30", "1e30", "1e308", "1e-308", "0.0", "-0.0", "1e400", "none"),
)
TEXTS = [sample.text for sample in SAMPLES.values()]
LINES = sorted({line for text in TEXTS for line in text.splitlines() if "(" in line})
ATTRIBUTES = sorted({found for text in TEXTS for found in _ATTRIBUTE.findall(text)})
OPERATORS = sorted({found for text in TEXTS for found in _OPERATOR.findall(text)})
TOKENS = [
    token.encode()
    for token in (
        *("%x", "%y", "%", "none", "=", " = ", ",", "(", ")", "#", ";", "@", ":", "@3", "post="),
        *("return ", "input ", "tensor", "number", "constant ", "without ", "share_memory"),
        *("without join_in_place", "without choose_layout", "without reuse_operands"),
        *("post=relu", "post=add@0", "post=mul@2", "-1", "0", "\n", " ", "\0", "\t", "\r", "ä"),
        *EXTREMES,
    )
]


def replaced(
    draw: Draw, text: str, pattern: re.Pattern[str], others: Callable[[str], Sequence[str]]
) -> str:
    """The text with one match of the pattern (or its group) replaced.

    The replacement may depend on the text before the match.
    """
    # The first line, the version, stays.
    places = [match.span(pattern.groups) for match in pattern.finditer(text, text.find("\n") + 1)]
    if not places:
        return text
    start, end = one_of(draw, places)
    found = others(text[: text.rfind("\n", 0, start) + 1])
    return text[:start] + one_of(draw, found) + text[end:] if found else text


def strained(draw: Draw, text: str) -> str:
    """The text with extreme numbers, few of them different, throughout one node."""
    lines = text.splitlines()
    nodes = [i for i, line in enumerate(lines) if "(" in line]
    if nodes:
        few = [one_of(draw, EXTREMES) for _ in range(2)]
        i = one_of(draw, nodes)
        lines[i] = _NUMBER.sub(lambda found: one_of(draw, (found[0], *few)), lines[i])
    return "\n".join(lines) + "\n"


def spliced(draw: Draw, text: str) -> str:
    """The text with a node of another description, which reads its values and may be a result."""
    result, _, rest = one_of(draw, LINES).partition(" = ")
    lines = text.splitlines()
    place = draw(st.integers(2, max(2, len(lines))))
    known = sorted(set(_VALUE.findall("\n".join(lines[:place]))))
    if known:
        rest = _VALUE.sub(lambda _: one_of(draw, known), rest)
    new = [f"%new{len(lines)}_{i}" for i, _ in enumerate(result.split(","))]
    lines.insert(place, f"{', '.join(new)} = {rest}")
    return "\n".join([*lines, "return " + new[-1]]) + "\n"


def changed_text(draw: Draw, text: str) -> str:
    kind = one_of(
        draw,
        (
            *("number", "number", "number", "value", "value", "attribute", "attribute"),
            *("operator", "splice", "splice", "strain", "strain", "strain", "lines", "bytes"),
        ),
    )
    if kind == "number":
        return replaced(draw, text, _NUMBER, lambda _: EXTREMES)
    if kind == "value":
        return replaced(draw, text, _VALUE, lambda before: [*_VALUE.findall(before), "none", "1"])
    if kind == "attribute":
        return replaced(draw, text, _ATTRIBUTE, lambda _: ATTRIBUTES)
    if kind == "operator":
        return replaced(draw, text, _OPERATOR, lambda _: OPERATORS)
    if kind == "strain":
        return strained(draw, text)
    if kind == "splice":
        return spliced(draw, text)
    data = text.encode()
    data = (
        b"\n".join(changed_lines(draw, data.split(b"\n")))
        if kind == "lines"
        else changed(draw, data, TOKENS, most=1)
    )
    return data.decode(errors="replace")


#: Other kinds of tensors, each made from one that a plan accepts.
TENSORS: dict[str, Callable[[Tensor], Tensor]] = {
    "bfloat16": lambda x: x.to(BF16),
    "float64": Tensor.double,
    "float16": Tensor.half,
    "int64": Tensor.long,
    "int32": Tensor.int,
    "bool": Tensor.bool,
    "complex": lambda x: x.to(torch.complex64),
    "flat": Tensor.flatten,
    "deeper": lambda x: x[None],
    "turned": lambda x: x.mT if x.dim() > 1 else x,
    "first": lambda x: x[:1] if x.dim() else x,
    **{
        f"without {dim}": lambda x, dim=dim: x.narrow(dim, 0, 0) if x.dim() > dim else x  # type: ignore[misc]
        for dim in range(4)
    },
    "twice": lambda x: torch.cat([x, x]) if x.dim() else x,
    "every other": lambda x: x[..., ::2] if x.dim() else x,
    "repeated": lambda x: x[:1].expand_as(x) if x.dim() else x,
    "far apart": lambda x: x[..., None].expand(*x.shape, 7)[..., 3],
    "one": lambda x: x.flatten()[:1].sum(),
    "nine dimensions": lambda x: x.reshape(*[1] * (9 - x.dim()), *x.shape) if x.dim() < 9 else x,
    "negated": lambda x: torch._neg_view(x) if x.is_floating_point() else x,
    "meta": lambda x: x.to("meta"),
    "sparse": lambda x: x.to_sparse(),
    "large numbers": lambda x: torch.full_like(x, 1 << 62) if x.dtype == torch.int64 else x * 1e38,
    "negative numbers": lambda x: ~x if x.dtype == torch.bool else -x - 1,
    "not numbers": lambda x: x * float("nan") if x.is_floating_point() else x,
    "with a gradient": lambda x: x.requires_grad_() if x.is_floating_point() else x,
}


def changed_tensors(draw: Draw, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The tensors with one changed, swapped, removed or duplicated."""
    if not tensors:
        return (random(2, 3),)
    result = list(tensors)
    i, j = (draw(st.integers(0, len(result) - 1)) for _ in range(2))
    kind = one_of(draw, ("form", "form", "form", "swap", "remove", "repeat"))
    if kind == "form":
        name = one_of(draw, sorted(TENSORS))
        try:
            result[i] = TENSORS[name](result[i].detach())
        except (RuntimeError, NotImplementedError, IndexError):  # It does not apply to this tensor.
            return tensors
    elif kind == "swap":
        result[i], result[j] = result[j], result[i]
    elif kind == "remove":
        result.pop(i)
    else:
        result.insert(j, result[i])
    return tuple(result)


def changed_case(draw: Draw) -> Case:
    """One of ``SAMPLES`` with a few changes, mostly of its text."""
    result = SAMPLES[one_of(draw, sorted(SAMPLES))]
    for _ in range(draw(st.integers(1, 4))):
        what = one_of(
            draw,
            ("text", "text", "text", "constants", "constants", "tensors", "tensors", "numbers"),
        )
        if what == "text":
            result = replace(result, text=changed_text(draw, result.text))
        elif what == "constants":
            result = replace(result, constants=changed_tensors(draw, result.constants))
        elif what == "tensors":
            result = replace(result, tensors=changed_tensors(draw, result.tensors))
        else:
            number = draw(st.one_of(st.integers(-3, 20), st.sampled_from([2**31, 2**63 - 1])))
            result = replace(result, numbers=tuple(number for _ in result.numbers))
    return result
