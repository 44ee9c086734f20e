# Sets BLIS_LIBRARY and BLIS_INCLUDE_DIR. BLIS is ZenDNN's GEMM fallback. It is
# linked statically and called through our own names
# (third_party/zendnn/blis_gemm.h).
#
# BLIS_ROOT is an installed prefix; BLIS_SOURCE_DIR is a source tree to build. AOCL-BLAS, AMD's own, has
# the same interface: its library with threads is libblis-mt.a, and CMake installs its header without a
# folder.
if(BLIS_SOURCE_DIR)
  include(ExternalProject)
  set(BLIS_ROOT "${PROJECT_BINARY_DIR}/blis")
  ExternalProject_Add(blis_build
    SOURCE_DIR "${BLIS_SOURCE_DIR}"
    CONFIGURE_COMMAND "${BLIS_SOURCE_DIR}/configure" --prefix=${BLIS_ROOT}
      --disable-shared --enable-static --enable-threading=openmp
      "CC=${CMAKE_C_COMPILER}" "CFLAGS=-fPIC" x86_64
    BUILD_COMMAND make
    INSTALL_COMMAND make install
    BUILD_BYPRODUCTS "${BLIS_ROOT}/lib/libblis.a"
    USES_TERMINAL_BUILD ON)
  set(BLIS_LIBRARY "${BLIS_ROOT}/lib/libblis.a")
  set(BLIS_INCLUDE_DIR "${BLIS_ROOT}/include")
  file(MAKE_DIRECTORY "${BLIS_INCLUDE_DIR}")
else()
  # Otherwise CMake would keep the paths that it found in an earlier prefix.
  unset(BLIS_LIBRARY CACHE)
  unset(BLIS_INCLUDE_DIR CACHE)
  find_library(BLIS_LIBRARY
    NAMES libblis-mt.a libblis.a
    PATHS "${BLIS_ROOT}" PATH_SUFFIXES lib lib64 NO_DEFAULT_PATH)
  find_path(BLIS_INCLUDE_DIR NAMES blis/blis.h blis.h
    PATHS "${BLIS_ROOT}" PATH_SUFFIXES include NO_DEFAULT_PATH)
  if(NOT BLIS_LIBRARY OR NOT BLIS_INCLUDE_DIR)
    message(FATAL_ERROR
      "No BLIS in '${BLIS_ROOT}': ZENDNN_BLIS_DIR must be a prefix with include/blis/blis.h and lib/libblis.a.")
  endif()
endif()
