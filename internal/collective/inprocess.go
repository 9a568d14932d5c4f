package collective

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// pipe is the way of one tag's messages from one rank to another.
type pipe struct {
	from, to int
	tag      Tag
}

// inProcess is what the ranks of one process share.
type inProcess struct {
	pipes   map[pipe]chan []byte
	once    sync.Once
	failed  chan struct{}
	failure *Failure
}

// member is one of them.
type member struct {
	*inProcess
	rank, size int
}

// InProcess is n ranks of one process, each for a goroutine of its own: what is written over groups
// is tested on them.
func InProcess(n int) []Group {
	shared := &inProcess{failed: make(chan struct{}), pipes: make(map[pipe]chan []byte)}
	for from := range n {
		for to := range n {
			for tag := range tags {
				shared.pipes[pipe{from, to, tag}] = make(chan []byte, 1)
			}
		}
	}
	out := make([]Group, n)
	for i := range out {
		out[i] = &member{shared, i, n}
	}
	return out
}

func (m *member) Rank() int  { return m.rank }
func (m *member) Size() int  { return m.size }
func (m *member) Local() int { return m.rank }

func (m *member) Send(ctx context.Context, to int, tag Tag, b []byte) error {
	select {
	case m.pipes[pipe{m.rank, to, tag}] <- slices.Clone(b):
		return nil
	case <-m.failed:
		return m.failure
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (m *member) Recv(ctx context.Context, from int, tag Tag, b []byte) error {
	select {
	case x := <-m.pipes[pipe{from, m.rank, tag}]:
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
		m.failure = failureOf(m.rank, "in process", reason)
		close(m.failed)
	})
}

func (m *member) Close() error { return nil }
