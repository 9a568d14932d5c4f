//go:build linux && cgo && (amd64 || arm64)

package collective

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// What is sent goes in MPI messages of so many bytes, so many at a time. MPI moves a long message only while
// it is called, a few parts a call: several messages are several times as many.
const (
	maxPiece    = 256 << 10
	maxUnderWay = 16
)

// mpi is a rank of an MPI run. All calls into the library are made under mu, and none blocks.
type mpi struct {
	lib         *library
	rank, size  int
	local       int
	data, beats uintptr // communicators

	mu      sync.Mutex
	watch   *watch
	watched sync.WaitGroup
}

// openMPI starts MPI in this process.
func openMPI(l launched) (Group, error) {
	lib, err := load()
	if err != nil {
		return nil, fmt.Errorf("ranks: %s has started %d processes: %w", l.by, l.size, err)
	}
	// Its handlers of SIGSEGV and the like would take the place of Go's, which make panics of them.
	if err := os.Setenv("OMPI_MCA_opal_signal", ""); err != nil {
		return nil, err
	}
	g := &mpi{lib: lib, local: l.local}
	p := new(struct {
		provided, rank, size int32
		data, beats          uintptr
	})
	var pins runtime.Pinner // without, p may be on the goroutine's stack, which moves
	pins.Pin(p)
	defer pins.Unpin()
	for _, step := range []struct {
		name string
		at   uintptr
		args []uintptr
	}{
		{"MPI_Init_thread", lib.initThread, []uintptr{0, 0, threadSerialized, address(&p.provided)}},
		{"MPI_Comm_set_errhandler", lib.setErrhandler, []uintptr{lib.world, lib.errorsReturn}},
		{"MPI_Comm_rank", lib.commRank, []uintptr{lib.world, address(&p.rank)}},
		{"MPI_Comm_size", lib.commSize, []uintptr{lib.world, address(&p.size)}},
		{"MPI_Comm_dup", lib.commDup, []uintptr{lib.world, address(&p.data)}},
		{"MPI_Comm_dup", lib.commDup, []uintptr{lib.world, address(&p.beats)}},
	} {
		if err := lib.callFunction(step.name, step.at, step.args...); err != nil {
			return nil, fmt.Errorf("ranks: %s: %w", lib.version, err)
		}
	}
	switch g.rank, g.size, g.data, g.beats = int(p.rank), int(p.size), p.data, p.beats; {
	case g.size != l.size:
		return nil, fmt.Errorf("ranks: %s has started %d processes, but %s of %s knows of %d: want the mpirun that belongs to the library", l.by, l.size, lib.version, lib.path, g.size)
	case p.provided < threadSerialized:
		return nil, fmt.Errorf("ranks: %s of %s was built without threads (MPI_THREAD_SERIALIZED)", lib.version, lib.path)
	}
	g.watch = newWatch(g)
	g.watched.Go(g.watch.exchangeNotes)
	return g, nil
}

func (g *mpi) Rank() int  { return g.rank }
func (g *mpi) Size() int  { return g.size }
func (g *mpi) Local() int { return g.local }

// request is a message under way. It holds its memory in place.
type request struct {
	handle uintptr
	done   int32
	b      []byte
	pins   runtime.Pinner
}

// startRequest starts to send or to receive.
func (g *mpi) startRequest(sends bool, comm uintptr, rank int, tag int, b []byte) (*request, error) {
	r := &request{b: b}
	r.pins.Pin(r)
	r.pins.Pin(&b[0])
	name, function := "MPI_Irecv", g.lib.irecv
	if sends {
		name, function = "MPI_Isend", g.lib.isend
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return r, g.lib.callFunction(name, function, address(&b[0]), uintptr(len(b)), g.lib.byteType, uintptr(rank), uintptr(tag), comm, address(&r.handle))
}

// requestDone tells whether a message has been sent or received.
func (g *mpi) requestDone(r *request) (bool, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	const ignoreStatus = 0
	if err := g.lib.callFunction("MPI_Test", g.lib.test, address(&r.handle), address(&r.done), ignoreStatus); err != nil {
		return false, err
	}
	if r.done != 0 {
		r.pins.Unpin()
	}
	return r.done != 0, nil
}

// Waiting begins with giving way to others, then sleeps, so that ranks that wait leave the processor to
// those that work. A wait that was long already may be a little longer: rank 0 waits for every
// rank that it has dealt work to.
const (
	yields        = 64
	maxAsleep     = 200 * time.Microsecond
	maxAsleepLong = 2 * time.Millisecond
	longWait      = 64 // a sleep is at most this part of the wait so far
)

// move sends or receives b. What is still under way when it fails stays in its place: the run is over.
func (g *mpi) move(ctx context.Context, sends bool, rank int, tag Tag, b []byte) error {
	var under []*request // in their order, which MPI keeps
	begin, waits := time.Now(), 0
	for len(b) > 0 || len(under) > 0 {
		var done bool
		var err error
		if len(b) > 0 && len(under) < maxUnderWay {
			piece := b[:min(len(b), maxPiece)]
			var r *request
			if r, err = g.startRequest(sends, g.data, rank, int(tag), piece); err == nil {
				b, under = b[len(piece):], append(under, r)
				continue
			}
		} else if done, err = g.requestDone(under[0]); done {
			under, begin, waits = under[1:], time.Now(), 0
			continue
		}
		if err != nil {
			return fmt.Errorf("ranks: rank %d with rank %d: %w", g.rank, rank, err)
		}
		select {
		case <-g.watch.failed:
			return g.watch.failure
		case <-ctx.Done():
			return ctx.Err()
		default:
		}
		if waits++; waits <= yields {
			runtime.Gosched()
		} else {
			asleep := min(maxAsleep, time.Duration(waits-yields)*time.Microsecond)
			sleep(max(asleep, min(maxAsleepLong, time.Since(begin)/longWait)))
		}
	}
	return nil
}

// sleep does what time.Sleep does, which on an idle process takes a millisecond at least: the runtime waits
// for its timers in whole ones.
func sleep(d time.Duration) {
	if d >= time.Millisecond {
		time.Sleep(d)
		return
	}
	t := syscall.NsecToTimespec(int64(d))
	_ = syscall.Nanosleep(&t, nil) // a signal may end it early
}

func (g *mpi) Send(ctx context.Context, to int, tag Tag, b []byte) error {
	return g.move(ctx, true, to, tag, b)
}

func (g *mpi) Recv(ctx context.Context, from int, tag Tag, b []byte) error {
	return g.move(ctx, false, from, tag, b)
}

func (g *mpi) Failed() <-chan struct{} { return g.watch.failed }

func (g *mpi) Err() error {
	select {
	case <-g.watch.failed:
		return g.watch.failure
	default:
		return nil
	}
}

func (g *mpi) Fail(reason error) { g.watch.endRun(reason) }

// Close waits for all ranks and ends MPI.
func (g *mpi) Close() error {
	if _, err := GatherBytes(context.Background(), g, nil); err != nil {
		return err
	}
	close(g.watch.closing)
	g.watched.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range g.watch.peers {
		if p.receiving == nil {
			continue
		}
		if err := g.lib.callFunction("MPI_Cancel", g.lib.cancel, address(&p.receiving.handle)); err != nil {
			return err
		}
		if err := g.lib.callFunction("MPI_Request_free", g.lib.requestFree, address(&p.receiving.handle)); err != nil {
			return err
		}
	}
	return g.lib.callFunction("MPI_Finalize", g.lib.finalize)
}
