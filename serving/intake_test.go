package serving

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// sent is what a client sends of a body.
type sent struct {
	bytes    int           // in all
	stopsAt  int           // and goes on when go_ is closed, or ends at the deadline
	goOn     chan struct{} // nil: it does not stop
	deadline chan time.Time
}

func (s *sent) Close() error { return nil }

func (s *sent) Read(p []byte) (int, error) {
	if s.goOn != nil && s.stopsAt == 0 {
		stall := (<-chan time.Time)(nil)
		select {
		case at := <-s.deadline:
			stall = time.After(time.Until(at))
		default:
		}
		select {
		case <-s.goOn:
			s.goOn = nil
		case <-stall:
			return 0, os.ErrDeadlineExceeded
		}
	}
	n := min(len(p), s.bytes)
	if s.goOn != nil {
		n = min(n, s.stopsAt)
		s.stopsAt -= n
	}
	if s.bytes -= n; n == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	return n, nil
}

func (s *sent) setDeadline(at time.Time) error {
	select {
	case <-s.deadline:
	default:
	}
	s.deadline <- at
	return nil
}

func (in *intake) of(ctx context.Context, s *sent) *body {
	s.deadline = make(chan time.Time, 1)
	return &body{ReadCloser: s, in: in, ctx: ctx, length: int64(s.bytes), left: in.sending, deadline: s.setDeadline}
}

const mib = 1 << 20

func testIntake() *intake { return newIntake(&Config{MaxBody: mib, Memory: 1}, func() {}) }

// whole is an error unless nothing is held any more.
func (in *intake) whole(t *testing.T) {
	t.Helper()
	if in.free != bodiesLeast*mib || in.over != nil || !in.work.TryAcquire(mib) {
		t.Errorf("%d of %d bytes are free in the end, over %v", in.free, bodiesLeast*mib, in.over)
	}
}

// TestIntakeIsBoundedAndEnds: many more bodies than there is room for all end, and at no time more is held, or worked on,
// than the bounds say.
func TestIntakeIsBoundedAndEnds(t *testing.T) {
	for name, sizes := range map[string][]int{
		"large": {mib, mib - 1, mib}, "small": {10, 1000, smallBody}, "mixed": {mib, 10, smallBody + 1, mib / 2, mib / workedOn},
	} {
		t.Run(name, func(t *testing.T) {
			in := testIntake()
			var working, bytes, mostWorking, mostBytes atomic.Int64
			most := func(of *atomic.Int64, n int64) {
				for old := of.Load(); n > old && !of.CompareAndSwap(old, n); old = of.Load() {
				}
			}
			var all sync.WaitGroup
			for i := range 60 {
				all.Go(func() {
					n := sizes[i%len(sizes)]
					b := in.of(t.Context(), &sent{bytes: n})
					defer b.endBody()
					if raw, err := io.ReadAll(b); err != nil || len(raw) != n {
						t.Errorf("%d of %d bytes: %v", len(raw), n, err)
					}
					in.mu.Lock()
					if held := bodiesLeast*mib - in.free; held > (2*bodiesLeast+1)*mib {
						t.Errorf("bodies hold %d bytes", held)
					}
					in.mu.Unlock()
					most(&mostWorking, working.Add(1))
					most(&mostBytes, bytes.Add(int64(n)))
					time.Sleep(time.Millisecond)
					working.Add(-1)
					bytes.Add(-int64(n))
					worked(&http.Request{Body: b}, n/4)
				})
			}
			all.Wait()
			if w, n := mostWorking.Load(), mostBytes.Load(); w > workedOn || n > mib || w == 0 {
				t.Errorf("%d bodies of %d bytes were worked on at once", w, n)
			}
			in.whole(t)
		})
	}
}

// TestSlowBodiesHoldUpNoOthers: clients that stop in the middle of large bodies hold what they have sent. Small bodies do not
// wait for them, large ones no longer than a client may stop.
func TestSlowBodiesHoldUpNoOthers(t *testing.T) {
	in := testIntake()
	in.stall = 300 * time.Millisecond
	var slow sync.WaitGroup
	for range 12 {
		slow.Go(func() {
			b := in.of(t.Context(), &sent{bytes: mib, stopsAt: mib - 1, goOn: make(chan struct{})})
			defer b.endBody()
			var own *apiError
			if _, err := io.ReadAll(b); !errors.As(err, &own) || own.status != http.StatusRequestTimeout {
				t.Errorf("a body that stopped: error %v, want status 408", err)
			}
		})
	}
	time.Sleep(50 * time.Millisecond) // they have taken all
	start := time.Now()
	for _, n := range []int{100, smallBody} {
		b := in.of(t.Context(), &sent{bytes: n})
		if _, err := io.ReadAll(b); err != nil {
			t.Error(err)
		}
		b.endBody()
	}
	if took := time.Since(start); took > in.stall/2 {
		t.Errorf("small bodies took %v beside slow ones", took)
	}
	b := in.of(t.Context(), &sent{bytes: mib})
	if _, err := io.ReadAll(b); err != nil {
		t.Error(err)
	}
	b.endBody()
	if took := time.Since(start); took > 12*in.stall {
		t.Errorf("a large body took %v beside slow ones", took)
	}
	slow.Wait()
	in.whole(t)
}

