// How much ZenDNN tells: a level from 0 to 4, which all variables about logs
// set.
#pragma once

#include <c10/macros/Export.h>

namespace at::native::zendnn {

// Level 0 tells nothing; each level adds what it is named for.
enum LogLevel : int { kNothing, kErrors, kWarnings, kActions, kEverything };

struct LogLevels {
  int messages = kWarnings; // warnings, and the logger torch.backends.zendnn
  int lines = kWarnings;    // verbose lines
};

// What the environment asks for: at this moment, and when it was read first.
C10_EXPORT LogLevels read_log_levels();
const LogLevels& log_levels();

// The level of ZENDNN_VERBOSE that prints the lines of a level.
int verbose_at(int level);

// Whether there are warnings.
bool warns();

} // namespace at::native::zendnn
