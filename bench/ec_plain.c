/* What ISA-L does by itself, called straight from C: the figures beside those of `cargo run -p ec --example speed`.
   Built and run by ec_code.py. Prints k+m, bytes of a chunk, and GB/s of encoding and of an update (of the chunk that changes). */
#include <erasure_code.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef unsigned char byte;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static byte **chunks(long n, long len) {
    byte **all = malloc(n * sizeof *all);
    for (long i = 0; i < n; i++) {
        all[i] = aligned_alloc(64, len);
        memset(all[i], (int)(i * 7 + 1), len);
    }
    return all;
}

/* GB/s of `step`, a stripe after the other. */
#define SPEED(into, bytes, step) do { \
    long done = 0; \
    double begun = now(); \
    while (now() - begun < seconds) \
        for (int i = 0; i < 16; i++, done++) { long s = done % stripes; step; } \
    into = done * (double)(bytes) / (now() - begun) / 1e9; \
} while (0)

int main(int argc, char **argv) {
    double seconds = argc > 1 ? atof(argv[1]) : 0.3;
    int codes[][2] = {{2, 1}, {4, 2}, {8, 3}}, hot = argc > 2;
    for (int c = 0; c < 3; c++)
        for (int len = 4096; len <= 1 << 20; len <<= 8) {
            int k = codes[c][0], m = codes[c][1];
            long stripes = hot ? 1 : (32L << 20) / len / k;
            byte matrix[32 * 32], tables[32 * 32 * 32];
            gf_gen_rs_matrix(matrix, k + m, k);
            ec_init_tables(k, m, matrix + k * k, tables);
            byte **data = chunks(stripes * k, len), **parity = chunks(stripes * m, len);
            double encode, update;
            SPEED(encode, (double)k * len, ec_encode_data(len, k, m, tables, data + s * k, parity + s * m));
            SPEED(update, len, ec_encode_data_update(len, k, m, 1, tables, data[s * k + 1], parity + s * m));
            printf("%d+%d %d %.1f %.1f\n", k, m, len, encode, update);
        }
    return 0;
}
