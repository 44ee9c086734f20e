# The targets zendnn_kernels_<isa>: our own vector kernels, compiled once for each
# instruction set. Dispatch.cpp, which is part of torch_zendnn, chooses one of
# them at run time.
set(kernel_folder "${PROJECT_SOURCE_DIR}/aten/src/ATen/native/zendnn/kernels")
file(GLOB kernel_sources CONFIGURE_DEPENDS "${kernel_folder}/*.cpp")
list(REMOVE_ITEM kernel_sources "${kernel_folder}/Dispatch.cpp")

set(zendnn_kernel_flags_avx2 -mavx2 -mfma)
set(zendnn_kernel_flags_avx512 ${zendnn_kernel_flags_avx2}
  -mavx512f -mavx512bw -mavx512dq -mavx512vl -mprefer-vector-width=512)
set(zendnn_kernel_flags_avx512_bf16 ${zendnn_kernel_flags_avx512} -mavx512bf16)
set(zendnn_kernel_flags_amx ${zendnn_kernel_flags_avx512_bf16} -mamx-tile -mamx-bf16)

set(zendnn_kernels)
function(add_kernels isa)
  set(target zendnn_kernels_${isa})
  add_library(${target} OBJECT ${ARGN})
  target_compile_definitions(${target} PRIVATE ZENDNN_KERNEL_ISA=${isa})
  target_compile_options(${target} PRIVATE
    ${zendnn_kernel_flags_${isa}} -O3 -fopenmp -Wall -Wextra)
  target_include_directories(${target} PRIVATE "${ZENDNN_OPERATORS_DIR}/aten/src")
  add_dependencies(${target} operator_tables)
  set_target_properties(${target} PROPERTIES
    CXX_STANDARD 20 CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  set(zendnn_kernels ${zendnn_kernels} $<TARGET_OBJECTS:${target}> PARENT_SCOPE)
endfunction()

add_kernels(avx2 ${kernel_sources})
add_kernels(avx512 ${kernel_sources})
# Only attention multiplies bfloat16 numbers directly.
add_kernels(avx512_bf16 "${kernel_folder}/Attention.cpp")
add_kernels(amx "${kernel_folder}/Attention.cpp")
