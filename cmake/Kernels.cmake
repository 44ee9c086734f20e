# The targets zendnn_kernels_<isa>: our own vector kernels, compiled once for each
# instruction set; Dispatch.cpp, a part of torch_zendnn, chooses at run time.
file(GLOB kernel_sources CONFIGURE_DEPENDS
  "${PROJECT_SOURCE_DIR}/aten/src/ATen/native/zendnn/kernels/*.cpp")
list(FILTER kernel_sources EXCLUDE REGEX "/Dispatch\\.cpp$")

set(zendnn_kernel_flags_avx2 -mavx2 -mfma)
set(zendnn_kernel_flags_avx512
  -mavx2 -mfma -mavx512f -mavx512bw -mavx512dq -mavx512vl -mprefer-vector-width=512)

set(zendnn_kernels)
foreach(isa avx2 avx512)
  set(target zendnn_kernels_${isa})
  add_library(${target} OBJECT ${kernel_sources})
  target_compile_definitions(${target} PRIVATE ZENDNN_KERNEL_ISA=${isa})
  target_compile_options(${target} PRIVATE
    ${zendnn_kernel_flags_${isa}} -O3 -fopenmp -Wall -Wextra)
  set_target_properties(${target} PROPERTIES
    CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  list(APPEND zendnn_kernels $<TARGET_OBJECTS:${target}>)
endforeach()
