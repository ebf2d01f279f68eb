// Just enough of CUDA C++ for a host compiler to take the texts of the backend: the threads of a block are fibers that
// take turns, one block after the other. Not meant to be fast.
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <cstdint>
#include <type_traits>
#include <ucontext.h>
#include <utility>
#include <vector>

struct qn_host_index { unsigned int x, y, z; };
static qn_host_index threadIdx, blockIdx, blockDim, gridDim;

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(count)
#define __shared__ static
#define __align__(count) __attribute__((aligned(count)))

namespace qn_host {
enum Waits { RUNS, AT_WARP, AT_BLOCK, DONE };
struct Fiber { ucontext_t context; std::vector<char> stack; Waits waits; qn_host_index index; unsigned parity; };
static std::vector<Fiber> fibers;
static ucontext_t scheduler;
static unsigned current;
static void (*body)(void **);
static void **arguments;
static uint64_t slots[2][1024];
static bool present[1024];

static void enter() { body(arguments); fibers[current].waits = DONE; swapcontext(&fibers[current].context, &scheduler); }
static void wait(Waits what)
{
    fibers[current].waits = what;
    swapcontext(&fibers[current].context, &scheduler);
}
static void resume(unsigned number)
{
    current = number;
    threadIdx = fibers[number].index;
    fibers[number].waits = RUNS;
    swapcontext(&scheduler, &fibers[number].context);
}
static void run_block()
{
    unsigned count = blockDim.x * blockDim.y * blockDim.z;
    fibers.resize(count);
    for (unsigned n = 0; n < count; n++) {
        Fiber &fiber = fibers[n];
        fiber.stack.resize(1 << 16);
        fiber.index = {n % blockDim.x, n / blockDim.x % blockDim.y, n / (blockDim.x * blockDim.y)};
        fiber.parity = 0;
        fiber.waits = RUNS;
        getcontext(&fiber.context);
        fiber.context.uc_stack.ss_sp = fiber.stack.data();
        fiber.context.uc_stack.ss_size = fiber.stack.size();
        fiber.context.uc_link = nullptr;
        makecontext(&fiber.context, enter, 0);
    }
    bool is_first = true;
    for (;;) {
        bool any = false;
        for (unsigned first = 0; first < count; first += 32) {
            unsigned end = first + 32 < count ? first + 32 : count;
            bool again = true;
            for (unsigned n = first; n < end; n++)
                if (fibers[n].waits == AT_BLOCK || (is_first && fibers[n].waits == RUNS)) { resume(n); any = true; }
            while (again) {
                again = false;
                for (unsigned n = first; n < end; n++) again |= fibers[n].waits == AT_WARP;
                if (again)
                    for (unsigned n = first; n < end; n++)
                        if (fibers[n].waits == AT_WARP) resume(n);
            }
        }
        is_first = false;
        if (!any) return;
    }
}
static void exchange(uint64_t value)
{
    unsigned n = current;
    fibers[n].parity ^= 1;
    slots[fibers[n].parity][n] = value;
    wait(AT_WARP);
}
static uint64_t of_lane(unsigned lane)
{
    unsigned n = (current & ~31u) + (lane & 31u);
    return n < fibers.size() ? slots[fibers[current].parity][n] : 0xdeadbeefdeadbeefull;
}
template <typename T> static T shuffled(T value, unsigned lane)
{
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof(T));
    exchange(bits);
    bits = of_lane(lane);
    std::memcpy(&value, &bits, sizeof(T));
    return value;
}
static unsigned ballot(bool value)
{
    exchange(value);
    unsigned result = 0;
    for (unsigned lane = 0; lane < 32; lane++)
        if ((current & ~31u) + lane < fibers.size() && fibers[(current & ~31u) + lane].waits != DONE)
            result |= (unsigned)(of_lane(lane) & 1) << lane;
    return result;
}
template <typename... A, std::size_t... I> void invoke(void (*function)(A...), void **p, std::index_sequence<I...>)
{
    function(*(std::remove_const_t<A> *)p[I]...);
}
template <typename... A> void invoke(void (*function)(A...), void **p)
{
    invoke(function, p, std::index_sequence_for<A...>());
}
}

static void __syncthreads() { qn_host::wait(qn_host::AT_BLOCK); }
template <typename T> static T __shfl_sync(unsigned, T v, int lane) { return qn_host::shuffled(v, lane); }
template <typename T> static T __shfl_xor_sync(unsigned, T v, int by) { return qn_host::shuffled(v, (qn_host::current & 31) ^ by); }
template <typename T> static T __shfl_up_sync(unsigned, T v, unsigned by)
{
    unsigned lane = qn_host::current & 31;
    return qn_host::shuffled(v, lane >= by ? lane - by : lane);
}
template <typename T> static T __shfl_down_sync(unsigned, T v, unsigned by)
{
    unsigned lane = qn_host::current & 31;
    return qn_host::shuffled(v, lane + by < 32 ? lane + by : lane);
}
static unsigned __ballot_sync(unsigned, bool v) { return qn_host::ballot(v); }
static bool __any_sync(unsigned, bool v) { return qn_host::ballot(v) != 0; }
static bool __all_sync(unsigned, bool v)
{
    unsigned count = qn_host::fibers.size() - (qn_host::current & ~31u);
    return qn_host::ballot(v) == (count >= 32 ? ~0u : (1u << count) - 1);
}

template <typename T> static T atomicAdd(T *p, T v) { T old = *p; *p = old + v; return old; }
static int atomicAdd(int *p, int v) { int old = *p; *p = (int)((unsigned)old + (unsigned)v); return old; }
template <typename T> static T atomicMin(T *p, T v) { T old = *p; *p = v < old ? v : old; return old; }
template <typename T> static T atomicMax(T *p, T v) { T old = *p; *p = v > old ? v : old; return old; }
template <typename T> static T atomicAnd(T *p, T v) { T old = *p; *p = old & v; return old; }
template <typename T> static T atomicOr(T *p, T v) { T old = *p; *p = old | v; return old; }
template <typename T> static T atomicXor(T *p, T v) { T old = *p; *p = old ^ v; return old; }
template <typename T> static T atomicExch(T *p, T v) { T old = *p; *p = v; return old; }
template <typename T> static T atomicCAS(T *p, T e, T v) { T old = *p; if (old == e) *p = v; return old; }

template <typename T, typename F> static T qn_host_bits(F from) { T to; std::memcpy(&to, &from, sizeof to); return to; }
static unsigned __float_as_uint(float x) { return qn_host_bits<unsigned>(x); }
static float __uint_as_float(unsigned x) { return qn_host_bits<float>(x); }
static float __int_as_float(int x) { return qn_host_bits<float>(x); }
static long long __double_as_longlong(double x) { return qn_host_bits<long long>(x); }
static double __longlong_as_double(long long x) { return qn_host_bits<double>(x); }
static int __popc(unsigned x) { return __builtin_popcount(x); }
static int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
static int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
static unsigned min(unsigned a, unsigned b) { return a < b ? a : b; }
static float rsqrtf(float x) { return 1.0f / sqrtf(x); }
#define __expf(x) expf(x)
#define __logf(x) logf(x)
#define __log2f(x) log2f(x)
#define __log10f(x) log10f(x)
#define __sinf(x) sinf(x)
#define __cosf(x) cosf(x)
#define __tanf(x) tanf(x)
static float qn_host_f32(unsigned short bits) { return (float)qn_host_bits<_Float16>(bits); }
static unsigned short qn_host_f16(float x) { return qn_host_bits<unsigned short>((_Float16)x); }
