package training

import (
	"bytes"
	"context"
	"encoding/gob"
	"fmt"
	"hash/crc32"

	"glimpse/checkpoints"
	"glimpse/internal/collective"
	"glimpse/kernels"
)

// outcome is what a sample came to, on the rank that had it.
type outcome struct {
	Empty   bool      // its response was
	TooLong bool      // its prompt was, for an answer behind it
	Losses  []float64 // per learner, as minimised
	Bad     []string  // per learner: what was not finite
}

// report is what a rank tells the others of its part of a step.
type report struct {
	Outcomes   []outcome
	Parameters uint32 // checksum of all parameters before the step
	Stopping   bool
}

// Join makes the trainer one of the ranks of g, before its first step. All ranks go on from
// the state of rank 0, and samples of steps and validations are shared out. The error is
// that of ranks which do not have the same run.
func (t *Trainer) Join(ctx context.Context, g collective.Group, modelSHA256 string) error {
	t.ranks = g
	if g.Size() == 1 {
		return nil
	}
	own, err := t.describeRun(modelSHA256)
	if err != nil {
		return err
	}
	state := own
	if err := own.Contents.Agree(ctx, g); err != nil {
		return fmt.Errorf("train: %w", err)
	}
	own.Step, own.Skipped, own.TooLong, own.History, own.Accepted = 0, 0, 0, history{}, nil // rank 0 has resumed
	if err := collective.Same(ctx, g, own); err != nil {
		return fmt.Errorf("train: %w", err)
	}
	var b bytes.Buffer
	if g.Rank() == 0 {
		encoder := gob.NewEncoder(&b)
		if err := encoder.Encode(state); err != nil {
			return err
		}
		t.tensors(func(_ string, x *kernels.Tensor) {
			if err == nil {
				err = encoder.Encode(stateOf(x))
			}
		})
		if err != nil {
			return err
		}
	}
	received, err := collective.Broadcast(ctx, g, b.Bytes())
	if err != nil {
		return err
	}
	if g.Rank() == 0 {
		return t.connect(ctx)
	}
	decoder := gob.NewDecoder(bytes.NewReader(received))
	state = runRecord{}
	if err := decoder.Decode(&state); err != nil {
		return err
	}
	t.tensors(func(_ string, x *kernels.Tensor) {
		var v checkpoints.StateTensor
		if err != nil {
			return
		}
		if err = decoder.Decode(&v); err == nil {
			takeTensor(x, v)
		}
	})
	if err != nil {
		return fmt.Errorf("train: state of rank 0: %w", err)
	}
	t.done, t.skipped, t.tooLong, t.history = state.Step, state.Skipped, state.TooLong, state.History
	return t.connect(ctx)
}

// exchange gives every rank what all have found of a step's samples, in the order of the samples.
func (t *Trainer) exchange(ctx context.Context, b *batch) error {
	if t.ranks.Size() == 1 {
		return nil
	}
	own := report{Outcomes: b.outcomes, Parameters: t.checksum(), Stopping: t.Stopping != nil && t.Stopping()}
	all, err := gather(ctx, t.ranks, own)
	if err != nil {
		return err
	}
	b.outcomes = nil
	for rank, r := range all {
		if r.Parameters != all[0].Parameters {
			return fmt.Errorf("rank %d has other parameters than rank 0 after step %d: its processor, memory or device computes wrongly, or is another one", rank, t.done)
		}
		b.outcomes = append(b.outcomes, r.Outcomes...)
		t.stopping = t.stopping || r.Stopping
	}
	return nil
}

// gather gives every rank the values of all.
func gather[T any](ctx context.Context, g collective.Group, own T) ([]T, error) {
	var b bytes.Buffer
	if err := gob.NewEncoder(&b).Encode(own); err != nil {
		return nil, err
	}
	all, err := collective.GatherBytes(ctx, g, b.Bytes())
	if err != nil {
		return nil, err
	}
	out := make([]T, len(all))
	for rank, x := range all {
		if err := gob.NewDecoder(bytes.NewReader(x)).Decode(&out[rank]); err != nil {
			return nil, fmt.Errorf("what rank %d has sent: %w", rank, err)
		}
	}
	return out, nil
}

