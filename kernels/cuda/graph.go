//go:build gpu && linux && (amd64 || arm64)

package cuda

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"glimpse/kernels"
	"glimpse/kernels/cudadriver"

	"gorgonia.org/cu"
)

// graphsVariable switches graphs off where it is 0.
const graphsVariable = "GLIMPSE_CUDA_GRAPHS"

// warn tells the user of events that make no difference to results.
var warn = func(text string) { fmt.Fprintln(os.Stderr, "warning: "+text) }

// recording is operations on their way into a graph.
type recording struct {
	memory *graphMemory
	keep   []*cudaBlock // of the tensors that they use
	calls  int
	replay bool // more than once: data from the host would be out of date
	staged []staged
}

// staged is data of the host that goes to the device before the graph starts.
type staged struct {
	at   cu.DevicePtr
	data []byte
}

// graphMemory is what the driver holds for a graph. It is used again by the next
// recording, since all work of a device is done in order.
type graphMemory struct {
	stream    cu.Stream // that is captured; nothing ever runs on it
	hasStream bool
	exec      cudadriver.GraphExec
	temps     []cudaMemory // freed when the next recording begins
	scratch   cu.DevicePtr
	size      int64
	used      int64
	staging   cu.DevicePtr // uploads of one recording
	room      int64
	filled    int64
	segments  segmentsMemory
}

// temporary is device memory until the end of the operation, of every launch.
func (m *graphMemory) temporary(b *cuda, op string, bytes int64) cu.DevicePtr {
	return m.take(b, op, bytes, &m.scratch, &m.size, &m.used, 1<<20)
}

// workspaceFor is memory for the algorithm of a product. All work of a device is done in
// order, so one block serves all products, in graphs, too. It has all that an
// algorithm may ask for: a forecast does not know the algorithms.
func (b *cuda) workspaceFor(op string, bytes int64) cu.DevicePtr {
	if b.workspace == 0 {
		if b.exact {
			return b.temporary(op, bytes)
		}
		b.workspace = b.secure(op, MaxWorkspace)
	}
	return b.workspace
}

// take cuts a piece off a block. A block that is full is left to the operations that
// use it, and a larger one takes its place.
func (m *graphMemory) take(b *cuda, op string, bytes int64, block *cu.DevicePtr, size, used *int64, least int64) cu.DevicePtr {
	if b.exact {
		at := b.secure(op, bytes)
		m.temps = append(m.temps, cudaMemory{at, bytes})
		return at
	}
	const align = 256
	bytes = (bytes + align - 1) / align * align
	if *used+bytes > *size {
		grown := max(2**size, bytes, least)
		at, ok := b.obtain(op, grown)
		if !ok {
			grown = bytes
			at = b.secure(op, grown)
		}
		if *block != 0 {
			m.temps = append(m.temps, cudaMemory{*block, *size})
		}
		*block, *size, *used = at, grown, 0
	}
	at := *block + cu.DevicePtr(*used)
	*used += bytes
	return at
}

// freeTemps frees what only the recording before has used. Its launches are done
// then: the driver waits for them.
func (m *graphMemory) freeTemps(b *cuda) {
	for _, t := range m.temps {
		b.giveBack("Graph", t)
	}
	m.temps = m.temps[:0]
}

// free gives everything back.
func (m *graphMemory) free(b *cuda) {
	b.try("Graph", m.exec.Destroy())
	for _, block := range []cudaMemory{{m.scratch, m.size}, {m.staging, m.room}} {
		if block.at != 0 {
			m.temps = append(m.temps, block)
		}
	}
	m.temps = m.segments.free(m.temps)
	m.freeTemps(b)
	if m.hasStream {
		b.try("Graph", m.stream.Destroy())
	}
	*m = graphMemory{}
}

// upload takes data that goes to the device before the graph starts.
func (r *recording) upload(b *cuda, op string, data []byte) cu.DevicePtr {
	if r.replay {
		b.mustNotRecord(op, "takes data from the host")
	}
	m := r.memory
	at := m.take(b, op, int64(len(data)), &m.staging, &m.room, &m.filled, 1<<16)
	// Neighbours go in one copy.
	if n := len(r.staged); n > 0 && at != m.staging && !b.exact {
		if last := &r.staged[n-1]; at > last.at && at-last.at <= cu.DevicePtr(len(last.data)+256) {
			last.data = append(append(last.data, make([]byte, int(at-last.at)-len(last.data))...), data...)
			return at
		}
	}
	r.staged = append(r.staged, staged{at, append([]byte(nil), data...)})
	return at
}

// mustNotRecord ends a recording that cannot go on.
func (b *cuda) mustNotRecord(op, what string) {
	if b.rec != nil || b.segment != nil {
		panic(&kernels.DeviceError{Device: b.device, Op: op, Err: errors.New(what + ", which cannot be recorded")})
	}
}

// queue is the stream that operations go to.
func (b *cuda) queue() cu.Stream {
	if b.rec != nil {
		return b.rec.memory.stream
	}
	return b.stream
}

