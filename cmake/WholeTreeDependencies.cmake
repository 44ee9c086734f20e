# In a PyTorch tree that zendnnify converted in place: the target zendnn and what it needs.
# cmake/Dependencies.cmake includes this file if USE_ZENDNN is on.
set(ZENDNN_SOURCE_DIR "${PROJECT_SOURCE_DIR}/third_party/zendnn")
set(ADEEP_INCLUDE_DIR "${PROJECT_SOURCE_DIR}/third_party/adeep")
set(zendnn_blis_dir "${PROJECT_SOURCE_DIR}/third_party/blis")
foreach(needed "${ZENDNN_SOURCE_DIR}/CMakeLists.txt" "${ADEEP_INCLUDE_DIR}/adeep.hpp" "${zendnn_blis_dir}")
  if(NOT EXISTS "${needed}")
    message(FATAL_ERROR
      "USE_ZENDNN is on, but ${needed} does not exist: convert this tree again with zendnnify --in-place.")
  endif()
endforeach()
if(EXISTS "${zendnn_blis_dir}/configure")
  set(BLIS_SOURCE_DIR "${zendnn_blis_dir}")
else()
  set(BLIS_ROOT "${zendnn_blis_dir}")
endif()

list(APPEND CMAKE_MODULE_PATH "${PROJECT_SOURCE_DIR}/cmake")
include(Unity)
include(BLIS)
include(ZenDNN)
unset(CMAKE_DISABLE_FIND_PACKAGE_Git) # set for ZenDNN alone

# torch.__config__.show() lists this; caffe2/core/macros.h.in inserts it.
file(STRINGS "${ZENDNN_SOURCE_DIR}/CMakeLists.txt" zendnn_version REGEX "set\\(PROJECT_VERSION ")
string(REGEX MATCH "[0-9.]+" zendnn_version "${zendnn_version}")
set(ZENDNN_BUILD_SETTING
  "{\"USE_ZENDNN\", \"${USE_ZENDNN}\"}, {\"ZENDNN_VERSION\", \"${zendnn_version}\"}, ")
