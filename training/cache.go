package training

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"

	"glimpse/checkpoints"
	"glimpse/internal/tempdir"
	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/kvcache"
)

// sampleCache keeps prepared samples that come again, in memory up to one bound and
// on disk up to another. Training data comes in cycles, for which forgetting the
// least recently used would forget every sample just before it is needed, so what
// is stored stays and what no longer fits is prepared anew each time.
//
// What comes back has exactly the bits that went in. The disk is optional: where it is
// full or fails, samples are prepared anew, and that is told once.
type sampleCache struct {
	model        *model.Model
	memory, disk int64 // bytes left
	mu           sync.Mutex
	held         map[string]*prepared
	files        map[string]*prepared // on disk: without its tensors
	dir          *tempdir.Dir
	sequence     int
	notice       func(text string)
}

func newSampleCache(m *model.Model, memory, disk int64, notice func(text string)) *sampleCache {
	return &sampleCache{model: m, memory: memory, disk: disk, held: make(map[string]*prepared), files: make(map[string]*prepared), notice: notice}
}

// putSample takes p in if there is room.
func (c *sampleCache) putSample(key string, p *prepared) {
	c.mu.Lock()
	defer c.mu.Unlock()
	size := p.heldBytes()
	switch {
	case c.held[key] != nil || c.files[key] != nil:
	case size <= c.memory:
		c.memory -= size
		c.held[key] = p
	case size <= c.disk:
		c.disk -= size
		if err := c.writeSample(key, p); err != nil {
			c.giveUpDisk(err)
		}
	}
}

// giveUpDisk writes no more samples; those that are there are still read.
func (c *sampleCache) giveUpDisk(err error) {
	if c.disk = 0; c.notice != nil {
		c.notice(fmt.Sprintf("%v; samples beyond those kept so far are prepared anew each time", err))
		c.notice = nil
	}
}

// writeSample stores p in a file of its own.
func (c *sampleCache) writeSample(key string, p *prepared) error {
	if c.dir == nil {
		dir, err := tempdir.New("", "glimpse-samples-")
		if err != nil {
			return fmt.Errorf("sample cache: %w", err)
		}
		c.dir = dir
	}
	c.sequence++
	stub := &prepared{entries: p.entries, next: p.next, labels: len(p.targets), file: filepath.Join(c.dir.Path, fmt.Sprint(c.sequence))}
	var views []checkpoints.TensorView
	p.visit(func(name string, _ int, at **kernels.Tensor) {
		var v checkpoints.TensorView
		switch t := (*at).OnHost(); t.DType {
		case kernels.F64:
			v = checkpoints.F64Tensor(name, t.Shape, t.F64())
		case kernels.BF16:
			v = checkpoints.BF16Tensor(name, t.Shape, t.U16())
		default:
			v = checkpoints.F32Tensor(name, t.Shape, t.Float32s()) // of blocks, too, which Narrow makes again of these
		}
		views = append(views, v)
	})
	if err := checkpoints.WriteSafetensorsFile(stub.file, views, nil); err != nil {
		return fmt.Errorf("sample cache: %w", err)
	}
	for _, a := range p.answers {
		if a != nil {
			a = &answer{tokens: a.tokens, from: a.from, to: a.to, share: a.share} // the teacher is in the file
		}
		stub.answers = append(stub.answers, a)
	}
	for _, heads := range p.past {
		stub.kvHeads = append(stub.kvHeads, len(heads))
	}
	c.files[key] = stub
	return nil
}

// getSample returns a stored sample, or nil.
func (c *sampleCache) getSample(key string) *prepared {
	c.mu.Lock()
	p, stub := c.held[key], c.files[key]
	c.mu.Unlock()
	if p != nil || stub == nil {
		return p
	}
	p, err := c.readSample(stub)
	if err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.files, key)
		c.giveUpDisk(err)
		return nil
	}
	return p
}

func (c *sampleCache) readSample(stub *prepared) (*prepared, error) {
	f, err := checkpoints.OpenSafetensors(stub.file)
	if err != nil {
		return nil, fmt.Errorf("sample cache: %w", err)
	}
	defer f.Close()
	layers := len(stub.kvHeads)
	p := &prepared{entries: stub.entries, next: stub.next, past: make([][]kernels.KV, layers), states: make([][]*kernels.Tensor, layers), targets: make([][]*kernels.Tensor, stub.labels)}
	for i := range p.targets {
		p.targets[i] = make([]*kernels.Tensor, layers)
	}
	for _, a := range stub.answers {
		if a != nil {
			own := *a
			a = &own
		}
		p.answers = append(p.answers, a)
	}
	for l, heads := range stub.kvHeads {
		p.past[l] = make([]kernels.KV, heads)
		if r := c.model.Config.Recurrence(l); r != nil {
			p.states[l] = make([]*kernels.Tensor, len(r.StateShapes()))
		}
	}
	var errs []error
	p.visit(func(name string, layer int, at **kernels.Tensor) {
		view, err := f.Tensor(name)
		var mapped *kernels.Tensor
		if err == nil {
			mapped, err = view.Tensor()
		}
		if err != nil {
			errs = append(errs, err)
			return
		}
		if _, blocks := c.model.CacheDType().Format(); blocks && (strings.HasSuffix(name, ".k") || strings.HasSuffix(name, ".v")) {
			view.DType = c.model.CacheDType()
		}
		*at = c.model.On(layer).Alloc(view.DType, view.Shape...)
		kernels.Convert(*at, mapped)
	})
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("sample cache: %w", err)
	}
	for l := range p.past {
		for h := range p.past[l] { // a layer with a window holds the last ones
			if c.model.Config.Recurrent(l) {
				continue
			}
			kv := &p.past[l][h]
			kv.Positions = kvcache.Positions(p.next-int32(kv.Entries()), kv.Entries())
		}
	}
	return p, nil
}

// visit names every tensor of a prepared sample and its layer.
func (p *prepared) visit(f func(name string, layer int, t **kernels.Tensor)) {
	for l := range p.past {
		if s := p.states[l]; s != nil {
			for i := range s {
				f(fmt.Sprintf("%d.state.%d", l, i), l, &s[i])
			}
			continue
		}
		if len(p.past[l]) == 0 { // it reads another layer's
			continue
		}
		for h := range p.past[l] {
			f(fmt.Sprintf("%d.%d.k", l, h), l, &p.past[l][h].K)
			f(fmt.Sprintf("%d.%d.v", l, h), l, &p.past[l][h].V)
		}
		for i := range p.targets {
			f(fmt.Sprintf("%d.target.%d", l, i), l, &p.targets[i][l])
		}
	}
	for i, a := range p.answers {
		if a != nil {
			f(fmt.Sprintf("teacher.%d", i), len(p.past)-1, &a.teacher)
		}
	}
}

// removeFiles removes the files.
func (c *sampleCache) removeFiles() error {
	if c.dir == nil {
		return nil
	}
	return c.dir.Remove()
}
