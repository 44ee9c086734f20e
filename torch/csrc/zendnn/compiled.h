// What Python calls at each run of a compiled graph: the calls of plans, and a
// look at the weights that they were made for.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace at::native::zendnn {

void bind_compiled(pybind11::module_& m);

} // namespace at::native::zendnn