// dripping is a body of which a byte comes now and then, never so late that it had stopped.
type dripping struct {
	every time.Duration
	until time.Time
}

func (d *dripping) Close() error { return nil }

func (d *dripping) Read(p []byte) (int, error) {
	if !d.until.IsZero() {
		if p = p[:1]; time.Until(d.until) < d.every {
			time.Sleep(time.Until(d.until))
			return 0, os.ErrDeadlineExceeded
		}
		time.Sleep(d.every)
	}
	return len(p), nil
}

// TestDrippingBodiesEnd: a client that sends a byte now and then holds what it has sent for as long as it may be waited for in all.
func TestDrippingBodiesEnd(t *testing.T) {
	in := testIntake()
	in.stall, in.sending = time.Second, 300*time.Millisecond
	d := &dripping{every: 20 * time.Millisecond}
	b := &body{ReadCloser: d, in: in, ctx: t.Context(), length: mib, left: in.sending, deadline: func(at time.Time) error { d.until = at; return nil }}
	start := time.Now()
	_, err := io.Copy(io.Discard, io.LimitReader(b, mib/8))
	var told *apiError
	if !errors.As(err, &told) || told.status != http.StatusRequestTimeout || time.Since(start) > 5*time.Second {
		t.Errorf("%v after %v, want 408 after some 300 ms", err, time.Since(start))
	}
	b.endBody()
	in.whole(t)
}

// TestManyValuesAreRefused: values of JSON take many times their bytes, however they are written. What lies in texts is none.
func TestManyValuesAreRefused(t *testing.T) {
	in := testIntake()
	for name, c := range map[string]struct {
		raw    string
		refuse bool
	}{
		"numbers": {"[" + strings.Repeat("1,", mib/bytesPerValue+2000) + "1]", true}, "numbers of tokens": {"[" + strings.Repeat("12345,", mib/6) + "1]", false},
		"empty lists": {"[" + strings.Repeat("[],", mib/bytesPerValue/8) + "[]]", true}, "objects in each other": {strings.Repeat(`{"":`, mib/bytesPerValue/8), true},
		"a text": {`"` + strings.Repeat("[,{", mib/4) + `"`, false}, "a text with quotes": {`"` + strings.Repeat(`\",`, mib/4) + `"`, false},
		"behind a text that ends in a backslash": {`["\\\\",` + strings.Repeat("1,", mib/bytesPerValue+2000) + "1]", true}, "nothing": {"", false},
	} {
		err := checkValues(&http.Request{Body: in.of(t.Context(), &sent{})}, []byte(c.raw))
		var own *apiError
		if refused := errors.As(err, &own) && own.status == http.StatusRequestEntityTooLarge; refused != c.refuse || err != nil != c.refuse {
			t.Errorf("%s: error %v, want one: %v", name, err, c.refuse)
		}
	}
}

// TestIntakeRefuses: who finds no room in time is told when to come again, whether the room is of bodies or of work; who is
// gone leaves nothing behind.
func TestIntakeRefuses(t *testing.T) {
	refused := 0
	in := newIntake(&Config{MaxBody: mib, Memory: 1}, func() { refused++ })
	in.patience = 20 * time.Millisecond
	first := in.of(t.Context(), &sent{bytes: mib})
	if _, err := io.ReadAll(first); err != nil {
		t.Fatal(err)
	}
	busy := func(name string, b *body) {
		t.Helper()
		var own *apiError
		if _, err := io.ReadAll(b); !errors.As(err, &own) || own.status != http.StatusServiceUnavailable || own.retryAfter < time.Second {
			t.Errorf("%s: error %v, want status 503 and when to come again", name, err)
		}
		b.endBody()
	}
	busy("no room to work", in.of(t.Context(), &sent{bytes: 10}))
	in.free = 0
	in.over = first
	busy("no room for bodies", in.of(t.Context(), &sent{bytes: mib}))
	if refused != 2 {
		t.Errorf("%d were counted, want 2", refused)
	}
	in.over, in.free, in.patience = nil, bodiesLeast*mib-first.held, time.Minute
	gone, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	b := in.of(gone, &sent{bytes: 10})
	if _, err := io.ReadAll(b); !errors.Is(err, context.Canceled) {
		t.Errorf("a client that is gone: error %v", err)
	}
	b.endBody()
	first.endBody()
	in.whole(t)
}
