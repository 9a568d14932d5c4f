package runner

import (
	"context"
	"slices"

	"golang.org/x/sync/errgroup"

	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/kvcache"
)

// newStages are the runners of a model's stages, which know each other.
func newStages(m *model.Model) []*Runner {
	var out []*Runner
	for _, s := range m.Stages() {
		out = append(out, &Runner{Model: m, on: s.On, arena: kernels.NewArena(s.On)})
	}
	for _, r := range out {
		r.stages = out
	}
	return out
}

// layerRunner is the runner of a layer's device.
func (r *Runner) layerRunner(layer int) *Runner { return r.stages[r.Model.StageOf(layer)] }

// headRunner is the runner of the head's device.
func (r *Runner) headRunner() *Runner { return r.stages[len(r.stages)-1] }

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
	if to := r.layerRunner(l); to != r.Runner {
		x := to.alloc(r.x.Shape...)
		to.on.Copy(x, r.x)
		r.Runner, r.x = to, x
		r.h = to.norm(x, r.Model.Network.Layers[l].AttentionNorm)
	}
	if r.next = r.h; r.Model.Leaves(l) { // whose norm is there, too
		r.next = nil
	}
}

// follow is the pass of the same rows on the next device, which has yet to take them.
func (p *prefillPass) follow() *prefillPass {
	q := *p
	q.rows = layerRows{}
	q.stage++
	q.Runner = p.stages[q.stage]
	q.x = q.alloc(p.x.Shape...)
	q.startNorms(q.Model.Stages()[q.stage].From)
	return &q
}

// leave is what the next device takes of the rows of chunks.
func (p *prefillPass) leave(chunks [][2]int) hop {
	from, to := chunks[0][0], chunks[len(chunks)-1][1]
	return hop{from, p.x.Rows(from, to+p.appendedIn(to)).OnHost()}
}

// takeHop takes rows from the device before, and of the last ones the probes that run by
// themselves.
func (p *prefillPass) takeHop(h hop) {
	l, to := p.Model.Stages()[p.stage].From, h.from+h.x.Dim0()
	x := p.x.Rows(h.from, to)
	p.on.Copy(x, h.x)
	if p.h != nil {
		p.normInto(p.h.Rows(h.from, to), x, p.Model.Network.Layers[l].AttentionNorm)
	}
	if to == p.x.Dim0() {
		for _, probe := range p.probes {
			probe.enter(l)
		}
	}
}

// runChunks runs chunks through the layers of the pass's device, one layer after the other.
func (p *prefillPass) runChunks(ctx context.Context, chunks [][2]int) error {
	s, n := p.Model.Stages()[p.stage], len(p.pos)
	for l := s.From; l < s.To; l++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		if x := p.opt.Prefix; x != nil && chunks[0][0] == 0 {
			p.cache.ReserveLayer(l, x.Len()+n, p.longestChunk())
			x.Enter(p.cache, l)
		} else if n > kvcache.GrowEntries {
			p.cache.ReserveLayer(l, n-chunks[0][0], p.longestChunk())
		}
		if needed := p.needed(l, chunks); len(needed) > 0 {
			if err := p.layer(l, needed); err != nil {
				return err
			}
		} else if from := p.Model.Config.KVLayer(l); l == p.Model.Config.LastReader(from) {
			p.cache.FitWindow(from, p.pos[n-1]+1)
		}
		if p.done != nil {
			rows, layers := int64(chunks[len(chunks)-1][1]-chunks[0][0]), int64(p.Model.Config.Layers)
			all := p.rowsDone.Add(rows)
			p.done(int(all/layers - (all-rows)/layers))
		}
	}
	return nil
}

// longestChunk is the most rows of a chunk.
func (p *prefillPass) longestChunk() (n int) {
	for _, c := range p.chunks {
		n = max(n, c[1]-c[0])
	}
	return n
}

// runStages runs the rows through all devices and returns the pass on the last one. Where nobody observes a layer before the next one
// runs, chunk after chunk goes through every device, and each goes on with the next one while others have earlier ones; else all go
// together. The bits are the same: every layer sees the chunks in their order. The last chunk goes through the layers when all
// others have, so that observers see one layer after the other.
func (p *prefillPass) runStages(ctx context.Context) (*prefillPass, error) {
	parts, last := [][][2]int{p.chunks}, len(p.stages)-1
	if p.pipelined = last > 0 && len(p.chunks) > 1 && (p.opt.Observe == nil || p.opt.Pipelined) && !p.opt.Capture.everyRow(); p.pipelined {
		parts = slices.Collect(slices.Chunk(p.chunks, 1))
	}
	passes := []*prefillPass{p}
	for p.pipelined && len(passes) <= last {
		passes = append(passes, passes[len(passes)-1].follow())
	}
	if p.pipelined && !p.Model.Counts() { // which counts in an order that is always the same
		return passes[last], runSideBySide(ctx, passes, parts)
	}
	for _, part := range parts {
		for i := range p.stages {
			if i == len(passes) {
				passes = append(passes, passes[i-1].follow())
			}
			if i > 0 {
				if passes[i].takeHop(passes[i-1].leave(part)); !p.pipelined {
					passes[i-1].arena.Release(nil)
				}
			}
			if err := passes[i].runChunks(ctx, part); err != nil {
				return nil, err
			}
		}
	}
	return passes[last], nil
}

// runSideBySide runs parts of a prompt through the passes on all devices at the same time.
func runSideBySide(ctx context.Context, passes []*prefillPass, parts [][][2]int) error {
	group, ctx := errgroup.WithContext(ctx)
	hops := make([]chan hop, len(passes)) // to the pass
	for i := range hops {
		hops[i] = make(chan hop, len(parts))
	}
	for i, pass := range passes {
		group.Go(func() (err error) {
			defer kernels.CatchDevice(&err)
			for _, part := range parts {
				if i > 0 {
					select {
					case h := <-hops[i]:
						pass.takeHop(h)
					case <-ctx.Done():
						return ctx.Err()
					}
				}
				if err := pass.runChunks(ctx, part); err != nil {
					return err
				}
				if i+1 < len(passes) {
					hops[i+1] <- pass.leave(part)
				}
			}
			return nil
		})
	}
	return group.Wait()
}
