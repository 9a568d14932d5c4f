package objectstore_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"glimpse/checkpoints/objectstore"
	"glimpse/checkpoints/objectstore/storetest"
)

// big is an object of eight parts and five ranges, 40 MB.
var big = storetest.Content(40, 40_000_000)

const bigParts = 8

// medium takes three parts, where the number does not matter.
var medium = big[:12_000_000]

// smaller divides the sizes of objects, parts and ranges, which the race detector has nothing
// to learn from.
func smaller(by int64) {
	storetest.PartBytes /= by
	objectstore.DivideChunks(by)
	big, medium = big[:int64(len(big))/by], medium[:int64(len(medium))/by]
	adapterRows /= int(by)
}

func TestMain(m *testing.M) {
	flag.Parse()
	if testing.Short() && !storetest.HasGateway() {
		smaller(16)
	}
	os.Exit(m.Run())
}

// TestMultipart: an object of eight parts goes in parts, each sent once, and comes back.
func TestMultipart(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Server) {
		var told atomic.Int64
		put(t, open(t, s), "big", big, objectstore.PutOptions{New: true, Progress: func(n int64) { told.Add(n) }})
		if n := s.Count("PUT big?part="); n != bigParts {
			t.Errorf("%d parts sent, want %d", n, bigParts)
		}
		if told.Load() != int64(len(big)) {
			t.Errorf("progress told of %d bytes, want %d", told.Load(), len(big))
		}
		holds(t, open(t, s), "big", big)
		if n := uploads(t, s, "big"); n != 0 {
			t.Errorf("%d unfinished uploads are left", n)
		}
	})
}

// TestCutParts: connections that break in the middle of parts cost those parts
// alone.
func TestCutParts(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Server) {
		cut := map[string]bool{"PUT big?part=2": true, "PUT big?part=5": true}
		s.Disturb(func(r *http.Request) storetest.Fault {
			if cut[storetest.RequestName(r)] {
				delete(cut, storetest.RequestName(r))
				return storetest.CutRequest
			}
			return storetest.Pass
		})
		put(t, open(t, s), "big", big, objectstore.PutOptions{New: true})
		if n := s.Count("PUT big?part="); n != bigParts+2 {
			t.Errorf("%d parts sent, want %d and 2 of them again", n, bigParts)
		}
		holds(t, open(t, s), "big", big)
		if n := uploads(t, s, "big"); n != 0 {
			t.Errorf("%d unfinished uploads are left", n)
		}
	})
}

// TestResume: after the network was lost for good in the middle of an upload, the
// next process sends only the parts that are missing.
func TestResume(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Server) {
		arrived := 0
		s.Disturb(func(r *http.Request) storetest.Fault {
			if r.Method == http.MethodPut && arrived < 3 {
				arrived++
				return storetest.Pass
			}
			if arrived == 3 {
				return storetest.Down
			}
			return storetest.Pass
		})
		err := open(t, s).Put(t.Context(), "big", bytes.NewReader(big), objectstore.PutOptions{New: true})
		if err == nil || !strings.Contains(err.Error(), "of 8 parts arrived and are kept") {
			t.Fatalf("error %v, want it to say that parts are kept", err)
		}
		s.Disturb(nil)
		if _, err := open(t, s).Stat(t.Context(), "big"); !errors.Is(err, objectstore.ErrNotExist) {
			t.Fatalf("half an object is there (%v)", err)
		}
		if n := uploads(t, s, "big"); n != 1 {
			t.Fatalf("%d unfinished uploads, want the one to go on with", n)
		}
		s.Disturb(nil)
		put(t, open(t, s), "big", big, objectstore.PutOptions{New: true})
		if n := s.Count("PUT big?part="); n != bigParts-3 {
			t.Errorf("%d parts sent after the resume, want %d", n, bigParts-3)
		}
		if n := s.Count("POST big?uploads"); n != 0 {
			t.Errorf("%d new uploads begun, want none", n)
		}
		holds(t, open(t, s), "big", big)
		if n := uploads(t, s, "big"); n != 0 {
			t.Errorf("%d unfinished uploads are left", n)
		}
	})
}

