// What a driver runs of a fat binary: machine code of the device's own major number, the
// newest up to its minor one, or else PTX. As a driver does it refuses what is of a later
// CUDA than it is itself, though other images might do.
#include "runtime.h"

namespace hc {
namespace {

struct Header { // of an image
	uint16_t kind, version;
	uint32_t header_bytes;
	uint64_t bytes;
	uint32_t compressed_bytes, options;
	uint16_t minor, major; // ISA of PTX, ABI of machine code
	uint32_t arch, name[2], flags, rest[5];
};
static_assert(sizeof(Header) == 64, "");
enum { PTX = 1, ELF = 2, EXACT = 0x100000, COMPRESSED = 0x2000 | 0x8000 };

// The newest PTX ISA that the compiler in a driver knows.
int newest_isa(int cuda) {
	int major = cuda / 1000, minor = cuda % 1000 / 10;
	if (major != 12) return 10 * (major - 4) + minor; // CUDA 13.0: 9.0
	return 80 + (minor <= 5 ? minor : minor - 1);     // 12.6 brought none
}

// The newest ABI of machine code: CUDA 13 came with one more, 12.8 had it for its new devices.
int newest_abi(int cuda, int arch) { return cuda >= 13000 || (cuda >= 12080 && arch >= 100) ? 8 : 7; }

} // namespace

Result choose_image(const void *data, int capability, int cuda, Image &out) {
	const char *p = (const char *)data;
	uint32_t magic;
	memcpy(&magic, p, 4);
	if (magic != 0xBA55ED50) return report("this is no fat binary"), INVALID_IMAGE;
	uint16_t header_bytes;
	uint64_t body;
	memcpy(&header_bytes, p + 6, 2);
	memcpy(&body, p + 8, 8);
	const char *end = p + header_bytes + body, *best_data = nullptr;
	Header best = {};
	for (p += header_bytes; p < end;) {
		Header h;
		if (end - p < (ptrdiff_t)sizeof h) return report("the fat binary ends in a header"), INVALID_IMAGE;
		memcpy(&h, p, sizeof h);
		const char *content = p + h.header_bytes;
		if (h.header_bytes < sizeof h || h.bytes > (uint64_t)(end - content)) return report("the fat binary ends in an image"), INVALID_IMAGE;
		p = content + h.bytes;
		bool exact = h.flags & EXACT, runs = h.kind == ELF ? (int)h.arch / 10 == capability / 10 && (int)h.arch <= capability : (int)h.arch <= capability;
		if (!runs || (exact && (int)h.arch != capability)) continue;
		if (!best_data || h.kind > best.kind || (h.kind == best.kind && h.arch >= best.arch)) best = h, best_data = content;
	}
	if (!best_data) return report("the fat binary has nothing for sm_%d", capability), NO_BINARY_FOR_GPU;
	if (best.flags & COMPRESSED) return report("the host driver reads no compressed images"), INVALID_IMAGE;
	int version = 10 * best.major + best.minor;
	if (best.kind == ELF) {
		// The same numbers stand in the machine code itself: OS and version of the ABI.
		if (memcmp(best_data, "\177ELF", 4) || best_data[8] != best.minor) return report("the image is no machine code"), INVALID_IMAGE;
		if (best.minor > newest_abi(cuda, best.arch)) return report("machine code of ABI %d, a driver of CUDA %d knows %d", best.minor, cuda, newest_abi(cuda, best.arch)), INVALID_IMAGE;
	} else {
		std::string text(best_data, best.bytes);
		char wanted[32];
		snprintf(wanted, sizeof wanted, ".version %d.%d", best.major, best.minor);
		if (text.find(wanted) == std::string::npos) return report("the image is no PTX %d", version), INVALID_IMAGE;
		if (version > newest_isa(cuda)) return report("PTX %d, a driver of CUDA %d knows %d", version, cuda, newest_isa(cuda)), UNSUPPORTED_PTX_VERSION;
	}
	out.text.assign(best_data, best.bytes);
	out.arch = best.kind == ELF ? best.arch : capability;
	return SUCCESS;
}

// A stale or wrong image must not pass.
bool Image::has_kernel(const std::string &name) const {
	return text.find(".entry " + name + "(") != std::string::npos ||
	       text.find(std::string(1, '\0') + ".text." + name + '\0') != std::string::npos; // of machine code
}

} // namespace hc
