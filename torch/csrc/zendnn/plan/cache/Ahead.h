// A thread that builds what plans are about to need, while the process does
// something else.
#pragma once

#include <functional>

namespace at::native::zendnn::plan::ahead {

// Has the thread run a task, which must not throw, in the place of one that the
// owner gave before and that has not begun. Forks and the process's end wait
// for a task that runs. Throws what starting the thread throws.
void give(const void* owner, std::function<void()> task);

// Forgets what the owner gave. If it runs already, waits until it has ended.
void forget(const void* owner);

// Lets this thread run on each core that OpenMP's may. Where OpenMP binds
// threads, a new one has inherited the only core of the thread that started it.
void take_all_cores();

} // namespace at::native::zendnn::plan::ahead
