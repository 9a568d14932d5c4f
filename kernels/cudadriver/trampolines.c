//go:build gpu && linux && (amd64 || arm64)

// One jump per function of the driver through a table that is filled before Go
// starts; see doc.go.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STUB_LIBRARY = 34 }; // CUDA_ERROR_STUB_LIBRARY

// What the constructor found; read by driver.go.
char glimpse_driver_path[4096], glimpse_driver_error[1024];
int glimpse_driver_init = STUB_LIBRARY;

static int loaded;

// A driver that lacks a function which is called is too old for this program, or no
// driver: that ends it by name, since callers often cannot tell one failed call from
// another. Without a driver every function fails alike.
static int missing(const char *name) {
	if (!loaded) return STUB_LIBRARY;
	fprintf(stderr, "CUDA driver %s lacks the function %s\n", glimpse_driver_path, name);
	abort();
}
#define X(name) static int missing_##name(void) { return missing(#name); }
#include "symbols.inc"
#undef X

enum {
#define X(name) slot_##name,
#include "symbols.inc"
#undef X
	slot_count
};

static const struct { const char *name; int (*missing)(void); } functions[] = {
#define X(name) {#name, missing_##name},
#include "symbols.inc"
#undef X
};

__attribute__((visibility("hidden"))) void *glimpse_driver_table[slot_count];

static int (*real_init)(unsigned);

// cu's initialisation ends the process where cuInit fails: report success and
// remember the truth.
static int init_wrapper(unsigned flags) {
	if (real_init) glimpse_driver_init = real_init(flags);
	return 0;
}

__attribute__((constructor)) static void fill_table(void) {
	const char *library = getenv("GLIMPSE_CUDA_DRIVER");
	if (!library || !*library) library = "libcuda.so.1";
	void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
	if (!handle) snprintf(glimpse_driver_error, sizeof glimpse_driver_error, "%s", dlerror());
	int found = 0;
	for (int i = 0; i < slot_count; i++) {
		void *f = handle ? dlsym(handle, functions[i].name) : 0;
		glimpse_driver_table[i] = f ? f : (void *)functions[i].missing;
		found += f != 0;
	}
	if (handle) {
		real_init = (int (*)(unsigned))dlsym(handle, "cuInit");
		loaded = real_init != 0;
		Dl_info info;
		if (real_init && dladdr((void *)real_init, &info) && info.dli_fname)
			snprintf(glimpse_driver_path, sizeof glimpse_driver_path, "%s", info.dli_fname);
		if (!real_init)
			snprintf(glimpse_driver_error, sizeof glimpse_driver_error,
			         "%s: no cuInit: not a CUDA driver (%d of %d functions)", library, found, (int)slot_count);
	}
	glimpse_driver_table[slot_cuInit] = (void *)init_wrapper;
}

// Whether the driver in use has a function, which older ones may lack.
int glimpse_driver_has(const char *name) {
	for (int i = 0; i < slot_count; i++)
		if (!strcmp(functions[i].name, name)) return glimpse_driver_table[i] != (void *)functions[i].missing;
	return 0;
}

// The slot's number is an enumerator, which the text of an assembler instruction
// cannot name: a naked function takes it as an immediate operand.
#ifdef __aarch64__
#ifndef __clang__
#error "want clang for arm64: gcc has no naked functions there"
#endif
// x16 is the register that linkers leave to jumps like these.
#define JUMP                                             \
	"adrp x16, glimpse_driver_table+%c0\n"               \
	"ldr x16, [x16, :lo12:glimpse_driver_table+%c0]\n"   \
	"br x16"
#else
#define JUMP "jmp *glimpse_driver_table+%c0(%%rip)"
#endif
#define X(name)                                                    \
	__attribute__((naked, visibility("hidden"))) void name(void) { \
		__asm__(JUMP ::"i"(slot_##name * 8));                       \
	}
#include "symbols.inc"
