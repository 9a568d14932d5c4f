package objectstore_test

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"sync/atomic"
	"testing"

	"glimpse/checkpoints/objectstore"
	"glimpse/checkpoints/objectstore/storetest"
)

// cutter serves what a server answers, and once only the first bytes of the answer to the
// requests that which picks.
type cutter struct {
	target string
	which  string // name of the requests
	at     int    // bytes that arrive; -1 cuts nothing
	length bool   // the answer says how long it should be; else its end is that of the connection
	cuts   atomic.Int64
	whole  atomic.Int64 // bytes of the answer
}

func (c *cutter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	to, _ := url.Parse(c.target)
	to.Path, to.RawQuery = r.URL.Path, r.URL.RawQuery
	out, _ := http.NewRequestWithContext(r.Context(), r.Method, to.String(), r.Body)
	out.Header, out.ContentLength = r.Header.Clone(), r.ContentLength
	answer, err := http.DefaultTransport.RoundTrip(out)
	if err != nil {
		panic(err)
	}
	defer answer.Body.Close()
	var body bytes.Buffer
	body.ReadFrom(answer.Body)
	data := body.Bytes()
	for k, v := range answer.Header {
		w.Header()[k] = v
	}
	cut := storetest.RequestName(r) == c.which && answer.StatusCode < 300
	if cut {
		c.whole.Store(int64(len(data)))
	}
	if !cut || c.at < 0 || c.cuts.Add(1) > 1 {
		w.WriteHeader(answer.StatusCode)
		if r.Method != http.MethodHead {
			w.Write(data)
		}
		return
	}
	conn, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	h := w.Header()
	h.Set("Content-Length", strconv.Itoa(len(data)))
	if !c.length {
		h.Del("Content-Length")
	}
	h.Set("Connection", "close")
	fmt.Fprintf(conn, "HTTP/1.1 %d OK\r\n", answer.StatusCode)
	h.Write(conn)
	fmt.Fprint(conn, "\r\n")
	conn.Write(data[:min(c.at, len(data))])
}

// TestCutAnswers: wherever an answer is cut, it is asked for again. Parts are small: their bytes are not what is cut.
func TestCutAnswers(t *testing.T) {
	defer func(bytes int64) { storetest.PartBytes = bytes }(storetest.PartBytes)
	storetest.PartBytes = 1000
	threeParts := medium[:2500]
	storetest.Each(t, func(t *testing.T, s *storetest.Server) {
		if s.Real {
			t.Skip("the cutter changes the host, which a real server's signatures hold for")
		}
		put(t, open(t, s), "list/a", medium[:100], objectstore.PutOptions{})
		for _, c := range []struct {
			name, which string
			op          func(store objectstore.Store) error
		}{
			{"list", "GET ", func(store objectstore.Store) error {
				list, err := store.List(t.Context(), "list")
				if err == nil && len(list) != 1 {
					err = fmt.Errorf("%d objects, want 1", len(list))
				}
				return err
			}},
			{"read", "GET list/a", func(store objectstore.Store) error {
				data, err := objectstore.Get(t.Context(), store, "list/a", 1000)
				if err == nil && !bytes.Equal(data, medium[:100]) {
					err = fmt.Errorf("got other bytes")
				}
				return err
			}},
			{"begin of parts", "POST new?uploads", func(store objectstore.Store) error {
				return store.Put(t.Context(), "new", bytes.NewReader(threeParts), objectstore.PutOptions{})
			}},
			{"end of parts", "POST new?upload", func(store objectstore.Store) error {
				return store.Put(t.Context(), "new", bytes.NewReader(threeParts), objectstore.PutOptions{})
			}},
		} {
			for _, length := range []bool{true, false} {
				cut := &cutter{target: s.URL, which: c.which, at: -1, length: length}
				server := httptest.NewServer(cut)
				settings := settings(s)
				settings.Endpoint = server.URL
				store, _, err := objectstore.Open(t.Context(), "s3://"+storetest.Bucket+"/x", settings)
				if err != nil {
					t.Fatal(err)
				}
				if err := c.op(store); err != nil {
					t.Fatal(err)
				}
				for i, n := 0, int(cut.whole.Load()); i < n; i += max(1, n/20) {
					cut.at = i
					cut.cuts.Store(0)
					if err := c.op(store); err != nil {
						t.Errorf("%s, length told %v: cut after %d of %d bytes: %v", c.name, length, i, n, err)
					}
					if cut.cuts.Load() < 2 && c.which != "POST new?upload" { // of which a stat tells that it has worked
						t.Errorf("%s, length told %v: cut after %d of %d bytes: asked %d times", c.name, length, i, n, cut.cuts.Load())
					}
				}
				server.Close()
			}
		}
	})
}
