"""The one table of vector kernels: the sets of instructions that each is compiled for.

From it the build generates the functions that choose a kernel at run time, what CMake compiles, and
which kernel an operator of the same name has, where several take the same arguments. It imports no
torch.
"""

from __future__ import annotations

from dataclasses import dataclass

#: What every kernel is compiled for, the narrowest first.
BASE_SETS = ("avx2", "avx512")


@dataclass(frozen=True)
class Kernel:
    """A row of the table.

    Attributes:
        source, header: where it is defined and declared, in ``aten/…/zendnn/kernels``.
        result: the type that it returns.
        name: of the function.
        args: the structure that it takes.
        more: sets beyond ``BASE_SETS``, the narrowest first.
    """

    source: str
    header: str
    result: str
    name: str
    args: str
    more: tuple[str, ...] = ()

    @property
    def sets(self) -> tuple[str, ...]:
        """All sets that it is compiled for, the narrowest first."""
        return (*BASE_SETS, *self.more)


def _in(
    source: str, *signatures: str, header: str = "", more: tuple[str, ...] = ()
) -> tuple[Kernel, ...]:
    """Return the kernels of a source, given as ``void name(Args)``; ``more`` as in ``Kernel``."""
    found = []
    for signature in signatures:
        result, _, rest = signature.partition(" ")
        name, _, args = rest.removesuffix(")").partition("(")
        found.append(
            Kernel(f"{source}.cpp", f"{header or source.lower()}.h", result, name, args, more)
        )
    return tuple(found)


KERNELS = (
    *_in("Amax", "void amax(AlongArgs)", "void amin(AlongArgs)", header="along"),
    *_in("Argmax", "void argmax(AlongArgs)", header="along"),
    # Attention and dot products multiply bfloat16 numbers directly.
    *_in(
        "Attention",
        "int64_t attention_scratch_bytes(AttentionArgs)",
        "void attention(AttentionArgs)",
        more=("avx512_bf16", "amx"),
    ),
    *_in(
        "AttentionBackward",
        "int64_t attention_backward_scratch_bytes(AttentionBackwardArgs)",
        "void attention_backward(AttentionBackwardArgs)",
        header="attention",
    ),
    *_in("AvgPool", "void avg_pool(AvgPoolArgs)", header="avg_pool"),
    *_in("BatchNorm", "void batch_norm(BatchNormArgs)", header="batch_norm"),
    *_in(
        "BatchNormTraining",
        "void batch_norm_training(BatchNormTrainingArgs)",
        "void batch_norm_backward(BatchNormBackwardArgs)",
        header="batch_norm",
    ),
    *_in("Depthwise", "bool depthwise(DepthwiseArgs)"),
    *_in("Dot", "void dot(DotArgs)", more=("avx512_bf16",)),
    *_in("Elementwise", "void eltwise(EltwiseArgs)", "void pointwise(PointwiseArgs)"),
    *_in(
        "Embedding",
        "bool embedding_bag(EmbeddingBag)",
        "bool embedding_bags(EmbeddingBagsArgs)",
        "bool pairwise_dot(PairwiseDotArgs)",
    ),
    *_in("GroupNorm", "void group_norm(GroupNormArgs)", header="group_norm"),
    *_in("Indexing", "bool index(IndexArgs)", "bool scatter(ScatterArgs)"),
    *_in("Integers", "void pair(PairArgs)", "void cumsum(CumsumArgs)"),
    *_in("MaxPool", "void max_pool(MaxPoolArgs)", header="max_pool"),
    *_in(
        "Memory",
        "void copy_strided(CopyArgs)",
        "bool gather_pairs(GatherPairsArgs)",
        "void triangle(TriangleArgs)",
    ),
    *_in(
        "Normalization",
        "void layer_norm(NormArgs)",
        "void rms_norm(NormArgs)",
        "void softmax(SoftmaxArgs)",
    ),
    *_in("Normalization", "void logsumexp(AlongArgs)", header="along"),
    *_in("Random", "int bernoulli(BernoulliArgs)"),
    *_in("Resampling", "void find_lines(LinesArgs)", "void resample(ResampleArgs)"),
    *_in("Rope", "void rope(RopeArgs)"),
    *_in("Sum", "void reduce_sum(SumArgs)", "void integer_sum(IntegerSumArgs)"),
    *_in("Windows", "bool takes_windows(Windows)"),
    *_in(
        "Winograd",
        "int64_t winograd_packed_bytes(WinogradWeights)",
        "void winograd_pack(WinogradWeights)",
        "bool winograd_takes(WinogradArgs)",
        "int64_t winograd_scratch_bytes(WinogradArgs)",
        "void winograd(WinogradArgs)",
    ),
)
