# The targets torch_zendnn, a library that registers itself with the dispatcher
# when it is loaded, and zendnn_python, its Python bindings.
#
# What they are compiled against comes from InstalledTorch.cmake or WholeTree.cmake:
#   torch_libraries, torch_python_libraries, torch_openmp   to link
#   torch_include, torch_definitions, torch_python_definitions
#   torch_zendnn_generated    the converted sources
#   pytorch_release           the release that they were converted from
set(overlay "${PROJECT_SOURCE_DIR}")
set(generated "${ZENDNN_GENERATED_DIR}")
file(GLOB torch_zendnn_written CONFIGURE_DEPENDS
  "${overlay}/aten/src/ATen/native/zendnn/*.cpp"
  "${overlay}/aten/src/ATen/native/zendnn/cpu/*.cpp"
  "${overlay}/torch/csrc/zendnn/*.cpp"
  "${overlay}/torch/csrc/zendnn/plan/*.cpp"
  "${overlay}/torch/csrc/zendnn/plan/*/*.cpp")
set(bindings
  "${overlay}/torch/csrc/zendnn/init.cpp"
  "${overlay}/torch/csrc/zendnn/compiled.cpp")
list(REMOVE_ITEM torch_zendnn_written ${bindings} ${torch_zendnn_generated})

# What is generated from tables.
set(tables
  "${ZENDNN_OPERATORS_DIR}/aten/src/ATen/native/zendnn/kernels/Dispatch.cpp"
  "${ZENDNN_OPERATORS_DIR}/torch/csrc/zendnn/plan/describe/KernelChoosers.cpp"
  "${ZENDNN_OPERATORS_DIR}/torch/csrc/zendnn/plan/describe/OperatorTables.cpp")

# Upstream's code; its warnings are hidden.
add_library(torch_zendnn_generated OBJECT ${torch_zendnn_generated})
compile_together(torch_zendnn_generated generated 8 "" "" ${torch_zendnn_generated})
set_target_properties(torch_zendnn_generated PROPERTIES
  UNITY_BUILD_CODE_AFTER_INCLUDE "#undef TORCH_ASSERT_ONLY_METHOD_OPERATORS")
target_compile_options(torch_zendnn_generated PRIVATE -w)
target_precompile_headers(torch_zendnn_generated PRIVATE
  <ATen/core/Tensor.h> <torch/library.h> <adeep.hpp>)
add_dependencies(torch_zendnn_generated zendnn)

add_library(torch_zendnn SHARED
  ${torch_zendnn_written} ${tables} ${zendnn_kernels} $<TARGET_OBJECTS:torch_zendnn_generated>)
# These are compiled alone, because their names collide with those of other files.
set(collide "/cpu/(Gru|Normalization)\\.cpp$")
foreach(folder aten/src/ATen/native/zendnn aten/src/ATen/native/zendnn/cpu)
  set(sources ${torch_zendnn_written})
  list(FILTER sources INCLUDE REGEX "/${folder}/[^/]*$")
  get_filename_component(name ${folder} NAME)
  compile_together(torch_zendnn ${name} 7 collide "" ${sources})
endforeach()
set(sources ${torch_zendnn_written})
list(FILTER sources INCLUDE REGEX "/torch/csrc/zendnn/plan/")
compile_together(torch_zendnn plan 7 collide "" ${sources})
target_compile_options(torch_zendnn PRIVATE -Wall -Wextra)
target_precompile_headers(torch_zendnn REUSE_FROM torch_zendnn_generated)
target_link_libraries(torch_zendnn PRIVATE
  ${torch_libraries} -Wl,--no-undefined
  -Wl,--exclude-libs,ALL
  "-Wl,--version-script=${overlay}/cmake/libtorch_zendnn.map"
  "$<TARGET_FILE:zendnn>" "${BLIS_LIBRARY}" ${torch_openmp} ${CMAKE_DL_LIBS})
add_dependencies(torch_zendnn zendnn)
set_target_properties(torch_zendnn PROPERTIES
  LINK_DEPENDS "${overlay}/cmake/libtorch_zendnn.map"
  LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib"
  BUILD_RPATH "$ORIGIN" BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "$ORIGIN" DEFINE_SYMBOL "")

add_library(zendnn_python MODULE ${bindings})
target_compile_options(zendnn_python PRIVATE -Wall -Wextra)
target_link_libraries(zendnn_python PRIVATE torch_zendnn
  ${torch_python_libraries} ${torch_libraries} Python::Module)
set_target_properties(zendnn_python PROPERTIES
  PREFIX "" OUTPUT_NAME _C SUFFIX ".${Python_SOABI}.so"
  LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib"
  BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "$ORIGIN/../../lib")
target_compile_definitions(zendnn_python PRIVATE ${torch_python_definitions})

# The include folders: our own, then those of the libraries below us.
foreach(target torch_zendnn_generated torch_zendnn zendnn_python)
  target_include_directories(${target} PRIVATE
    "${overlay}/aten/src" "${overlay}" "${generated}/aten/src" "${generated}"
    "${ZENDNN_OPERATORS_DIR}/aten/src" "${ZENDNN_OPERATORS_DIR}")
  target_include_directories(${target} SYSTEM PRIVATE
    "${ADEEP_INCLUDE_DIR}" "${ZENDNN_SOURCE_DIR}/include" "${BLIS_INCLUDE_DIR}" "${ZENDNN_CONFIGURED_INCLUDE_DIR}"
    ${torch_include})
  set_target_properties(${target} PROPERTIES
    CXX_STANDARD 20 CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  target_compile_options(${target} PRIVATE -fopenmp)
  # In torch's headers, the first two determine the layout of dispatch stubs.
  target_compile_definitions(${target} PRIVATE
    ${torch_definitions}
    HAVE_AVX2_CPU_DEFINITION HAVE_AVX512_CPU_DEFINITION
    AT_PER_OPERATOR_HEADERS
    "ZENDNN_PYTORCH_BASELINE=\"${pytorch_release}\""
    "ZENDNN_TORCH_VERSION=\"${TORCH_VERSION}\""
    "ZENDNN_COMPILER=\"${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}\"")
  # Function-like macros, which target_compile_definitions does not support.
  target_compile_options(${target} PRIVATE
    "-DAT_ZENDNN_ENABLED()=1" "-DAT_ZENDNN_ACL_ENABLED()=0" "-DAT_ZENDNN_MKL_ENABLED()=0")
endforeach()
