//go:build linux && cgo && (amd64 || arm64)

package collective

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

const (
	// beat is the time between two signs of life.
	beat = 500 * time.Millisecond
	// SilenceLimit is how long a rank may be silent before the run ends. A rank that computes
	// is not silent: signs of life are sent beside the work.
	SilenceLimit = 15 * time.Second
	// farewell bounds how long a rank that has failed waits for rank 0 to end its own work, such as
	// saving the state: a launcher kills all ranks when the first of them ends.
	farewell = 8 * time.Second
	// noteBytes is the length of a sign of life.
	noteBytes = 4096
	maxReason = 500 // of its bytes, before they are quoted
)

// note is a sign of life. Failure is set when the run is over; Bye when the sender is about to end.
type note struct {
	Who     string
	Failure *Failure `json:",omitempty"`
	Bye     bool     `json:",omitempty"`
}

// peer is a rank that this one exchanges notes with: rank 0 with all, the others with rank 0.
type peer struct {
	rank      int
	sending   *request
	receiving *request
	who       string
	heard     time.Time
	last      bool // sending is the last note
	told      bool // it has had the last note, or is gone
	bye       bool // it is gone, or about to be; under mu
}

// watch exchanges signs of life.
type watch struct {
	g       *mpi
	who     string
	peers   []*peer
	closing chan struct{}
	failed  chan struct{} // closed when failure is set

	mu      sync.Mutex
	failure *Failure
	leaving bool          // this rank is about to end
	left    chan struct{} // closed when the others know, or need not be waited for
}

func newWatch(g *mpi) *watch {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	w := &watch{g: g, who: fmt.Sprintf("pid %d on %s", os.Getpid(), host), closing: make(chan struct{}), failed: make(chan struct{}), left: make(chan struct{})}
	for rank := range g.size {
		if rank != g.rank && (rank == 0 || g.rank == 0) {
			w.peers = append(w.peers, &peer{rank: rank, heard: time.Now()})
		}
	}
	return w
}

// exchangeNotes exchanges notes until the group closes or this rank has left.
func (w *watch) exchangeNotes() {
	ticks := time.NewTicker(beat)
	defer ticks.Stop()
	last := time.Now()
	for {
		// A rank that was stopped itself has heard nothing either: the others decide then.
		now := time.Now()
		asleep := now.Sub(last) > 4*beat
		last = now
		ended := true
		for _, p := range w.peers {
			if asleep {
				p.heard = now
			}
			if err := w.exchange(p, now); err != nil {
				w.setFailure(&Failure{Rank: p.rank, Who: cmp.Or(p.who, "unknown"), Reason: err.Error()})
				p.told = true
			}
			ended = ended && p.told
		}
		if w.isLeaving() && ended {
			close(w.left)
			return
		}
		select {
		case <-ticks.C:
		case <-w.failed: // tells it at once, and then as often
			time.Sleep(beat / 10)
		case <-w.closing:
			return
		}
	}
}

// exchange takes a peer's notes and sends it one, if the last has gone.
func (w *watch) exchange(p *peer, now time.Time) error {
	if err := w.listen(p, now); err != nil {
		return err
	}
	if silent := now.Sub(p.heard); silent > SilenceLimit && !w.gone(p) {
		w.setFailure(&Failure{Rank: p.rank, Who: cmp.Or(p.who, "unknown"), Reason: fmt.Sprintf("silent for %.0f s: it hangs, was stopped, or its machine is gone", silent.Seconds())})
		w.notePeer(p, "", true) // it is not waited for
	}
	if p.sending != nil {
		sent, err := w.g.requestDone(p.sending)
		if err != nil {
			return err
		}
		if !sent {
			p.told = w.gone(p)
			return nil
		}
		p.sending = nil
		p.told = p.last
	}
	if p.told {
		return nil
	}
	w.mu.Lock()
	n := note{Who: w.who, Failure: w.failure, Bye: w.leaving}
	w.mu.Unlock()
	b := make([]byte, noteBytes)
	text, err := json.Marshal(n)
	if err != nil || len(text) > noteBytes {
		return errors.Join(err, fmt.Errorf("a sign of life of %d bytes, want at most %d", len(text), noteBytes))
	}
	copy(b, text)
	p.last = n.Bye
	p.sending, err = w.g.startRequest(true, w.g.beats, p.rank, 0, b)
	return err
}

// listen takes the notes that have arrived.
func (w *watch) listen(p *peer, now time.Time) (err error) {
	for {
		if p.receiving == nil {
			if w.gone(p) {
				return nil
			}
			if p.receiving, err = w.g.startRequest(false, w.g.beats, p.rank, 0, make([]byte, noteBytes)); err != nil {
				return err
			}
		}
		arrived, err := w.g.requestDone(p.receiving)
		if err != nil || !arrived {
			return err
		}
		text, _, _ := bytes.Cut(p.receiving.b, []byte{0})
		p.receiving, p.heard = nil, now
		var n note
		if err := json.Unmarshal(text, &n); err != nil {
			return fmt.Errorf("its sign of life: %w", err)
		}
		w.notePeer(p, n.Who, n.Bye)
		if n.Failure != nil {
			w.setFailure(n.Failure)
		}
	}
}

// notePeer notes who a peer is and whether it is gone, or about to be.
func (w *watch) notePeer(p *peer, who string, bye bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p.who, p.bye = cmp.Or(who, p.who), p.bye || bye
}

func (w *watch) gone(p *peer) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return p.bye
}

// setFailure notes why the run is over: the first reason stays.
func (w *watch) setFailure(f *Failure) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failure == nil {
		if len(f.Reason) > maxReason {
			f.Reason = f.Reason[:maxReason] + "…"
		}
		w.failure = f
		close(w.failed)
	}
}

func (w *watch) isLeaving() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.leaving
}

// endRun ends the run: all are told, and rank 0 is left the time to end its own work.
func (w *watch) endRun(reason error) {
	failure := FailureOf(w.g.rank, w.who, reason)
	w.setFailure(failure)
	limit := time.NewTimer(farewell)
	defer limit.Stop()
	if w.g.rank > 0 {
		for !w.gone(w.peers[0]) {
			select {
			case <-limit.C:
				return
			case <-time.After(beat / 10):
			}
		}
		return
	}
	w.mu.Lock()
	w.leaving = true
	w.mu.Unlock()
	wait := 2 * time.Second // who has not taken it by then hangs
	if failure.Stopped {
		wait /= 4 // of a launcher, which kills a second after its signal
	}
	select {
	case <-w.left:
	case <-time.After(wait):
	}
}
