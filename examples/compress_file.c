/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compresses a safetensors or PyTorch file and proves that it comes back.
 *
 *     cc -std=c11 compress_file.c -o compress_file $(pkg-config --cflags --libs ckpress) && ./compress_file model.safetensors
 */
#include <ckpress/ckpress.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int
failed(const ckp_error *err)
{
    fprintf(stderr, "%s\n", err->text);     /* a whole sentence that names the file */
    return 1;
}

/* Something to compress where no file is given: one tensor of 64 x 64 floats, as safetensors lays it out. */
static int
make_model(const char *path)
{
    static float w[64 * 64];
    static const char head[] = "{\"w\":{\"dtype\":\"F32\",\"shape\":[64,64],\"data_offsets\":[0,16384]}}";
    uint8_t size[8] = {sizeof head - 1};

    for (int i = 0; i < 64 * 64; i++)
        w[i] = 0.02f * (float)(i * 37 % 101 - 50) / 50.0f;
    FILE *f = fopen(path, "wb");
    if (f == NULL)
        return 1;
    (void)fwrite(size, 1, 8, f);
    (void)fwrite(head, 1, sizeof head - 1, f);
    (void)fwrite(w, 1, sizeof w, f);
    return fclose(f);
}

static int
progress(void *user, uint64_t done, uint64_t total)
{
    const bool *terminal = user;     /* a log wants no line that is drawn again and again */
    if (*terminal)
        fprintf(stderr, "\r%3d %%", total != 0 ? (int)(100.0 * (double)done / (double)total) : 0);
    return 0;                    /* anything else stops with CKP_ECANCELLED; nothing half-written stays */
}

int
main(int argc, char **argv)
{
    const char *in = argc > 1 ? argv[1] : "model.safetensors";
    ckp_convert_options opt = CKP_CONVERT_OPTIONS_INIT;
    ckp_convert_result packed = {.size = sizeof packed}, back = {.size = sizeof back};
    ckp_error err;
    bool terminal = isatty(STDERR_FILENO) == 1;

    if (argc < 2 && make_model(in) != 0)
        return 1;
    opt.replace = true;
    opt.coding.effort = 1;
    opt.coding.progress = progress;
    opt.coding.progress_user = &terminal;
    if (ckp_compress(in, "model.ckp", &opt, &packed, &err) != CKP_OK)
        return failed(&err);
    if (ckp_verify("model.ckp", NULL, 0, CKP_VERIFY_DECODE, 0, NULL, NULL, &err) != CKP_OK)
        return failed(&err);
    const bool st = strcmp(packed.kind, "safetensors") == 0;
    if (ckp_decompress("model.ckp", st ? "back.safetensors" : "back.pt", &opt, &back, &err) != CKP_OK)
        return failed(&err);
    if (terminal)
        fputc('\n', stderr);
    printf("%s: %llu tensors, %llu bytes -> %llu -> %llu\n", packed.kind, (unsigned long long)packed.tensors,
           (unsigned long long)packed.in_bytes, (unsigned long long)packed.out_bytes, (unsigned long long)back.out_bytes);
    return st && back.out_bytes != packed.in_bytes;
}
