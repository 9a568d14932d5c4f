// Package collectivetest has ranks that are goroutines of one process.
package collectivetest

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"glimpse/internal/collective"
)

// pipe is the way of one tag's messages from one rank to another.
type pipe struct {
	from, to int
	tag      collective.Tag
}

// inProcess is what the ranks of one process share.
type inProcess struct {
	mu      sync.Mutex
	pipes   map[pipe]chan []byte
	once    sync.Once
	failed  chan struct{}
	failure *collective.Failure
}

// pipe is the way of a tag's messages, which is made when it is first asked for.
func (p *inProcess) pipe(at pipe) chan []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pipes[at] == nil {
		p.pipes[at] = make(chan []byte, 1)
	}
	return p.pipes[at]
}

// member is one of them.
type member struct {
	*inProcess
	rank, size int
}

// InProcess is n ranks of one process, each for a goroutine of its own: what is written over groups
// is tested on them.
func InProcess(n int) []collective.Group {
	shared := &inProcess{failed: make(chan struct{}), pipes: make(map[pipe]chan []byte)}
	out := make([]collective.Group, n)
	for i := range out {
		out[i] = &member{shared, i, n}
	}
	return out
}

func (m *member) Rank() int  { return m.rank }
func (m *member) Size() int  { return m.size }
func (m *member) Local() int { return m.rank }

func (m *member) Send(ctx context.Context, to int, tag collective.Tag, b []byte) error {
	select {
	case m.pipe(pipe{m.rank, to, tag}) <- slices.Clone(b):
		return nil
	case <-m.failed:
		return m.failure
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (m *member) Recv(ctx context.Context, from int, tag collective.Tag, b []byte) error {
	select {
	case x := <-m.pipe(pipe{from, m.rank, tag}):
		if len(x) != len(b) {
			return fmt.Errorf("rank %d: a message of %d bytes, want %d", from, len(x), len(b))
		}
		copy(b, x)
		return nil
	case <-m.failed:
		return m.failure
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (m *member) Failed() <-chan struct{} { return m.failed }

func (m *member) Err() error {
	select {
	case <-m.failed:
		return m.failure
	default:
		return nil
	}
}

func (m *member) Fail(reason error) {
	m.once.Do(func() {
		m.failure = collective.FailureOf(m.rank, "in process", reason)
		close(m.failed)
	})
}

func (m *member) Close() error { return nil }
