"""tools/setup_helpers/tables.py: what the build and documents get from tables."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from torch.backends.zendnn.table.settings import SETTINGS

from tools.setup_helpers.wheel import version

REPO = Path(__file__).parents[3]


def run(*arguments: str | Path) -> None:
    command = [sys.executable, "-m", "tools.setup_helpers.tables", *map(str, arguments)]
    subprocess.run(command, cwd=REPO, check=True)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("operators")
    run(folder)
    return folder


def test_attributes_have_types_and_defaults(written: Path) -> None:
    text = (written / "torch/csrc/zendnn/plan/describe/Ops.h").read_text()
    assert "struct layer_norm {\n  double eps{1e-05};\n  int64_t dims{1};\n" in text
    assert "  bool include_pad{true};\n" in text
    assert "  std::vector<int64_t> kernel{};\n" in text
    assert '    each("include_pad", self.include_pad);\n' in text
    assert "void build_nothing(Builder& builder, const Node& node);" in text
    assert "build_number" not in text


def test_operators_are_enumerators_in_the_order_of_their_rows(written: Path) -> None:
    names = (written / "torch/csrc/zendnn/plan/describe/Ops.h").read_text()
    names = names.partition("enum class Op : uint8_t {\n")[2].partition("};")[0]
    rows = (written / "torch/csrc/zendnn/plan/describe/OperatorTables.cpp").read_text()
    rows = rows.partition("std::vector<Operator>{\n")[2].partition("  };")[0]
    enumerators = [line.strip(" ,") for line in names.splitlines()]
    assert enumerators == [line.split('"')[1] for line in rows.splitlines()]
    assert {"softmax", "where", "to_like"} < set(enumerators)


def test_torch_is_called_by_a_mapping_or_else_by_a_function_that_must_be_written(
    written: Path,
) -> None:
    folder = written / "torch/csrc/zendnn/plan/describe"
    rows = (folder / "OperatorTables.cpp").read_text()
    call = '*new const TorchCall("aten::gather", "", {"self", "index", "dim"})'
    values = "{arguments[0], arguments[1], node.as<attr::index>().dim}"
    assert f"static const auto& call = {call}; return call({values});" in rows
    assert "none_if_empty(node.as<attr::reduce>().dims)" in rows
    assert '{"rope", infer_rope, build_rope, compute_rope, ' in rows
    declared = set(re.findall(r"c10::IValue (\w+)\(", (folder / "Ops.h").read_text()))
    source = (REPO / "torch/csrc/zendnn/plan/run/Composed.cpp").read_text()
    assert declared == set(re.findall(r"^IValue (compute_\w+)\(", source, re.MULTILINE))


def test_dtypes_that_are_converted_are_enumerators_and_those_computed_in_are_rows(
    written: Path,
) -> None:
    folder = written / "aten/src/ATen/native/zendnn"
    kernels = (folder / "kernels/dtypes.h").read_text()
    assert "enum class DType : uint8_t { none, float16, float32, bfloat16 };" in kernels
    assert "inline constexpr DType kTypeOf<BFloat16> = DType::bfloat16;" in kernels
    rows = (folder / "DtypeRows.inc").read_text().splitlines()[1:]
    assert [row.partition(", {")[0] for row in rows] == [
        'Dtype{ScalarType::Float, "float32", f32, float32',
        'Dtype{ScalarType::BFloat16, "bfloat16", bf16, bfloat16',
    ]


def test_a_kernel_is_chosen_from_the_widest_set_of_its_row_on(written: Path) -> None:
    text = (written / "aten/src/ATen/native/zendnn/kernels/Dispatch.cpp").read_text()
    for args, sets in (
        ("AttentionArgs", ["amx", "avx512_bf16", "avx512"]),
        ("RopeArgs", ["avx512"]),
    ):
        name = args.removesuffix("Args").lower()
        body = text.partition(f"\nvoid {name}(const {args}& args) {{\n")[2].partition("}")[0]
        calls = [f"  if (uses(Isa::{isa})) return {isa}::{name}(args);" for isa in sets]
        assert body.splitlines() == [*calls, f"  return avx2::{name}(args);"]


def test_the_kernel_of_an_operators_name_is_chosen_of_those_with_its_arguments(
    written: Path,
) -> None:
    folder = written / "torch/csrc/zendnn/plan/describe"
    text = (folder / "KernelChoosers.cpp").read_text()
    _, chooser, body = text.partition("void (*norm_kernel(Op op))(const kernels::NormArgs&)")
    assert f"{chooser};" in (folder / "Ops.h").read_text()
    cases = re.findall(r"case Op::(\w+): return kernels::(\w+);", body.partition("default")[0])
    assert cases == [("layer_norm", "layer_norm"), ("rms_norm", "rms_norm")]
    assert "RopeArgs" not in text, "only one operator has such a kernel"


def test_cmake_compiles_every_source_of_a_kernel_for_the_sets_of_its_row(written: Path) -> None:
    lines = (written / "kernels.cmake").read_text().splitlines()[1:]
    lists = {name: rest for name, *rest in (line[4:-1].split() for line in lines)}
    assert lists["zendnn_kernel_sets"] == ["avx2", "avx512", "avx512_bf16", "amx"]
    folder = REPO / "aten/src/ATen/native/zendnn/kernels"
    sources = sorted(path.name for path in folder.glob("*.cpp"))
    assert sorted(lists["zendnn_kernel_sources_avx2"]) == sources
    assert sorted(lists["zendnn_kernel_sources_avx512"]) == sources
    assert lists["zendnn_kernel_sources_amx"] == ["Attention.cpp"]
    assert lists["zendnn_kernel_options_avx2"] == ["-mavx2", "-mfma", "-mf16c"]
    assert "-mavx512bf16" in lists["zendnn_kernel_options_avx512_bf16"]
    assert "-mavx512bf16" not in lists["zendnn_kernel_options_avx512"]


def test_instruction_sets_are_enumerators_and_can_be_emulated(written: Path) -> None:
    header = (written / "aten/src/ATen/native/zendnn/InstructionSets.h").read_text()
    assert "  avx2_bf16 = zendnn_cpu_isa_avx2_vnni_2,\n" in header
    assert header.index('{Isa::amx, "AVX-512 and AMX"}') < header.index("{Isa::avx2, ")
    levels = (written / "third_party/zendnn/levels.inc").read_text().splitlines()[1:]
    flags = [line.split('"')[1] for line in levels]
    assert flags[0] == "amx_bf16"
    assert flags[-1] == "sse4_1"
    assert "avx_vnni" in flags
    assert "" not in flags


def test_functions_are_enumerators_unless_only_passes_use_them(written: Path) -> None:
    text = (written / "aten/src/ATen/native/zendnn/kernels/functions.h").read_text()
    (eltwise,) = [line for line in text.splitlines() if line.startswith("enum class Eltwise")]
    assert eltwise.startswith("enum class Eltwise { none, relu, leaky_relu, clip, ")
    assert "erf," not in eltwise
    assert "enum class Binary { add, sub, mul, div, max, min };" in text
    assert "mul, bit_and, bit_or, bit_xor };" in text


def test_attributes_that_name_algorithms_are_enumerators(written: Path) -> None:
    text = (written / "torch/csrc/zendnn/plan/describe/Ops.h").read_text()
    assert '    {"each", kernels::Reduction::none},\n' in text
    assert "  kernels::Reduction mode{kernels::Reduction::sum};\n" in text
    assert "  kernels::Eltwise algorithm{};\n" in text
    assert "  std::optional<c10::ScalarType> dtype{};\n" in text


def test_tables_name_operands_by_letters(written: Path) -> None:
    text = (written / "torch/csrc/zendnn/plan/describe/OperatorTables.cpp").read_text()
    text = re.sub(r"\[\]\([^{}]* const Arguments.*?; \}, ", "by_name, ", text)
    for row in (
        '{"slice", infer_view, build_view, by_name, "tnNNn", {}, {}, {}, ',
        '{"cat", infer_cat, build_cat, by_name, "tt*", {"dim"}, {}, attr::cat{}, ',
        '{"view", infer_view, build_view, by_name, "tn*", ',
        '{"embedding_bags", infer_embedding_bags, build_embedding_bags, compute_embedding_bags, '
        '"T*", ',
        '{"eltwise", infer_eltwise, build_eltwise, compute_eltwise, "t", '
        '{"algorithm", "alpha", "beta"}, {"algorithm"}, attr::eltwise{}, ',
        "{::zendnn::algorithm::eltwise_sqrt, false, ",
    ):
        assert row in text


def test_functions_call_torchs_operator_with_the_mapped_arguments(written: Path) -> None:
    text = (written / "torch/csrc/zendnn/plan/describe/OperatorTables.cpp").read_text()
    for call in (
        "at::clamp(x, alpha, beta)",
        'at::gelu(x, "tanh")',
        "at::elu(x, alpha, 1, 1)",
        "at::maximum(a, b)",
    ):
        assert f"{{ return {call}; }}" in text


def test_unchanged_files_are_not_written_again(written: Path) -> None:
    path = written / "torch/csrc/zendnn/plan/describe/Ops.h"
    before = path.stat().st_mtime_ns
    run(written)
    assert path.stat().st_mtime_ns == before


def test_variables_have_their_kind_and_default(written: Path) -> None:
    text = (written / "aten/src/ATen/native/zendnn/Variables.h").read_text()
    for line in (
        'Words kPlanLayout{"ZENDNN_PLAN_LAYOUT", "any channels_last blocked"};',
        'Number kTuningBudget{"ZENDNN_TUNING_BUDGET", 2};',
        'WholeNumber kPlanCacheCapacity{"ZENDNN_PLAN_CACHE_CAPACITY", 32};',
        'MachineNumber kAllocatorCache{"ZENDNN_ALLOCATOR_CACHE"};',
        'Text kAmdDir{"ZENDNN_AMD_DIR"};',
    ):
        assert f"inline constexpr {line}\n" in text
    assert "ZENDNN_MAX_CPU_ISA" not in text, "libzendnn reads it"


def test_thresholds_have_their_values(written: Path) -> None:
    text = (written / "aten/src/ATen/native/zendnn/ThresholdRows.h").read_text()
    assert "enum class Threshold : uint8_t { product, product_elsewhere, " in text
    assert '{"softmax_row", 32768},\n' in text


def test_each_variable_that_is_read_is_a_row_and_each_row_is_read() -> None:
    folders = ("aten", "torch", "third_party/zendnn")
    files = [x for folder in folders for x in (REPO / folder).rglob("*.*")]
    sources = [
        path.read_text()
        for path in files
        if path.suffix in (".cpp", ".h", ".py") and path.parent.name != "table"
    ]
    text = "\n".join(sources)
    read = set(re.findall(r'(?:getenv|environ\.get|_settings\.\w+)\(\s*"(ZENDNN_\w+)"', text))
    constants = {
        "k" + "".join(part.capitalize() for part in name.split("_")[1:]): name for name in SETTINGS
    }
    read |= {constants[name] for name in re.findall(r"variables::(k\w+)", text)}
    assert read == {name for name, row in SETTINGS.items() if not row.is_foreign}


def test_each_variable_has_been_read_since_a_version_of_this_project() -> None:
    def numbers(text: str) -> list[int]:
        return [int(number) for number in text.split(".")]

    for name, row in SETTINGS.items():
        assert numbers(row.since) <= numbers(version()), name


@pytest.mark.parametrize("name", ["plan.md", "variables.md"])
def test_the_document_has_the_current_tables(name: str, tmp_path: Path) -> None:
    document = REPO / "docs" / name
    copy = tmp_path / name
    copy.write_text(document.read_text())
    run("--document", copy)
    assert copy.read_text() == document.read_text()
