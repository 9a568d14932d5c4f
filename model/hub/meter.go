package hub

import (
	"io"
	"sync"

	"glimpse/internal/progress"
)

const mebibyte = 1 << 20

// meter shows bytes on a progress bar that counts MiB.
type meter struct {
	bar   *progress.Bar
	total int64

	mu    sync.Mutex
	bytes int64
	shown int64 // MiB
}

func newMeter(w io.Writer, r repo, total int64) *meter {
	m := &meter{bar: progress.New(w, "MiB", inMiB(total)), total: total}
	m.bar.Describe(r.String())
	return m
}

// inMiB rounds up, so that small files are not nothing.
func inMiB(bytes int64) int64 { return (bytes + mebibyte - 1) / mebibyte }

// add counts bytes that have arrived, skip those that need not; both take back
// what they are given below zero.
func (m *meter) add(n int64)  { m.count(n, m.bar.Add) }
func (m *meter) skip(n int64) { m.count(n, m.bar.Skip) }

func (m *meter) count(n int64, on func(int64)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.bytes += n
	now := m.bytes / mebibyte
	if m.bytes == m.total {
		now = inMiB(m.total)
	}
	on(now - m.shown)
	m.shown = now
}

func (m *meter) describe(text string) { m.bar.Describe(text) }

func (m *meter) done() { m.bar.Done() }
