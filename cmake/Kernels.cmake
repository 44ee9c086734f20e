# The targets zendnn_kernels_<isa>: our own vector kernels, compiled once for each
# instruction set that torch/backends/zendnn/table/kernels.py names. The generated
# Dispatch.cpp, which is part of torch_zendnn, chooses one of them at run time.
include("${ZENDNN_OPERATORS_DIR}/kernels.cmake")

set(zendnn_kernels)
foreach(isa ${zendnn_kernel_sets})
  set(target zendnn_kernels_${isa})
  set(sources ${zendnn_kernel_sources_${isa}})
  list(TRANSFORM sources PREPEND "${PROJECT_SOURCE_DIR}/aten/src/ATen/native/zendnn/kernels/")
  add_library(${target} OBJECT ${sources})
  target_compile_definitions(${target} PRIVATE ZENDNN_KERNEL_ISA=${isa})
  target_compile_options(${target} PRIVATE
    ${zendnn_kernel_options_${isa}} -O3 -fopenmp -Wall -Wextra)
  target_include_directories(${target} PRIVATE "${ZENDNN_OPERATORS_DIR}/aten/src")
  set_target_properties(${target} PROPERTIES
    CXX_STANDARD 20 CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  list(APPEND zendnn_kernels $<TARGET_OBJECTS:${target}>)
endforeach()
