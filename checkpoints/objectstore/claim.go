package objectstore

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"
)

// ErrClaimed: another process has the claim, and has shown life lately.
var ErrClaimed = errors.New("another process is working on it")

// ErrClaimLost: another process has taken the claim over, because this one showed no
// life for too long, or has finished the work.
var ErrClaimLost = errors.New("another process has taken over")

// ClaimedError is ErrClaimed with what is known of the claim.
type ClaimedError struct {
	URL   string        // of the claim
	Owner string        // "" where it can't be read
	Age   time.Duration // since the owner's last sign of life, by the store's clock
	// Sign is another one after every sign of life.
	Sign string
}

func (e *ClaimedError) Error() string {
	return fmt.Sprintf("claim %s: %v: %s, seen %s ago", e.URL, ErrClaimed, cmp.Or(e.Owner, "unknown"), e.Age.Round(time.Second))
}

// Unwrap returns ErrClaimed.
func (e *ClaimedError) Unwrap() error { return ErrClaimed }

const (
	// claimBeat is the time between two signs of life of an owner.
	claimBeat = 20 * time.Second
	// claimStale is the age at which a claim is free to be taken over. A machine that
	// sleeps or loses its network for so long loses its claims.
	claimStale = 3 * time.Minute
)

// Claims take claims. The zero value is for use; tests shorten the time.
type Claims struct {
	Beat time.Duration // between two signs of life; 0 is 20 s
}

// Claim is the right of one process to do the work that a folder of a store stands
// for. It is an object of that folder, claim-000001, which its owner stores anew from
// time to time as a sign of life. Whoever takes over from a dead owner does so with
// the next number, on the condition that there is no object of that name: of several,
// exactly one succeeds. The highest number has the claim, and nobody writes an object
// but the one who made it. That needs no more of a server than If-None-Match, unlike
// a replacement that is bound to an ETag, which many servers do not know.
type Claim struct {
	store  Store
	folder string
	number int
	owner  string

	ctx   context.Context // of the work
	lose  context.CancelCauseFunc
	halt  context.CancelFunc // of the signs of life
	beats sync.WaitGroup
}

// claimRecord is the content of a claim.
type claimRecord struct {
	Owner    string `json:"owner"`
	Released bool   `json:"released"` // given back: free at once
	Sign     string `json:"sign"`     // differs each time
}

const (
	claimPrefix  = "claim-"
	maxClaimSize = 4096
)

func claimKey(folder string, number int) string {
	return Join(folder, fmt.Sprintf("%s%06d", claimPrefix, number))
}

// claimNumber is the number of a claim's key, 0 of any other key.
func claimNumber(key string) int {
	digits, ok := strings.CutPrefix(path.Base(key), claimPrefix)
	if n, err := strconv.Atoi(digits); ok && err == nil && n > 0 {
		return n
	}
	return 0
}

