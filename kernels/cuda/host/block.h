// What block.cpp offers to the instructions that live in other files.
#pragma once
#include "runtime.h"

namespace hc {

int thread_in_block();
int threads_of_block();
bool reversed();                                // HOSTCUDA_ORDER
bool truncating();                              // HOSTCUDA_MMA
char *shared_window();                          // address 0 of shared memory
bool in_shared(const void *p, size_t n);
void fail(Result r, Site at, const char *format, ...) __attribute__((format(printf, 3, 4))); // ends the launch
// Lets other warps run before the thread goes on.
void yield();
// Blocks the thread until barrier's phase of that parity is complete.
void wait_for_barrier(const void *barrier, unsigned parity, Site at);

// hopper.cpp, called by the scheduler.
void hopper_start_block();
bool barrier_complete(const void *barrier, unsigned parity);
std::string barrier_describe(const void *barrier, unsigned parity);
bool deliver_copy();       // lets one bulk copy arrive; false when none is on its way
Result hopper_end_block(); // reports what was started and never waited for

} // namespace hc