// TestResumeOfOtherContent: an upload that another content began is not taken up, or
// not believed.
func TestResumeOfOtherContent(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Server) {
		for name, other := range map[string][]byte{
			"other from the start": append([]byte{medium[0] ^ 1}, medium[1:]...),
			"other at the end":     append(medium[:len(medium)-1:len(medium)-1], medium[len(medium)-1]^1),
		} {
			for _, fresh := range []bool{true, false} {
				key := fmt.Sprint(strings.ReplaceAll(name, " ", "-"), fresh)
				s.Disturb(func(r *http.Request) storetest.Fault {
					if r.Method == http.MethodPut && !strings.HasSuffix(storetest.RequestName(r), "?part=1") {
						return storetest.Down
					}
					return storetest.Pass
				})
				if err := open(t, s).Put(t.Context(), key, bytes.NewReader(other), objectstore.PutOptions{New: fresh}); err == nil {
					t.Fatal("an upload without a network succeeded")
				}
				if n := uploads(t, s, key); n != 1 {
					t.Fatalf("%d unfinished uploads, want 1", n)
				}
				s.Disturb(nil)
				put(t, open(t, s), key, medium, objectstore.PutOptions{New: fresh})
				holds(t, open(t, s), key, medium)
				if n := uploads(t, s, key); n > 0 && fresh {
					t.Errorf("%s: %d unfinished uploads are left", name, n)
				}
			}
		}
	})
}

// TestCancelEndsUpload: a user who stops leaves nothing at the server.
func TestCancelEndsUpload(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Server) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		s.Disturb(func(r *http.Request) storetest.Fault {
			if storetest.RequestName(r) == "PUT medium?part=3" {
				cancel()
			}
			return storetest.Pass
		})
		if err := open(t, s).Put(ctx, "medium", bytes.NewReader(medium), objectstore.PutOptions{}); !errors.Is(err, context.Canceled) {
			t.Fatalf("error %v, want context.Canceled", err)
		}
		s.Disturb(nil)
		if n := uploads(t, s, "medium"); n != 0 {
			t.Errorf("%d unfinished uploads are left", n)
		}
		if _, err := open(t, s).Stat(t.Context(), "medium"); !errors.Is(err, objectstore.ErrNotExist) {
			t.Errorf("an object is there (%v)", err)
		}
	})
}

// TestSlowDown: 503, SlowDown and 500 are retried with growing pauses.
func TestSlowDown(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Server) {
		settings := objectstore.ForTests(objectstore.Settings{Endpoint: s.URL}, storetest.PartBytes, 20*time.Millisecond, 10)
		store, _, err := objectstore.Open(t.Context(), "s3://"+storetest.Bucket+"/x", settings)
		if err != nil {
			t.Fatal(err)
		}
		for name, f := range map[string]storetest.Fault{"slow": storetest.SlowDown, "broken": storetest.Broken} {
			s.Disturb(storetest.First(4, "PUT "+name, f))
			put(t, store, name, storetest.Content(3, 10_000), objectstore.PutOptions{New: true})
			tries := s.Requests("PUT " + name)
			if len(tries) != 5 {
				t.Fatalf("%s: %d requests, want 5", name, len(tries))
			}
			// Pauses are between half and all of 20, 40, 80 and 160 ms, or twice that.
			early, late := tries[1].Time.Sub(tries[0].Time), tries[4].Time.Sub(tries[3].Time)
			if early < 10*time.Millisecond || late < 80*time.Millisecond {
				t.Errorf("%s: pauses of %v at first and %v at last, want a growing back-off", name, early, late)
			}
			s.Disturb(storetest.First(3, "GET "+name, f))
			holds(t, store, name, storetest.Content(3, 10_000))
			if n := s.Count("GET " + name); n != 4 {
				t.Errorf("%s: %d requests to read, want 4", name, n)
			}
		}
		s.Disturb(func(*http.Request) storetest.Fault { return storetest.SlowDown })
		err = open(t, s).Put(t.Context(), "never", bytes.NewReader(storetest.Content(3, 10)), objectstore.PutOptions{})
		if err == nil || !strings.Contains(err.Error(), "503") || !strings.Contains(err.Error(), "s3://test/never") {
			t.Errorf("a server that is always busy: error %v", err)
		}
	})
}

// TestLostAnswer: an object whose storing succeeded, but whose answer was lost, is
// stored, and not somebody else's.
func TestLostAnswer(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Server) {
		s.Disturb(storetest.First(1, "PUT small", storetest.LoseAnswer))
		put(t, open(t, s), "small", storetest.Content(1, 1000), objectstore.PutOptions{New: true})
		holds(t, open(t, s), "small", storetest.Content(1, 1000))
		s.Disturb(storetest.First(1, "POST medium?upload", storetest.LoseAnswer)) // of the creation and of the completion
		put(t, open(t, s), "medium", medium, objectstore.PutOptions{New: true})
		holds(t, open(t, s), "medium", medium)
		if n := uploads(t, s, "medium"); n != 0 {
			t.Errorf("%d unfinished uploads are left", n)
		}
	})
}

