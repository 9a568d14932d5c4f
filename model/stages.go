package model

import (
	"context"
	"math"
	"strings"

	"golang.org/x/sync/errgroup"

	"glimpse/kernels"
)

// stage is consecutive layers [from, to) of a model on one device. A model has one or
// several, in the order of its layers: the first holds the embedding, too, the last the final
// norm and the head. The residual stream goes from device to device; keys, values and
// whatever else belongs to a layer stay where its weights are.
type stage struct {
	on       kernels.Backend
	from, to int
	share    float64 // of the memory that a run needs
}

// placed are the stages; a model that was not placed otherwise has one.
func (m *Model) placed() []stage {
	if m.stages == nil {
		return []stage{{m.Backend, 0, m.Config.Layers, 1}}
	}
	return m.stages
}

// stageOf is the index of the stage of a layer.
func (m *Model) stageOf(layer int) int {
	for i, s := range m.stages {
		if layer < s.to {
			return i
		}
	}
	return 0
}

// On is the device of a layer: of its weights, of its part of caches, and of the low-rank
// updates that act in it.
func (m *Model) On(layer int) kernels.Backend {
	if m.stages == nil {
		return m.Backend
	}
	return m.stages[m.stageOf(layer)].on
}

// end is the device of the final norm and the head, where tokens are drawn.
func (m *Model) end() kernels.Backend {
	if m.stages == nil {
		return m.Backend
	}
	return m.stages[len(m.stages)-1].on
}

// leaves tells that what layer l leaves is read on another device.
func (m *Model) leaves(l int) bool {
	return l+1 < m.Config.Layers && m.stageOf(l) != m.stageOf(l+1)
}

// room is how much a run may need in all until one of the devices has no more than free says:
// each needs its share of it.
func (m *Model) room(free func(b kernels.Backend) int64) int64 {
	least := int64(math.MaxInt64)
	for _, s := range m.placed() {
		least = min(least, int64(float64(free(s.on))/s.share))
	}
	return least
}

// Devices are those of the model in the order of its layers.
func (m *Model) Devices() []kernels.Backend {
	var out []kernels.Backend
	for _, s := range m.placed() {
		out = append(out, s.on)
	}
	return out
}

// DeviceName is what the model computes on: cuda:0, cpu, and of several devices a list.
func (m *Model) DeviceName() string {
	var names []string
	for _, b := range m.Devices() {
		names = append(names, b.Device())
	}
	return strings.Join(names, ",")
}

// newStages are the runners of a model's stages, which know each other.
func newStages(m *Model) []*Runner {
	var out []*Runner
	for _, s := range m.placed() {
		out = append(out, &Runner{Model: m, on: s.on, arena: kernels.NewArena(s.on)})
	}
	for _, r := range out {
		r.stages = out
	}
	return out
}

// of is the runner of a layer's device.
func (r *Runner) of(layer int) *Runner { return r.stages[r.Model.stageOf(layer)] }

// end is the runner of the head's device.
func (r *Runner) end() *Runner { return r.stages[len(r.stages)-1] }

// release ends the life of all that was allocated, on all devices.
func (r *Runner) release() {
	for _, s := range r.stages {
		s.arena.Release(nil)
	}
}

// hop is what goes from one device to the next: rows of the residual stream, which begin
// at row from of the pass. They are copied to the host where they lie on a device, so that it
// is done with them, and can go on, whenever the next one takes them.
type hop struct {
	from int
	x    *kernels.Tensor
}

// enter prepares rows for layer l, on whose device they are from then on.
func (r *layerRows) enter(l int) {
	r.l = l
	if to := r.of(l); to != r.Runner {
		x := to.alloc(r.x.Shape...)
		to.on.Receive(x, r.x)
		r.Runner, r.x = to, x
		r.h = to.norm(x, r.Model.Network.Layers[l].AttentionNorm)
	}
	if r.next = r.h; r.Model.leaves(l) { // whose norm is there, too
		r.next = nil
	}
}

