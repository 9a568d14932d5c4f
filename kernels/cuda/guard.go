//go:build gpu && linux && (amd64 || arm64)

package cuda

import (
	"glimpse/kernels"
)

// ArenaLayout is that of the device's own allocations: products may be computed otherwise
// for less. What a graph works on must stay for the next replay.
func (b *cuda) ArenaLayout() kernels.ArenaLayout {
	return kernels.ArenaLayout{Align: 256, Apart: b.exact && !b.replays}
}

// Free gives memory back at once: waiting for the garbage collector would leave
// thousands of blocks to a driver that guards each. Whoever still has one of the
// tensors gets a fault from such a driver: its time was over at the arena's Release.
func (b *cuda) Free(ts []*kernels.Tensor) {
	b.do("Free", func() {
		for _, t := range ts {
			block, _ := t.Block()
			m := block.(*cudaBlock)
			if m.size == 0 {
				continue
			}
			m.cleanup.Stop()
			b.giveBack("free", cudaMemory{m.at, m.size})
			b.live -= m.size
			b.blocks--
			m.at, m.size = 0, 0
		}
	})
}
