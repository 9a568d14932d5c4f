// Where in the library's TLS block the __shared__ variables of a source file lie, by the
// library's own symbols: a block poisons those of its kernel's file and not the 200 KB of
// all kernels.
#include "runtime.h"
#include <dlfcn.h>
#include <elf.h>
#include <algorithm>
#include <map>
#include <stdio.h>
#include <vector>

namespace hc {
namespace {

struct Range {
	size_t from, to;
};
std::map<std::string, Range> ranges; // by the name of the file
bool every = true;                   // a variable is of no known file: all are poisoned

std::vector<char> read_self() {
	Dl_info self = {};
	std::vector<char> out;
	FILE *f = dladdr((void *)read_self, &self) ? fopen(self.dli_fname, "rb") : nullptr;
	if (!f) return out;
	char piece[1 << 16];
	for (size_t n; (n = fread(piece, 1, sizeof piece, f)) > 0;) out.insert(out.end(), piece, piece + n);
	fclose(f);
	return out;
}

void find_ranges() {
	const std::vector<char> elf = read_self();
	if (elf.size() < sizeof(Elf64_Ehdr)) return;
	const auto &header = *(const Elf64_Ehdr *)elf.data();
	const auto *sections = (const Elf64_Shdr *)(elf.data() + header.e_shoff);
	for (int i = 0; i < header.e_shnum; i++) {
		if (sections[i].sh_type != SHT_SYMTAB) continue; // a stripped library has none
		every = false;
		const auto *symbols = (const Elf64_Sym *)(elf.data() + sections[i].sh_offset);
		const char *names = elf.data() + sections[sections[i].sh_link].sh_offset;
		std::string file;
		for (size_t s = 0; s < sections[i].sh_size / sizeof *symbols; s++) {
			const Elf64_Sym &symbol = symbols[s];
			if (ELF64_ST_TYPE(symbol.st_info) == STT_FILE) file = names + symbol.st_name;
			if (ELF64_ST_TYPE(symbol.st_info) != STT_TLS) continue;
			if (ELF64_ST_BIND(symbol.st_info) != STB_LOCAL) { // that of a template, in any file
				every = true;
				return;
			}
			Range own = {symbol.st_value, symbol.st_value + symbol.st_size};
			auto at = ranges.insert({file, own}).first;
			at->second.from = std::min(at->second.from, own.from);
			at->second.to = std::max(at->second.to, own.to);
		}
	}
}

} // namespace

void static_shared_of(const char *path, size_t &from, size_t &to) {
	static const bool found = (find_ranges(), true);
	(void)found;
	if (every) return;
	const char *slash = strrchr(path, '/');
	auto it = ranges.find(slash ? slash + 1 : path);
	from = it == ranges.end() ? 0 : it->second.from;
	to = it == ranges.end() ? 0 : it->second.to;
}

} // namespace hc
