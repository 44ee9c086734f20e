# The target zendnn: oneDNN as converted by zendnnify, plus our own
# implementations. It is a static library whose symbols are visible only inside
# libtorch_zendnn.

set(ZENDNN_BUILT_DIR "" CACHE PATH "a CMake build tree of this project whose libzendnn is reused")
if(ZENDNN_BUILT_DIR)
  add_library(zendnn STATIC IMPORTED GLOBAL)
  set(ZENDNN_CONFIGURED_INCLUDE_DIR "${ZENDNN_BUILT_DIR}/zendnn/include")
  set(zendnn_archive "${ZENDNN_BUILT_DIR}/zendnn/src/libzendnn.a")
  if(NOT EXISTS "${zendnn_archive}")
    message(FATAL_ERROR "There is no libzendnn.a in ${ZENDNN_BUILT_DIR}: build that tree first.")
  endif()
  set_target_properties(zendnn PROPERTIES IMPORTED_LOCATION "${zendnn_archive}")
  return()
endif()
set(ZENDNN_CONFIGURED_INCLUDE_DIR "${PROJECT_BINARY_DIR}/zendnn/include")

# ---- Which parts are built ----------------------------------------------------
macro(zendnn_option name)
  set(${name} "${ARGN}" CACHE INTERNAL "chosen in cmake/ZenDNN.cmake")
endmacro()

zendnn_option(ZENDNN_LIBRARY_TYPE STATIC)
zendnn_option(ZENDNN_CPU_RUNTIME OMP)
zendnn_option(ZENDNN_GPU_RUNTIME NONE)
zendnn_option(ZENDNN_BUILD_GRAPH OFF)
zendnn_option(ZENDNN_BUILD_DOC OFF)
zendnn_option(ZENDNN_BUILD_EXAMPLES OFF)
zendnn_option(ZENDNN_BUILD_TESTS OFF)
zendnn_option(ZENDNN_ENABLE_ITT_TASKS OFF)
zendnn_option(ZENDNN_ENABLE_JIT_PROFILING OFF)
zendnn_option(ZENDNN_ARCH_OPT_FLAGS "")
# The primitives that PyTorch's integration uses, forward and backward.
zendnn_option(ZENDNN_ENABLE_PRIMITIVE
  BATCH_NORMALIZATION BINARY CONCAT CONVOLUTION DECONVOLUTION ELTWISE
  INNER_PRODUCT LAYER_NORMALIZATION MATMUL POOLING PRELU REORDER RNN SOFTMAX SUM)
# AMX includes all lower instruction sets. No AMD CPU supports it, but wheels are also
# used on other CPUs, where stock torch's bf16 with AMX is many times faster than
# AVX-512 can be.
zendnn_option(ZENDNN_ENABLE_PRIMITIVE_CPU_ISA AMX)
zendnn_option(ZENDNN_ENABLE_GEMM_KERNELS_ISA AVX512)

# Otherwise libzendnn would hold the commit of the repository around its sources, which is this one.
set(CMAKE_DISABLE_FIND_PACKAGE_Git TRUE)
add_subdirectory("${ZENDNN_SOURCE_DIR}" "${PROJECT_BINARY_DIR}/zendnn" EXCLUDE_FROM_ALL)
set(zendnn_parts zendnn_common zendnn_cpu zendnn_cpu_x64)

# ---- Which sources are not compiled ---------------------------------------------
# These belong to primitives that are switched off above, or to instruction sets that
# tools/zendnnify/rules/changes/instruction_sets.py removes. They were found by linking
# everything and listing the members of the archive that the linker did not use. If one of
# them is needed after all, the link fails with an undefined symbol.
set(zendnn_unused
  "/(jit_uni|ncsp|ref|simple)_(group_normalization|instance_normalization|lrn|reduction|resampling|shuffle)(_kernel)?\\.cpp$"
  "/cpu/x64/lrn/"
  "/jit_avx512_core_resampling\\.cpp$"
  "/(jit_uni|ref)_sparse_matmul\\.cpp$"
  "/gemm/.*/jit_(sse41|avx|avx2_vnni)_.*_autogen\\.cpp$"
  "/jit_sse41_(1x1_)?conv")