// Take takes the claim of a folder: one that nobody has, one that was released, or
// one whose owner has shown no life for too long. Otherwise the error is a
// *ClaimedError. The caller then looks whether the work is done already: who has done
// it removes the claim. The work should end with Context.
func (c Claims) Take(ctx context.Context, s Store, folder string) (*Claim, error) {
	last, err := lastClaim(ctx, s, folder)
	if err != nil {
		return nil, err
	}
	if last > 0 {
		taken, free, err := inspectClaim(ctx, s, claimKey(folder, last))
		if err != nil {
			return nil, err
		}
		if !free {
			return nil, taken
		}
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	claim := &Claim{store: s, folder: folder, number: last + 1, owner: fmt.Sprintf("process %d on %s", os.Getpid(), host)}
	switch err := claim.show(ctx, false, true); {
	case errors.Is(err, ErrExists): // another was faster
		return nil, &ClaimedError{URL: s.URL(claimKey(folder, last+1)), Sign: "new"}
	case err != nil:
		return nil, err
	}
	claim.ctx, claim.lose = context.WithCancelCause(ctx)
	beat, halt := context.WithCancel(context.WithoutCancel(ctx))
	claim.halt = halt
	claim.beats.Go(func() { claim.live(beat, cmp.Or(c.Beat, claimBeat)) })
	return claim, nil
}

// lastClaim is the highest number of a claim, 0 if there is none.
func lastClaim(ctx context.Context, s Store, folder string) (last int, err error) {
	list, err := s.List(ctx, folder)
	if err != nil {
		return 0, err
	}
	for _, i := range list {
		last = max(last, claimNumber(i.Key))
	}
	return last, nil
}

// inspectClaim tells that a claim is free, or who has it.
func inspectClaim(ctx context.Context, s Store, key string) (taken *ClaimedError, free bool, err error) {
	info, err := s.Stat(ctx, key)
	if errors.Is(err, ErrNotExist) { // its owner has just finished
		return nil, true, nil
	}
	if err != nil {
		return nil, false, err
	}
	taken = &ClaimedError{URL: s.URL(key), Age: info.Age, Sign: info.Version}
	var r claimRecord
	data, err := Get(ctx, s, key, maxClaimSize)
	switch {
	case errors.Is(err, ErrNotExist):
		return nil, true, nil
	case errors.Is(err, ErrChanged): // at this very moment
		return taken, false, nil
	case errors.Is(err, ErrDamaged):
	case err != nil:
		return nil, false, err
	case json.Unmarshal(data, &r) == nil:
		taken.Owner = r.Owner
	}
	return taken, r.Released || info.Age >= claimStale, nil
}

// show stores the claim anew, as a sign of life.
func (c *Claim) show(ctx context.Context, released, first bool) error {
	data, err := json.Marshal(claimRecord{c.owner, released, rand.Text()})
	if err != nil {
		panic(err) // of texts
	}
	return c.store.Put(ctx, claimKey(c.folder, c.number), bytes.NewReader(append(data, '\n')), PutOptions{New: first})
}

// live shows life until ctx ends or the claim is lost. That the store does not answer
// for a while is no reason to stop working: Held will tell.
func (c *Claim) live(ctx context.Context, every time.Duration) {
	asking, done := Linger(ctx)
	defer done()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		err := c.Held(asking)
		if err == nil {
			err = c.show(asking, false, false)
		}
		if errors.Is(err, ErrClaimLost) {
			c.lose(err)
			return
		}
	}
}

// Linger is a context for requests that a cancel of ctx should not cut off at once: a
// server may store what a client that has hung up had sent, after what the client does
// next. They get some seconds to end. The caller calls done after them.
func Linger(ctx context.Context) (lingering context.Context, done context.CancelFunc) {
	lingering, hangUp := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		select {
		case <-lingering.Done():
		case <-time.After(abortTimeout):
			hangUp()
		}
	})
	return lingering, func() {
		stop()
		hangUp()
	}
}

// Context is that of the work: it ends with the context of Take, and with
// ErrClaimLost as its cause when another has taken over.
func (c *Claim) Context() context.Context { return c.ctx }

// Held asks the store whether the claim is still held: ErrClaimLost if not.
func (c *Claim) Held(ctx context.Context) error {
	last, err := lastClaim(ctx, c.store, c.folder)
	if err == nil && last != c.number {
		err = fmt.Errorf("claim %s: %w", c.store.URL(claimKey(c.folder, c.number)), ErrClaimLost)
	}
	return err
}

// Stop ends the signs of life and Context; the claim stays. It may be called again.
func (c *Claim) Stop() {
	c.halt()
	c.beats.Wait()
	c.lose(context.Canceled)
}

// Release stops and gives the claim back, so that others need not wait until it is
// stale. It does nothing to a claim that is lost.
func (c *Claim) Release(ctx context.Context) error {
	c.Stop()
	err := c.Held(ctx)
	if errors.Is(err, ErrClaimLost) {
		return nil
	}
	if err == nil {
		err = c.show(ctx, true, false)
	}
	return err
}

// Remove stops and removes the claim, after the work: there is nothing left to claim.
func (c *Claim) Remove(ctx context.Context) error {
	c.Stop() // a sign of life after this would bring the claim back
	list, err := c.store.List(ctx, c.folder)
	for _, i := range list {
		err = errors.Join(err, c.store.Delete(ctx, i.Key))
	}
	return err
}
