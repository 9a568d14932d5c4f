package objectstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"glimpse/checkpoints/objectstore"
)

// big is an object of 40 MB: eight parts of the least size that S3 allows.
var big = content(40, 40_000_000)

const bigParts = 8

// medium takes three parts, where the number does not matter.
var medium = big[:12_000_000]

// TestMultipart: an object of 40 MB goes in parts, each sent once, and comes back.
func TestMultipart(t *testing.T) {
	eachServer(t, func(t *testing.T, s *server) {
		var told atomic.Int64
		put(t, s.store(t), "big", big, objectstore.PutOptions{New: true, Progress: func(n int64) { told.Add(n) }})
		if n := s.count("PUT big?part="); n != bigParts {
			t.Errorf("%d parts sent, want %d", n, bigParts)
		}
		if told.Load() != int64(len(big)) {
			t.Errorf("progress told of %d bytes, want %d", told.Load(), len(big))
		}
		holds(t, s.store(t), "big", big)
		if n := s.uploads(t, "big"); n != 0 {
			t.Errorf("%d unfinished uploads are left", n)
		}
	})
}

// TestCutParts: connections that break in the middle of parts cost those parts
// alone.
func TestCutParts(t *testing.T) {
	eachServer(t, func(t *testing.T, s *server) {
		cut := map[string]bool{"PUT big?part=2": true, "PUT big?part=5": true}
		s.disturb(func(r *http.Request) fault {
			if cut[requestName(r)] {
				delete(cut, requestName(r))
				return cutRequest
			}
			return pass
		})
		put(t, s.store(t), "big", big, objectstore.PutOptions{New: true})
		if n := s.count("PUT big?part="); n != bigParts+2 {
			t.Errorf("%d parts sent, want %d and 2 of them again", n, bigParts)
		}
		holds(t, s.store(t), "big", big)
		if n := s.uploads(t, "big"); n != 0 {
			t.Errorf("%d unfinished uploads are left", n)
		}
	})
}

// TestResume: after the network was lost for good in the middle of an upload, the
// next process sends only the parts that are missing.
func TestResume(t *testing.T) {
	eachServer(t, func(t *testing.T, s *server) {
		arrived := 0
		s.disturb(func(r *http.Request) fault {
			if r.Method == http.MethodPut && arrived < 3 {
				arrived++
				return pass
			}
			if arrived == 3 {
				return down
			}
			return pass
		})
		err := s.store(t).Put(t.Context(), "big", bytes.NewReader(big), objectstore.PutOptions{New: true})
		if err == nil || !strings.Contains(err.Error(), "of 8 parts arrived and are kept") {
			t.Fatalf("error %v, want it to say that parts are kept", err)
		}
		s.disturb(nil)
		if _, err := s.store(t).Stat(t.Context(), "big"); !errors.Is(err, objectstore.ErrNotExist) {
			t.Fatalf("half an object is there (%v)", err)
		}
		if n := s.uploads(t, "big"); n != 1 {
			t.Fatalf("%d unfinished uploads, want the one to go on with", n)
		}
		s.disturb(nil)
		put(t, s.store(t), "big", big, objectstore.PutOptions{New: true})
		if n := s.count("PUT big?part="); n != bigParts-3 {
			t.Errorf("%d parts sent after the resume, want %d", n, bigParts-3)
		}
		if n := s.count("POST big?uploads"); n != 0 {
			t.Errorf("%d new uploads begun, want none", n)
		}
		holds(t, s.store(t), "big", big)
		if n := s.uploads(t, "big"); n != 0 {
			t.Errorf("%d unfinished uploads are left", n)
		}
	})
}