# ---- How it is compiled ---------------------------------------------------------
# These are compiled alone, because their names collide with those of other files or because they
# take longest.
set(zendnn_alone
  "_kern\\.cpp$"
  "/common/gemm\\.cpp$"
  "/gemm_(convolution_utils|inner_product)\\.cpp$"
  "/(cpu_sum|ref_(deconvolution|rnn|softmax)|simple_concat)\\.cpp$"
  "/jit_avx2_conv_kernel_f32\\.cpp$"
  "/jit_avx512_common_(1x1_)?conv_kernel\\.cpp$"
  "/jit_avx512_core_(amx_convolution|b?f16_(dw_)?conv_kernel|x8s8s32x_1x1_conv_kernel)\\.cpp$"
  "/jit_brgemm_(conv|inner_product|inner_product_utils)\\.cpp$"
  "/jit_avx(512_common)?_gemm_f32\\.cpp$"
  "/jit_uni_(binary|pool|x8s8s32x_conv)_kernel\\.cpp$"
  "/jit_uni_x8s8s32x_(de)?convolution\\.cpp$"
  "/x64/platform\\.cpp$"
  "/jit_(uni_xf16_sum|prelu_reduction_kernel)\\.cpp$")
# The code of zendnn_hot runs for each block of a problem. The other sources assemble kernels (once
# for each kernel), are reference loops, or have loops that OpenMP vectorises at any level. For them,
# more optimisation than -O1 costs more time than it saves. The sources of zendnn_once are lists, which
# are read once, and files of one kernel, which have a few functions with thousands of calls. With -Og
# they compile in two thirds of the time that -O1 takes. Generated kernels (autogen) are compiled
# together, which takes half the time, because otherwise each would compile the same assembler again.
set(zendnn_hot
  "/(cpu_sum|gemm_convolution_utils|simple_concat)\\.cpp$"
  "/gemm_driver\\.cpp$"
  "/jit_brgemm_(1x1_)?conv(_bwd_w|_bwd_strided|_bwd)?\\.cpp$"
  "/jit_brgemm_inner_product\\.cpp$"
  "/matmul/brgemm_matmul\\.cpp$"
  "/jit_uni_reorder\\.cpp$")
set(zendnn_once "_kern\\.cpp$" "_list\\.cpp$")
foreach(patterns zendnn_unused zendnn_hot zendnn_once)
  list(JOIN ${patterns} "|" ${patterns})
endforeach()
foreach(part ${zendnn_parts})
  get_target_property(part_sources ${part} SOURCES)
  list(FILTER part_sources EXCLUDE REGEX "${zendnn_unused}")
  # Upstream uses C++11 too. The C++ library's headers are longer with later standards.
  set_target_properties(${part} PROPERTIES SOURCES "${part_sources}" CXX_STANDARD 11)
  set(part_once ${part_sources})
  list(FILTER part_once INCLUDE REGEX "${zendnn_once}")
  set(part_hot ${part_sources})
  list(FILTER part_hot INCLUDE REGEX "${zendnn_hot}")
  set_source_files_properties(${part_once} TARGET_DIRECTORY ${part} PROPERTIES COMPILE_OPTIONS -Og)
  # GCC crashes if -O2 uses a header that was precompiled with -O1.
  set_source_files_properties(${part_hot} TARGET_DIRECTORY ${part}
    PROPERTIES COMPILE_OPTIONS -O2 SKIP_PRECOMPILE_HEADERS ON)
  set(part_kernels ${part_sources})
  list(FILTER part_kernels INCLUDE REGEX "_kern_autogen\\.cpp$")
  compile_together(${part} ${part} 10 zendnn_alone "" ${part_sources})
  # Upstream gives them an optimisation level of their own, which would keep them out of groups.
  set_property(SOURCE ${part_kernels} TARGET_DIRECTORY ${part} PROPERTY COMPILE_FLAGS)
  compile_together(${part} ${part}_kernels 8 "" -Og ${part_kernels})
