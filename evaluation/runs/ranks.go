package runs

import (
	"bytes"
	"context"
	"encoding/gob"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"glimpse/engine"
	"glimpse/internal/collective"
	"glimpse/internal/signals"
	"glimpse/internal/simd"
	"glimpse/internal/version"
	"glimpse/kernels"
)

// call is what rank 0 tells the others to do next.
type call struct {
	Job           []byte // what to measure, as JSON; nil: nothing more
	Shard, Shards int    // of it
}

func (c call) sendCall(ctx context.Context, g collective.Group) error {
	var b bytes.Buffer
	if err := gob.NewEncoder(&b).Encode(c); err != nil {
		return err
	}
	_, err := collective.Broadcast(ctx, g, b.Bytes())
	return err
}

// callRanks tells the other ranks to measure the job, too.
func (j *Job) callRanks(ctx context.Context) error {
	if j.Ranks.Size() == 1 {
		return nil
	}
	theirs := *j
	if theirs.Out == "" {
		theirs.Inspect = 0
	}
	theirs.Out = "" // they write nothing
	text, err := json.Marshal(&theirs)
	if err != nil {
		return err
	}
	return call{text, j.shard, j.shards}.sendCall(ctx, j.Ranks)
}

// Dismiss ends the Help of the other ranks, after the last Run of rank 0.
func Dismiss(ctx context.Context, g collective.Group) error { return call{}.sendCall(ctx, g) }

// Help measures on a rank other than 0 what rank 0 runs, until that dismisses it. It needs the same models and
// data.
func Help(ctx context.Context, g collective.Group) error {
	err := help(ctx, g)
	if errors.Is(err, context.Canceled) { // rank 0 keeps what was measured
		return signals.Resumable(err)
	}
	return err
}

func help(ctx context.Context, g collective.Group) error {
	j := new(Job)
	defer func() { j.closeModel() }()
	var last []byte
	for {
		b, err := collective.Broadcast(ctx, g, nil)
		if err != nil {
			return err
		}
		var c call
		if err := gob.NewDecoder(bytes.NewReader(b)).Decode(&c); err != nil {
			return fmt.Errorf("eval: what rank 0 has sent: %w", err)
		}
		if len(c.Job) == 0 {
			return nil
		}
		if !bytes.Equal(c.Job, last) { // otherwise its next shard, with the model that is open
			j.closeModel()
			j, last = new(Job), c.Job
			if err := json.Unmarshal(c.Job, j); err != nil {
				return fmt.Errorf("eval: the job of rank 0: %w", err)
			}
		}
		j.Ranks, j.shard, j.shards = g, c.Shard, c.Shards
		plans, err := j.checkedPlans()
		if err == nil {
			err = j.identify(ctx, io.Discard)
		}
		if err != nil {
			return fmt.Errorf("eval: %w", err)
		}
		for _, s := range j.Models {
			if _, _, err := j.measureModel(ctx, s, plans, nil, new(folder), io.Discard); err != nil {
				return err
			}
		}
	}
}

// Join makes the job that of one of the ranks of g: every one has it from a command line of its own, and all must have the same.
// Where and how fast a rank measures is its own matter.
func (j *Job) Join(ctx context.Context, g collective.Group) error {
	j.Ranks = g
	if g.Size() == 1 {
		return nil
	}
	own := *j
	own.Out, own.Device, own.Batch, own.Concurrent = "", "", 0, 0
	err := collective.Same(ctx, g, struct {
		Job
		Resume  bool   `json:"resume"`
		Replace bool   `json:"replace"`
		Shards  int    `json:"shards"`
		Shard   string `json:"shard"`
	}{own, j.Resume, j.Files.Replace, j.Shards, j.Shard})
	if err != nil {
		return fmt.Errorf("eval: %w", err)
	}
	return nil
}

// checkSameJob makes sure that all ranks would measure the same.
func (j *Job) checkSameJob(ctx context.Context, m *engine.Model, policies []engine.Policy) error {
	if j.Ranks.Size() == 1 {
		return nil
	}
	if err := j.Contents.Agree(ctx, j.Ranks); err != nil {
		return err
	}
	hash, err := m.SHA256(ctx)
	if err != nil {
		return err
	}
	// Other weights may have other adapters: they are told of first.
	if err := collective.Same(ctx, j.Ranks, struct {
		Version string `json:"version"`
		Model   string `json:"model"`
		Weights string `json:"SHA-256 of the weights"`
		Cache   string `json:"cache_dtype"`
		Device  string `json:"device"`
		CPU     string `json:"instruction set"`
	}{version.String(), m.Name, hash, m.CacheDType().String(), kernels.DeviceOf(m.Backend), simd.Level()}); err != nil {
		return err
	}
	companions, err := m.Companions(ctx)
	if err != nil {
		return err
	}
	sums := make(map[string]string)
	for _, c := range companions {
		sums[c.File] = c.SHA256
	}
	return collective.Same(ctx, j.Ranks, struct {
		Companions map[string]string `json:"SHA-256"`
		Policies   []AboutPolicy     `json:"policies"`
	}{sums, aboutPolicies(policies)})
}
