// llamastep decodes by llama.cpp with the settings of llama-bench, so many tokens at a time as it is asked for:
// the other side of llamacppbench -step, which says how it is built. Prints what the tokens before them took, in seconds, and the bytes of their cache, then
// what each group took.
//
//   llamastep FILE.gguf CACHE THREADS DEPTH [plain]
//
// Attention is "flash attention" unless it is plain.
#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "llama.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

static void need(bool ok, const char * what) {
    if (!ok) {
        fprintf(stderr, "llamastep: %s\n", what);
        exit(1);
    }
}

int main(int argc, char ** argv) {
    need(argc == 5 || (argc == 6 && !strcmp(argv[5], "plain")), "want FILE.gguf CACHE THREADS DEPTH [plain]");
    const int threads = atoi(argv[3]), depth = atoi(argv[4]);
    llama_log_set([](ggml_log_level, const char *, void *) {}, nullptr);
    ggml_backend_load_all();
    llama_backend_init();

    llama_model_params mp = llama_model_default_params();
    mp.n_gpu_layers = 0;
    llama_model * model = llama_model_load_from_file(argv[1], mp);
    need(model, "the model can't be loaded");

    // f16 stands for float32, which llama-bench takes none of.
    const struct { const char * name; ggml_type type; } caches[] = { { "float32", GGML_TYPE_F16 }, { "f16", GGML_TYPE_F16 }, { "bf16", GGML_TYPE_BF16 }, { "q8_0", GGML_TYPE_Q8_0 } };
    ggml_type type = GGML_TYPE_COUNT;
    for (const auto & c : caches) {
        type = strcmp(argv[2], c.name) ? type : c.type;
    }
    need(type != GGML_TYPE_COUNT, "CACHE is none of float32, f16, bf16 and q8_0");
    llama_context_params cp = llama_context_default_params();
    cp.n_ctx = depth + 4096;
    cp.n_batch = 2048;
    cp.type_k = cp.type_v = type;
    cp.n_threads = cp.n_threads_batch = threads;
    cp.flash_attn_type = argc == 6 ? LLAMA_FLASH_ATTN_TYPE_DISABLED : LLAMA_FLASH_ATTN_TYPE_ENABLED;
    llama_context * ctx = llama_init_from_model(model, cp);
    need(ctx, "no context");
    ggml_threadpool_params tpp = ggml_threadpool_params_default(threads);
    llama_attach_threadpool(ctx, ggml_threadpool_new(&tpp), nullptr);

    const int vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
    std::vector<llama_token> tokens(depth);
    for (llama_token & t : tokens) {
        t = rand() % vocab;
    }
    const auto start = std::chrono::steady_clock::now();
    for (int from = 0; from < depth; from += 512) {
        need(!llama_decode(ctx, llama_batch_get_one(tokens.data() + from, depth - from < 512 ? depth - from : 512)), "decoding failed");
    }
    llama_synchronize(ctx);
    printf("%.9f %zu\n", std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), llama_state_seq_get_size(ctx, 0));
    fflush(stdout);
    for (int count; scanf("%d", &count) == 1;) {
        const auto begin = std::chrono::steady_clock::now();
        for (int i = 0; i < count; i++) {
            llama_token token = rand() % vocab;
            need(!llama_decode(ctx, llama_batch_get_one(&token, 1)), "decoding failed");
            llama_synchronize(ctx);
        }
        printf("%.9f\n", std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
        fflush(stdout);
        need(llama_memory_seq_rm(llama_get_memory(ctx), 0, depth, -1), "the tokens can't be taken back");
    }
}
