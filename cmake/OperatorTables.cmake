# The target operator_tables: C++ sources that describe the operators. They are
# generated from the tables in torch/backends/zendnn/table and written to
# ZENDNN_OPERATORS_DIR.
find_package(Python REQUIRED COMPONENTS Interpreter)

set(ZENDNN_OPERATORS_DIR "${PROJECT_BINARY_DIR}/operators")
set(operator_files
  "${ZENDNN_OPERATORS_DIR}/aten/src/ATen/native/zendnn/DtypeRows.inc"
  "${ZENDNN_OPERATORS_DIR}/aten/src/ATen/native/zendnn/kernels/dtypes.h"
  "${ZENDNN_OPERATORS_DIR}/aten/src/ATen/native/zendnn/kernels/functions.h"
  "${ZENDNN_OPERATORS_DIR}/torch/csrc/zendnn/plan/Ops.h"
  "${ZENDNN_OPERATORS_DIR}/torch/csrc/zendnn/plan/OperatorTables.cpp")
add_custom_command(OUTPUT ${operator_files}
  COMMAND "${Python_EXECUTABLE}" -m tools.setup_helpers.operator_tables "${ZENDNN_OPERATORS_DIR}"
  DEPENDS
    "${PROJECT_SOURCE_DIR}/tools/setup_helpers/operator_tables.py"
    "${PROJECT_SOURCE_DIR}/torch/backends/zendnn/table/__init__.py"
    "${PROJECT_SOURCE_DIR}/torch/backends/zendnn/table/dtypes.py"
    "${PROJECT_SOURCE_DIR}/torch/backends/zendnn/table/functions.py"
    "${PROJECT_SOURCE_DIR}/torch/backends/zendnn/table/notation.py"
    "${PROJECT_SOURCE_DIR}/torch/backends/zendnn/table/operators.py"
    "${PROJECT_SOURCE_DIR}/torch/backends/zendnn/table/shapes.py"
  WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}"
  COMMENT "Writing the tables of operators"
  VERBATIM)
add_custom_target(operator_tables DEPENDS ${operator_files})