endforeach()

foreach(part zendnn_cpu zendnn_cpu_x64)
  target_compile_options(${part} PRIVATE -O1)
endforeach()

# Parsing the JIT assembler's headers takes a fifth of the whole compilation. The headers are named
# without a folder, so that ccache also recognises them in other checkouts.
target_precompile_headers(zendnn_common PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:<common/primitive.hpp$<ANGLE-R>>")
foreach(part zendnn_cpu zendnn_cpu_x64)
  target_precompile_headers(${part} PRIVATE
    "$<$<COMPILE_LANGUAGE:CXX>:<common/primitive.hpp$<ANGLE-R>>"
    "$<$<COMPILE_LANGUAGE:CXX>:<cpu/x64/jit_generator.hpp$<ANGLE-R>>")
endforeach()

# ZENDNN_JIT_PROFILE names assembled kernels for perf and VTune. Upstream's option would define a macro
# for all sources of the part, though only this one reads it.
set(zendnn_named_kernels "${ZENDNN_SOURCE_DIR}/src/cpu/jit_utils/jit_utils.cpp")
set_source_files_properties("${zendnn_named_kernels}" TARGET_DIRECTORY zendnn_cpu PROPERTIES
  COMPILE_OPTIONS -UZENDNN_ENABLE_JIT_PROFILING
  INCLUDE_DIRECTORIES "${ZENDNN_SOURCE_DIR}/third_party/ittnotify" # needed from 3.13 on
  SKIP_PRECOMPILE_HEADERS ON SKIP_UNITY_BUILD_INCLUSION ON)
# Below src/common, and from 3.12 on below third_party.
file(GLOB_RECURSE zendnn_names_for_profilers
  "${ZENDNN_SOURCE_DIR}/src/common/ittnotify/jitprofiling.c"
  "${ZENDNN_SOURCE_DIR}/third_party/ittnotify/jitprofiling.c")
if(NOT zendnn_names_for_profilers)
  message(FATAL_ERROR "jitprofiling.c is in none of the known folders of ${ZENDNN_SOURCE_DIR}.")
endif()
target_sources(zendnn_cpu PRIVATE ${zendnn_names_for_profilers})

# ---- Our own sources ---------------------------------------------------------------
include(OperatorTables)
set(zendnn_ours blis_gemm emulation execution_counters panel_convolution panel_image panel_kernel
  panel_dot panel_matmul panel_pack panel_plain_convolution panel_product panel_reorder)
list(TRANSFORM zendnn_ours PREPEND "${PROJECT_SOURCE_DIR}/third_party/zendnn/")
list(TRANSFORM zendnn_ours APPEND ".cpp")
target_sources(zendnn PRIVATE ${zendnn_ours})
foreach(part zendnn ${zendnn_parts})
  target_include_directories(${part} PRIVATE "${PROJECT_SOURCE_DIR}")
endforeach()
foreach(part ${zendnn_parts})
  target_compile_options(${part} PRIVATE -w) # hides the warnings of upstream's code
endforeach()
set_source_files_properties(${zendnn_ours}
  TARGET_DIRECTORY zendnn
  PROPERTIES COMPILE_OPTIONS "-std=c++20;-fopenmp;-Wall;-Wextra;-I${ZENDNN_OPERATORS_DIR};-isystem${BLIS_INCLUDE_DIR};-isystem${ZENDNN_SOURCE_DIR}/src")
# ZenDNN calls CBLAS functions where its own GEMM kernels cannot be used; here they come from BLIS.
foreach(part zendnn_cpu zendnn_cpu_x64)
  target_compile_definitions(${part} PRIVATE USE_CBLAS)
  target_include_directories(${part} PRIVATE "${PROJECT_SOURCE_DIR}/third_party/zendnn/cblas")
endforeach()
if(TARGET blis_build)
  add_dependencies(zendnn blis_build)
endif()
