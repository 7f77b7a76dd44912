// All numbers of a dense gradient on a CUDA device in one pass over its memory, written to the host.
//
// out: nan, posinf, neginf, finite, zero, min, max, sum, sum of squares; the last four of the finite
// ones. partial holds as many for each block. The block that arrives last adds up what the others
// found, always in the same order: the same memory gives the same bits.

#define FOUND 9

struct Found {
  double value[FOUND];
};

__device__ void add(double *into, const double *other) {
  for (int i = 0; i < 5; ++i) into[i] += other[i];
  into[5] = fmin(into[5], other[5]);
  into[6] = fmax(into[6], other[6]);
  into[7] += other[7];
  into[8] += other[8];
}

__device__ void reduce(Found &found, double *out) {
  __shared__ Found warps[32];
  for (int step = 16; step; step >>= 1) {
    Found other;
    for (int i = 0; i < FOUND; ++i)
      other.value[i] = __shfl_down_sync(0xffffffffu, found.value[i], step);
    add(found.value, other.value);
  }
  const int warp = threadIdx.x >> 5;
  if (!(threadIdx.x & 31)) warps[warp] = found;
  __syncthreads();
  if (!threadIdx.x) {
    for (int i = 1; i < blockDim.x >> 5; ++i) add(found.value, warps[i].value);
    for (int i = 0; i < FOUND; ++i) out[i] = found.value[i];
  }
  __syncthreads();
}

__device__ Found nothing() {
  Found found = {};
  found.value[5] = __longlong_as_double(0x7ff0000000000000LL);
  found.value[6] = -found.value[5];
  return found;
}

__device__ float widened(const float *data, int i) { return data[i]; }

struct BFloat16 {
  unsigned short bits;
};

__device__ float widened(const BFloat16 *data, int i) {
  return __uint_as_float((unsigned int)data[i].bits << 16);
}

struct Half {
  unsigned short bits;
};

__device__ float widened(const Half *data, int i) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(data[i].bits));
  return value;
}

template <typename Type>
__device__ void measure(const Type *data, int count, double *partial, unsigned int *arrived,
                        volatile double *out) {
  unsigned int nan = 0, posinf = 0, neginf = 0, zero = 0, finite = 0;
  double sum = 0, squares = 0;
  Found found = nothing();
  float least = __uint_as_float(0x7f800000u), most = -least;
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < count;
       i += (long long)gridDim.x * blockDim.x) {
    const float value = widened(data, (int)i);
    const unsigned int bits = __float_as_uint(value);
    if ((bits & 0x7f800000u) == 0x7f800000u) {
      if (bits & 0x007fffffu) ++nan;
      else if (bits >> 31) ++neginf;
      else ++posinf;
      continue;
    }
    ++finite;
    zero += !(bits & 0x7fffffffu);
    least = fminf(least, value);
    most = fmaxf(most, value);
    sum += value;
    squares += (double)value * value;
  }
  found.value[0] = nan;
  found.value[1] = posinf;
  found.value[2] = neginf;
  found.value[3] = finite;
  found.value[4] = zero;
  found.value[5] = least;
  found.value[6] = most;
  found.value[7] = sum;
  found.value[8] = squares;
  reduce(found, partial + blockIdx.x * FOUND);
  __shared__ bool is_last;
  if (!threadIdx.x) {
    __threadfence();
    is_last = atomicInc(arrived, gridDim.x - 1) == gridDim.x - 1;  // which is 0 again then
  }
  __syncthreads();
  if (!is_last) return;
  __threadfence();
  Found all = nothing();
  for (int block = threadIdx.x; block < gridDim.x; block += blockDim.x)
    add(all.value, partial + block * FOUND);
  __shared__ double result[FOUND];
  reduce(all, result);
  if (threadIdx.x < FOUND) out[threadIdx.x] = result[threadIdx.x];
  __threadfence_system();
}

#define MEASURE(NAME, TYPE)                                                                  \
  extern "C" __global__ void NAME(const TYPE *data, int count, double *partial,              \
                                  unsigned int *arrived, double *out) {                      \
    measure(data, count, partial, arrived, out);                                             \
  }

MEASURE(measure_float32, float)
MEASURE(measure_bfloat16, BFloat16)
MEASURE(measure_float16, Half)
