// The plans that zendnn::run_region has made.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/macros/Export.h>

#include <string_view>

namespace at::native::zendnn {

// The torch.classes.zendnn.Plan of a region, or none where there is none for
// the constants as they are now.
C10_EXPORT c10::IValue plan_of_region(
    TensorList constants,
    std::string_view description,
    std::string_view name);

} // namespace at::native::zendnn
