"""Rules for PyTorch's oneDNN integration: exceptions to the general rule, and edits.

Most follow from two facts. The ``zendnn`` backend is dispatch key and device type
``PrivateUse1``. And the converted files compile against an installed torch, whose operators,
symbols and helper functions keep their names.
"""

from dataclasses import dataclass

from tools.zendnnify.rules.model import Action, Edit, Phrase, Where
from tools.zendnnify.rules.names.onednn import KEPT

_CPP = ("*.cpp", "*.h")
_PYTHON = ("*.py",)
_NATIVE = "aten/src/ATen/native/mkldnn/"
_FROZEN = "torch/csrc/jit/passes/frozen_ops_to_mkldnn.cpp"
_TEST = "test/test_mkldnn.py"

PHRASES: tuple[Phrase, ...] = (
    *KEPT,
    Phrase(
        name="product-name",
        pattern=r"\bMKL-DNN\b",
        replacement="ZenDNN",
        files=(*_CPP, *_PYTHON),
        where=Where.STRING | Where.COMMENT,
        reason="messages with oneDNN's former name would point users to the wrong library",
    ),
    # --- C++: where a tensor lives ---------------------------------------------------------
    Phrase(
        name="dispatch-key",
        pattern=r"\bMkldnnCPU\b",
        replacement="PrivateUse1",
        files=_CPP,
        reason="the backend's dispatch key is PrivateUse1",
    ),
    Phrase(
        name="is-backend-tensor",
        pattern=r"(?<=[.>])is_mkldnn(?=\(\))",
        replacement="is_privateuseone",
        files=_CPP,
        where=Where.CODE,
        reason="at::Tensor has this method for our device type; no method can be added",
    ),
    Phrase(
        name="to-backend-tensor",
        pattern=r"(?<=[.>])to_mkldnn\(\)",
        replacement="to(c10::DeviceType::PrivateUse1)",
        files=_CPP,
        where=Where.CODE,
        reason="no method can be added to at::Tensor; moving to the device does the same",
    ),
    Phrase(
        name="dense-result",
        pattern=r"\blayout\((?:c10::kStrided|at::Layout::Strided|c10::Layout::Strided)\)",
        replacement="device(c10::kCPU)",
        files=_CPP,
        where=Where.CODE,
        reason="a zendnn tensor differs from a dense one by its device, not by its layout",
    ),
    # --- C++: names that collide with torch's own --------------------------------------------
    Phrase(
        name="library-namespace",
        pattern=r"(?<![\w:])dnnl::(?=\w)",
        replacement="::zendnn::",
        files=_CPP,
        where=Where.CODE,
        reason="at::native::mkldnn and ::dnnl both become zendnn; this one is the global one",
    ),
    Phrase(
        name="no-export",
        pattern=r"\bTORCH_API\s+",
        replacement="",
        files=_CPP,
        where=Where.CODE,
        reason="helpers keep upstream's names; for exported ones the dynamic linker would pick "
        "torch's own instead",
    ),
    # --- C++: names of the installed torch --------------------------------------------------
    Phrase(
        name="keep-operator-header",
        pattern=r"<ATen/ops/\w+\.h>",
        files=_CPP,
        reason="these headers come with the installed torch",
    ),
    Phrase(
        name="keep-operator-call",
        pattern=r"\bat::{operators}(?=\()",
        files=_CPP,
        where=Where.CODE,
        reason="the operator and its derivative come with the installed torch; our kernel is "
        "registered under it",
    ),
    Phrase(
        name="operator-call-by-argument",
        pattern=r"(?<![\w:])(mkldnn_reorder_conv[23]d_weight)(?=\()",
        replacement=r"at::native::\1",
        files=(_FROZEN,),
        where=Where.CODE,
        reason="argument-dependent lookup finds the one in at; our kernel is in at::native",
    ),
    Phrase(
        name="keep-quoted-operator",
        pattern=r"\baten::(?!to_mkldnn\b){operators}\b",
        where=Where.STRING | Where.COMMENT,
        reason="an operator of the installed torch, named in a string",
    ),
    Phrase(
        name="context-enabled",
        pattern=r"\bat::globalContext\(\)\.userEnabledMkldnn\(\)",
        replacement="at::native::zendnn::enabled()",
        files=_CPP,
        reason="oneDNN's switch in torch's Context is not ours",
    ),
    Phrase(
        name="context-deterministic",
        pattern=r"\bat::globalContext\(\)\.deterministicMkldnn\(\)",
        replacement="at::native::zendnn::deterministic()",
        files=_CPP,
        reason="oneDNN's switch in torch's Context is not ours",
    ),
    Phrase(
        name="mkl-part",
        pattern=r"\bAT_MKL_ENABLED\b",
        replacement="AT_ZENDNN_MKL_ENABLED",
        files=_CPP,
        reason="packing weights for MKL stays torch's own; our build defines this as 0",
    ),
    # --- C++: symbols of the JIT ------------------------------------------------------------
    Phrase(
        name="keep-group-symbol",
        pattern=r"\bprim::MKLDNNGroup\b",
        files=_CPP,
        where=Where.CODE,
        reason="torch's AliasDb knows this kind of node; it never leaves the pass",
    ),
    Phrase(
        name="keep-constant-symbol",
        pattern=r"\bprim::ConstantMKLDNNTensor\b",
        files=_CPP,
        where=Where.CODE,
        reason="torch's own operator pushes any kind of tensor constant",
    ),
    Phrase(
        name="jit-symbol",
        pattern=r"\bprim::(MKLDNN\w+)\b",
        replacement=r'Symbol::prim("\1")',
        files=_CPP,
        where=Where.CODE,
        reason="torch interns no symbol of this name at compile time",
    ),
    Phrase(
        name="jit-conversion-symbol",
        pattern=r"\baten::to_mkldnn\b",
        replacement='Symbol::fromQualString("aten::to_zendnn")',
        files=_CPP,
        where=Where.CODE,
        reason="torch interns no symbol of this name at compile time",
    ),
    # --- C++: names of the installed torch without a replacement -----------------------------
    Phrase(
        name="refuse-torch-name",
        pattern=r"\b(?:kMkldnn|Layout::Mkldnn|Backend::Mkldnn\w*|ConvBackend::Mkldnn\w*"
        r"|(?:user|setUser)EnabledMkldnn|(?:d|setD)eterministicMkldnn|hasMKLDNN"
        r"|Float32Backend::MKLDNN|prim::BroadcastMKLDNNTensors|AutogradMkldnn\w*)\b",
        refuse=True,
        files=_CPP,
        where=Where.CODE,
        reason="a name of the installed torch without a zendnn counterpart",
    ),
    # --- Python -----------------------------------------------------------------------------
    Phrase(
        name="keep-python-operator",
        pattern=r"\btorch\.(?:_C\._nn\.|_VF\.|ops\.aten\.)?{operators}\b",
        files=_PYTHON,
        reason="the operator and its derivative come with the installed torch; our kernel is "
        "registered under it",
    ),
    Phrase(
        name="backend-switch",
        pattern=r"\btorch\._C\.((?:_verbose\.)?_?(?:has|get|set)?_?mkldnn_?\w*)",
        replacement=r"torch.backends.zendnn._C.\1",
        files=_PYTHON,
        reason="torch._C is torch's own binary; our switches are in a module of our package",
    ),
    Phrase(
        name="refuse-torch-binding",
        pattern=r"\btorch\._C\.\w*(?:mkldnn|MKLDNN|onednn)\w*",
        refuse=True,
        files=_PYTHON,
        reason="torch._C is torch's own binary and has no zendnn counterpart",
    ),
    Phrase(
        name="is-backend-tensor-python",
        pattern=r"\.is_mkldnn\b",
        replacement=".device.type == 'zendnn'",
        files=_PYTHON,
        where=Where.CODE,
        reason="TorchScript knows a tensor's device, but no property that we add",
    ),
    # --- The test file ----------------------------------------------------------------------
    Phrase(
        name="test-device",
        pattern=r"(\w*mkldnn\w*\.device, )torch\.device\('cpu'\)",
        replacement=r"\1torch.device('zendnn', 0)",
        files=(_TEST,),
        reason="a zendnn tensor lives on its own device",
    ),
    Phrase(
        name="test-type-name",
        pattern=r"\bMkldnntorch\.FloatTensor\b",
        replacement="zendnnFloatType",
        files=(_TEST,),
        reason="torch prints types of a PrivateUse1 backend this way",
    ),
    Phrase(
        name="test-factory",
        pattern=r"device=torch\.device\('cpu'\), layout=torch\._mkldnn\b",
        replacement="device=torch.device('zendnn')",
        files=(_TEST,),
        reason="a zendnn tensor differs from a dense one by its device, not by its layout",
    ),
    Phrase(
        name="test-printing",
        pattern=r'"layout=torch\._mkldnn"',
        replacement="\"device='zendnn:0'\"",
        files=(_TEST,),
        reason="a zendnn tensor differs from a dense one by its device, not by its layout",
    ),
    Phrase(
        name="test-legacy-new",
        pattern=r"assertRaises\(RuntimeError, lambda: (x_mkldnn\.new)\b",
        replacement=r"assertRaises((RuntimeError, TypeError), lambda: \1",
        files=(_TEST,),
        reason="torch refuses a wrong device with another error type than a wrong layout",
    ),
    Phrase(
        name="python-layout",
        pattern=r"\blayout=torch\._mkldnn\b",
        replacement="device=torch.device('zendnn')",
        files=_PYTHON,
        reason="a zendnn tensor differs from a dense one by its device, not by its layout",
    ),
)


