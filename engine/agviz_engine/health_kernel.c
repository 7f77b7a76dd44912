/* The numbers of agviz_engine/elements.py for dense float and double, in one pass over the memory.
 *
 * Plain C without Python.h: agviz_engine/health_kernel.py calls it through ctypes. Where no C
 * compiler was there to build it, torch's own reductions find the same numbers in five passes.
 *
 * The quick pass adds LANES independent columns, which compilers turn into vector instructions
 * without leave to reorder anything, and carries short columns over into doubles. It answers where
 * all is finite and no square overflowed or vanished; else the careful passes do.
 */

#include <math.h>
#include <stdint.h>

#define LANES 32
#define ROWS 32

#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && !defined(__clang__)
#define FOR_EACH_PROCESSOR __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define FOR_EACH_PROCESSOR
#endif

#if defined(_WIN32)
#define EXPORTED __declspec(dllexport)
#else
#define EXPORTED __attribute__((visibility("default")))
#endif

/* Fields of agviz_engine.elements.Part behind `numbers`, in its order. */
struct part {
    int64_t nan, posinf, neginf, zero, finite;
    double min, max, mean, norm;
};

#define DEFINE(REAL, COUNT, NAME, LEAST, MOST)                                                     \
    FOR_EACH_PROCESSOR static int NAME##_quick(const REAL *x, int64_t n, struct part *part)        \
    {                                                                                              \
        double sum = 0, squares = 0;                                                               \
        int64_t zeros = 0, i = 0;                                                                  \
        REAL low[LANES], high[LANES];                                                              \
        for (int j = 0; j < LANES; j++) {                                                          \
            low[j] = INFINITY;                                                                     \
            high[j] = -INFINITY;                                                                   \
        }                                                                                          \
        while (n - i >= LANES) {                                                                   \
            int64_t rows = (n - i) / LANES;                                                        \
            REAL s[LANES] = {0}, q[LANES] = {0};                                                   \
            COUNT z[LANES] = {0};                                                                  \
            for (int64_t row = rows < ROWS ? rows : ROWS; row > 0; row--, i += LANES)              \
                for (int j = 0; j < LANES; j++) {                                                  \
                    REAL v = x[i + j];                                                             \
                    s[j] += v;                                                                     \
                    q[j] += v * v;                                                                 \
                    low[j] = v < low[j] ? v : low[j];                                              \
                    high[j] = v > high[j] ? v : high[j];                                           \
                    z[j] += v == 0;                                                                \
                }                                                                                  \
            for (int j = 0; j < LANES; j++) {                                                      \
                sum += s[j];                                                                       \
                squares += q[j];                                                                   \
                zeros += z[j];                                                                     \
            }                                                                                      \
        }                                                                                          \
        REAL min = INFINITY, max = -INFINITY;                                                      \
        for (int j = 0; j < LANES; j++) {                                                          \
            min = low[j] < min ? low[j] : min;                                                     \
            max = high[j] > max ? high[j] : max;                                                   \
        }                                                                                          \
        for (; i < n; i++) {                                                                       \
            REAL v = x[i];                                                                         \
            sum += v;                                                                              \
            squares += (double)v * v;                                                              \
            min = v < min ? v : min;                                                               \
            max = v > max ? v : max;                                                               \
            zeros += v == 0;                                                                       \
        }                                                                                          \
        if (!isfinite(sum) || !isfinite(squares))                                                  \
            return 0;                                                                              \
        double magnitude = -(double)min > max ? -(double)min : max;                                \
        if (zeros < n && !(magnitude > LEAST && magnitude < MOST))                                 \
            return 0;                                                                              \
        *part = (struct part){0, 0, 0, zeros, n, min + 0.0, max + 0.0, sum / n, sqrt(squares)};    \
        return 1;                                                                                  \
    }                                                                                              \
                                                                                                   \
    static void NAME##_careful(const REAL *x, int64_t n, struct part *part)                        \
    {                                                                                              \
        struct part p = {.min = INFINITY, .max = -INFINITY};                                       \
        for (int64_t i = 0; i < n; i++) {                                                          \
            double v = x[i];                                                                       \
            if (isnan(v))                                                                          \
                p.nan++;                                                                           \
            else if (isinf(v))                                                                     \
                v > 0 ? p.posinf++ : p.neginf++;                                                   \
            else {                                                                                 \
                p.finite++;                                                                        \
                p.zero += v == 0;                                                                  \
                p.min = v < p.min ? v : p.min;                                                     \
                p.max = v > p.max ? v : p.max;                                                     \
            }                                                                                      \
        }                                                                                          \
        double scale = -p.min > p.max ? -p.min : p.max, mean = 0, squares = 0;                     \
        if (p.finite && scale > 0) {                                                               \
            for (int64_t i = 0; i < n; i++) {                                                      \
                double v = x[i];                                                                   \
                if (isfinite(v)) {                                                                 \
                    v /= scale;                                                                    \
                    mean += v;                                                                     \
                    squares += v * v;                                                              \
                }                                                                                  \
            }                                                                                      \
            p.mean = mean / p.finite * scale;                                                      \
            p.norm = sqrt(squares) * scale;                                                        \
        }                                                                                          \
        if (p.finite) {                                                                            \
            p.min += 0.0;                                                                          \
            p.max += 0.0;                                                                          \
        }                                                                                          \
        *part = p;                                                                                 \
    }                                                                                              \
                                                                                                   \
    EXPORTED void agviz_health_##NAME(const REAL *x, int64_t n, struct part *part)                 \
    {                                                                                              \
        if (!NAME##_quick(x, n, part))                                                             \
            NAME##_careful(x, n, part);                                                            \
    }

DEFINE(float, int32_t, float32, 1e-12, 1e15)
DEFINE(double, int64_t, float64, 1e-140, 1e140)