// TestRefused: errors of the user say what is wrong, at once.
func TestRefused(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Server) {
		store, _, err := objectstore.Open(t.Context(), "s3://no-such-bucket/x", settings(s))
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
		if took := time.Since(start); took > 20*time.Second {
			t.Errorf("errors that no retry can mend took %v", took)
		}
		if !s.Real { // only a real server looks at signatures
			return
		}
		t.Setenv("AWS_SECRET_ACCESS_KEY", "wrong")
		if err := open(t, s).Put(t.Context(), "x", bytes.NewReader(big[:10]), objectstore.PutOptions{}); !errors.Is(err, objectstore.ErrDenied) || !strings.Contains(err.Error(), "AWS_SECRET_ACCESS_KEY") {
			t.Errorf("wrong secret: error %v", err)
		}
		t.Setenv("AWS_ACCESS_KEY_ID", "nobody")
		if err := open(t, s).Put(t.Context(), "x", bytes.NewReader(big[:10]), objectstore.PutOptions{New: true}); err == nil || !strings.Contains(err.Error(), "access key") {
			t.Errorf("wrong key: error %v", err)
		}
	})
}

// TestAltered: an object that was changed behind the server's back is not handed
// out, whether it was sent in one piece or in parts.
func TestAltered(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Server) {
		for key, data := range map[string][]byte{"small": storetest.Content(1, 1000), "medium": medium} {
			put(t, open(t, s), key, data, objectstore.PutOptions{})
			s.Alter(t, key, len(data)/2)
			_, err := objectstore.Get(t.Context(), open(t, s), key, int64(len(data)))
			if !errors.Is(err, objectstore.ErrDamaged) || !strings.Contains(err.Error(), "s3://test/"+key) {
				t.Errorf("%s: error %v, want ErrDamaged", key, err)
			}
		}
	})
}

// TestReadsGoOn: a connection that breaks in the middle of an answer costs what had
// not arrived.
func TestReadsGoOn(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Server) {
		data := storetest.Content(5, 1_000_000)
		put(t, open(t, s), "x", data, objectstore.PutOptions{})
		s.Disturb(storetest.First(3, "GET x", storetest.CutAnswer))
		holds(t, open(t, s), "x", data)
		ranges := ""
		for _, r := range s.Requests("GET x") {
			ranges += r.Span + " "
		}
		if want := "bytes=0-999999 bytes=500000-999999 bytes=750000-999999 bytes=875000-999999 "; ranges != want {
			t.Errorf("ranges %q, want %q", ranges, want)
		}
	})
}

// TestReplacedWhileRead: one read never mixes two versions.
func TestReplacedWhileRead(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Server) {
		put(t, open(t, s), "x", storetest.Content(1, 1000), objectstore.PutOptions{})
		o, err := open(t, s).Open(t.Context(), "x")
		if err != nil {
			t.Fatal(err)
		}
		defer o.Close()
		p := make([]byte, 10)
		if _, err := o.ReadAt(p, 0); err != nil {
			t.Fatal(err)
		}
		put(t, open(t, s), "x", storetest.Content(2, 1000), objectstore.PutOptions{})
		if _, err := o.ReadAt(p, 10); !errors.Is(err, objectstore.ErrChanged) {
			t.Errorf("error %v, want ErrChanged", err)
		}
	})
}