// TestResumeOfOtherContent: an upload that another content began is not taken up, or
// not believed.
func TestResumeOfOtherContent(t *testing.T) {
	eachServer(t, func(t *testing.T, s *server) {
		for name, other := range map[string][]byte{
			"other from the start": append([]byte{medium[0] ^ 1}, medium[1:]...),
			"other at the end":     append(medium[:len(medium)-1:len(medium)-1], medium[len(medium)-1]^1),
		} {
			for _, fresh := range []bool{true, false} {
				key := fmt.Sprint(strings.ReplaceAll(name, " ", "-"), fresh)
				s.disturb(func(r *http.Request) fault {
					if r.Method == http.MethodPut && !strings.HasSuffix(requestName(r), "?part=1") {
						return down
					}
					return pass
				})
				if err := s.store(t).Put(t.Context(), key, bytes.NewReader(other), objectstore.PutOptions{New: fresh}); err == nil {
					t.Fatal("an upload without a network succeeded")
				}
				if n := s.uploads(t, key); n != 1 {
					t.Fatalf("%d unfinished uploads, want 1", n)
				}
				s.disturb(nil)
				put(t, s.store(t), key, medium, objectstore.PutOptions{New: fresh})
				holds(t, s.store(t), key, medium)
				if n := s.uploads(t, key); n > 0 && fresh {
					t.Errorf("%s: %d unfinished uploads are left", name, n)
				}
			}
		}
	})
}

// TestCancelEndsUpload: a user who stops leaves nothing at the server.
func TestCancelEndsUpload(t *testing.T) {
	eachServer(t, func(t *testing.T, s *server) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		s.disturb(func(r *http.Request) fault {
			if requestName(r) == "PUT medium?part=3" {
				cancel()
			}
			return pass
		})
		if err := s.store(t).Put(ctx, "medium", bytes.NewReader(medium), objectstore.PutOptions{}); !errors.Is(err, context.Canceled) {
			t.Fatalf("error %v, want context.Canceled", err)
		}
		s.disturb(nil)
		if n := s.uploads(t, "medium"); n != 0 {
			t.Errorf("%d unfinished uploads are left", n)
		}
		if _, err := s.store(t).Stat(t.Context(), "medium"); !errors.Is(err, objectstore.ErrNotExist) {
			t.Errorf("an object is there (%v)", err)
		}
	})
}

// TestSlowDown: 503, SlowDown and 500 are retried with growing pauses.
func TestSlowDown(t *testing.T) {
	eachServer(t, func(t *testing.T, s *server) {
		settings := objectstore.ForTests(objectstore.Settings{Endpoint: s.url}, 5<<20, 20*time.Millisecond, 10)
		store, _, err := objectstore.Open(t.Context(), "s3://"+testBucket+"/x", settings)
		if err != nil {
			t.Fatal(err)
		}
		for name, f := range map[string]fault{"slow": slowDown, "broken": broken} {
			s.disturb(first(4, "PUT "+name, f))
			put(t, store, name, content(3, 10_000), objectstore.PutOptions{New: true})
			tries := s.requests("PUT " + name)
			if len(tries) != 5 {
				t.Fatalf("%s: %d requests, want 5", name, len(tries))
			}
			// Pauses are between half and all of 20, 40, 80 and 160 ms, or twice that.
			early, late := tries[1].time.Sub(tries[0].time), tries[4].time.Sub(tries[3].time)
			if early < 10*time.Millisecond || late < 80*time.Millisecond {
				t.Errorf("%s: pauses of %v at first and %v at last, want a growing back-off", name, early, late)
			}
			s.disturb(first(3, "GET "+name, f))
			holds(t, store, name, content(3, 10_000))
			if n := s.count("GET " + name); n != 4 {
				t.Errorf("%s: %d requests to read, want 4", name, n)
			}
		}
		s.disturb(func(*http.Request) fault { return slowDown })
		err = s.store(t).Put(t.Context(), "never", bytes.NewReader(content(3, 10)), objectstore.PutOptions{})
		if err == nil || !strings.Contains(err.Error(), "503") || !strings.Contains(err.Error(), "s3://test/never") {
			t.Errorf("a server that is always busy: error %v", err)
		}
	})
}

// TestLostAnswer: an object whose storing succeeded, but whose answer was lost, is
// stored, and not somebody else's.
func TestLostAnswer(t *testing.T) {
	eachServer(t, func(t *testing.T, s *server) {
		s.disturb(first(1, "PUT small", loseAnswer))
		put(t, s.store(t), "small", content(1, 1000), objectstore.PutOptions{New: true})
		holds(t, s.store(t), "small", content(1, 1000))
		s.disturb(first(1, "POST medium?upload", loseAnswer)) // of the creation and of the completion
		put(t, s.store(t), "medium", medium, objectstore.PutOptions{New: true})
		holds(t, s.store(t), "medium", medium)
		if n := s.uploads(t, "medium"); n != 0 {
			t.Errorf("%d unfinished uploads are left", n)
		}
	})
}

