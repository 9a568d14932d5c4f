//go:build gpu && linux && (amd64 || arm64)

package cuda

import (
	"strings"

	"glimpse/kernels/cudadriver"
	"glimpse/kernels/fatbin"
)

// beginsEarly tells that a kernel is launched so that it begins while the one ahead of it ends (programmatic
// dependent launch): a linear layer of few rows of a recorded step, which asks for its first weights before it
// waits (grid_wait in few_rows.cu). Weights must not change in what is recorded, as they do in a training step,
// which is recorded anew each time. PTX has no wait, so it takes machine code that has one.
func (b *cuda) beginsEarly(name string) bool {
	if b.rec == nil || !b.rec.replay || !strings.HasPrefix(name, "few_rows_") {
		return false
	}
	use := b.images["few_rows"]
	return use.arch >= 90 && use.image().Kind == fatbin.ELF && cudadriver.Early()
}