@dataclass(frozen=True)
class Stub:
    """A kernel without an operator of its own: upstream calls it through a dispatch stub.

    Attributes:
        name: of the kernel, with ``{}`` for the vocabulary word.
        result, parameters: its C++ signature.
        file: where upstream registers the stub, below the integration's folder.
        versions: as for an edit.
    """

    name: str
    result: str
    parameters: tuple[str, ...]
    file: str
    versions: str = ""

    @property
    def old_kernel(self) -> str:
        return self.name.format("mkldnn")

    @property
    def old_name(self) -> str:
        return f"{self.old_kernel}_stub"

    @property
    def declaration(self) -> str:
        kernel = self.name.format("zendnn")
        return (
            f"using {kernel}_fn = {self.result} (*)({', '.join(self.parameters)});\n"
            f"extern const {kernel}_fn {kernel}_stub"
        )

    @property
    def definition(self) -> str:
        kernel = self.name.format("zendnn")
        return f"const {kernel}_fn {kernel}_stub = &{kernel}"


_INPUTS = ("const at::Tensor& input", "const at::Tensor& grad_output", "const at::Tensor& weight")
_WINDOW = ("at::IntArrayRef stride", "at::IntArrayRef dilation", "int64_t groups")
_PADDING = ("at::IntArrayRef padding",)
_BOTH_PADDINGS = (*_PADDING, "at::IntArrayRef output_padding")
_MASK = ("std::array<bool, 3> output_mask",)
_GRADIENTS = "std::tuple<at::Tensor, at::Tensor, at::Tensor>"