// note counts work that was queued, and remembers its name for errors.
func (b *cuda) note(name string) {
	if b.rec != nil {
		b.rec.calls++
		return
	}
	b.calls++
	if len(b.queued) == 8 {
		b.queued = append(b.queued[:0], b.queued[1:]...)
	}
	b.queued = append(b.queued, name)
	if b.wait {
		b.synchronize(name)
	}
}

// Calls is the number of launches, copies and graphs that the device was given so far.
func (b *cuda) Calls() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.calls
}

// graphs tells that graphs are not switched off.
func (b *cuda) graphs() bool { return os.Getenv(graphsVariable) != "0" && !b.wait }

// NewGraph returns nil where graphs are switched off, and where every kernel is
// waited for.
func (b *cuda) NewGraph() kernels.Graph {
	if !b.graphs() {
		return nil
	}
	session := newCUDA(cuda{cudaDevice: b.cudaDevice, replays: true})
	g := &cudaGraph{session: session, memory: &graphMemory{}}
	runtime.AddCleanup(g, func(m *graphMemory) {
		session.deadMu.Lock()
		session.deadGraphs = append(session.deadGraphs, m)
		session.deadMu.Unlock()
	}, g.memory)
	return g
}

// cudaGraph implements Graph.
type cudaGraph struct {
	session  *cuda
	memory   *graphMemory
	recorded *recording // what is in memory.exec; nil for nothing

	// After a recording that failed, pause is the number of recordings that are not tried; skip of them are left.
	pause, skip int
}

// The recordings that are not tried after the first one that failed, and the most: each failure doubles them.
const leastSkipped, mostSkipped = 16, 4096

func (g *cudaGraph) Backend() kernels.Stepper { return g.session }

// Operations is the number of launches and copies that are recorded.
func (g *cudaGraph) Operations() int {
	if g.recorded == nil {
		return 0
	}
	return g.recorded.calls
}

func (g *cudaGraph) Close() {
	g.recorded = nil
	g.session.do("Graph", func() { g.memory.free(g.session) })
}

func (g *cudaGraph) Record(f func()) bool {
	return g.record(true, func() error { f(); return nil })
}

func (g *cudaGraph) Run(f func() error) error {
	if !g.record(false, f) {
		return f()
	}
	g.Replay()
	g.recorded.keep = nil // the next recording has its own
	return nil
}

func (g *cudaGraph) Replay() {
	b, r := g.session, g.recorded
	b.do("Graph", func() {
		b.send(r.staged)
		g.memory.segments.send(b)
		b.try("Graph", g.memory.exec.Launch(b.stream))
		b.note(fmt.Sprintf("graph of %d operations", r.calls))
		g.memory.segments.queued()
	})
}

// record records f and reports whether that went well. Where it did not, this graph records nothing for a while.
func (g *cudaGraph) record(replay bool, f func() error) bool {
	b := g.session
	g.recorded = nil
	if g.skip > 0 {
		g.skip--
		return false
	}
	var r *recording
	err := b.caught(func() {
		b.do("Graph", func() {
			b.try("Graph", cudadriver.Graphs())
			m := g.memory
			if !m.hasStream {
				var err error
				m.stream, err = cu.MakeStream(cu.NonBlocking)
				b.try("Graph", err)
				m.hasStream = true
			}
			m.freeTemps(b)
			m.used, m.filled = 0, 0
			b.try("Graph", cudadriver.BeginCapture(m.stream))
			r = &recording{memory: m, replay: replay}
			b.rec = r
		})
	})
	if err == nil {
		err = g.capture(r, f)
	}
	if err == nil {
		g.recorded, g.pause = r, 0
		g.freeOld()
		return true
	}
	g.pause = min(max(leastSkipped, 2*g.pause), mostSkipped)
	g.skip = g.pause
	b.mu.Lock()
	first := !b.graphsWarned
	b.graphsWarned = true
	b.mu.Unlock()
	if first {
		warn(fmt.Sprintf("%s: a CUDA graph could not be recorded, its operations are launched one by one: %v", b.device, err))
	}
	return false
}

// capture runs f and makes an executable of the work that it queued.
func (g *cudaGraph) capture(r *recording, f func() error) (err error) {
	b := g.session
	end := func() {
		ended := b.caught(func() {
			b.do("Graph", func() {
				b.rec = nil
				graph, err := cudadriver.EndCapture(r.memory.stream)
				b.try("Graph", err)
				updated := false
				if g.memory.exec.Made() {
					updated, err = g.memory.exec.Update(graph)
				}
				if err == nil && !updated {
					err = g.memory.exec.Destroy()
					g.memory.exec = cudadriver.GraphExec{}
					if err == nil {
						g.memory.exec, err = graph.Instantiate()
					}
				}
				b.try("Graph", errors.Join(err, graph.Destroy()))
			})
		})
		if err == nil {
			err = ended
		}
	}
	defer func() {
		if p := recover(); p != nil { // a programmer's error
			end()
			panic(p)
		}
	}()
	var failed error
	caught := b.caught(func() { failed = f() })
	err = errors.Join(failed, caught)
	end()
	return err
}

// caught is the device error that f ends in, without the names of queued operations:
// none of them is what failed.
func (b *cuda) caught(f func()) (err error) {
	defer kernels.CatchDevice(&err)
	f()
	return nil
}
