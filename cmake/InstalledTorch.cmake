# The installed torch that libtorch_zendnn is compiled against, for cmake/Torch.cmake.
# WholeTree.cmake gives the same variables for a torch that is built in the same tree.
#
# TORCH_ROOT is the installed torch and TORCH_VERSION is its version. torch's own
# CMake package is not used, because that of a torch with CUDA requires the CUDA
# toolkit.
find_package(Python REQUIRED COMPONENTS Interpreter Development.Module)

foreach(name torch_cpu c10 torch_python)
  unset(TORCH_LIBRARY_${name} CACHE) # may be the path of another torch
  find_library(TORCH_LIBRARY_${name} ${name} PATHS "${TORCH_ROOT}/lib" NO_DEFAULT_PATH REQUIRED)
endforeach()
# OpenMP is compiled in, but the compiler's own library is not linked:
# torch.set_num_threads controls only the copy that comes with torch.
file(GLOB torch_openmp
  "${TORCH_ROOT}/lib/libgomp*.so*" "${TORCH_ROOT}/../torch.libs/libgomp*.so*")
if(NOT torch_openmp)
  message(FATAL_ERROR
    "No libgomp*.so* comes with the torch in '${TORCH_ROOT}': install torch's own wheel with pip.")
endif()
set(torch_include "${TORCH_ROOT}/include" "${TORCH_ROOT}/include/torch/csrc/api/include")
# Older torch wheels were built with the older of the C++ library's two ABIs.
file(STRINGS "${TORCH_ROOT}/share/cmake/Torch/TorchConfig.cmake" torch_abi
  REGEX "_GLIBCXX_USE_CXX11_ABI=0")
# pybind11 shares types only between modules whose names for the compiler and the ABI are the same.
# Before torch 2.9, these names were set when torch was built and differ from the headers' defaults.
file(STRINGS "${TORCH_LIBRARY_torch_python}" torch_pybind
  REGEX "__pybind11_internals_v[0-9]+_gcc_libstdcpp_cxxabi[0-9]+__" LIMIT_COUNT 1)
string(REGEX MATCH "_cxxabi[0-9]+" torch_pybind_abi "${torch_pybind}")

set(torch_libraries "${TORCH_LIBRARY_torch_cpu}" "${TORCH_LIBRARY_c10}")
set(torch_python_libraries "${TORCH_LIBRARY_torch_python}")
set(torch_definitions)
if(torch_abi)
  list(APPEND torch_definitions _GLIBCXX_USE_CXX11_ABI=0)
endif()
set(torch_python_definitions)
if(torch_pybind_abi)
  list(APPEND torch_python_definitions "PYBIND11_COMPILER_TYPE=\"_gcc\""
    "PYBIND11_STDLIB=\"_libstdcpp\"" "PYBIND11_BUILD_ABI=\"${torch_pybind_abi}\"")
endif()

file(GLOB torch_zendnn_generated CONFIGURE_DEPENDS
  "${ZENDNN_GENERATED_DIR}/aten/src/ATen/native/zendnn/*.cpp")
file(READ "${ZENDNN_GENERATED_DIR}/zendnnify.json" manifest)
string(JSON pytorch_release GET "${manifest}" release)
