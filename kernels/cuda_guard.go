//go:build gpu && linux && amd64

package kernels

var _ guarded = (*cuda)(nil)

// guards implements the arenas' question whether to allocate tensor by tensor. What a
// graph works on must stay for the next replay.
func (b *cuda) guards() bool { return b.exact && !b.replays }

// free gives memory back at once: waiting for the garbage collector would leave
// thousands of blocks to a driver that guards each. Whoever still has one of the
// tensors gets a fault from such a driver: its time was over at the arena's Release.
func (b *cuda) free(ts []*Tensor) {
	b.do("free", func() {
		for _, t := range ts {
			m := t.block.(*cudaBlock)
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
