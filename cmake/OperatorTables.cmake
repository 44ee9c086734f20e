# The folder ZENDNN_OPERATORS_DIR: what the build generates from the tables in
# torch/backends/zendnn/table. It is written when CMake configures, which it does again when a table
# changes; a file that stays the same keeps its timestamp.
set(ZENDNN_OPERATORS_DIR "${PROJECT_BINARY_DIR}/operators")
include_guard(GLOBAL)
if(NOT Python_Interpreter_FOUND) # in a whole tree, which looks for more of Python
  find_package(Python REQUIRED COMPONENTS Interpreter)
endif()

file(GLOB zendnn_tables CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/torch/backends/zendnn/table/*.py")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
  "${PROJECT_SOURCE_DIR}/tools/setup_helpers/tables.py" ${zendnn_tables})
execute_process(
  COMMAND "${Python_EXECUTABLE}" -m tools.setup_helpers.tables "${ZENDNN_OPERATORS_DIR}"
  WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}"
  RESULT_VARIABLE zendnn_tables_failed)
if(zendnn_tables_failed)
  message(FATAL_ERROR "The tables of torch/backends/zendnn/table cannot be read; see the error above.")
endif()