// TestAnswersOfOtherRanges: a server that does not answer what was asked for is an
// error, not other bytes; where it does so once, the next attempt gets the right ones.
func TestAnswersOfOtherRanges(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Server) {
		put(t, open(t, s), "ranges", medium, objectstore.PutOptions{})
		for _, c := range []struct {
			name  string
			fault storetest.Fault
			want  string
		}{
			{"ignored", storetest.IgnoreRange, "answered with the whole object"},
			{"shifted", storetest.WrongRange, "does not do what Range asks"},
			{"another version", storetest.OtherETag, objectstore.ErrChanged.Error()},
			{"another size", storetest.OtherSize, objectstore.ErrChanged.Error()},
		} {
			requests := c.fault == storetest.IgnoreRange || c.fault == storetest.WrongRange
			if s.Real && requests {
				continue // it sees by the signature that the request was changed on its way
			}
			o, err := open(t, s).Open(t.Context(), "ranges")
			if err != nil {
				t.Fatal(err)
			}
			got := make([]byte, 1000)
			s.Disturb(storetest.First(1_000, "GET ranges", c.fault))
			if _, err := o.ReadAt(got, 5_000); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: error %v, want one that says %q", c.name, err, c.want)
			}
			if requests {
				s.Disturb(storetest.First(1, "GET ranges", c.fault))
				if _, err := o.ReadAt(got, 5_000); err != nil || !bytes.Equal(got, medium[5_000:6_000]) {
					t.Errorf("%s once: wrong bytes, or error %v", c.name, err)
				}
			}
			s.Disturb(nil)
		}
		if s.Real {
			return
		}
		// The whole object begins with its first range.
		o, err := open(t, s).Open(t.Context(), "ranges")
		if err != nil {
			t.Fatal(err)
		}
		got := make([]byte, 1000)
		s.Disturb(storetest.First(1_000, "GET ranges", storetest.IgnoreRange))
		if _, err := o.ReadAt(got, 0); err != nil || !bytes.Equal(got, medium[:1000]) {
			t.Errorf("first range of a whole answer: wrong bytes, or error %v", err)
		}
	})
}

// TestTransientAnswers: a list answer that is cut or malformed, and an object refused
// because it was damaged on its way, are asked for again.
func TestTransientAnswers(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Server) {
		put(t, open(t, s), "list/a", medium[:100], objectstore.PutOptions{})
		for name, f := range map[string]storetest.Fault{"cut": storetest.CutAnswer, "malformed": storetest.Malformed} {
			s.Disturb(storetest.First(2, "GET ", f))
			if list, err := open(t, s).List(t.Context(), "list"); err != nil || len(list) != 1 {
				t.Errorf("list, %s twice: %d objects, error %v", name, len(list), err)
			}
		}
		s.Disturb(storetest.First(2, "PUT ", storetest.BadDigest))
		put(t, open(t, s), "refused", medium[:100], objectstore.PutOptions{})
		s.Disturb(storetest.First(1, "PUT ", storetest.BadDigest))
		put(t, open(t, s), "refused", big, objectstore.PutOptions{}) // each of its parts once
		s.Disturb(nil)
		holds(t, open(t, s), "refused", big)
	})
}

// TestSilentServer: one that takes requests and answers none is given up after two of
// them, and a person is told before.
func TestSilentServer(t *testing.T) {
	quiet := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body) // so that the server sees the client leave
		<-r.Context().Done()
	}))
	defer quiet.Close()
	t.Setenv("AWS_ACCESS_KEY_ID", "k")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "s")
	var told atomic.Int64
	settings := objectstore.ForTests(objectstore.Settings{Endpoint: quiet.URL}, storetest.PartBytes, time.Millisecond, 10)
	settings = objectstore.Impatient(settings, 300*time.Millisecond, func(text string) {
		if !strings.Contains(text, "waiting for an answer of 127.0.0.1") {
			t.Errorf("told %q", text)
		}
		told.Add(1)
	})
	store, _, err := objectstore.Open(t.Context(), "s3://bucket/x", settings)
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	if _, err := store.List(t.Context(), "x"); err == nil || !strings.Contains(err.Error(), "the server does not answer") {
		t.Errorf("error %v", err)
	}
	if took := time.Since(begin); took < 500*time.Millisecond || took > 10*time.Second {
		t.Errorf("given up after %v, want after 2 waits of 0.3 s", took)
	}
	if told.Load() != 2 {
		t.Errorf("told %d times, want at both requests", told.Load())
	}
}

// TestCertificateErrorIsFinal: it is not tried ten times.
func TestCertificateErrorIsFinal(t *testing.T) {
	var connections atomic.Int64
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	server.StartTLS()
	defer server.Close()
	t.Setenv("AWS_ACCESS_KEY_ID", "k")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "s")
	store, _, err := objectstore.Open(t.Context(), "s3://bucket/x", objectstore.ForTests(objectstore.Settings{Endpoint: server.URL}, storetest.PartBytes, time.Millisecond, 10))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.List(t.Context(), "x"); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("error %v", err)
	}
	if n := connections.Load(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
}
