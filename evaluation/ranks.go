package evaluation

import (
	"bytes"
	"context"
	"encoding/gob"
	"encoding/json"
	"fmt"
	"iter"
	"sync"

	"glimpse/internal/collective"
	"glimpse/model"

	"golang.org/x/sync/errgroup"
)

// shareSamples measures the samples of work on all ranks. Rank 0 deals their numbers, which are in the order in
// which every rank goes over the samples.
func (o *Options) shareSamples(ctx context.Context, m *model.Model, work []Work, results *Results) error {
	workers := o.concurrency(m)
	if o.Ranks.Rank() > 0 {
		taker := collective.Take(ctx, o.Ranks)
		from := &dealt{Taker: taker}
		from.pull, from.stop = iter.Pull(all(work))
		defer from.stop()
		return taker.Finish(o.pool(taker.Context(), m, workers, from))
	}
	group, ctx := errgroup.WithContext(ctx)
	from := o.own(m, work, results)
	defer from.stop()
	group.Go(func() error { return from.deal(ctx) })
	group.Go(func() error { return o.pool(ctx, m, workers, from) })
	return group.Wait()
}

// A sample's number is that of its subtask and its own: place · 2³² + index.
const placeBits = 32

func (j job) sampleNumber() int { return j.at<<placeBits | j.index }

// deal deals samples to the other ranks until there are no more and all are measured.
func (f *own) deal(ctx context.Context) error {
	var mu sync.Mutex
	out := make(map[int]job)
	return collective.Deal(ctx, f.o.Ranks, func(ctx context.Context) (int, []byte, bool, error) {
		j, ok, err := f.next(ctx)
		if err != nil || !ok {
			return 0, nil, false, err
		}
		mu.Lock()
		defer mu.Unlock()
		out[j.sampleNumber()] = j
		piece, err := json.Marshal(j.cells)
		return j.sampleNumber(), piece, err == nil, err
	}, func(number int, result []byte) error {
		mu.Lock()
		j, ok := out[number]
		delete(out, number)
		mu.Unlock()
		if !ok {
			return fmt.Errorf("evaluate: the results of sample %d of subtask %d, which are not waited for", number&(1<<placeBits-1), number>>placeBits)
		}
		found := new(measured)
		if err := gob.NewDecoder(bytes.NewReader(result)).Decode(found); err != nil {
			return fmt.Errorf("evaluate: task %s: results of sample %s: %w", j.work.Name, j.item.ID, err)
		}
		for _, p := range found.Lines {
			if p.Sample != j.item.ID || p.Task != j.work.Name {
				return fmt.Errorf("evaluate: task %s: sample %d is %s, but %s of task %s on another rank: the ranks have other data", j.work.Name, j.index, j.item.ID, p.Sample, p.Task)
			}
		}
		return f.take(j, found)
	})
}

// dealt are the samples that a rank other than 0 gets.
type dealt struct {
	*collective.Taker

	mu   sync.Mutex
	pull func() (job, bool)
	stop func()
}

func (d *dealt) next(context.Context) (job, bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	number, piece, more, err := d.Next(true)
	if err != nil || !more {
		return job{}, false, err
	}
	for {
		j, ok := d.pull()
		if !ok {
			return job{}, false, fmt.Errorf("evaluate: rank 0 has more samples: sample %d of subtask %d is not here: the ranks have other data", number&(1<<placeBits-1), number>>placeBits)
		}
		if j.sampleNumber() == number {
			err := json.Unmarshal(piece, &j.cells)
			return j, err == nil, err
		}
	}
}

func (d *dealt) take(j job, found *measured) error {
	var b bytes.Buffer
	if err := gob.NewEncoder(&b).Encode(found); err != nil {
		return err
	}
	return d.Hand(j.sampleNumber(), b.Bytes())
}
