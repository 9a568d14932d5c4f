package collective

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	"glimpse/internal/listing"
	"glimpse/internal/settings"
)

// Tag tells apart what is sent between two ranks at the same time. Messages of one tag
// arrive in the order in which they were sent.
type Tag int

// Tags of this package.
const (
	tagGather Tag = iota
	tagBroadcast
	tagPartial // sums on their way along the chain
	tagTotal   // and whole ones on their way back
)

// Group is the ranks of a run, as one of them sees it. Send and Recv may be called at the
// same time for different tags. Their errors come from ctx, or are a [*Failure] of the
// rank that ended the run.
type Group interface {
	Rank() int
	Size() int
	// Local is the number of this rank among the ranks of its machine.
	Local() int
	// Send returns when b may be changed again, which does not say that it has arrived.
	Send(ctx context.Context, to int, tag Tag, b []byte) error
	// Recv fills b, whose length is that of the message.
	Recv(ctx context.Context, from int, tag Tag, b []byte) error
	// Failed is closed when a rank has ended the run, and Err is its *Failure then.
	Failed() <-chan struct{}
	Err() error
	// Fail ends the run on all ranks, with this rank's reason. It returns when the
	// process may end.
	Fail(reason error)
	// Close ends the group when all ranks have come to it.
	Close() error
}

// Failure is the error of a run that a rank has ended.
type Failure struct {
	Rank   int
	Who    string // "pid 4711 on node3"
	Reason string
	// Stopped: the rank was told to end, by a signal. Such a failure is a [context.Canceled].
	Stopped bool `json:",omitempty"`
}

// FailureOf is the failure of a rank with a reason; a reason that is the failure of another rank stays that.
func FailureOf(rank int, who string, reason error) *Failure {
	var f *Failure
	if errors.As(reason, &f) {
		return f
	}
	return &Failure{rank, who, reason.Error(), errors.Is(reason, context.Canceled)}
}

// Is tells that the failure is a cancellation.
func (f *Failure) Is(target error) bool { return f.Stopped && target == context.Canceled }

func (f *Failure) Error() string { return fmt.Sprintf("rank %d (%s): %s", f.Rank, f.Who, f.Reason) }

// Share is the part [from, to) of n things that a rank has, in the order of the ranks; parts differ by
// at most one.
func Share(n, rank, size int) (from, to int) { return n * rank / size, n * (rank + 1) / size }

// GatherBytes gives every rank what each of them has, by rank.
func GatherBytes(ctx context.Context, g Group, b []byte) ([][]byte, error) {
	if g.Size() == 1 {
		return [][]byte{b}, nil
	}
	if g.Rank() > 0 {
		if err := send(ctx, g, 0, tagGather, b); err != nil {
			return nil, err
		}
		out := make([][]byte, g.Size())
		for i := range out {
			var err error
			if out[i], err = recv(ctx, g, 0, tagGather); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	out := [][]byte{b}
	for from := 1; from < g.Size(); from++ {
		x, err := recv(ctx, g, from, tagGather)
		if err != nil {
			return nil, err
		}
		out = append(out, x)
	}
	for to := 1; to < g.Size(); to++ {
		for _, x := range out {
			if err := send(ctx, g, to, tagGather, x); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// Broadcast gives every rank what rank 0 has.
func Broadcast(ctx context.Context, g Group, b []byte) ([]byte, error) {
	if g.Rank() > 0 {
		return recv(ctx, g, 0, tagBroadcast)
	}
	for to := 1; to < g.Size(); to++ {
		if err := send(ctx, g, to, tagBroadcast, b); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// Same is an error unless all ranks have what rank 0 has: settings that results depend on, as JSON.
func Same(ctx context.Context, g Group, own any) error {
	text, err := json.Marshal(own)
	if err != nil {
		return err
	}
	all, err := GatherBytes(ctx, g, text)
	if err != nil {
		return err
	}
	for rank, other := range all {
		differ, err := settings.Differences(all[0], other)
		if err != nil {
			return fmt.Errorf("what rank %d has sent: %w", rank, err)
		}
		if len(differ) > 0 {
			return fmt.Errorf("rank %d does not have the run of rank 0: %s", rank, listing.Plain(listing.Map(differ, func(d settings.Difference) string {
				return fmt.Sprintf("%s: got %.100s, want %.100s", d.Key, cmp.Or(d.Is, "none"), cmp.Or(d.Was, "none"))
			})))
		}
	}
	return nil
}

// send and recv are a message with its length before it.
func send(ctx context.Context, g Group, to int, tag Tag, b []byte) error {
	length := binary.LittleEndian.AppendUint64(nil, uint64(len(b)))
	if err := g.Send(ctx, to, tag, length); err != nil {
		return err
	}
	if len(b) == 0 {
		return nil
	}
	return g.Send(ctx, to, tag, b)
}

func recv(ctx context.Context, g Group, from int, tag Tag) ([]byte, error) {
	var length [8]byte
	if err := g.Recv(ctx, from, tag, length[:]); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint64(length[:])
	if n == 0 {
		return nil, nil
	}
	if n > maxMessage {
		return nil, fmt.Errorf("rank %d: a message of %d bytes, want at most %d", from, n, int64(maxMessage))
	}
	b := make([]byte, n)
	return b, g.Recv(ctx, from, tag, b)
}

// maxMessage bounds what is allocated for a message: the state of a run is the longest.
const maxMessage = 1 << 40

// Alone is the group of a process that no launcher has started with others.
func Alone() Group { return alone{} }

type alone struct{}

func (alone) Rank() int  { return 0 }
func (alone) Size() int  { return 1 }
func (alone) Local() int { return 0 }
func (alone) Send(context.Context, int, Tag, []byte) error {
	panic("collective: send without another rank")
}
func (alone) Recv(context.Context, int, Tag, []byte) error {
	panic("collective: receive without another rank")
}
func (alone) Failed() <-chan struct{} { return nil }
func (alone) Err() error              { return nil }
func (alone) Fail(error)              {}
func (alone) Close() error            { return nil }