// checksum tells parameters that differ apart.
func (t *Trainer) checksum() uint32 {
	sum := uint32(0)
	for _, l := range t.learners {
		for _, p := range l.params {
			v := stateOf(p.Tensor)
			sum = crc32.Update(sum, castagnoli, collective.Bytes(v.F32))
			sum = crc32.Update(sum, castagnoli, collective.Bytes(v.F64))
		}
	}
	return sum
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// fold adds the gradients of all ranks, in the order of the samples: rank 0 has added its own
// as they came, the others have kept theirs.
func (t *Trainer) fold(ctx context.Context, b *batch) error {
	if t.ranks.Size() == 1 || b.used == 0 {
		return nil
	}
	var sums []*kernels.Tensor
	kept := make([][]*kernels.Tensor, len(b.kept)) // as sums; nil: the sample was left out
	for i, l := range t.learners {
		if b.bad[i] != nil {
			continue
		}
		sums = append(sums, l.sum...)
		for s, sample := range b.kept {
			if sample != nil {
				kept[s] = append(kept[s], sample[i]...)
			}
		}
	}
	if t.link != nil {
		return t.foldOnDevices(ctx, sums, kept)
	}
	host := make([]*kernels.Tensor, len(sums))
	for i, x := range sums {
		host[i] = x.OnHost()
	}
	if err := collective.Chain(ctx, t.ranks.Rank(), t.ranks.Size(), messages(t.ranks, host, kept)); err != nil {
		return err
	}
	for i, x := range sums {
		if host[i] != x {
			kernels.Convert(x, host[i])
		}
	}
	return nil
}

// stretch is numbers [from, to) of a tensor.
type stretch struct{ tensor, from, to int }

// devicePiece is how many numbers pass the chain at a time from device to device: so many that a message's
// cost is little. Messages between hosts have collective.PieceLen.
const devicePiece = 256 << 10

// cutPieces cuts tensors into pieces of at most so many numbers. Small tensors share one.
func cutPieces(ts []*kernels.Tensor, most int) (out [][]stretch) {
	room := 0
	for i, t := range ts {
		for from := 0; from < t.Len(); {
			if room == 0 {
				out, room = append(out, nil), most
			}
			to := min(from+room, t.Len())
			last := len(out) - 1
			out[last] = append(out[last], stretch{i, from, to})
			room -= to - from
			from = to
		}
	}
	return out
}

// messages are sums on the host, onto which kept gradients [sample][tensor] are put.
func messages(g collective.Group, sums []*kernels.Tensor, kept [][]*kernels.Tensor) *collective.Messages {
	n := 0
	for _, x := range sums {
		n += x.Len()
	}
	pieces := cutPieces(sums, collective.PieceLen(n, g.Size()))
	m := &collective.Messages{Group: g, Memory: make([][][]byte, len(pieces))}
	for i, stretches := range pieces {
		for _, p := range stretches {
			x := sums[p.tensor]
			if x.DType == kernels.F64 {
				m.Memory[i] = append(m.Memory[i], collective.Bytes(x.F64()[p.from:p.to]))
			} else {
				m.Memory[i] = append(m.Memory[i], collective.Bytes(x.F32()[p.from:p.to]))
			}
		}
	}
	m.Put = func(piece int) {
		for _, p := range pieces[piece] {
			for _, sample := range kept {
				switch x := sums[p.tensor]; {
				case sample == nil:
				case x.DType == kernels.F64:
					addTo(x.F64()[p.from:p.to], sample[p.tensor].F64()[p.from:p.to])
				default:
					addTo(x.F32()[p.from:p.to], sample[p.tensor].F32()[p.from:p.to])
				}
			}
		}
	}
	return m
}

func addTo[T float32 | float64](sum, x []T) {
	for i, v := range x {
		sum[i] += v
	}
}

// validated is what a rank has found of a held-out sample.
type validated struct {
	Losses []float64
	Found  []agreement
}

// shareResults runs f for tasks 0 … n-1 on the ranks that have them, and gives every rank all results.
func shareResults[T any](ctx context.Context, t *Trainer, what string, n int, f func(w *worker, i int) (T, error)) ([]T, error) {
	from, to := collective.Share(n, t.ranks.Rank(), t.ranks.Size())
	own := make([]T, to-from)
	one, done := func() {}, func() {}
	if t.Working != nil {
		one, done = t.Working(what, len(own))
	}
	err := t.eachTask(len(own), func(w *worker, i int) (err error) {
		own[i], err = f(w, from+i)
		one()
		return err
	})
	done()
	if err != nil || t.ranks.Size() == 1 {
		return own, err
	}
	all, err := gather(ctx, t.ranks, own)
	if err != nil {
		return nil, err
	}
	out := make([]T, 0, n)
	for _, part := range all {
		out = append(out, part...)
	}
	return out, nil
}

// Interrupted tells that a rank has been told to stop. All ranks see it after the same step.
func (t *Trainer) Interrupted() bool {
	if t.ranks.Size() == 1 {
		return t.Stopping != nil && t.Stopping()
	}
	return t.stopping
}

// meet waits for all ranks to have done the step after which they end: one that ended before would
// end theirs.
func (t *Trainer) meet(ctx context.Context) error {
	_, err := collective.GatherBytes(ctx, t.ranks, nil)
	t.met = err == nil
	return err
}

// Met tells that all ranks have ended after the same step: they were told to stop, or an adapter
// has diverged.
func (t *Trainer) Met() bool { return t.met }

// Writes tells whether this rank is the one that writes what the run comes to.
func (t *Trainer) Writes() bool { return t.ranks.Rank() == 0 }