// follow is the pass of the same rows on the next device, which has yet to take them.
func (p *prefillPass) follow() *prefillPass {
	q := *p
	q.chunk = chunkRows{}
	q.stage++
	q.Runner = p.stages[q.stage]
	q.x = q.alloc(p.x.Shape...)
	q.startNorms(q.Model.placed()[q.stage].from)
	return &q
}

// leave is what the next device takes of the rows of a chunk.
func (p *prefillPass) leave(chunk [2]int) hop {
	return hop{chunk[0], p.x.Rows(chunk[0], chunk[1]+p.appendedIn(chunk[1])).OnHost()}
}

// take takes rows from the device before, and of the last ones the probes that run by
// themselves.
func (p *prefillPass) take(h hop) {
	l, to := p.Model.placed()[p.stage].from, h.from+h.x.Dim0()
	x := p.x.Rows(h.from, to)
	p.on.Receive(x, h.x)
	if p.h != nil {
		p.normInto(p.h.Rows(h.from, to), x, p.Model.Network.Layers[l].AttentionNorm)
	}
	if to == p.x.Dim0() {
		for _, probe := range p.probes {
			probe.enter(l)
		}
	}
}

// run runs chunks through the layers of the pass's device, one layer after the other.
func (p *prefillPass) run(ctx context.Context, chunks [][2]int) error {
	s, n := p.Model.placed()[p.stage], len(p.pos)
	for l := s.from; l < s.to; l++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		if n > growEntries {
			p.cache.reserve(l, n-chunks[0][0])
		}
		if err := p.layer(l, chunks); err != nil {
			return err
		}
		if p.done != nil {
			rows, layers := int64(chunks[len(chunks)-1][1]-chunks[0][0]), int64(p.Model.Config.Layers)
			all := p.rowsDone.Add(rows)
			p.done(int(all/layers - (all-rows)/layers))
		}
	}
	return nil
}

// runStages runs the rows through all devices and returns the pass on the last one.
func (p *prefillPass) runStages(ctx context.Context) (*prefillPass, error) {
	if len(p.stages) > 1 && len(p.chunks) > 1 && (p.opt.Observe == nil || p.opt.Pipelined) && !p.opt.Capture.AllRows {
		return p.pipeline(ctx)
	}
	for {
		if err := p.run(ctx, p.chunks); err != nil {
			return nil, err
		}
		if p.stage == len(p.stages)-1 {
			return p, nil
		}
		next := p.follow()
		next.take(p.leave([2]int{0, len(p.pos)}))
		p.arena.Release(nil)
		p = next
	}
}

// pipeline runs chunk after chunk through every device, each of which goes on with the next
// one while others have those before. The bits are those of runStages: every layer sees the
// chunks in their order. The last chunk goes through the layers when all others have, so
// that observers see one layer after the other.
func (p *prefillPass) pipeline(ctx context.Context) (*prefillPass, error) {
	group, ctx := errgroup.WithContext(ctx)
	p.pipelined = true
	passes := []*prefillPass{p}
	for range p.stages[1:] {
		passes = append(passes, passes[len(passes)-1].follow())
	}
	hops := make([]chan hop, len(passes)) // to the pass
	for i := range hops {
		hops[i] = make(chan hop, len(p.chunks))
	}
	if p.Model.Counts() { // in an order that is always the same
		for c := range p.chunks {
			for i, pass := range passes {
				if i > 0 {
					pass.take(passes[i-1].leave(p.chunks[c]))
				}
				if err := pass.run(ctx, p.chunks[c:c+1]); err != nil {
					return nil, err
				}
			}
		}
		return passes[len(passes)-1], nil
	}
	for i, pass := range passes {
		group.Go(func() (err error) {
			defer kernels.CatchDevice(&err)
			for c := range pass.chunks {
				if i > 0 {
					select {
					case h := <-hops[i]:
						pass.take(h)
					case <-ctx.Done():
						return ctx.Err()
					}
				}
				if err := pass.run(ctx, pass.chunks[c:c+1]); err != nil {
					return err
				}
				if i+1 < len(passes) {
					hops[i+1] <- pass.leave(pass.chunks[c])
				}
			}
			return nil
		})
	}
	return passes[len(passes)-1], group.Wait()
}