STUBS: tuple[Stub, ...] = (
    Stub(
        "{}_convolution_backward",
        _GRADIENTS,
        (*_INPUTS, *_PADDING, *_WINDOW, *_MASK),
        "Conv.cpp",
    ),
    Stub(
        "{}_convolution_transpose",
        "at::Tensor",
        (
            "const at::Tensor& input",
            "const at::Tensor& weight",
            "const std::optional<at::Tensor>& bias",
            *_BOTH_PADDINGS,
            *_WINDOW,
        ),
        "Conv.cpp",
        versions=">=2",
    ),
    Stub(
        "{}_convolution_transpose_backward",
        _GRADIENTS,
        (*_INPUTS, *_BOTH_PADDINGS, *_WINDOW, *_MASK),
        "Conv.cpp",
        versions=">=2",
    ),
    Stub(
        "lstm_{}",
        "void",
        (
            "at::Tensor& output",
            "at::Tensor& hy",
            "at::Tensor& cy",
            "const at::Tensor& input",
            "at::TensorList hx",
            "at::TensorList params",
            "bool has_biases",
            "int64_t num_layers",
            "double dropout_p",
            "bool train",
            "bool bidirectional",
            "bool batch_first",
        ),
        "RNN.cpp",
        versions=">=2",
    ),
)

