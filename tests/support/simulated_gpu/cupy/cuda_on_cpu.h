// CUDA C++ as C++ for the host, as far as tokenmill's kernels need it. Blocks run one after the other. The threads of a block take
// turns: each runs until it waits for others, at a barrier or in an exchange between the lanes of a warp.

#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <ucontext.h>
#include <utility>

#define __global__
#define __device__
#define __forceinline__ inline
#define __shared__ static

struct Index { unsigned x; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct alignas(16) ulonglong2 { unsigned long long x, y; };

static Index threadIdx, blockIdx, blockDim, gridDim;

namespace simulated {

enum { MOST_THREADS = 1024, WARP = 32, STACK_BYTES = 1 << 16 };

struct Thread {
  ucontext_t begin;
  jmp_buf place;
  bool is_started, is_running;
  unsigned at_block_barrier, at_warp_barrier;  // how often it has come to one
};

static Thread threads[MOST_THREADS];
static jmp_buf scheduler;
static unsigned current;
static void (*body)(void*);
static void* body_argument;
static unsigned lanes[MOST_THREADS];  // what each thread offers to the others of its warp
static unsigned char* dynamic_shared;

inline void pause() {
  if (!_setjmp(threads[current].place)) _longjmp(scheduler, 1);
}

// A coroutine goes on with the same thread of the next block when it has come to the end of one.
inline void run_thread() {
  for (;;) {
    body(body_argument);
    threads[current].is_running = false;
    pause();
  }
}

inline void resume(unsigned number) {
  Thread& thread = threads[number];
  current = threadIdx.x = number;
  if (_setjmp(scheduler)) return;
  if (thread.is_started) _longjmp(thread.place, 1);
  thread.is_started = true;
  getcontext(&thread.begin);
  thread.begin.uc_stack.ss_sp = malloc(STACK_BYTES);
  thread.begin.uc_stack.ss_size = STACK_BYTES;
  makecontext(&thread.begin, run_thread, 0);
  setcontext(&thread.begin);
}

inline void wait_for(unsigned first, unsigned last, unsigned Thread::*count) {
  unsigned own = ++(threads[current].*count);
  for (unsigned number = first; number < last; number++)
    while (threads[number].is_running && threads[number].*count < own) pause();
}

inline void wait_for_warp() {
  unsigned first = current / WARP * WARP, last = first + WARP < blockDim.x ? first + WARP : blockDim.x;
  wait_for(first, last, &Thread::at_warp_barrier);
}

inline void offer(unsigned value) {
  lanes[current] = value;
  wait_for_warp();
}

template <typename Combine>
inline unsigned combined(unsigned value, unsigned start, Combine combine) {
  offer(value);
  unsigned first = current / WARP * WARP, result = start;
  for (unsigned lane = 0; lane < WARP && first + lane < blockDim.x; lane++) result = combine(result, lanes[first + lane], lane);
  wait_for_warp();
  return result;
}

inline unsigned exchanged(unsigned value, int lane) {
  offer(value);
  unsigned result = lane >= 0 && lane < WARP ? lanes[current / WARP * WARP + lane] : value;
  wait_for_warp();
  return result;
}

struct Launch {
  unsigned grid, block;
  void** arguments;
  const size_t* sizes;
  size_t count, shared;
};

// False if the arguments do not have the number and sizes of the kernel's.
template <typename... Arguments, size_t... Numbers>
bool launch(void (*kernel)(Arguments...), const Launch& how, std::index_sequence<Numbers...>) {
  const size_t wanted[] = {sizeof(Arguments)...};
  if (how.count != sizeof...(Arguments) || how.block > MOST_THREADS) return false;
  for (size_t k = 0; k < how.count; k++) if (how.sizes[k] != wanted[k]) return false;
  auto call = [&] { kernel(*(Arguments*)how.arguments[Numbers]...); };
  body = [](void* argument) { (*(decltype(call)*)argument)(); };
  body_argument = &call;
  dynamic_shared = (unsigned char*)malloc(how.shared + 16);
  gridDim.x = how.grid;
  blockDim.x = how.block;
  for (blockIdx.x = 0; blockIdx.x < how.grid; blockIdx.x++) {
    for (unsigned k = 0; k < how.block; k++) {
      threads[k].is_running = true;
      threads[k].at_block_barrier = threads[k].at_warp_barrier = 0;
    }
    for (bool is_over = false; !is_over;) {
      is_over = true;
      for (unsigned k = 0; k < how.block; k++)
        if (threads[k].is_running) { is_over = false; resume(k); }
    }
  }
  free(dynamic_shared);
  return true;
}

template <typename... Arguments>
bool launch(void (*kernel)(Arguments...), const Launch& how) {
  return launch(kernel, how, std::index_sequence_for<Arguments...>());
}

}  // namespace simulated

inline void __syncthreads() { simulated::wait_for(0, blockDim.x, &simulated::Thread::at_block_barrier); }
inline void __syncwarp() { simulated::wait_for_warp(); }
inline unsigned __shfl_sync(unsigned, unsigned value, int lane) { return simulated::exchanged(value, lane); }
inline unsigned __shfl_down_sync(unsigned, unsigned value, int by) { return simulated::exchanged(value, threadIdx.x % 32 + by); }
inline unsigned __shfl_up_sync(unsigned, unsigned value, int by) { return simulated::exchanged(value, (int)(threadIdx.x % 32) - by); }
inline unsigned __ballot_sync(unsigned, bool value) {
  return simulated::combined(value, 0, [](unsigned bits, unsigned one, unsigned lane) { return bits | one << lane; });
}
inline unsigned __shfl_xor_sync(unsigned, unsigned value, int mask) { return simulated::exchanged(value, threadIdx.x % 32 ^ mask); }
inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
inline int __ffs(unsigned bits) { return __builtin_ffs(bits); }
inline unsigned __vcmpeq4(unsigned a, unsigned b) {
  unsigned result = 0;
  for (int k = 0; k < 32; k += 8) if ((a >> k & 255) == (b >> k & 255)) result |= 255u << k;
  return result;
}
inline unsigned atomicAdd(unsigned* place, unsigned value) { unsigned before = *place; *place += value; return before; }
inline unsigned long long atomicCAS(unsigned long long* place, unsigned long long wanted, unsigned long long value) {
  unsigned long long before = *place;
  if (before == wanted) *place = value;
  return before;
}
