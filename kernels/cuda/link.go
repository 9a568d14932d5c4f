//go:build gpu && linux && (amd64 || arm64)

package cuda

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"gorgonia.org/cu"

	"glimpse/internal/collective"
	"glimpse/kernels"
	"glimpse/kernels/cudadriver"
)

// ncclWanted tells that something has asked for NCCL: it is large, and not loaded before.
var ncclWanted atomic.Bool

func openNCCL() (*cudadriver.NCCL, error) {
	ncclWanted.Store(true)
	return cudadriver.OpenNCCL()
}

// describeNCCL reports NCCL where it was asked for. What it is missing for is several ranks alone.
func describeNCCL() []kernels.Library {
	if !ncclWanted.Load() {
		return nil
	}
	l := kernels.Library{Name: "NCCL"}
	if nccl, err := cudadriver.OpenNCCL(); err != nil {
		l.Missing = err.Error()
	} else {
		l.Path, l.Version = nccl.Path, nccl.VersionText()
	}
	return []kernels.Library{l}
}

// The devices of a PCI bus by attributes of the driver's: NCCL takes each one once.
var busAttributes = []cu.DeviceAttribute{cu.PciDomainID, cu.PciBusID, cu.PciDeviceID}

// endpoint is what a rank tells the others before they connect.
type endpoint struct {
	Version string
	At      string // the place of its device
	Device  string
	Missing string // why it has no NCCL
}

func (b *cuda) endpoint() (e endpoint, err error) {
	nccl, err := openNCCL()
	if err != nil {
		e.Missing = err.Error()
		return e, nil
	}
	e.Version, e.Device = nccl.VersionText(), b.device
	if e.At, err = os.Hostname(); err != nil {
		return e, err
	}
	device, err := cu.GetDevice(b.ordinal)
	if err != nil {
		return e, err
	}
	for _, a := range busAttributes {
		n, err := device.Attribute(a)
		if err != nil {
			return e, err
		}
		e.At += fmt.Sprintf(":%x", n)
	}
	return e, nil
}

// noLink is why devices cannot be connected; empty where they can.
func noLink(all []endpoint) string {
	ranks := make(map[string]int)
	for rank, e := range all {
		first, _, _ := strings.Cut(e.Missing, "\n")
		switch other, taken := ranks[e.At]; {
		case e.Missing != "":
			return fmt.Sprintf("rank %d: %s", rank, first)
		case e.Version != all[0].Version:
			return fmt.Sprintf("rank %d has NCCL %s, rank 0 has %s", rank, e.Version, all[0].Version)
		case taken:
			return fmt.Sprintf("ranks %d and %d share %s, which NCCL does not allow", other, rank, e.Device)
		}
		ranks[e.At] = rank
	}
	return ""
}

// Connect connects by NCCL.
func (b *cuda) Connect(ctx context.Context, g collective.Group) (_ kernels.Link, err error) {
	defer kernels.CatchDevice(&err)
	own, err := b.endpoint()
	if err != nil {
		return nil, fmt.Errorf("NCCL: %w", err)
	}
	text, err := json.Marshal(own)
	if err != nil {
		return nil, err
	}
	told, err := collective.GatherBytes(ctx, g, text)
	if err != nil {
		return nil, err
	}
	all := make([]endpoint, len(told))
	for rank := range all {
		if err := json.Unmarshal(told[rank], &all[rank]); err != nil {
			return nil, fmt.Errorf("NCCL: what rank %d says of its device: %w", rank, err)
		}
	}
	if why := noLink(all); why != "" {
		return nil, &kernels.NoLinkError{Why: why}
	}
	nccl, err := cudadriver.OpenNCCL()
	if err != nil {
		return nil, err
	}
	var id []byte
	if g.Rank() == 0 {
		if id, err = nccl.NewID(); err != nil {
			return nil, err
		}
	}
	if id, err = collective.Broadcast(ctx, g, id); err != nil {
		return nil, err
	}
	l := &link{b: b, g: g, name: "NCCL " + own.Version}
	b.do("connect", func() {
		if l.comm, err = nccl.Join(id, g.Rank(), g.Size()); err == nil {
			err = l.settle(ctx, l.comm.State)
		}
	})
	if err != nil {
		return nil, err
	}
	return l, nil
}

// link is a rank of a communicator of NCCL's. Its moves go through the stream of the device, like all
// operations.
type link struct {
	b      *cuda
	g      collective.Group
	name   string
	comm   *cudadriver.Comm
	queued int // moves since the last wait
	broken error
}

// maxQueued is how many calls of Move are queued before there is a wait: a driver whose queue is full
// makes the caller wait, where it does not hear of ranks that are gone.
const maxQueued = 128

func (l *link) Name() string { return l.name }

func (l *link) Move(ctx context.Context, moves []kernels.LinkMove) (err error) {
	if l.broken != nil || len(moves) == 0 {
		return l.broken
	}
	const op = "Move"
	if l.queued++; l.queued > maxQueued {
		if err := l.Wait(ctx); err != nil {
			return err
		}
		l.queued = 1
	}
	defer kernels.CatchDevice(&err)
	l.b.do(op, func() {
		l.b.mustNotRecord(op, "is of several ranks")
		list := make([]cudadriver.Move, len(moves))
		for i, m := range moves {
			list[i] = cudadriver.Move{At: l.b.address(op, m.Tensor), Bytes: int64(m.Tensor.Bytes()), Peer: m.Peer, Sends: m.Sends}
		}
		if err = l.comm.Move(list, l.b.stream); err == nil {
			l.b.note("ncclSend and ncclRecv")
			err = l.settle(ctx, l.comm.State)
		} else {
			l.abort(err)
		}
	})
	runtime.KeepAlive(moves)
	return err
}

func (l *link) Wait(ctx context.Context) (err error) {
	if l.broken != nil {
		return l.broken
	}
	defer kernels.CatchDevice(&err)
	l.b.do("Wait", func() {
		err = l.settle(ctx, func() (bool, error) {
			if _, err := l.comm.State(); err != nil {
				return false, err
			}
			switch err := l.b.stream.Query(); {
			case err == nil:
				l.b.queued = l.b.queued[:0]
				return true, nil
			case errors.Is(err, cu.NotReady):
				return false, nil
			default:
				return false, err
			}
		})
	})
	l.queued = 0
	return err
}

// Pauses between two looks, which grow.
const (
	firstPause = 5 * time.Microsecond
	lastPause  = 500 * time.Microsecond
)

// settle waits until what has begun is done. It calls nothing that blocks: a rank whose partners
// are gone hears of it by MPI and ends what it has begun.
func (l *link) settle(ctx context.Context, done func() (bool, error)) error {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		ok, err := done()
		if ok {
			return nil
		}
		if err == nil {
			select {
			case <-l.g.Failed():
				err = l.g.Err()
			case <-ctx.Done():
				err = ctx.Err()
			case <-time.After(pause):
				continue
			}
		}
		l.abort(err)
		return err
	}
}

// abort ends the communicator, so that the stream goes on.
func (l *link) abort(err error) {
	if l.broken == nil {
		l.broken = err
		_ = l.comm.Abort() // err says why
	}
}

// closeLimit is how long the others may take to come to the end.
const closeLimit = 10 * time.Second

func (l *link) Close() {
	if l.broken != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	l.b.do("close", func() {
		err := l.comm.Finalize()
		if err == nil {
			err = l.settle(ctx, l.comm.State)
		}
		if err != nil {
			l.abort(err)
			return
		}
		_ = l.comm.Destroy() // all it has done is done
	})
	l.broken = errors.New("the link is closed")
}