// TestRefused: errors of the user say what is wrong, at once.
func TestRefused(t *testing.T) {
	eachServer(t, func(t *testing.T, s *server) {
		store, _, err := objectstore.Open(t.Context(), "s3://no-such-bucket/x", s.settings())
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		_, statErr := store.Stat(t.Context(), "x")
		_, listErr := store.List(t.Context(), "x")
		for op, err := range map[string]error{
			"put":       store.Put(t.Context(), "x", bytes.NewReader(big[:10]), objectstore.PutOptions{}),
			"new":       store.Put(t.Context(), "x", bytes.NewReader(big[:10]), objectstore.PutOptions{New: true}),
			"multipart": store.Put(t.Context(), "x", bytes.NewReader(big), objectstore.PutOptions{}),
			"stat":      statErr,
			"list":      listErr,
		} {
			if err == nil || !strings.Contains(err.Error(), `bucket "no-such-bucket" does not exist`) {
				t.Errorf("%s in a missing bucket: error %v", op, err)
			}
		}
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("errors that no retry can mend took %v", took)
		}
		if !s.real { // only a real server looks at signatures
			return
		}
		t.Setenv("AWS_SECRET_ACCESS_KEY", "wrong")
		if err := s.store(t).Put(t.Context(), "x", bytes.NewReader(big[:10]), objectstore.PutOptions{}); !errors.Is(err, objectstore.ErrDenied) || !strings.Contains(err.Error(), "AWS_SECRET_ACCESS_KEY") {
			t.Errorf("wrong secret: error %v", err)
		}
		t.Setenv("AWS_ACCESS_KEY_ID", "nobody")
		if err := s.store(t).Put(t.Context(), "x", bytes.NewReader(big[:10]), objectstore.PutOptions{New: true}); err == nil || !strings.Contains(err.Error(), "access key") {
			t.Errorf("wrong key: error %v", err)
		}
	})
}

// TestAltered: an object that was changed behind the server's back is not handed
// out, whether it was sent in one piece or in parts.
func TestAltered(t *testing.T) {
	eachServer(t, func(t *testing.T, s *server) {
		for key, data := range map[string][]byte{"small": content(1, 1000), "medium": medium} {
			put(t, s.store(t), key, data, objectstore.PutOptions{})
			s.alter(t, key, len(data)/2)
			_, err := objectstore.Get(t.Context(), s.store(t), key, int64(len(data)))
			if !errors.Is(err, objectstore.ErrDamaged) || !strings.Contains(err.Error(), "s3://test/"+key) {
				t.Errorf("%s: error %v, want ErrDamaged", key, err)
			}
		}
	})
}

// TestReadsGoOn: a connection that breaks in the middle of an answer costs what had
// not arrived.
func TestReadsGoOn(t *testing.T) {
	eachServer(t, func(t *testing.T, s *server) {
		data := content(5, 1_000_000)
		put(t, s.store(t), "x", data, objectstore.PutOptions{})
		s.disturb(first(3, "GET x", cutAnswer))
		holds(t, s.store(t), "x", data)
		ranges := ""
		for _, r := range s.requests("GET x") {
			ranges += r.span + " "
		}
		if want := "bytes=0-999999 bytes=500000-999999 bytes=750000-999999 bytes=875000-999999 "; ranges != want {
			t.Errorf("ranges %q, want %q", ranges, want)
		}
	})
}

// TestReplacedWhileRead: one read never mixes two versions.
func TestReplacedWhileRead(t *testing.T) {
	eachServer(t, func(t *testing.T, s *server) {
		put(t, s.store(t), "x", content(1, 1000), objectstore.PutOptions{})
		o, err := s.store(t).Open(t.Context(), "x")
		if err != nil {
			t.Fatal(err)
		}
		defer o.Close()
		p := make([]byte, 10)
		if _, err := o.ReadAt(p, 0); err != nil {
			t.Fatal(err)
		}
		put(t, s.store(t), "x", content(2, 1000), objectstore.PutOptions{})
		if _, err := o.ReadAt(p, 10); !errors.Is(err, objectstore.ErrChanged) {
			t.Errorf("error %v, want ErrChanged", err)
		}
	})
}