EDITS: tuple[Edit, ...] = (
    Edit(
        name="declare-kernels",
        file=_NATIVE + "MKLDNNCommon.h",
        anchor="#include <ATen/Config.h>\n",
        action=Action.AFTER,
        text="#include <ATen/native/zendnn/Context.h>\n"
        "#include <ATen/native/zendnn/NativeFunctions.h>\n",
        reason="torch's own headers do not declare the renamed kernels",
    ),
    Edit(
        name="tensor-device",
        file=_NATIVE + "MKLDNNCommon.cpp",
        anchor="  Device device_ = device_or_default(device);\n",
        action=Action.REPLACE,
        text="  (void)device;\n  Device device_(c10::DeviceType::PrivateUse1, 0);\n",
        reason="every zendnn tensor lives on the one zendnn device",
    ),
    Edit(
        name="opaque-strides",
        file=_NATIVE + "MKLDNNCommon.cpp",
        anchor="    std::vector<int64_t>(dims.begin(), dims.end()));\n",
        action=Action.REPLACE,
        text="    std::vector<int64_t>(dims.begin(), dims.end()),\n"
        "    /*is_non_overlapping_and_dense=*/false);\n",
        reason="autograd must clone such a gradient, not copy it into a tensor with strides",
    ),
    Edit(
        name="clone-contiguous",
        file=_NATIVE + "TensorShape.cpp",
        anchor="      !optional_memory_format.has_value(),\n",
        action=Action.REPLACE,
        text="      optional_memory_format.value_or(c10::MemoryFormat::Contiguous) ==\n"
        "          c10::MemoryFormat::Contiguous,\n",
        reason="autograd clones a gradient with this format, which does not affect a blocked one",
    ),
    Edit(
        name="channels-last",
        file=_NATIVE + "Conv.cpp",
        anchor="// follow check rules from native/Convolution.cpp without transpose supported\n",
        action=Action.BEFORE,
        text="// A zendnn tensor has a layout of its own, and torch's helper cannot know that.\n"
        "static inline bool zendnn_conv_use_channels_last(const Tensor& input, "
        "const Tensor& weight) {\n"
        "  return !input.is_privateuseone() && !weight.is_privateuseone() &&\n"
        "      mkldnn_conv_use_channels_last(input, weight);\n"
        "}\n\n",
        reason="torch's helper asks is_mkldnn(), which is false for zendnn tensors",
    ),
    *(
        Edit(
            name=f"publish-{stub.old_kernel}",
            file=_NATIVE + stub.file,
            anchor=f"REGISTER_ALL_CPU_DISPATCH({stub.old_name}, &{stub.old_kernel})",
            action=Action.REPLACE,
            text=f"{stub.definition};",
            reason="torch declares the stubs that it calls; ours is a function pointer for the "
            "hand-written kernels",
            versions=stub.versions,
        )
        for stub in STUBS
    ),
    Edit(
        name="broadcast-operator",
        file=_FROZEN,
        anchor="        prim::BroadcastMKLDNNTensors,\n"
        "        BroadOp,\n"
        "        AliasAnalysisKind::INTERNAL_SPECIAL_CASE),\n",
        action=Action.REPLACE,
        text='        "prim::BroadcastZENDNNTensors(Tensor(a) a, Tensor(b) b) -> '
        '(Tensor(a), Tensor(b))",\n'
        "        BroadOp,\n"
        "        AliasAnalysisKind::FROM_SCHEMA),\n",
        reason="AliasDb special-cases upstream's symbol; our schema states the same aliases",
    ),
    Edit(
        name="constant-operator",
        file=_FROZEN,
        anchor="const RegisterOperators MKLDNNConstantOp({\n",
        action=Action.BEFORE,
        text="#if 0 // registered by the installed torch, and to be registered once\n",
        reason="torch's own operator pushes any kind of tensor constant",
    ),
    Edit(
        name="constant-operator-end",
        file=_FROZEN,
        anchor="Node* createConstantMKLDNNTensorOp(Graph* g, const Tensor& mkldnn_tensor) {\n",
        action=Action.BEFORE,
        text="#endif\n\n",
        reason="the end of the registration that constant-operator leaves out",
    ),
    Edit(
        name="no-memory-format",
        file=_NATIVE + "TensorFactories.cpp",
        anchor="\"'memory_format' argument is incompatible with mkldnn tensor\"",
        action=Action.REPLACE,
        text='"a zendnn tensor has no memory format: either one was asked for, or this operator "\n'
        '     "has no kernel for the zendnn backend; call .to_dense() first"',
        reason="torch requests a format when an operator has no kernel, and users need to know",
    ),
    Edit(
        name="test-gradient",
        file=_TEST,
        anchor="            return root.to_dense()\n",
        action=Action.AFTER,
        text="\n        # gradcheck varies the elements of torch's own layouts only.\n"
        "        weights = torch.randn(4, 5)\n"
        "        func(root).backward(weights)\n"
        "        self.assertEqual(root.grad.to_dense(), weights)\n"
        "        return\n",
        reason="gradcheck treats every tensor without the mkldnn layout as strided",
    ),
    Edit(
        name="test-legacy-new-sizes",
        file=_TEST,
        anchor="        self.assertRaises(RuntimeError, lambda: x_mkldnn.new(torch.Size([2, 3])))\n"
        "        self.assertRaises(RuntimeError, lambda: x_mkldnn.new([6]))\n",
        action=Action.REPLACE,
        text="        self.assertEqual(x_zendnn.new(torch.Size([2, 3])).device, x_zendnn.device)\n"
        "        self.assertEqual(x_zendnn.new([6]).to_dense(), torch.tensor([6.]))\n",
        reason="torch makes such tensors on every device, but not in every layout",
    ),
)
