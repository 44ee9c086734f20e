# Keeps the folders of the build out of its objects. Equal sources therefore compile to
# equal objects anywhere, and ccache can share them between checkouts. Through ccache,
# the compiler sees folders relative to the build tree. The last map that fits counts.
set(folders "${PROJECT_SOURCE_DIR}" "${ZENDNN_GENERATED_DIR}" "${ADEEP_INCLUDE_DIR}"
  "${ZENDNN_SOURCE_DIR}" "${TORCH_ROOT}")
set(names . generated adeep zendnn torch)
foreach(folder name IN ZIP_LISTS folders names)
  file(RELATIVE_PATH relative "${PROJECT_BINARY_DIR}" "${folder}")
  string(REGEX REPLACE "/$" "" relative "${relative}")
  add_compile_options("-ffile-prefix-map=${folder}=${name}" "-ffile-prefix-map=${relative}=${name}")
endforeach()
add_compile_options("-ffile-prefix-map=${PROJECT_BINARY_DIR}/=")
